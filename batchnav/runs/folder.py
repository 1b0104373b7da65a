"""The folder of a training run: its configuration, curves, weights, and the state from which it goes on when killed.

    config.yaml            the configuration it was started with
    metrics.jsonl          one row per update (and per evaluation)
    tensorboard/           the same for TensorBoard
    policy.safetensors     the weights, loadable with `batchnav.load_policy`
    resume.pt              everything else that the next update depends on

Weights and state are written to a temporary file and renamed, so a run killed at any moment finds whole files. The
state comes last: what it does not cover yet (rows after it) is dropped and made again on resuming.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.utils.tensorboard import SummaryWriter

from batchnav.config import to_dict
from batchnav.errors import CheckpointError


class RunFolder:
    """Opens or creates the folder `path` of a run configured by `config`.

    CheckpointError where the folder holds a run of another configuration: nothing of it is overwritten.
    """

    def __init__(self, path: Path, config: Any):
        self.path, self.config = path, to_dict(config)
        path.mkdir(parents=True, exist_ok=True)
        self._check_config()
        self.metrics_path, self.resume_path = path / "metrics.jsonl", path / "resume.pt"
        self.policy_path = path / "policy.safetensors"
        self.seconds_before = 0.0
        self._start = self._last_save = time.monotonic()
        self._metrics = None
        self._board: SummaryWriter | None = None

    def _check_config(self) -> None:
        config_path = self.path / "config.yaml"
        if not config_path.exists():
            write_atomically(config_path, yaml.safe_dump(self.config, sort_keys=False).encode())
            return
        found = yaml.safe_load(config_path.read_text(encoding="utf-8"))
        different = [key for key in _flat(self.config) if _flat(self.config)[key] != _flat(found or {}).get(key)]
        if different:
            key = different[0]
            raise CheckpointError(
                f"{self.path}: holds a run with {key} = {_flat(found or {}).get(key)!r}, expected "
                f"{_flat(self.config)[key]!r} as asked for now; choose another --out, or delete the folder"
            )

    def load(self) -> dict | None:
        """The state to go on from, or None where the run begins. Rows of `metrics.jsonl` after it are dropped."""
        state = None
        if self.resume_path.exists():
            try:
                state = torch.load(self.resume_path, map_location="cpu", weights_only=True)
                self.seconds_before = float(state["seconds"])
                frames = int(state["learner"]["frames"])
            except Exception as error:  # torch raises many kinds for a damaged file
                raise CheckpointError(
                    f"{self.resume_path}: found no readable resume state ({type(error).__name__}: {error}), expected "
                    f"what training wrote; delete the file to train from the beginning"
                ) from error
        frames = frames if state else -1
        rows = self.metrics_path.read_text(encoding="utf-8").splitlines() if self.metrics_path.exists() else []
        kept = [line for line in rows if _frames_of(line) <= frames]
        write_atomically(self.metrics_path, "".join(line + "\n" for line in kept).encode())
        self._metrics = self.metrics_path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(self.path / "tensorboard"), purge_step=frames + 1)
        self._start = self._last_save = time.monotonic()
        return state["learner"] if state else None

    @property
    def seconds(self) -> float:
        """Seconds of training so far, those before a resume included."""
        return self.seconds_before + time.monotonic() - self._start

    def log(self, row: dict[str, Any]) -> None:
        """Append a row ("frames" is its step) to the curves."""
        row = {**row, "seconds": round(self.seconds, 3)}
        self._metrics.write(json.dumps(_plain(row)) + "\n")
        self._metrics.flush()
        for name, value in _flat(row).items():
            if isinstance(value, (int, float)) and math.isfinite(value) and name != "frames":
                self._board.add_scalar(name.replace(".", "/"), value, row["frames"])

    def save_due(self, every: float) -> bool:
        """Whether `every` seconds have passed since the last save."""
        return time.monotonic() - self._last_save >= every

    def save(self, learner_state: dict) -> None:
        """Keep the state to resume from, whole or not at all."""
        temporary = self.resume_path.with_suffix(".tmp")
        torch.save({"learner": learner_state, "seconds": self.seconds}, temporary)
        os.replace(temporary, self.resume_path)
        self._last_save = time.monotonic()

    def close(self) -> None:
        """Flush and close the curves."""
        self._metrics.close()
        self._board.close()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that it is whole or not there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _frames_of(line: str) -> float:
    """The step of a row; infinite for a line that was cut off while it was written."""
    try:
        return float(json.loads(line)["frames"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _flat(tree: dict, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one dict with dotted keys."""
    flat = {}
    for key, value in tree.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def _plain(row: dict) -> dict:
    """JSON has no NaN: a value that is not finite becomes null."""
    return {
        k: _plain(v) if isinstance(v, dict) else None if isinstance(v, float) and not math.isfinite(v) else v
        for k, v in row.items()
    }
