"""Goals that are poses: a place and a heading, which an image shows, as in ImageNav."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from batchnav.data.episodes import Episode
from batchnav.data.formats.dataset import EpisodeDataset
from batchnav.data.goals.kind import FailedEpisode
from batchnav.data.goals.point import PointGoals, generate_episodes
from batchnav.errors import EpisodeError
from batchnav.runtime.checks import check_int
from batchnav.scene.scene import Scene
from batchnav.sim.simulator import MAX_ENVS
from batchnav.tasks.pointnav import PointNavConfig

LEVELS = {"easy": (1.5, 3.0), "medium": (3.0, 5.0), "hard": (5.0, 10.0)}
"""Levels of ImageNav: shortest and longest geodesic distance, metres."""
_LEVEL_BIT = 61
"""Lowest bit of a level's seed that holds the level's number: goals of one level are not those of another."""


WRONG_HEADING, PASSED_BY, EARLY, OUT_OF_STEPS = "wrong heading", "passed by", "stopped early", "out of steps"


class PoseGoals(PointGoals):
    """A place and a heading. The files are PointNav's; `Episode.goal_heading` gives the heading."""

    name, task = "pose", "imagenav"
    failures = {  # noqa: RUF012
        WRONG_HEADING: "it stopped at the goal, but not with its heading, which the configuration asks for",
        PASSED_BY: "it was at the goal, but made no successful stop there",
        EARLY: "it stopped, and had never been at the goal",
        OUT_OF_STEPS: "it did not stop, and had never been at the goal",
    }

    def generate_file(
        self,
        scenes: Iterable[Scene],
        per_scene: int,
        seed: int,
        config: Any,
        device: str | torch.device = "auto",
        skip: Callable[[str], None] = lambda reason: None,
    ) -> EpisodeDataset:
        """Sample the episodes of a file in the published levels of distance."""
        episodes: list[Episode] = []
        for scene in scenes:
            try:
                episodes += generate_imagenav(scene, per_scene, seed)
            except EpisodeError as error:
                skip(str(error))
        return EpisodeDataset(episodes)

    def failure(self, failed: FailedEpisode) -> str:
        """By whether the agent was at the goal, and how the episode ended."""
        at = failed.at(np.array([goal.position for goal in failed.episode.goals], np.float32).reshape(-1, 3))
        if at.any():
            return WRONG_HEADING if failed.stopped and at[-1] else PASSED_BY
        return EARLY if failed.stopped else OUT_OF_STEPS


def generate_imagenav(scene: Scene, number: int, seed: int = 0) -> list[Episode]:
    """Sample ImageNav episodes in a scene, as many of each level of `LEVELS` as of the others.

    Straight paths are kept, as in Mezghani et al., 2021. `info["difficulty"]` names the level. Scene and id of an
    episode determine the goal's heading (`Episode.goal_heading`). A level without episodes in the scene is left out.
    Arguments as in `generate_episodes`. Raises EpisodeError where no level has an episode.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    levels: list[list[Episode]] = []
    problem: EpisodeError | None = None
    for k, (name, (closest, furthest)) in enumerate(LEVELS.items()):
        share = (number + len(LEVELS) - 1 - k) // len(LEVELS)
        config = PointNavConfig(
            success_distance=1.0, closest_goal=closest, furthest_goal=furthest, min_detour_ratio=1.0
        )
        try:
            found = generate_episodes(scene, share, seed ^ k << _LEVEL_BIT, config) if share else []
        except EpisodeError as error:
            problem = error
            continue
        levels.append([replace(episode, info={**episode.info, "difficulty": name}) for episode in found])
    if not levels and problem is not None:
        raise problem
    mixed = [episode for turn in itertools.zip_longest(*levels) for episode in turn if episode is not None]
    return [replace(episode, episode_id=str(i)) for i, episode in enumerate(mixed)]
