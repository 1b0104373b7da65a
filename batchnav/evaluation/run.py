"""Measuring agents on an episode file: every episode once, summaries over all and by scene, results.json."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from batchnav.agents.protocol import Agent
from batchnav.agents.registry import SETTINGS_OF_AGENTS, make_reference_agent
from batchnav.config import to_dict
from batchnav.data.episodes.episode import Episode
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.episodes.playing import check_episodes, episode_table
from batchnav.data.scenes import find_played
from batchnav.data.sources.scene_source import SCENES_DIR
from batchnav.data.validate import distance_mismatches
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.intervals import Interval, Summary, summarise
from batchnav.evaluation.play import Images, Recording, evaluate, record
from batchnav.evaluation.trajectories import Eyes, Walk, Watched, seen_along
from batchnav.policy.config import PolicyConfig
from batchnav.policy.weights import load_policy
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.console.progress import progress_bar
from batchnav.runtime.device import machine
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.runtime.files.atomic import replacing
from batchnav.scene.appearance import FROM_FILES
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks import TASKS


class Player(Protocol):
    """An agent to measure, and the environment that it plays in."""

    name: str
    config: NavConfig
    sees: bool
    """Whether it looks at its images."""

    def enter(self, env: NavEnv) -> Agent:
        """What acts in this environment."""
        ...


class PolicyPlayer:
    """A trained policy with its way of choosing actions; its file says what it was trained in."""

    sees = True

    def __init__(self, checkpoint: Path, device: torch.device, sample: bool = True, seed: int = 0):
        self.policy, self.checkpoint = load_policy(checkpoint, device), checkpoint
        self.sample, self.seed, self.info = sample, seed, self.policy.info
        self.name = "blind" if self.policy.network.config.blind else "learned"
        self.config = config_of(self.info)

    def enter(self, env: NavEnv) -> Agent:
        """Itself."""
        return self

    def reset(self, num_envs: int) -> None:
        """Forget everything."""
        self.policy.reset(num_envs, self.seed)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        return self.policy.act(observations, episode_start, deterministic=not self.sample)


@dataclasses.dataclass
class ReferencePlayer:
    """One of REFERENCE_AGENTS, by name; its task must know it. One that looks has its own sensors and map."""

    name: str
    config: NavConfig
    sees = False

    def __post_init__(self):
        if self.name in SETTINGS_OF_AGENTS:
            self.sees, self.config = True, dataclasses.replace(self.config, **SETTINGS_OF_AGENTS[self.name])

    def enter(self, env: NavEnv) -> Agent:
        """The agent that is made from this environment."""
        return make_reference_agent(self.name, env)


class Played(NamedTuple):
    """What an agent reached."""

    player: Player
    episodes: dict[str, np.ndarray]
    """As `evaluate` returns them, in the file's order."""
    overall: Summary
    scenes: Mapping[str, Summary]
    """By scene."""
    mismatches: list[str]
    """Episodes whose file states another distance than the navmesh gives, one line each."""
    walks: Sequence[Walk]
    """The way through every episode, in the file's order."""


