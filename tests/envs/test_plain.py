"""A whole step of an environment, small enough for kernels in plain Python, which check each index."""

import numpy as np
import pytest
import torch

from batchnav.envs.nav import PointNavEnv
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh
from tests.navmesh import handmade

FLOOR = np.array([[0, 0, 0], [8, 0, 0], [8, 0, 4], [0, 0, 4]], np.float32)


@pytest.mark.plain
def test_episodes_begin_and_end():
    """Four agents of 8x8 pixels on a floor without walls: they see the floor below the horizon, and nothing above."""
    mesh = TriangleMesh(FLOOR, np.array([[0, 2, 1], [0, 3, 2]], np.int32))
    scene = make_scene("rooms", mesh, NavMesh(handmade.two_rooms()))
    env = PointNavEnv([scene], num_envs=4, device="cpu", seed=0, height=8, width=8, max_steps=3)
    observation, _ = env.reset()
    for step in range(4):
        observation, reward, terminated, truncated, _ = env.step(torch.tensor([0, 1, 2, 3]))
        assert terminated.tolist() == [True, False, False, False]
        assert truncated.tolist() == [False, *[step == 2] * 3]
        assert torch.isfinite(reward).all() and torch.isfinite(observation["pointgoal"]).all()
        depth = observation["depth"][:, 0]
        assert (depth[:, :4] == 0).all() and (depth[:, 7] > 0).any()
