"""The folder of a training run: configuration, curves, weights, and the state to resume from.

    config.yaml            configuration; comments list later changes with their frames
    metrics.jsonl          one row per update (and per evaluation)
    report.html            page of learning curves, updated during training
    tensorboard/           the same rows, images and histograms for TensorBoard
    policy.safetensors     the weights, loadable with `batchnav.load_policy`
    resume.pt              the learner's complete state (`resume_file`)
    .lock                  lock of the process that uses the folder

Weights and resume state are written to temporary files that are then renamed, so a run that is killed at any moment
leaves complete files. `resume.pt` is written last, in the background. On resume, later rows of the curves are dropped
and computed again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from batchnav.config import load_config, shortened, to_dict
from batchnav.errors import CheckpointError
from batchnav.report.charts import Rows, load_metrics
from batchnav.report.page import RunPage
from batchnav.runtime.files import check_writable, lock_folder, read_text, remove_leftovers, replacing
from batchnav.training.curves import Curves, flat
from batchnav.training.resume_file import ResumeFile

CONFIG_NAME = "config.yaml"
OTHERS = "others"
"""Key of the saved state: list of the parts `PER_RANK` of ranks 1, 2 and so on."""
PAGE = "report.html"
_TASK = "env.task.name"
"""Setting that messages about a changed configuration name first."""
_CHANGE = "# from frame "
"""Prefix of the comments in `config.yaml` that list changes."""


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
        if not (self.holds_run and self.config_path.exists()):
            return []
        found, expected = (flat(to_dict(c)) for c in (load_config(self.config_path, type(self.config)), self.config))
        different = sorted((key for key in expected if found.get(key) != expected[key]), key=lambda key: key != _TASK)
        if different and not allowed:
            key = different[0]
            raise CheckpointError(
                f"{self.path}: holds a run with {key} = {shortened(found.get(key))}, expected "
                f"{shortened(expected[key])} as configured now; choose another --out, or continue with the change by "
                f"--resume or --allow-changes"
            )
        return [f"{key} = {expected[key]!r}, was {found.get(key)!r}" for key in different]

    def load(self) -> dict | None:
        """The learner's state to resume from; None for a new run. CheckpointError for a damaged file."""
        if not self.resume_path.exists():
            return None
        try:
            state = self._resume_file.load()
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
        CheckpointError.
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