class Evaluation:
    """The episodes of a file, and their scenes in a bank that all agents share.

    Args:
        path: of the episode file.
        device: that everything runs on.
        body: of the agents, whose navmeshes the scenes have.
        num_envs: environments at a time, at most one per episode.
        renderer: "raycast", "opengl" or "auto", for agents that look.
        scenes_dir: folder below which the scenes of Habitat's episodes lie.
        ranks: processes that share out the episodes, each with an `Evaluation`; None: this one is alone.
        appearance: fields that the agents' sensors read beyond depth (`envs.nav.needed_appearance`).

    ArgumentError where there are more processes than episodes; EpisodeError, MeshError, NavMeshError for what cannot be
    played.
    """

    def __init__(
        self,
        path: Path,
        device: torch.device,
        body: BodyConfig,
        num_envs: int = 256,
        renderer: str = "raycast",
        scenes_dir: Path = SCENES_DIR,
        ranks: Ranks | None = None,
        appearance: frozenset[str] = frozenset(),
    ):
        self.ranks = ranks or Ranks(device)
        self.path, self.num_envs, self.renderer = path, num_envs, renderer
        self.split = path.name.removesuffix(".json.gz")
        self.episodes = load_episodes(path)
        if len(self.episodes) < self.ranks.world_size:  # one that two played would count twice
            found = f"{len(self.episodes)} episodes for {self.ranks.world_size} processes"
            raise ArgumentError(f"{path}: found {found}, expected one for each at least")
        scenes = find_played(self.episodes, scenes_dir, body.navmesh, bool(appearance & FROM_FILES))
        self.names = [scene.name for scene in scenes]
        check_episodes(self.episodes, dict(zip(self.names, scenes, strict=True)))
        self.bank = SceneBank.pack(scenes, device, appearance)

    def play(self, player: Player) -> Played:
        """Play all episodes once, each rank its share; all know the results."""
        mine = self.ranks.shard(self.episodes)
        env = self._environment(mine, player.config, player.sees)
        agent = Watched(player.enter(env), env)
        title = f"{player.name} agent's episodes"
        with progress_bar(title, len(mine)) if self.ranks.is_rank_zero else contextlib.nullcontext() as show:
            own = evaluate(agent, env, len(mine), show=show)
        everyones = self.ranks.all_gather((own, agent.walks(len(mine))))
        found = {name: np.concatenate([part[name] for part, _ in everyones]) for name in everyones[0][0]}
        walks = [walk for _, part in everyones for walk in part]
        metrics = env.task.metric_specs
        by_scene = {
            name: summarise({key: values[found["scene"] == k] for key, values in found.items()}, metrics)
            for k, name in enumerate(self.names)
        }
        stated = "start_distance" in found
        mismatches = distance_mismatches(self.episodes, found["start_distance"]) if stated else []
        return Played(player, found, summarise(found, metrics), by_scene, mismatches, walks)

    def spread(self, count: int) -> np.ndarray:
        """The numbers of so many episodes, spread evenly over the file."""
        return np.unique(np.linspace(0, len(self.episodes) - 1, count).round().astype(int))

    def film(self, player: Player, rows: np.ndarray) -> list[Recording]:
        """Recordings of the episodes with these numbers."""
        env = self._environment([self.episodes[i] for i in rows], player.config, sees=True)
        return record(player.enter(env), env)

    def pictures(self, config: NavConfig, scenes: np.ndarray, walks: Sequence[Walk]) -> Iterator[dict[str, Images]]:
        """What the sensors of a configuration see along walks in scenes i32 [...] of the bank: `watch.seen_along`."""
        return seen_along(Eyes(self.bank, config, renderer=self.renderer), scenes, walks)

    def _environment(self, episodes: list[Episode], config: NavConfig, sees: bool) -> NavEnv:
        """An environment that plays these episodes; nothing is drawn where nobody looks."""
        config = config if sees else dataclasses.replace(config, sensors=())
        table = episode_table(episodes, self.names, self.bank.device)
        n = min(self.num_envs, len(episodes))
        renderer = self.renderer if sees else "raycast"
        return NavEnv(self.bank, n, task=config.task_name, config=config, episodes=table, renderer=renderer, copy=False)

    def facts(self, player: Player) -> dict[str, str]:
        """What was played, in words, for a report's head."""
        camera, body, task = player.config.camera, player.config.body, player.config.task
        most = "" if body.is_discrete else "at most "
        facts = {
            "episodes": f"{len(self.episodes)} in {number_of(len(self.names), 'scene')}",
            "task": f"{', '.join(player.config.sensors)} {camera.width}x{camera.height} over {camera.hfov_deg:g}° "
            f"from {camera.camera_height:g} m, "
            f"turns of {most}{body.widest_turn_deg:g}°, steps of {most}{body.longest_step:g} m; "
            + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in to_dict(task).items()),
        }
        if isinstance(player, PolicyPlayer) and "frames" in player.info:
            facts["trained for"] = f"{player.info['frames']:,} frames"
        return facts

    def result_rows(self, played: Played) -> list[dict]:
        """Rows for the file of eval/results that has the task's name."""
        player = played.player
        params = {"agent": player.name, "split": self.split, "episodes": len(self.episodes), **unusual(player.config)}
        if isinstance(player, PolicyPlayer):
            params |= {"checkpoint": "/".join(player.checkpoint.parts[-2:]), "sample": player.sample}
            params |= {"renderer": self.renderer, "frames": player.info.get("frames"), "seed": player.info.get("seed")}
            encoder = player.policy.network.config.encoder
            params |= {"encoder": encoder} if encoder != PolicyConfig.encoder else {}
        rows = []
        task = player.config.task_name
        for metric in (metric.name for metric in TASKS[task].metric_specs if metric.headline):
            found = _plain(played.overall[metric])
            ends = {name: found[name] for name in ("low", "high", "scene_low", "scene_high", "scenes")}
            rows.append({
                "benchmark": task, "metric": metric, "value": found["mean"], **ends, "params": params,
                "machine": machine(self.bank.device),
            })  # fmt: skip
        return rows

    def write_results(self, path: Path, played: Played) -> None:
        """All figures and every episode's, whole or not at all; what is not finite becomes null."""
        per_episode = [
            {
                "episode_id": e.episode_id,
                "scene_id": e.scene_id,
                **{m: _number(played.episodes[m][i]) for m in played.overall},
            }
            for i, e in enumerate(self.episodes)
        ]
        data = {
            "agent": played.player.name, "episodes_file": str(self.path),
            "env": to_dict(played.player.config),
            "overall": {metric: _plain(interval) for metric, interval in played.overall.items()},
            "scenes": {
                scene: {metric: _plain(interval) for metric, interval in summary.items()}
                for scene, summary in played.scenes.items()
            },
            "distance_mismatches": played.mismatches, "episodes": per_episode,
        }  # fmt: skip
        with replacing(path, BatchnavError) as part:
            part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def unusual(config: NavConfig) -> dict[str, Any]:
    """Sensors, what cameras are like, whether it looks around, and settings of body and task that are not the defaults.

    By name. It is what tells agents apart; pictures' sizes do not.
    """
    found: dict[str, Any] = {} if config.sensors == NavConfig.sensors else {"sensors": "+".join(config.sensors)}
    found |= {"look_around": True} if config.map.look_around else {}
    for part in (config.body, config.camera, config.task):
        default, sizes = to_dict(type(part)()), ("height", "width")
        found |= {name: value for name, value in to_dict(part).items() if value != default[name] and name not in sizes}
    return found


def _plain(interval: Interval) -> dict[str, float | int | None]:
    return {name: v if isinstance(v, int) else _number(v) for name, v in interval._asdict().items()}


def _number(value: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return float(value) if math.isfinite(value) else None
