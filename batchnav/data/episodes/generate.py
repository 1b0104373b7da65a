"""Making PointNav episodes by the rules, and with the constants, of Habitat's generator; and starts without a goal."""

from __future__ import annotations

from typing import cast

import torch

from batchnav.data.episodes.episode import Episode, Goal, rotation_of
from batchnav.runtime.checks import check_int
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import MAX_ENVS, Simulator
from batchnav.tasks.flee import Flee, FleeConfig
from batchnav.tasks.pointnav import PointNav, PointNavConfig, pointnav_simulator


def generate_episodes(scene: Scene, number: int, seed: int = 0, config: PointNavConfig | None = None) -> list[Episode]:
    """So many episodes in a scene, on its islands of radius >= 1.5 m, of 1 to 30 m on one storey, few of them straight.

    They are the first that the environments of a `PointNavEnv` with this seed sample, so the same scene, number and
    seed give the same episodes. The scene's navmesh is taken as it is: whoever wants episodes for another body than it
    was baked for loads the scene with that body's settings. EpisodeError where the scene has none to offer.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    config = config or PointNavConfig()
    sim = pointnav_simulator(SceneBank.pack([scene]), number, config, seed=seed)
    sim.reset()
    state = cast(PointNav, sim.task).state
    return _episodes(scene, sim, state.goal, state.start_distance)


def generate_starts(scene: Scene, number: int, seed: int = 0) -> list[Episode]:
    """So many starts in a scene for tasks without a goal, uniform over its islands of radius >= 1.5 m.

    The first that environments of Flee or Explore with this seed sample. As goal the file has the place that is
    farthest by path, which is Flee's target. EpisodeError where the scene has no start to offer.
    """
    number = check_int("number", number, 1, MAX_ENVS)
    sim = Simulator(SceneBank.pack([scene]), number, BodyConfig(), lambda sim: Flee(sim, FleeConfig()), seed)
    sim.reset()
    state = cast(Flee, sim.task).state
    return _episodes(scene, sim, state.target, state.reachable)


def _episodes(scene: Scene, sim: Simulator, goal: torch.Tensor, distance: torch.Tensor) -> list[Episode]:
    """The running episodes of a simulator with their goals f32 [N, 3], so far away f32 [N]."""
    bodies, task = sim.bodies, sim.task
    return [
        Episode(
            episode_id=str(i),
            scene_id=scene.name,
            start_position=shortest_floats(bodies.position[i]),
            start_rotation=shortest_floats(torch.tensor(rotation_of(float(bodies.heading[i])))),
            goals=(Goal(shortest_floats(goal[i]), task.target_radius),),
            info={"geodesic_distance": shortest_floats(distance[i : i + 1])[0]},
        )
        for i in range(sim.num_envs)
    ]


def shortest_floats(values: torch.Tensor) -> tuple:
    """float32 values as the shortest decimals that read back as them."""
    return tuple(float(str(value)) for value in values.numpy())
