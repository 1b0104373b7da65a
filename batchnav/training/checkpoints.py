"""Policies that a run keeps beside its last one: a series, and the best on the validation episodes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Checkpoints:
    """Says when, and where, a policy is to be kept.

        checkpoints/policy_000001000000.safetensors    after every so many frames
        best.safetensors                               the best so far on the validation episodes

    Args:
        folder: of the run, whose `metrics.jsonl` knows the validations before a resume.
        every: frames between two of the series; 0: none.
        metrics: by which policies are compared: the first, where that is equal the next ...
        write: writes the policy as it is now into a file.
    """

    def __init__(self, folder: Path, every: int, metrics: Sequence[str], write: Callable[[Path], None]):
        self.folder, self.every, self.metrics, self.write = folder, every, tuple(metrics), write
        rows = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        evaluated = [row["eval"] for row in map(json.loads, rows) if "eval" in row]
        self._best = max(map(self._score, evaluated), default=None)

    def after_update(self, before: int, frames: int) -> None:
        """Keep one of the series where one is due between these numbers of frames."""
        if self.every and before // self.every != frames // self.every:
            self.write(self.folder / "checkpoints" / f"policy_{frames:012d}.safetensors")

    def after_validation(self, found: Mapping[str, float]) -> None:
        """Keep the policy where none was better, or as good, on the validation episodes."""
        score = self._score(found)
        if self._best is None or score > self._best:
            self._best = score
            self.write(self.folder / "best.safetensors")

    def _score(self, found: Mapping[str, float | None]) -> tuple[float, ...]:
        """What is not finite, and null in a file, is below everything."""
        values = (found[name] for name in self.metrics)
        return tuple(-math.inf if value is None or not math.isfinite(value) else value for value in values)
