"""`GoalTask` with a toy task: a goal pose given by an image."""

import importlib
import math

import pytest
import torch
from rooms import make_room

from batchnav.envs.nav import NavEnv
from batchnav.sim.bodies import STOP
from batchnav.tasks import TASKS

N = 6


@pytest.fixture(scope="module")
def room():
    return make_room(wall=True)


@pytest.fixture
def toy():
    """Module of the toy task, which is registered in TASKS for one test."""
    known = dict(TASKS)
    yield importlib.reload(importlib.import_module("toy_pose_goal"))
    TASKS.clear()
    TASKS.update(known)


def test_a_pose_goal_needs_its_heading(room, toy):
    env = NavEnv([room], N, "cpu", task="pose_goal", sensors=("depth",), height=8, width=8, seed=3)
    observation, _ = env.reset()
    assert set(observation) == {"depth", "goal_depth"}
    image, goal, heading = observation["goal_depth"].clone(), env.task.goal_position, env.task.goal_heading
    assert heading.tolist() == [float(i % 7 - 3) for i in range(N)]
    bodies = env.sim.bodies
    bodies.position.copy_(goal)
    turned = torch.tensor([0.0, 0.9, -0.9, 1.1, -1.1, 2 * math.pi / toy.SUCCESS_ANGLE]) * toy.SUCCESS_ANGLE
    bodies.heading.copy_(heading)
    assert torch.equal(env.observe()["depth"], image)
    bodies.heading.copy_(heading + turned)
    env.task.state.distance.zero_()
    *_, info = env.step(torch.full((N,), STOP))
    assert info["episode"]["success"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
