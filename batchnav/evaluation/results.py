"""Results of an evaluation as files: results.json, and rows of eval/results."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from batchnav.config import to_dict
from batchnav.envs.config import NavConfig
from batchnav.errors import BatchnavError
from batchnav.evaluation.groups import failure_table
from batchnav.evaluation.intervals import Interval, Summary
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.run import Evaluation, Played
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.device import machine
from batchnav.runtime.files import replacing
from batchnav.tasks import TASKS


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
