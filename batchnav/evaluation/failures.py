"""Table of failures: kinds of failed episodes by category and distance of the goal (`failure_kinds.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batchnav.evaluation.failure_kinds import kinds_of
from batchnav.evaluation.groups import DISTANCES, by_category, properties, quantiles
from batchnav.evaluation.run import Evaluation, Played

ALL, CATEGORY, DISTANCE = "all", "category", "distance"
"""Values of `FailureRow.group`."""


class FailureRow(NamedTuple):
    """Numbers of episodes of one group."""

    group: str
    label: str
    """Name of the category, or range of geodesic distances at the start."""
    episodes: int
    successes: int
    failures: dict[str, int]
    """Number of failed episodes by kind, all kinds."""


def failure_table(evaluation: Evaluation, played: Played) -> list[FailureRow]:
    """Rows for all episodes, for each category and for each range of distances; empty without `Played.failures`."""
    if played.failures is None:
        return []
    groups = {
        ALL: {"all episodes": np.arange(len(played.failures))},
        CATEGORY: by_category(evaluation),
        DISTANCE: quantiles(properties(evaluation, played).distance, DISTANCES),
    }
    kinds, names = played.failures, kinds_of(played.player.config)
    return [_row(group, label, kinds[rows], names) for group, found in groups.items() for label, rows in found.items()]


def _row(group: str, label: str, kinds: np.ndarray, names: Sequence[str]) -> FailureRow:
    counts = {name: int((kinds == name).sum()) for name in names}
    return FailureRow(group, label, len(kinds), int((kinds == "").sum()), counts)
