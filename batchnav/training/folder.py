"""The folder of a training run: configuration, curves, weights, and the state to resume from.

    config.yaml            configuration; comments list later changes with their frames
    metrics.jsonl          one row per update (and per evaluation)
    report.html            page of learning curves, updated during training
    tensorboard/           the same rows, images and histograms for TensorBoard
    policy.safetensors     the weights, loadable with `batchnav.load_policy`
    resume.pt              the learner's complete state, in torch's format (`ResumeFile`)
    .lock                  lock of the process that uses the folder

Weights and resume state are written to temporary files that are then renamed, so a run that is killed at any moment
leaves complete files. `resume.pt` is written last, in the background. On resume, later rows of the curves are dropped
and computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from batchnav.config import load_config, shortened, to_dict
from batchnav.errors import CheckpointError, few
from batchnav.learning import OWN, Algorithm
from batchnav.report.charts import Rows, load_metrics
from batchnav.report.page import RunPage
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.files import check_writable, lock_folder, read_regular, read_text, remove_leftovers, replacing
from batchnav.training.curves import Curves, flat

log = logging.getLogger(__name__)

CONFIG_NAME = "config.yaml"
OTHERS = "others"
"""Key of the saved state: list of the parts OWN of ranks 1, 2 and so on."""
PAGE = "report.html"
_TASK = "env.task.name"
"""Setting that messages about a changed configuration name first."""
_CHANGE = "# from frame "
"""Prefix of the comments in `config.yaml` that list changes."""
_SEAL = b"sha256:"
"""Prefix of the last 71 bytes, the checksum. They follow torch's file; torch ignores them."""
_MOST_STATES, _MOST_MORE = 16, 2**26
"""A resume state may unpack to the states of so many processes, and to so many bytes more."""
_FASTEST = 1
"""Compression level of zlib. Higher levels take several times as long and save a few per cent."""
_SAMPLE, _WORTH = 2**16, 0.8
"""Bytes of a member that are compressed first; the whole is compressed where they shrink to this fraction. Weights and
their moments shrink by 8%, in 25 ns a byte."""


