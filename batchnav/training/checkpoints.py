"""Policies that a run keeps in addition to the latest: a series of checkpoints, and the best on validation episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from batchnav.report.charts import is_plottable, load_metrics


class Checkpoints:
    """Writes checkpoints of the policy.

        checkpoints/policy_000001000000.safetensors    a series, one file after each interval of `every` frames
        best.safetensors                               best policy so far on the validation episodes

    Args:
        folder: the run's folder; after a resume, the best score so far is read from its `metrics.jsonl`.
        every: interval of the series, frames; 0: no series.
        metrics: names of the metrics that rank policies, the most important one first.
        write: writes the current policy to a file.
    """

    def __init__(self, folder: Path, every: int, metrics: Sequence[str], write: Callable[[Path], None]):
        self.folder, self.every, self.metrics, self.write = folder, every, tuple(metrics), write
        _, evaluations = load_metrics(folder / "metrics.jsonl")
        self._best = max((self._score(row["eval"]) for row in evaluations), default=None)

    def after_update(self, before: int, frames: int) -> None:
        """Write a checkpoint of the series if one is due; the update went from frame `before` to frame `frames`."""
        if self.every and before // self.every != frames // self.every:
            self.write(self.folder / "checkpoints" / f"policy_{frames:012d}.safetensors")

    def after_validation(self, found: Mapping[str, float]) -> None:
        """Write `best.safetensors` if the metrics `found`, by name, rank above those of all earlier validations."""
        score = self._score(found)
        if self._best is None or score > self._best:
            self._best = score
            self.write(self.folder / "best.safetensors")

    def _score(self, found: Mapping[str, float | None]) -> tuple[float, ...]:
        """Values of the ranking metrics; a value that is no finite number (null in a file) ranks last."""
        values = (found.get(name) for name in self.metrics)
        return tuple(value if is_plottable(value) else -math.inf for value in values)
