"""Making PointNav episodes by the rules, and with the constants, of Habitat's generator."""

from __future__ import annotations

import torch

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.runtime.checks import check_int
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.simulator import MAX_ENVS
from batchnav.tasks.pointnav import PointNavConfig, pointnav_simulator


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
    bodies, goals = sim.bodies, sim.task.state
    return [
        Episode(
            episode_id=str(i),
            scene_id=scene.name,
            start_position=shortest_floats(bodies.position[i]),
            start_rotation=shortest_floats(torch.tensor(rotation_of(float(bodies.heading[i])))),
            goals=(Goal(shortest_floats(goals.goal[i]), config.success_distance),),
            info={"geodesic_distance": shortest_floats(goals.start_distance[i : i + 1])[0]},
        )
        for i in range(number)
    ]


def shortest_floats(values: torch.Tensor) -> tuple[float, ...]:
    """float32 values as the shortest decimals that read back as them."""
    return tuple(float(str(value)) for value in values.numpy())
