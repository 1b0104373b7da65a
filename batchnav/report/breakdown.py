"""A metric by what episodes are like: how far the goal is, how much of a detour leads there, in which scene it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from batchnav.data.episodes.episode import Episode
from batchnav.evaluation.intervals import Interval, summarise
from batchnav.evaluation.run import Evaluation, Played
from batchnav.types import Metric

PARTS = 4
"""Of the episodes by a property, with equally many in each."""


class Part(NamedTuple):
    """Some of the episodes, and how each agent fared in them."""

    label: str
    num_episodes: int
    intervals: list[Interval]
    """Of each agent."""


class Properties(NamedTuple):
    """What is known of each episode beforehand; NaN where a task has no goal."""

    distance: np.ndarray
    """f64 [M]: geodesic distance to the nearest goal, metres."""
    detour: np.ndarray
    """f64 [M]: that distance, over the straight line to the goal that is nearest by air."""


def properties(evaluation: Evaluation, played: Played) -> Properties:
    """The episodes' properties, by their file and by what the task knows of them."""
    nothing = np.full(len(evaluation.episodes), np.nan)
    distance = played.episodes.get("start_distance", nothing).astype(np.float64)
    straight = np.array([straight_line(episode) for episode in evaluation.episodes])
    with np.errstate(divide="ignore", invalid="ignore"):
        detour = np.where(straight > 0.0, distance / straight, np.nan)
    return Properties(distance, detour)


def straight_line(episode: Episode) -> float:
    """Metres from the start to the goal that is nearest by air; NaN where there is none."""
    goals = np.array([goal.position for goal in episode.goals], np.float64).reshape(-1, 3)
    return float(np.linalg.norm(goals - episode.start_position, axis=1).min()) if len(goals) else np.nan


def compared_by(metrics: Sequence[Metric]) -> Metric:
    """The metric that says most in one figure: the first by which agents are compared that is more than yes or no."""
    compared = [metric for metric in metrics if metric.headline] or list(metrics)
    return next((metric for metric in compared if not metric.binary), compared[0])


def breakdowns(evaluation: Evaluation, played: Sequence[Played], metric: Metric) -> Mapping[str, list[Part]]:
    """Parts of the episodes by distance, by detour and by scene; a property that no episode has is left out."""
    found = properties(evaluation, played[0])
    tables = {
        "geodesic distance to the goal": quantiles(found.distance, "{:.1f} to {:.1f} m"),
        "detour: geodesic over straight line": quantiles(found.detour, "{:.2f} to {:.2f}"),
        "scene": {
            name: np.flatnonzero(played[0].episodes["scene"] == k) for k, name in enumerate(evaluation.names)
        },
    }  # fmt: skip
    return {
        name: [Part(label, len(rows), [_mean(each, rows, metric) for each in played]) for label, rows in parts.items()]
        for name, parts in tables.items()
        if parts
    }


def quantiles(values: np.ndarray, text: str) -> dict[str, np.ndarray]:
    """The numbers of the episodes in PARTS equal parts by a property, lowest first, by what `text` says of a range."""
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    parts = [part for part in np.array_split(order, PARTS) if len(part)]
    return {text.format(values[part].min(), values[part].max()): np.sort(part) for part in parts}


def _mean(played: Played, rows: np.ndarray, metric: Metric) -> Interval:
    episodes = {name: played.episodes[name][rows] for name in (metric.name, "scene")}
    return summarise(episodes, [metric])[metric.name]
