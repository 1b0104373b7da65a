"""Making PointNav episodes by the rules, and with the constants, of Habitat's generator."""

from __future__ import annotations

import torch

from batchnav.config import PointNavConfig
from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.pointnav import PointNavSim


def generate_episodes(scene: Scene, number: int, seed: int = 0, config: PointNavConfig | None = None) -> list[Episode]:
    """So many episodes in a scene, on its islands of radius >= 1.5 m, of 1 to 30 m on one storey, few of them straight.

    They are the first that the environments of a `PointNavSim` with this seed sample, so the same scene, number and
    seed give the same episodes. EpisodeError where the scene has none to offer.
    """
    config = config or PointNavConfig()
    sim = PointNavSim(SceneBank.pack([scene]), number, config, seed)
    sim.reset()
    state = sim.state
    return [
        Episode(
            episode_id=str(i),
            scene_id=scene.name,
            start_position=shortest_floats(state.position[i]),
            start_rotation=shortest_floats(torch.tensor(rotation_of(float(state.heading[i])))),
            goals=(Goal(shortest_floats(state.goal[i]), config.success_distance),),
            info={"geodesic_distance": shortest_floats(state.start_distance[i : i + 1])[0]},
        )
        for i in range(number)
    ]


def shortest_floats(values: torch.Tensor) -> tuple[float, ...]:
    """float32 values as the shortest decimals that read back as them."""
    return tuple(float(str(value)) for value in values.numpy())
