"""Writers of a run's training curves: `metrics.jsonl`, one row per line, TensorBoard event files, Weights & Biases."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary

from batchnav.errors import CheckpointError, ConfigError, printable
from batchnav.report.charts import parse_row
from batchnav.runtime.files import read_text, replacing


class Curves:
    """Writer of the curves in a run's folder. It drops rows after the resume point.

    Args:
        path: the run's folder.
        frames: resume point; rows up to it are kept.
        settings: settings by dotted name, for TensorBoard's hyperparameters.

    Raises:
        CheckpointError: a row to keep cannot be read, or the files cannot be written.
    """

    def __init__(self, path: Path, frames: int, settings: Mapping[str, Any]):
        self.metrics_path, board_path = path / "metrics.jsonl", path / "tensorboard"
        kept = rows_until(self.metrics_path, frames)
        with replacing(self.metrics_path, CheckpointError) as part:
            part.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        with _writing(self.metrics_path):
            self._metrics = self.metrics_path.open("a", encoding="utf-8")
        with _writing(board_path):
            board_path.mkdir(exist_ok=True)
            name = f"events.out.tfevents.{int(time.time())}.{platform.node()}.{os.getpid()}"
            self._board_file = (board_path / name).open("ab")
        # Not torch's or TensorBoard's writers: they write in a thread, whose errors cannot be caught here.
        self._board = RecordWriter(self._board_file)
        self._put(Event(file_version="brain.Event:2"))
        # TensorBoard discards points of an earlier session from this step on.
        self._put(Event(step=frames + 1, session_log=SessionLog(status=SessionLog.START)))

        plain = {k: v if isinstance(v, (bool, int, float)) else printable(str(v)) for k, v in settings.items()}
        for part in summary.hparams(plain, {}):
            self._put(Event(step=frames, summary=part))

    def log(self, row: dict[str, Any]) -> None:
        """Append a row of statistics, which may be nested; its "frames" is the step."""
        with _writing(self.metrics_path):
            self._metrics.write(json.dumps(_plain(row)) + "\n")
            self._metrics.flush()
        values = [
            Summary.Value(tag=name.replace(".", "/"), simple_value=value)
            for name, value in flat(row).items()
            if isinstance(value, (int, float)) and math.isfinite(value) and name != "frames"
        ]
        self._put(Event(step=row["frames"], summary=Summary(value=values)))

    def show(self, frames: int, images: Mapping[str, np.ndarray], numbers: Mapping[str, np.ndarray]) -> None:
        """Write images u8 [C, H, W] and histograms, by name, to TensorBoard."""
        parts = [summary.image(name, image, dataformats="CHW") for name, image in images.items()]
        parts += [summary.histogram(name, np.asarray(v), "auto") for name, v in numbers.items()]
        for part in parts:
            self._put(Event(step=frames, summary=part))

    def sync(self) -> None:
        """Flush all rows to disk. CheckpointError where the file or its folder was deleted or moved."""
        with _writing(self.metrics_path):
            os.fsync(self._metrics.fileno())
        try:
            is_there = os.path.samestat(self.metrics_path.stat(), os.fstat(self._metrics.fileno()))
        except OSError:
            is_there = False
        if not is_there:
            raise CheckpointError(
                f"{self.metrics_path.parent}: found no {self.metrics_path.name}, expected the file of this run; the "
                f"folder was deleted or moved during training, and its curves, configuration and resume state with it; "
                f"policy.safetensors holds the current weights"
            )

    def close(self) -> None:
        """Close the files. `log` has written every row already."""
        for file in (self._metrics, self._board_file):
            with contextlib.suppress(OSError):  # an unwritten row was reported by `log`
                file.close()

    def _put(self, event: Event) -> None:
        event.wall_time = time.time()
        with _writing(Path(self._board_file.name)):
            self._board.write(event.SerializeToString())
            self._board_file.flush()


def rows_until(path: Path, frames: int) -> list[str]:
    """Lines of a `metrics.jsonl` whose step is at most `frames`.

    Later lines may be damaged, since a killed process may leave an incomplete line.

    Raises:
        CheckpointError: an earlier line is damaged; the message names file and line.
    """
    try:
        lines = read_text(path, CheckpointError).splitlines() if path.exists() else []
    except CheckpointError as error:
        raise CheckpointError(f"{error}; to continue without these rows, move the file away") from error
    steps = [_frames_of(line) for line in lines]
    count = 1 + max((i for i, step in enumerate(steps) if step is not None and step <= frames), default=-1)
    if None in steps[:count]:
        raise CheckpointError(
            f"{path}, line {steps.index(None) + 1}: is damaged, expected a JSON row with frames; to "
            f"continue without these rows, move the file away"
        )
    return [line for line, step in zip(lines[:count], steps, strict=False) if step is not None and step <= frames]


def flat(tree: dict, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as a flat dict with dotted keys."""
    found = {}
    for key, value in tree.items():
        found.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return found


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Context manager that turns an OSError into a CheckpointError that names the file."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror or error})") from error


def _frames_of(line: str) -> float | None:
    """Step of a row; None for a damaged line."""
    try:
        return parse_row(line)["frames"]
    except ValueError:
        return None


def _plain(row: dict) -> dict:
    """A row for JSON: values that are not finite become null."""
    return {
        k: _plain(v) if isinstance(v, dict) else None if isinstance(v, float) and not math.isfinite(v) else v
        for k, v in row.items()
    }


def find_wandb() -> ModuleType:
    """The module `wandb`. ConfigError if it is not installed."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise ConfigError(f"--wandb: package wandb not found ({error}); install it: pip install wandb") from error


def wandb_log(
    folder: Path, settings: dict[str, Any], names: Mapping[str, str] | None = None
) -> Callable[[dict[str, Any]], None]:
    """A function that sends a row; its "frames" is the step. When training resumes in a folder, its W&B run continues.

    W&B reads entity and mode from its own environment variables, and the project where it is not given.

    Args:
        folder: the run's folder.
        settings: the run's configuration as nested dicts.
        names: "project" and "name" of the run; default: W&B's project, and the name of the folder.

    Raises:
        ConfigError: `wandb` is not installed.
    """
    path = folder.resolve()
    identifier = "".join(letter if letter.isalnum() else "-" for letter in str(path).strip("/"))[-120:]
    run = find_wandb().init(
        dir=str(path), id=identifier, resume="allow", config=settings, allow_val_change=True,
        **{"name": path.name, **(names or {})},
    )  # fmt: skip
    return lambda row: run.log(flat(row), step=int(row["frames"]))
