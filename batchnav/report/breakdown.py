"""A metric broken down by properties of the episodes: goal distance, detour ratio and scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from batchnav.evaluation.groups import DISTANCES, by_category, properties, quantiles
from batchnav.evaluation.intervals import Interval, summarise
from batchnav.evaluation.run import Evaluation, Played
from batchnav.types import Metric


class Part(NamedTuple):
    """A group of episodes, with each agent's mean in it."""

    label: str
    num_episodes: int
    intervals: list[Interval]
    """Mean and confidence interval of each agent."""


def compared_by(metrics: Sequence[Metric]) -> Metric:
    """The metric to compare agents by: the first headline metric that is not binary, else the first headline metric."""
    compared = [metric for metric in metrics if metric.headline] or list(metrics)
    return next((metric for metric in compared if not metric.binary), compared[0])


def breakdowns(evaluation: Evaluation, played: Sequence[Played], metric: Metric) -> Mapping[str, list[Part]]:
    """Groups of episodes by distance, detour and scene. Properties that no episode has are omitted."""
    found = properties(evaluation, played[0])
    tables = {
        "geodesic distance to the goal": quantiles(found.distance, DISTANCES),
        "detour: geodesic over straight line": quantiles(found.detour, "{:.2f} to {:.2f}"),
        "goal category": by_category(evaluation),
        "scene": {
            name: np.flatnonzero(played[0].episodes["scene"] == k) for k, name in enumerate(evaluation.names)
        },
    }  # fmt: skip
    return {
        name: [Part(label, len(rows), [_mean(each, rows, metric) for each in played]) for label, rows in parts.items()]
        for name, parts in tables.items()
        if parts
    }


def _mean(played: Played, rows: np.ndarray, metric: Metric) -> Interval:
    """Mean and interval of a metric over some episodes (row indices)."""
    episodes = {name: played.episodes[name][rows] for name in (metric.name, "scene")}
    return summarise(episodes, [metric])[metric.name]