class RunFolder:
    """Opens or creates a run's folder and locks it against other processes.

        with RunFolder(out, run) as folder:
            state = folder.load()
            ...
            folder.begin(frames)

    Args:
        path: the folder.
        config: dataclass of the run's configuration.
        allow_changes: continue a run that had another configuration; `config.yaml` records the change.

    Raises:
        CheckpointError: another process uses the folder, the folder cannot be written, or it holds a run with another
            configuration. Nothing is overwritten then. A run without a save counts as no run.
    """

    def __init__(self, path: Path, config: Any, allow_changes: bool = False):
        self.path, self.config = path, config
        self.config_path, self.metrics_path = path / CONFIG_NAME, path / "metrics.jsonl"
        self.policy_path, self.resume_path = path / "policy.safetensors", path / "resume.pt"
        self.seconds_before = 0.0
        self._start = self._last_save = time.monotonic()
        self._resume_file = ResumeFile(self.resume_path)
        self._curves: Curves | None = None
        self._page: RunPage | None = None
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        """Functions that are called with every row."""
        check_writable(path, CheckpointError)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be created ({error.strerror or error})") from error
        self._lock = lock_folder(path, CheckpointError)
        try:
            for file in (self.config_path, self.metrics_path, self.policy_path, self.resume_path, path / PAGE):
                remove_leftovers(file)
            self.before: Any = None
            """The stored configuration, that of the updates so far; None for a new run."""
            self.changes = self._find_changes(allow_changes)
            """Settings that differ from the stored configuration, one text each."""
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def holds_run(self) -> bool:
        """True where the folder holds weights or resume state."""
        return self.resume_path.exists() or self.policy_path.exists()

    @property
    def holds_state(self) -> bool:
        """True where the folder holds resume state."""
        return self.resume_path.exists()

    def _find_changes(self, allowed: bool) -> list[str]:
        """`changes`, that of the task first. CheckpointError if not `allowed`."""
        if not self.holds_run:
            return []
        if not self.config_path.exists():
            if not allowed:
                raise CheckpointError(
                    f"{self.config_path}: no such file beside the weights of a run, expected its settings to compare; "
                    f"choose another --out, or continue with those of this command by --allow-changes"
                )
            return [f"settings unknown, {CONFIG_NAME} was missing"]
        self.before = load_config(self.config_path, type(self.config))
        found, expected = (flat(to_dict(c)) for c in (self.before, self.config))
        different = sorted((key for key in expected if found.get(key) != expected[key]), key=lambda key: key != _TASK)
        if different and not allowed:
            key = different[0]
            raise CheckpointError(
                f"{self.path}: holds a run with {key} = {shortened(found.get(key))}, expected "
                f"{shortened(expected[key])} as configured now; choose another --out, or continue with the change by "
                f"--resume or --allow-changes"
            )
        return [f"{key} = {expected[key]!r}, was {found.get(key)!r}" for key in different]

    def load(self, size: int | None = None) -> dict | None:
        """The learner's state to resume from; None for a new run. CheckpointError for a damaged file.

        `size`: bytes of the state of one process of this run, which bounds what is unpacked; None: no bound.
        """
        if not self.resume_path.exists():
            return None
        try:
            state = self._resume_file.load(None if size is None else _MOST_STATES * size + _MOST_MORE)
            self.seconds_before = float(state["seconds"])
            int(state["learner"]["frames"])
        except Exception as error:  # torch raises many kinds for a damaged file
            message = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"{self.resume_path}: found no readable resume state ({type(error).__name__}: {message}), expected "
                f"a file that training wrote; delete the file to train from the beginning"
            ) from error
        return state["learner"]

    def begin(
        self, frames: int, changes: Sequence[str] = (), metrics: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        """Write the configuration and open the curves. Rows after `frames` are dropped.

        Args:
            frames: number of frames done.
            changes: further changes to record in `config.yaml`, in addition to changed settings.
            metrics: range (low, high) of each metric that the page shows, by name.
        """
        self.changes += changes
        self._curves = Curves(self.path, frames, flat(to_dict(self.config)))
        self._write_config(frames)
        self._page = RunPage(self.path / PAGE, self.config, Rows(*load_metrics(self.metrics_path)), metrics or {})
        self._start = self._last_save = time.monotonic()

    def _write_config(self, frames: int) -> None:
        known = read_text(self.config_path, CheckpointError) if self.holds_run and self.config_path.exists() else ""
        history = [line for line in known.splitlines() if line.startswith(_CHANGE)]
        history += [f"{_CHANGE}{frames:,} on: {change}" for change in self.changes]
        text = yaml.safe_dump(to_dict(self.config), sort_keys=False)
        with replacing(self.config_path, CheckpointError) as part:
            part.write_text("".join(line + "\n" for line in history) + text, encoding="utf-8")

    @property
    def seconds(self) -> float:
        """Training time so far, seconds, including the time before a resume."""
        return self.seconds_before + time.monotonic() - self._start

    def log(self, row: dict[str, Any]) -> None:
        """Append a row to the curves; its "frames" is the step."""
        row = {**row, "seconds": round(self.seconds, 3)}
        curves, page = self._begun()
        curves.log(row)
        page.add(row)
        for listener in self.listeners:
            listener(row)

    def show(self, frames: int, images: Mapping[str, np.ndarray], numbers: Mapping[str, np.ndarray]) -> None:
        """Write images and histograms to TensorBoard (`Curves.show`)."""
        self._begun()[0].show(frames, images, numbers)

    def _begun(self) -> tuple[Curves, RunPage]:
        assert self._curves is not None and self._page is not None, "begin() opens the curves"
        return self._curves, self._page

    def save_due(self, every: float) -> bool:
        """True if `every` seconds have passed since the last save."""
        return time.monotonic() - self._last_save >= every

    def save(self, learner_state: dict) -> None:
        """Write the resume state atomically in the background, after its rows are on disk.

        Its tensors must not change meanwhile. `close` and the next `save` wait for the write and raise its
        CheckpointError. CheckpointError too where the curves were deleted or moved since `begin`.
        """
        self._begun()[0].sync()
        self._resume_file.save({"learner": learner_state, "seconds": self.seconds})
        self._last_save = time.monotonic()

    def close(self) -> None:
        """Complete the last save, close the curves, write the final page and release the lock."""
        with contextlib.ExitStack() as ends:  # in reverse order, each even after an error
            ends.callback(self._lock.close)
            if self._page is not None:
                ends.callback(self._page.write, running=False)
            if self._curves is not None:
                ends.callback(self._curves.close)
            ends.callback(self._resume_file.close)


class SharedFolder:
    """A `RunFolder` that all ranks of a run share. All ranks call the same methods in the same order.

    Args:
        ranks: the processes that train together.
        path: the folder.
        config: dataclass of the run's configuration.
        allow_changes: continue a run that had another configuration.

    Attributes:
        open: the `RunFolder` on rank 0; None on other ranks.
    """

    def __init__(self, ranks: Ranks, path: Path, config: Any, allow_changes: bool = False):
        self.ranks, self.path = ranks, path
        self.open = RunFolder(path, config, allow_changes) if ranks.is_rank_zero else None
        self.holds_state = False
        """True where the folder holds resume state."""
        self._changes: list[str] = []

    def __enter__(self) -> SharedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self.open:
            self.open.close()

    def resume(self, learner: Algorithm) -> None:
        """Load the saved state, if there is one, into the learner.

        The run continues exactly if the number of ranks is unchanged. Otherwise weights, optimiser and frame count are
        restored and environments start new episodes; a warning and `config.yaml` record this.

        CheckpointError for a state that does not fit, with the settings that changed since it was saved.
        """
        state = self.open.load(_num_bytes(learner.state_dict())) if self.open and self.open.holds_state else None
        owns = [None] * self.ranks.world_size
        if state is not None:
            found = [state.pop(OWN, None), *state.pop(OTHERS, [])]
            if len(found) == self.ranks.world_size:
                owns = found
            else:
                self._changes.append(f"ranks = {self.ranks.world_size}, was {len(found)}")
                log.warning(
                    "%s: found the state of %d processes, expected %d; weights, optimiser and frame count are restored "
                    "and environments start new episodes", self.path, len(found), self.ranks.world_size,
                )  # fmt: skip
        state, changes = self.ranks.broadcast((state, self.open.changes if self.open else []))
        own = self.ranks.scatter(owns)
        self.holds_state = state is not None
        if state is None:
            return
        try:
            learner.load_state_dict({**state, OWN: own}, new_episodes=own is None)
        except CheckpointError as error:
            changed = f"; changed settings: {few(changes, separator='; ')}" if changes else ""
            raise CheckpointError(
                f"{self.path}: {error}{changed}; continue with the settings of {CONFIG_NAME}, or choose another --out"
            ) from error

    def begin(self, frames: int, metrics: Mapping[str, tuple[float, float]] | None = None) -> None:
        """Open the curves on rank 0 (`RunFolder.begin`)."""
        if self.open:
            self.open.begin(frames, self._changes, metrics)

    def log(self, row: dict[str, Any]) -> None:
        """Append rank 0's row to the curves (`RunFolder.log`)."""
        if self.open:
            self.open.log(row)

    def save_due(self, every: float) -> bool:
        """True on rank 0 if a save is due (`RunFolder.save_due`); False on other ranks."""
        return self.open is not None and self.open.save_due(every)

    def save(self, learner: Algorithm) -> None:
        """Write the resume state of all ranks (`RunFolder.save`). Every rank returns when the state is copied."""
        state = learner.state_dict()
        own = None if self.ranks.is_rank_zero else state[OWN]
        others = self.ranks.gather(own)[1:]
        if self.open:
            self.open.save({**state, OTHERS: others} if others else state)
        self.ranks.barrier()
        self.holds_state = True


class ResumeFile:
    """Writes and reads `resume.pt`. A thread serializes, compresses and writes, while training continues.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self.path = path
        self._thread = ThreadPoolExecutor(1, "save")
        self._written: Future[None] | None = None

    def load(self, most: int | None = None) -> dict[str, Any]:
        """The saved state, tensors on the CPU. Errors of torch and zlib for a damaged file pass through.

        `most`: largest number of bytes that the file may unpack to; ValueError for more.
        """
        content = io.BytesIO(_unsealed(self.path))
        with zipfile.ZipFile(content) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if most is not None and size > most:
            raise ValueError(f"it unpacks to {size:,} bytes, expected at most {most:,} for this run")
        content.seek(0)
        return torch.load(content, map_location="cpu", weights_only=True)

    def save(self, state: dict[str, Any]) -> None:
        """Write the state atomically in the background; its tensors must not change meanwhile.

        Waits for the previous save. CheckpointError if that one failed.
        """
        self.finish()
        self._written = self._thread.submit(self._write, state)

    def finish(self) -> None:
        """Wait until the last save is on disk. CheckpointError if it failed."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def close(self) -> None:
        """`finish`, and end the thread."""
        try:
            self.finish()
        finally:
            self._thread.shutdown()

    def _write(self, state: dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(state, content)
        packed = _deflated(content)
        packed.write(_SEAL + hashlib.sha256(packed.getbuffer()).hexdigest().encode())
        with replacing(self.path, CheckpointError) as part:
            part.write_bytes(packed.getbuffer())


def _num_bytes(tree: Any) -> int:
    """Bytes of the tensors in nested dicts and lists."""
    if isinstance(tree, torch.Tensor):
        return tree.nbytes
    parts = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ()
    return sum(map(_num_bytes, parts))


def _deflated(content: io.BytesIO) -> io.BytesIO:
    """The zip archive `content` with compressed members, where that pays."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(content) as source,
        zipfile.ZipFile(packed, "w") as target,
    ):
        for member in source.infolist():
            name = zipfile.ZipInfo(member.filename)  # with a fixed date: those of ZIP are from 1980 to 2107
            data = source.read(member)
            sample = data[len(data) // 2 :][:_SAMPLE]
            pays = len(zlib.compress(sample, _FASTEST)) < _WORTH * len(sample)
            target.writestr(name, data, zipfile.ZIP_DEFLATED if pays else zipfile.ZIP_STORED, _FASTEST)
    return packed


def _unsealed(path: Path) -> bytes:
    """Content of a resume file without its checksum, after verification."""
    data = read_regular(path, CheckpointError)
    end = len(data) - len(_SEAL) - 64
    if not data[max(end, 0) :].startswith(_SEAL):
        raise ValueError("it has no checksum at its end")
    if hashlib.sha256(memoryview(data)[:end]).hexdigest().encode() != data[end + len(_SEAL) :]:
        raise ValueError("its SHA-256 differs from the stored one")
    return data[:end]
