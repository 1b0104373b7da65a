"""Generation of PointNav episodes by the rules and constants of Habitat's generator, and of starts for other tasks."""

from __future__ import annotations

from typing import cast

import torch

from batchnav.data.episodes.episode import Episode, Goal, rotation_of
from batchnav.data.sources.islands import keep_islands
from batchnav.runtime.checks import check_int
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import MAX_ENVS, Simulator
from batchnav.tasks.flee import Flee, FleeConfig
from batchnav.tasks.pointnav import PointNav, PointNavConfig, pointnav_simulator


def generate_episodes(
    scene: Scene, number: int, seed: int = 0, config: PointNavConfig | None = None, islands: str = "all"
) -> list[Episode]:
    """Sample PointNav episodes in a scene.

    Start and goal lie on one storey, on an island of radius >= 1.5 m, with a geodesic distance of 1 to 30 m; few
    episodes are nearly straight. The episodes are the first ones that the environments of a `PointNavEnv` with this
    seed sample, so equal scene, number and seed give equal episodes. The scene's navmesh is used unchanged: for another
    body, load the scene with that body's settings.

    Args:
        scene: where the episodes take place.
        number: number of episodes.
        seed: seed for sampling.
        config: the task; None for the defaults.
        islands: islands that episodes take place on: "all"; "largest"; "indoor", those below a ceiling, without roofs
            and yards; or the number of an island (`data/sources/islands.py`).

    Raises EpisodeError where the scene offers no episode.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    config = config or PointNavConfig()
    scene = keep_islands(scene, islands)
    sim = pointnav_simulator(SceneBank.pack([scene]), number, config, seed=seed)
    sim.reset()
    state = cast(PointNav, sim.task).state
    return _episodes(scene, sim, state.goal, state.start_distance)


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
