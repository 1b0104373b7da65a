"""Goals that are points, as in PointNav, or poses, as in ImageNav; and tasks without a goal, whose files hold starts.

Episodes are sampled by the rules of Habitat's generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
import torch

from batchnav.data.episodes import Episode, Goal, episode_table, rotation_of, several_goals
from batchnav.data.formats.dataset import EpisodeDataset
from batchnav.data.goals.kind import (
    FailedEpisode,
    Finding,
    GoalKind,
    ShownGoals,
    distance_mismatches,
    off_navmesh,
    too_far,
)
from batchnav.data.scenes.islands import select_islands
from batchnav.errors import EpisodeError
from batchnav.runtime.checks import check_int
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import MAX_ENVS, Simulator
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.flee import Flee, FleeConfig
from batchnav.tasks.goal_task import GoalTaskConfig
from batchnav.tasks.pointnav import PointNav, PointNavConfig, pointnav_simulator

POINT_FILES = ("point",)
"""Kinds of the files of PointNav and ImageNav, which have one format."""


class PointGoals(GoalKind):
    """A place of the scene."""

    name, task, plays, title = "point", "pointnav", POINT_FILES, "PointNav or ImageNav"

    def generate(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample PointNav episodes with the task's distances between start and goal."""
        found = [episode for scene in scenes for episode in generate_episodes(scene, per_scene, seed, config)]
        return EpisodeDataset(found)

    def unplayable(self, episodes: Sequence[Episode], scene: Scene) -> Iterator[tuple[Episode, str]]:
        """Episodes whose start or goal is off the navmesh, or without a path between them."""
        navmesh = scene.navmesh
        starts = np.array([e.start_position for e in episodes], np.float32)
        goals = np.array([e.goals[0].position for e in episodes], np.float32)
        snapped = navmesh.snap(starts), navmesh.snap(goals)
        islands = navmesh.island(snapped[0]), navmesh.island(snapped[1])
        distances = navmesh.geodesic_distance(starts, goals)
        for i, episode in enumerate(episodes):
            problem = several_goals(episode) or off_navmesh("start_position", starts[i], snapped[0][i])
            problem = problem or off_navmesh("goals[0].position", goals[i], snapped[1][i])
            if not problem and islands[0][i] != islands[1][i]:
                problem = f"the goal lies on island {islands[1][i]} of the navmesh, "
                problem += f"expected the start's island {islands[0][i]}"
            if not problem and not np.isfinite(distances[i]):
                problem = "found no path from start to goal"
            if problem:
                yield episode, f"{episode.label}: {problem}"

    def out_of_reach(self, episodes: Sequence[Episode], scene: Scene, success_distance: float) -> Iterator[str]:
        """Episodes whose goal is farther above or below the navmesh than a success allows."""
        goals = np.array([e.goals[0].position for e in episodes], np.float32).reshape(-1, 3)
        gap = (scene.navmesh.snap(goals) - goals)[:, 1]
        for i in np.flatnonzero(too_far(gap, success_distance)).tolist():
            yield (
                f"{episodes[i].label}: the goal is {abs(gap[i]):.2f} m above or below the navmesh, expected at most "
                f"the success distance of {success_distance:g} m, else no stop succeeds"
            )

    def findings(self, playable: Sequence[Episode], episodes: Sequence[Episode], scene: Scene) -> Iterator[Finding]:
        """Episodes whose stated distance is not that of the navmesh."""
        if playable:
            starts = np.array([episode.start_position for episode in playable], np.float32)
            goals = np.array([episode.goals[0].position for episode in playable], np.float32)
            for text in distance_mismatches(playable, scene.navmesh.geodesic_distance(starts, goals)):
                yield "warning", text

    def table(self, episodes: Sequence[Episode], bank: SceneBank) -> EpisodeTable:
        """Starts and goals of the episodes."""
        return episode_table(episodes, bank.names, bank.device)

    def shown(self, episode: Episode, scene: Scene) -> ShownGoals | None:
        """The goal and the shortest path to it."""
        start = np.array(episode.start_position, np.float32)
        places = np.array([goal.position for goal in episode.goals], np.float32).reshape(-1, 3)
        if not len(places):
            return None
        row = int(np.argmin(scene.navmesh.geodesic_distance(np.repeat(start[None], len(places), axis=0), places)))
        return ShownGoals(places[row], scene.navmesh.shortest_path(start, places[row]))


class NoGoals(PointGoals):
    """No goal. The episodes of files are starts; tasks ignore the goals that they list."""

    name = ""

    def out_of_reach(self, episodes: Sequence[Episode], scene: Scene, success_distance: float) -> Iterator[str]:
        """None: goals are ignored."""
        return iter(())

    def generate(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample starts."""
        return EpisodeDataset([episode for scene in scenes for episode in generate_starts(scene, per_scene, seed)])

    def shown(self, episode: Episode, scene: Scene) -> ShownGoals | None:
        """None."""
        return None


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
        islands: islands that episodes take place on: "all"; "largest"; "indoor", without roofs, yards
            and tops of furniture; or the number of an island (`data/scenes/islands.py`).

    Raises EpisodeError where the scene offers no episode.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    given = {} if config is None else {f.name: getattr(config, f.name) for f in fields(GoalTaskConfig)}
    scene = select_islands(scene, islands)
    sim = pointnav_simulator(SceneBank.pack([scene]), number, PointNavConfig(**given), seed=seed)
    sim.reset()
    state = cast(PointNav, sim.task).state
    return current_episodes(scene, sim, state.goal, state.start_distance)


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
    return current_episodes(scene, sim, state.target, state.reachable)


def current_episodes(scene: Scene, sim: Simulator, goal: torch.Tensor, distance: torch.Tensor) -> list[Episode]:
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


# Goals that are poses: a place and a heading, which an image shows, as in ImageNav

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

    def generate_published(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample episodes in the published levels of distance."""
        return EpisodeDataset([episode for scene in scenes for episode in generate_imagenav(scene, per_scene, seed)])

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
