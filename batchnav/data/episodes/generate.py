"""Generation of episodes: PointNav by the rules of Habitat's generator, ImageNav, and starts for other tasks."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import cast

import torch

from batchnav.data.episodes.episode import Episode, Goal, rotation_of
from batchnav.data.sources.islands import keep_islands
from batchnav.errors import EpisodeError
from batchnav.runtime.checks import check_int
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import MAX_ENVS, Simulator
from batchnav.tasks.flee import Flee, FleeConfig
from batchnav.tasks.goal_task import GoalTaskConfig
from batchnav.tasks.pointnav import PointNav, PointNavConfig, pointnav_simulator

LEVELS = {"easy": (1.5, 3.0), "medium": (3.0, 5.0), "hard": (5.0, 10.0)}
"""Levels of ImageNav: shortest and longest geodesic distance, metres."""
_LEVEL_BIT = 61
"""Lowest bit of a level's seed that holds the level's number: goals of one level are not those of another."""


def generate_episodes(
    scene: Scene, number: int, seed: int = 0, config: GoalTaskConfig | None = None, islands: str = "all"
) -> list[Episode]:
    """Sample PointNav episodes in a scene.

    Start and goal lie on one storey, on an island of radius >= 1.5 m, with a geodesic distance of 1 to 30 m unless
    `config` has other limits; few episodes are nearly straight. The episodes are the first ones that the environments
    of a `PointNavEnv` with this seed sample, so equal scene, number and seed give equal episodes. The scene's navmesh
    is used unchanged: for another body, load the scene with that body's settings.

    Args:
        scene: where the episodes take place.
        number: number of episodes.
        seed: seed for sampling.
        config: distances and success radius, those of any task with a goal; None for PointNav's defaults.
        islands: islands that episodes take place on: "all"; "largest"; "indoor", those below a ceiling, without roofs
            and yards; or the number of an island (`data/sources/islands.py`).

    Raises EpisodeError where the scene offers no episode.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    given = {} if config is None else {f.name: getattr(config, f.name) for f in fields(GoalTaskConfig)}
    scene = keep_islands(scene, islands)
    sim = pointnav_simulator(SceneBank.pack([scene]), number, PointNavConfig(**given), seed=seed)
    sim.reset()
    state = cast(PointNav, sim.task).state
    return _episodes(scene, sim, state.goal, state.start_distance)


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


def generate_starts(scene: Scene, number: int, seed: int = 0) -> list[Episode]:
    """Sample starts in a scene for tasks without a goal, uniformly over its islands of radius >= 1.5 m.

    They are the first starts that environments of Flee or Explore with this seed sample. The goal of each episode is
    the point with the longest shortest path from the start, which is Flee's target. Raises EpisodeError where the scene
    offers no start.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    sim = Simulator(SceneBank.pack([scene]), number, BodyConfig(), lambda sim: Flee(sim, FleeConfig()), seed)
    sim.reset()
    state = cast(Flee, sim.task).state
    return _episodes(scene, sim, state.target, state.reachable)


def _episodes(scene: Scene, sim: Simulator, goal: torch.Tensor, distance: torch.Tensor) -> list[Episode]:
    """The current episodes of a simulator; goals f32 [N, 3], geodesic distances f32 [N] in metres."""
    bodies, task = sim.bodies, sim.task
    return [
        Episode(
            episode_id=str(i),
            scene_id=scene.name,
            start_position=shortest_floats(bodies.position[i]),
            start_rotation=shortest_floats(
                torch.tensor(rotation_of(float(bodies.heading[i])), dtype=torch.float32, device="cpu")
            ),
            goals=(Goal(shortest_floats(goal[i]), task.target_radius),),
            info={"geodesic_distance": shortest_floats(distance[i : i + 1])[0]},
        )
        for i in range(sim.num_envs)
    ]


def shortest_floats(values: torch.Tensor) -> tuple:
    """float32 values as the shortest decimals that parse to the same float32."""
    return tuple(float(str(value)) for value in values.numpy())
