"""Groups of episodes by distance, detour and category of the goal, and the table of failures by these groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batchnav.data.episodes import Episode
from batchnav.data.files import is_number
from batchnav.data.goals import GOALS
from batchnav.evaluation.failures import meanings_of
from batchnav.evaluation.run import Evaluation, Played

PARTS = 4
"""Number of equally large groups into which episodes are divided by a property."""
DISTANCES = "{:.1f} to {:.1f} m"
"""Label of a group by distance."""


ALL, CATEGORY, DISTANCE = "all", "category", "distance"
"""Values of `FailureRow.group`."""


class Properties(NamedTuple):
    """Properties of the episodes that do not depend on the agent; NaN for tasks without a goal."""

    distance: np.ndarray
    """f64 [M]: geodesic distance to the nearest goal, metres."""
    detour: np.ndarray
    """f64 [M]: ratio of the geodesic distance to the straight-line distance of the nearest goal."""


def properties(evaluation: Evaluation, played: Played) -> Properties:
    """Properties of all episodes, from the episode file and from the task's episode info."""
    nothing = np.full(len(evaluation.episodes), np.nan)
    distance = played.episodes.get("start_distance", nothing).astype(np.float64)
    straight = np.array([straight_line(episode) for episode in evaluation.episodes])
    with np.errstate(divide="ignore", invalid="ignore"):
        detour = np.where(straight > 0.0, distance / straight, np.nan)
    return Properties(distance, detour)


def straight_line(episode: Episode) -> float:
    """Straight-line distance from the start to the nearest goal, metres; NaN where it is unknown.

    It is the one that the file states where the episode has no goals of its own, as in ObjectNav.
    """
    goals = np.array([goal.position for goal in episode.goals], np.float64).reshape(-1, 3)
    if len(goals):
        return float(np.linalg.norm(goals - episode.start_position, axis=1).min())
    stated = episode.info.get("euclidean_distance")
    return float(stated) if is_number(stated) else np.nan


def by_category(evaluation: Evaluation) -> dict[str, np.ndarray]:
    """Episode indices by category of the goal, in the order of the task's categories; empty for goals without one."""
    kind = GOALS[evaluation.episodes.kind]
    names = np.array([kind.category(episode) for episode in evaluation.episodes])
    order = dict.fromkeys((*evaluation.bank.goal_categories, *sorted(set(names.tolist()) - {""})))
    rows = {name: np.flatnonzero(names == name) for name in order}
    return {name: found for name, found in rows.items() if len(found)}


def quantiles(values: np.ndarray, text: str) -> dict[str, np.ndarray]:
    """Episode indices in PARTS groups of equal size, ordered by value; keys are value ranges, formatted with `text`."""
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    parts = [part for part in np.array_split(order, PARTS) if len(part)]
    return {text.format(values[part].min(), values[part].max()): np.sort(part) for part in parts}


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
    kinds, names = played.failures, tuple(meanings_of(played.player.config))
    return [_row(group, label, kinds[rows], names) for group, found in groups.items() for label, rows in found.items()]


def _row(group: str, label: str, kinds: np.ndarray, names: Sequence[str]) -> FailureRow:
    counts = {name: int((kinds == name).sum()) for name in names}
    return FailureRow(group, label, len(kinds), int((kinds == "").sum()), counts)
