"""Results of an evaluation: results.json, rows of eval/results, and groups of episodes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.config import to_dict
from batchnav.data.episodes import Episode
from batchnav.data.files import is_number
from batchnav.data.goals import GOALS
from batchnav.envs.config import NavConfig
from batchnav.errors import BatchnavError
from batchnav.evaluation.failures import meanings_of
from batchnav.evaluation.intervals import Interval, Summary
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.run import Evaluation, Played
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.device import machine
from batchnav.runtime.files import replacing
from batchnav.tasks import TASKS

# Groups of episodes by distance, detour and category of the goal, and the table of failures by these groups

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


def result_rows(evaluation: Evaluation, played: Played) -> list[dict[str, Any]]:
    """Rows for eval/results/TASK.jsonl: one for each headline metric of the task.

    The parameters of a policy hold `policy_sha256`: the first 16 hex digits of the SHA-256 of its file.
    """
    player = played.player
    params = {"agent": player.name, "split": evaluation.split, "episodes": len(evaluation.episodes)}
    params |= non_default_settings(player.config)
    if isinstance(player, PolicyPlayer):
        params |= {"checkpoint": "/".join(player.checkpoint.parts[-2:]), "policy_sha256": player.sha256}
        params |= {"sample": player.sample, "renderer": evaluation.renderer}
        params |= {"frames": player.info.get("frames"), "seed": player.info.get("seed")}
        network = player.policy.network.config
        params |= {"encoder": network.encoder} if network.encoder != PolicyConfig.encoder else {}
        params |= {"film": list(network.film)} if network.film else {}
        params |= {"blind": True} if network.blind else {}
    task = player.config.task_name
    rows = []
    for metric in (metric.name for metric in TASKS[task].metric_specs if metric.headline):
        found = _as_json(played.overall[metric])
        ends = {name: found[name] for name in ("low", "high", "scene_low", "scene_high", "scenes")}
        rows.append({
            "benchmark": task, "metric": metric, "value": found["mean"], **ends, "params": params,
            "machine": machine(evaluation.bank.device),
        })  # fmt: skip
    return rows


def write_results(path: Path, evaluation: Evaluation, played: Played) -> None:
    """Write results.json: intervals over all episodes and by scene, kinds of failures, and every episode's metrics.

    The file is replaced as a whole. Values that are not finite become null.
    """
    per_episode = [
        {
            "episode_id": episode.episode_id, "scene_id": episode.scene_id,
            **{metric: _finite(played.episodes[metric][i]) for metric in played.overall},
            **({} if played.failures is None else {"failure": str(played.failures[i]) or None}),
        }
        for i, episode in enumerate(evaluation.episodes)
    ]  # fmt: skip
    table = [row._asdict() for row in failure_table(evaluation, played)]
    data = {
        "agent": played.player.name, "episodes_file": str(evaluation.path),
        "env": to_dict(played.player.config),
        "overall": _summary(played.overall),
        "scenes": {scene: _summary(summary) for scene, summary in played.scenes.items()},
        **({"failures": table} if table else {}),
        "distance_mismatches": played.mismatches, "episodes": per_episode,
    }  # fmt: skip
    with replacing(path, BatchnavError) as part:
        part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def non_default_settings(config: NavConfig) -> dict[str, Any]:
    """Settings of sensors, initial scan, body, camera and task that differ from the defaults, for result rows.

    Image sizes are left out, and so is an empty list of sensors.
    """
    found: dict[str, Any] = {}
    if config.sensors not in (NavConfig.sensors, ()):
        found["sensors"] = "+".join(config.sensors)
    if config.map.initial_scan:
        found["initial_scan"] = True
    for part in (config.body, config.camera, config.task):
        default, sizes = to_dict(type(part)()), ("height", "width")
        found |= {name: value for name, value in to_dict(part).items() if value != default[name] and name not in sizes}
    return found


def _summary(summary: Summary) -> dict[str, dict[str, float | int | None]]:
    """A summary for JSON, by metric."""
    return {metric: _as_json(interval) for metric, interval in summary.items()}


def _as_json(interval: Interval) -> dict[str, float | int | None]:
    """An interval for JSON."""
    return {name: v if isinstance(v, int) else _finite(v) for name, v in interval._asdict().items()}


def _finite(value: float) -> float | None:
    """The value, or None for NaN and infinity, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
