"""Evaluation on an episode file: every episode is played once; summaries over all episodes and by scene; results."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.config import to_dict
from batchnav.data.episodes import Episode
from batchnav.data.files import SCENES_DIR, is_number
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals import GOALS
from batchnav.data.goals.kind import distance_mismatches
from batchnav.data.play import check_kind, load_played_scenes, placed
from batchnav.envs.config import NavConfig, settings_text
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_categories_of, goal_images_of
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.intervals import Interval, Summary, summarise
from batchnav.evaluation.play import AgentMap, Images, Recording, evaluate, record
from batchnav.evaluation.players import Player, PolicyPlayer
from batchnav.evaluation.predicted_masks import MaskRow, MaskViews, mask_rows, predicted_masks
from batchnav.evaluation.subtasks import Position, Subtasks, by_position, subtask_failures
from batchnav.evaluation.trajectories import (
    GoalMasks,
    PoseCameras,
    Trajectory,
    TrajectoryRecorder,
    failure_kinds,
    final_maps,
    goal_images,
    images_along,
    meanings_of,
    showing_goals,
)  # fmt: skip
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.console import number_of, progress_bar
from batchnav.runtime.device import machine
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.files import replacing
from batchnav.scene.appearance import FROM_FILES
from batchnav.scene.bank import SceneBank
from batchnav.sensors import SENSORS
from batchnav.tasks import TASKS


class Played(NamedTuple):
    """Results of one agent on all episodes."""

    player: Player
    episodes: dict[str, np.ndarray]
    """Results that `evaluate` returns, in the order of the file."""
    overall: Summary
    """Means and intervals over all episodes, by metric."""
    scenes: Mapping[str, Summary]
    """Means and intervals by scene."""
    mismatches: list[str]
    """Episodes whose file states another distance than the navmesh gives, one line each."""
    trajectories: Sequence[Trajectory]
    """The trajectory of every episode, in the order of the file."""
    failures: np.ndarray | None = None
    """Kind of each failed episode [M], "" for a success, or of each failed subtask [M, MOST_SUBTASKS]; None where kinds
    are not told apart."""
    masks: MaskViews | None = None
    """What the predicted masks said in each episode; None for agents without."""


class Evaluation:
    """The episodes of a file and a bank of their scenes, which all evaluated agents share.

    Args:
        path: episode file.
        device: device of scenes and environments.
        config: environment of the agents, which have one task and body; the scenes' navmeshes must be of this body.
        num_envs: number of parallel environments; at most one per episode is used.
        renderer: "raycast", "opengl" or "auto", for agents with image sensors.
        scenes_dir: folder of the scenes that Habitat's episode files name.
        ranks: processes that share the episodes, each with an `Evaluation`; None: this process plays all.
        appearance: appearance fields that sensors other than depth read (`envs.nav.needed_appearance`).
        part: the episodes to play, of those in the file.

    ArgumentError for more processes than episodes; EpisodeError, MeshError and NavMeshError for episodes and scenes
    that cannot be played.
    """

    def __init__(
        self,
        path: Path,
        device: torch.device,
        config: NavConfig,
        num_envs: int = 256,
        renderer: str = "raycast",
        scenes_dir: Path = SCENES_DIR,
        ranks: Ranks | None = None,
        appearance: frozenset[str] = frozenset(),
        part: Callable[[EpisodeDataset], EpisodeDataset] = lambda dataset: dataset,
    ):
        self.ranks = ranks or Ranks(device)
        self.path, self.num_envs, self.renderer = path, num_envs, renderer
        self.split = path.name.removesuffix(".json.gz")
        dataset = load_episodes(path)
        check_kind(dataset, config.task_name)
        dataset = part(dataset)
        if len(dataset) < self.ranks.world_size:  # an episode that two ranks play would count twice
            found = f"{len(dataset)} episodes for {self.ranks.world_size} processes"
            raise ArgumentError(f"{path}: found {found}, expected at least one episode for each process")
        look = bool(appearance & FROM_FILES)
        scenes = load_played_scenes(dataset, scenes_dir, config.body.navmesh, look)
        self.episodes = placed(dataset, scenes, config.task)
        """The episodes, in the frames of their scenes."""
        self.names = [scene.name for scene in scenes]
        self.bank = SceneBank.pack(scenes, device, appearance, goal_categories=goal_categories_of(config))

    def check(self, player: Player) -> None:
        """Make a player's environment and agent for one episode; raises what `play` would raise before its first step.

        Environments of recordings (`player.config`) are checked too.
        """
        player.make_agent(self._environment(range(1), player.env_config))
        if player.config != player.env_config:
            self._environment(range(1), player.config)

    def play(self, player: Player) -> Played:
        """Play all episodes once, each rank its share; every rank returns the results of all episodes."""
        mine = self.ranks.shard([*range(len(self.episodes))])
        env = self._environment(mine, player.env_config)
        agent = TrajectoryRecorder(player.make_agent(env), env)
        title = f"episodes of {player.name}"
        with progress_bar(title, len(mine)) if self.ranks.is_rank_zero else contextlib.nullcontext() as progress:
            own = evaluate(agent, env, len(mine), progress=progress)
        walked = agent.trajectories(len(mine))
        why = subtask_failures if has_subtasks(player.env_config) else failure_kinds
        kinds = why(self.bank, player.env_config, self.episodes[mine], own, walked, self.renderer)
        predicted = self._predicted_masks(player, mine, own["scene"], walked)
        of_ranks = self.ranks.all_gather((own, walked, kinds, predicted))
        found = {name: np.concatenate([part[name] for part, *_ in of_ranks]) for name in of_ranks[0][0]}
        trajectories = [trajectory for _, part, *_ in of_ranks for trajectory in part]
        failures = None if kinds is None else np.concatenate([part for _, _, part, _ in of_ranks])
        masks = None if predicted is None else MaskViews(*np.concatenate([part for *_, part in of_ranks], axis=1))
        metrics = env.task.metric_specs
        by_scene = {
            name: summarise({key: values[found["scene"] == k] for key, values in found.items()}, metrics)
            for k, name in enumerate(self.names)
        }
        stated = "start_distance" in found
        mismatches = distance_mismatches(self.episodes, found["start_distance"]) if stated else []
        return Played(player, found, summarise(found, metrics), by_scene, mismatches, trajectories, failures, masks)

    def _predicted_masks(
        self, player: Player, numbers: Sequence[int], scenes: np.ndarray, trajectories: Sequence[Trajectory]
    ) -> MaskViews | None:
        """What the predicted masks of a player said in these episodes; None for a player that predicts none."""
        network = player.policy.network if isinstance(player, PolicyPlayer) else None
        config = player.env_config
        return predicted_masks(self.bank, config, network, self.episodes[numbers], scenes, trajectories, self.renderer)

    def evenly_spaced(self, count: int) -> np.ndarray:
        """Indices of at most `count` episodes, evenly spaced over the file."""
        return np.unique(np.linspace(0, len(self.episodes) - 1, count).round().astype(int))

    def record(self, player: Player, numbers: np.ndarray) -> list[Recording]:
        """Play the episodes with these indices again, with the sensors of `player.config`, and record them."""
        env = self._environment(numbers, player.config)
        return record(player.make_agent(env), env)

    def images_along(
        self, config: NavConfig, scenes: np.ndarray, trajectories: Sequence[Trajectory]
    ) -> Iterator[dict[str, Images]]:
        """Images that the sensors of `config` see along trajectories: see `trajectories.images_along`.

        Args:
            config: cameras and sensors.
            scenes: i32, row of the bank of each trajectory.
            trajectories: poses to render from.
        """
        return images_along(PoseCameras(self.bank, config, renderer=self.renderer), scenes, trajectories)

    def goal_masks(
        self, config: NavConfig, numbers: Sequence[int], scenes: np.ndarray, trajectories: Sequence[Trajectory]
    ) -> Iterator[dict[str, Images]]:
        """Masks of the objects that these episodes ask for, along trajectories; empty where goals are no objects."""
        masks = GoalMasks(self.bank, config, renderer=self.renderer)
        for number, scene, walk in zip(numbers, scenes, trajectories, strict=True):
            yield masks.images_at(self.episodes[number], np.full(len(walk.headings), scene, np.int32), walk)

    def final_maps(self, played: Played, numbers: Sequence[int]) -> list[AgentMap]:
        """Maps that an agent with `NavConfig.has_map` had built at the end of the episodes with these indices."""
        found: list[AgentMap] = []
        for begin in range(0, len(numbers), self.num_envs):
            some = numbers[begin : begin + self.num_envs]
            env = self._environment(some, played.player.env_config)
            found += final_maps(env, [played.trajectories[i] for i in some])
        return found

    def goal_images(self, config: NavConfig, numbers: Sequence[int]) -> list[dict[str, Images]]:
        """Images that show the goals of these episodes, one step a goal by name; empty dicts for tasks without any."""
        found: list[dict[str, Images]] = [] if goal_images_of(config) else [{}] * len(numbers)
        while len(found) < len(numbers):
            part = numbers[len(found) : len(found) + self.num_envs]
            found += goal_images(self._environment(part, showing_goals(config)))
        return found

    def _environment(self, numbers: Sequence[int] | np.ndarray, config: NavConfig) -> NavEnv:
        """An environment that plays the episodes with these indices."""
        n, renderer = min(self.num_envs, len(numbers)), self.renderer if config.sensors else "raycast"
        return NavEnv.from_episodes(
            self.episodes[[*map(int, numbers)]], n, config=config, scenes=self.bank, renderer=renderer, copy=False
        )

    def describe(self, player: Player) -> dict[str, str]:
        """Episodes, task and changed settings of a player in words, for the head of a report."""
        camera, body, task = player.config.camera, player.config.body, player.config.task
        most = "" if body.is_discrete else "at most "
        return {
            "episodes": f"{len(self.episodes)} in {number_of(len(self.names), 'scene')}",
            "task": f"{', '.join(player.config.sensors)} {camera.width}x{camera.height} over {camera.hfov_deg:g}° "
            f"from {camera.camera_height:g} m, "
            f"turns of {most}{body.widest_turn_deg:g}°, steps of {most}{body.longest_step:g} m; "
            + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in to_dict(task).items()),
            **({"changed settings": settings_text(player.changes)} if player.changes else {}),
        }


# Results: results.json, rows of eval/results, groups of episodes by distance, detour and category, and their failures

PARTS = 4
"""Number of equally large groups into which episodes are divided by a property."""
DISTANCES = "{:.1f} to {:.1f} m"
"""Label of a group by distance."""


ALL, CATEGORY, DISTANCE, POSITION = "all", "category", "distance", "position"
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
    """Name of the category, range of geodesic distances at the start, or position of the subtask."""
    episodes: int
    successes: int
    failures: dict[str, int]
    """Number of failed episodes by kind, all kinds."""


def failure_table(evaluation: Evaluation, played: Played) -> list[FailureRow]:
    """Rows for all episodes, for each category and for each range of distances; empty without `Played.failures`.

    For sequences of goals: a row for all subtasks, and one for each position in the sequence.
    """
    if played.failures is None:
        return []
    if played.failures.ndim == 2:
        return _by_position(played)
    groups = {
        ALL: {"all episodes": np.arange(len(played.failures))},
        CATEGORY: by_category(evaluation),
        DISTANCE: quantiles(properties(evaluation, played).distance, DISTANCES),
    }
    kinds, names = played.failures, tuple(meanings_of(played.player.config))
    return [_row(group, label, kinds[rows], names) for group, found in groups.items() for label, rows in found.items()]


def predicted_mask_table(played: Played) -> list[MaskRow]:
    """Predicted masks in all episodes, and in those of each kind of failure; empty for agents without such masks."""
    if played.masks is None:
        return []
    return mask_rows(played.masks, played.failures, tuple(meanings_of(played.player.config)))


def _by_position(played: Played) -> list[FailureRow]:
    """Rows of `failure_table` for sequences of goals."""
    assert played.failures is not None
    names, count = tuple(meanings_of(played.player.config)), played.episodes["subtasks"].astype(int)
    there = np.arange(played.failures.shape[1]) < count[:, None]
    rows = [_row(ALL, "all subtasks", played.failures[there], names)]
    for k in range(count.max()):
        rows.append(_row(POSITION, f"subtask {k + 1}", played.failures[there[:, k], k], names))
    return rows


def _row(group: str, label: str, kinds: np.ndarray, names: Sequence[str]) -> FailureRow:
    counts = {name: int((kinds == name).sum()) for name in names}
    return FailureRow(group, label, len(kinds), int((kinds == "").sum()), counts)


def result_rows(evaluation: Evaluation, played: Played) -> list[dict[str, Any]]:
    """Rows for eval/results/TASK.jsonl: one for each headline metric of the task.

    The parameters of a policy hold `policy_sha256`: the first 16 hex digits of the SHA-256 of its file. Those of an
    agent in another environment than its own hold `changes`.
    """
    player = played.player
    params = {"agent": player.name, "split": evaluation.split, "episodes": len(evaluation.episodes)}
    params |= non_default_settings(player.config) | ({"changes": dict(player.changes)} if player.changes else {})
    if isinstance(player, PolicyPlayer):
        params |= {"checkpoint": "/".join(player.checkpoint.parts[-2:]), "policy_sha256": player.sha256}
        params |= {"sample": not player.deterministic, "renderer": evaluation.renderer}
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
            **_failure_of(played, i),
            **({} if played.masks is None else {"predicted_mask": _views(played.masks, i)}),
        }
        for i, episode in enumerate(evaluation.episodes)
    ]  # fmt: skip
    table = [row._asdict() for row in failure_table(evaluation, played)]
    masks = [_mask_row(row) for row in predicted_mask_table(played)]
    positions = by_position(played.episodes) if has_subtasks(played.player.config) else []
    data = {
        "agent": played.player.name, "episodes_file": str(evaluation.path),
        "env": to_dict(played.player.config),
        **({"changes": dict(played.player.changes)} if played.player.changes else {}),
        "overall": _summary(played.overall),
        "scenes": {scene: _summary(summary) for scene, summary in played.scenes.items()},
        **({"failures": table} if table else {}),
        **({"predicted_mask": masks} if masks else {}),
        **({"subtasks": [_position(each) for each in positions]} if positions else {}),
        "distance_mismatches": played.mismatches, "episodes": per_episode,
    }  # fmt: skip
    with replacing(path, BatchnavError) as part:
        part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _failure_of(played: Played, i: int) -> dict[str, Any]:
    """The kind of an episode's failure, or the results of its subtasks, for results.json."""
    if played.failures is None:
        return {}
    if played.failures.ndim == 1:
        return {"failure": str(played.failures[i]) or None}
    found = Subtasks.of(played.episodes)
    return {
        "subtasks": [
            {
                "success": int(found.success[i, k]), "spl": float(found.spl[i, k]), "end": int(found.end[i, k]),
                "number": int(found.number[i, k]), "failure": str(played.failures[i, k]) or None,
            }
            for k in range(found.planned[i])
        ]
    }  # fmt: skip


