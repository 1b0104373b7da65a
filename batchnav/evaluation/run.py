"""Evaluation on an episode file: every episode is played once; summaries over all episodes and by scene."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from batchnav.config import to_dict
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import load_episodes
from batchnav.data.goals.kind import distance_mismatches
from batchnav.data.play import check_kind, load_played_scenes, placed
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_categories_of
from batchnav.errors import ArgumentError
from batchnav.evaluation.failures import failure_kinds
from batchnav.evaluation.intervals import Summary, summarise
from batchnav.evaluation.play import AgentMap, Images, Recording, evaluate, record
from batchnav.evaluation.players import Player
from batchnav.evaluation.trajectories import (
    PoseCameras,
    Trajectory,
    TrajectoryRecorder,
    final_maps,
    goal_images,
    images_along,
)  # fmt: skip
from batchnav.runtime.console import number_of, progress_bar
from batchnav.runtime.distributed import Ranks
from batchnav.scene.appearance import FROM_FILES
from batchnav.scene.bank import SceneBank
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
    """Kind of each failed episode (`failures.failure_kinds`), "" for a success; None where kinds are not told apart."""


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
    ):
        self.ranks = ranks or Ranks(device)
        self.path, self.num_envs, self.renderer = path, num_envs, renderer
        self.split = path.name.removesuffix(".json.gz")
        dataset = load_episodes(path)
        check_kind(dataset, config.task_name)
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
        kinds = failure_kinds(self.bank, player.env_config, self.episodes[mine], own, walked, self.renderer)
        of_ranks = self.ranks.all_gather((own, walked, kinds))
        found = {name: np.concatenate([part[name] for part, *_ in of_ranks]) for name in of_ranks[0][0]}
        trajectories = [trajectory for _, part, _ in of_ranks for trajectory in part]
        failures = None if kinds is None else np.concatenate([part for *_, part in of_ranks])
        metrics = env.task.metric_specs
        by_scene = {
            name: summarise({key: values[found["scene"] == k] for key, values in found.items()}, metrics)
            for k, name in enumerate(self.names)
        }
        stated = "start_distance" in found
        mismatches = distance_mismatches(self.episodes, found["start_distance"]) if stated else []
        return Played(player, found, summarise(found, metrics), by_scene, mismatches, trajectories, failures)

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

    def final_maps(self, played: Played, numbers: Sequence[int]) -> list[AgentMap]:
        """Maps that an agent with `NavConfig.has_map` had built at the end of the episodes with these indices."""
        found: list[AgentMap] = []
        for begin in range(0, len(numbers), self.num_envs):
            some = numbers[begin : begin + self.num_envs]
            env = self._environment(some, played.player.env_config)
            found += final_maps(env, [played.trajectories[i] for i in some])
        return found

    def goal_images(self, config: NavConfig, numbers: Sequence[int]) -> list[dict[str, Images]]:
        """Images that show the goals of these episodes, one step each by name; empty dicts for tasks without any."""
        found: list[dict[str, Images]] = [] if TASKS[config.task_name].goal_images else [{}] * len(numbers)
        while len(found) < len(numbers):
            part = numbers[len(found) : len(found) + self.num_envs]
            found += goal_images(self._environment(part, config))
        return found

    def _environment(self, numbers: Sequence[int] | np.ndarray, config: NavConfig) -> NavEnv:
        """An environment that plays the episodes with these indices."""
        n, renderer = min(self.num_envs, len(numbers)), self.renderer if config.sensors else "raycast"
        return NavEnv.from_episodes(
            self.episodes[[*map(int, numbers)]], n, config=config, scenes=self.bank, renderer=renderer, copy=False
        )

    def describe(self, player: Player) -> dict[str, str]:
        """Episodes and task of a player in words, for the head of a report."""
        camera, body, task = player.config.camera, player.config.body, player.config.task
        most = "" if body.is_discrete else "at most "
        return {
            "episodes": f"{len(self.episodes)} in {number_of(len(self.names), 'scene')}",
            "task": f"{', '.join(player.config.sensors)} {camera.width}x{camera.height} over {camera.hfov_deg:g}° "
            f"from {camera.camera_height:g} m, "
            f"turns of {most}{body.widest_turn_deg:g}°, steps of {most}{body.longest_step:g} m; "
            + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in to_dict(task).items()),
        }
