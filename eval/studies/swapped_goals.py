"""Control experiment for ImageNav: evaluate agents while every episode shows the goal image of another episode.

    python eval/studies/swapped_goals.py runs/image random
    python eval/studies/swapped_goals.py runs/image --goals same_scene --episodes data/mine/val.json.gz --record

Each agent plays every episode once for each of --goals. Start, goal and success stay those of the episode; only the
observation "imagegoal" changes:

    own            the episode's own goal image, as in `batchnav evaluate`
    same_scene     the goal image of the next episode of the same scene
    other_scene    the goal image of an episode in the next scene

An agent that finds its goal by the image falls to chance with the goal image of another episode. The program also
prints the share of episodes whose shown goal is within the success distance of their own goal: an agent that always
reaches the shown goal has this success rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro

from batchnav.agents.protocol import Agent
from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.data.episodes import Episode
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import needed_appearance
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import Player, find_players
from batchnav.evaluation.run import Evaluation, result_rows
from batchnav.report.results import append_rows, print_agents
from batchnav.runtime.bundled import find_split
from batchnav.runtime.device import resolve_device
from batchnav.tasks.imagenav import ImageNav

Goals = Literal["own", "same_scene", "other_scene"]


@dataclass(frozen=True)
class Options:
    """Agents, episodes and goal images of the evaluation."""

    agents: tyro.conf.Positional[tuple[str, ...]]
    """Policies of ImageNav (files, run folders, bundled names) and names of reference agents."""
    episodes: Path | None = None
    """Episode file; default: the bundled validation episodes of ImageNav."""
    goals: tuple[Goals, ...] = ("own", "same_scene", "other_scene")
    """Which goal images the agents see, one evaluation each."""
    device: str = "auto"
    """Device of policies and environments: cuda, cpu, or auto for a GPU if there is one."""
    num_envs: int = bounded(256, 1, 2**24)
    """Parallel environments, at most one per episode."""
    record: bool = False
    """Append result rows to eval/results/swapped_goals.jsonl, with the parameter "goals"."""


def main(options: Options) -> None:
    """Evaluate every agent with every choice of goal images; print and record the results."""
    device = resolve_device(options.device)
    players = find_players(options.agents, device, "imagenav")
    config = next(iter(players.values())).config
    path = options.episodes or find_split("val", ImageNav.episode_file)
    fields = frozenset().union(*(needed_appearance(player.config) for player in players.values()))
    evaluation = Evaluation(path, device, config, options.num_envs, appearance=fields)
    shown = {goals: shown_episodes(evaluation.episodes, goals) for goals in options.goals}
    played = {}
    for name, player in players.items():
        images = goal_images(evaluation, player)
        for goals, numbers in shown.items():
            seen = {key: value[numbers] for key, value in images.items()}
            found = evaluation.play(OtherGoals(player, seen))
            played[f"{name}, {goals.replace('_', ' ')}"] = found.overall
            if options.record:
                rows = result_rows(evaluation, found._replace(player=player))
                append_rows("swapped_goals", [{**row, "params": {**row["params"], "goals": goals}} for row in rows])
    print_agents(path.name, played, ImageNav.metric_specs)
    limit = config.task.success_distance
    for goals, numbers in shown.items():
        share = share_near(evaluation, numbers, limit)
        print(f"{goals.replace('_', ' ')}: {share:.3f} of the shown goals are within {limit:g} m of the episode's goal")


class OtherGoals:
    """A `Player` that acts as `player` does, but sees other goal images.

    Args:
        player: the agent.
        images: goal images of all episodes by name of the observation, [M, ...], in the order of the file.
    """

    def __init__(self, player: Player, images: dict[str, torch.Tensor]):
        self.name, self.config, self.env_config = player.name, player.config, player.env_config
        self._player, self._images, self.changes = player, images, player.changes

    def make_agent(self, env: NavEnv) -> Agent:
        """The player's agent, with other goal images."""
        return _OtherGoalsAgent(self._player.make_agent(env), env, self._images)


class _OtherGoalsAgent:
    """An agent whose observations of the goal are replaced."""

    def __init__(self, agent: Agent, env: NavEnv, images: dict[str, torch.Tensor]):
        self._agent, self._env, self._images = agent, env, images

    def reset(self, num_envs: int) -> None:
        """Reset the agent."""
        self._agent.reset(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions. Environments without an episode of the file show the first image."""
        row = self._env.task.state.table_index.clamp(min=0).long()
        shown = {name: images[row] for name, images in self._images.items()}
        return self._agent.act({**observations, **shown}, episode_start)


def shown_episodes(episodes: Sequence[Episode], goals: Goals) -> list[int]:
    """Number of the episode whose goal image each episode shows.

    EpisodeError for "same_scene" where a scene has a single episode, and for "other_scene" with a single scene.
    """
    groups: dict[str, list[int]] = {}
    for number, episode in enumerate(episodes):
        groups.setdefault(episode.scene_id, []).append(number)
    scenes = list(groups)
    if goals == "other_scene" and len(scenes) == 1:
        raise EpisodeError(f"episodes: found the scene {scenes[0]!r} alone, expected two scenes for other_scene")
    shown = list(range(len(episodes)))
    if goals == "own":
        return shown
    for k, (scene, own) in enumerate(groups.items()):
        if goals == "same_scene" and len(own) == 1:
            raise EpisodeError(f"scene {scene!r}: found one episode, expected two or more for same_scene")
        others = [*own[1:], own[0]] if goals == "same_scene" else groups[scenes[(k + 1) % len(scenes)]]
        for j, number in enumerate(own):
            shown[number] = others[j % len(others)]
    return shown


def goal_images(evaluation: Evaluation, player: Player) -> dict[str, torch.Tensor]:
    """Goal images of all episodes in the environment of a player, [M, ...] by name of the observation."""
    found = evaluation.goal_images(player.config, range(len(evaluation.episodes)))
    return {
        name: torch.from_numpy(np.concatenate([images[name].values for images in found])).to(evaluation.bank.device)
        for name in found[0]
    }


def share_near(evaluation: Evaluation, shown: Sequence[int], limit: float) -> float:
    """Share of episodes whose shown goal is in the same scene and less than `limit` metres from the episode's goal."""
    episodes, near = evaluation.episodes, 0
    for scene in evaluation.bank.scenes:
        own = [i for i, k in enumerate(shown) if episodes[i].scene_id == episodes[k].scene_id == scene.name]
        goals = np.array([episodes[i].goals[0].position for i in own], np.float32).reshape(-1, 3)
        others = np.array([episodes[shown[i]].goals[0].position for i in own], np.float32).reshape(-1, 3)
        near += int((scene.navmesh.geodesic_distance(goals, others) < limit).sum())
    return near / len(episodes)


if __name__ == "__main__":
    run(Options, main, __doc__)