def _views(masks: MaskViews, i: int) -> dict[str, int]:
    """What the predicted mask said in an episode, for results.json."""
    return {name: int(column[i]) for name, column in masks._asdict().items()}


def _mask_row(row: MaskRow) -> dict[str, Any]:
    """A row of `predicted_mask_table` for JSON."""
    shares = {name: _finite(getattr(row, name)) for name in ("precision", "recall", "pixels")}
    return row._asdict() | shares


def _position(position: Position) -> dict[str, Any]:
    """Success rate and SPL of the k-th subtasks for JSON."""
    return {"position": position.position, "success": _as_json(position.success), "spl": _as_json(position.spl)}


def has_subtasks(config: NavConfig) -> bool:
    """True where episodes have several goals, one after another."""
    return TASKS[config.task_name].changes_goals


def non_default_settings(config: NavConfig) -> dict[str, Any]:
    """Settings of sensors, initial scan, body, camera and task that differ from the defaults, for result rows.

    Image sizes are left out, and so is an empty list of sensors. Sensors: those of the main camera.
    """
    found: dict[str, Any] = {}
    if config.sensors not in (NavConfig.sensors, ()):
        found["sensors"] = "+".join(config.sensors)
    if config.map.initial_scan:
        found["initial_scan"] = True
    sensors = [getattr(config, section) for name in config.sensors if (section := SENSORS.section(name)) is not None]
    for part in (config.body, config.camera, *sensors, config.task):
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
