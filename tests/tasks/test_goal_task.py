"""`GoalTask` with two toy tasks: sets of places with a category, and a goal pose given by an image."""

import importlib
import math

import numpy as np
import pytest
import torch
from rooms import make_room

from batchnav.agents.registry import make_reference_agent
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError
from batchnav.sim.bodies import FORWARD, STOP
from batchnav.tasks import TASKS

N = 6


@pytest.fixture(scope="module")
def room():
    return make_room(wall=True)


@pytest.fixture
def toys():
    """Modules of the two toy tasks, which are registered in TASKS for one test."""
    known = dict(TASKS)
    modules = [importlib.reload(importlib.import_module(name)) for name in ("toy_category_goal", "toy_pose_goal")]
    yield modules
    TASKS.clear()
    TASKS.update(known)


def category_env(room, seed=2):
    return NavEnv([room], N, "cpu", task="category_goal", sensors=(), seed=seed)


def test_the_nearest_place_of_a_category_counts(room, toys):
    env = category_env(room)
    observation, _ = env.reset()
    assert env.single_observation_space["objectgoal"].shape == () and observation["objectgoal"].dtype == torch.int64
    assert observation["objectgoal"].tolist() == [i % 2 for i in range(N)]
    places = np.array([(x, toys[0].HEIGHT, z) for x, z in toys[0].PLACES], np.float32)
    for i, category in enumerate(observation["objectgoal"].tolist()):
        first, last = toys[0].RANGES[category]
        start = np.repeat(env.sim.bodies.position[i : i + 1].numpy(), last - first, axis=0)
        distances = room.navmesh.geodesic_distance(start, places[first:last])
        assert float(env.task.state.start_distance[i]) == pytest.approx(distances.min(), abs=1e-4)
        np.testing.assert_array_equal(env.task.target[i].numpy(), places[first + distances.argmin()])


def test_stops_at_a_place_succeed_and_every_episode_has_its_own_category(room, toys):
    env = category_env(room)
    observation, _ = env.reset()
    agent, succeeded = make_reference_agent("shortest_path", env), []
    agent.reset(N)
    started = torch.ones(N, dtype=torch.bool)
    for _ in range(150):
        before = observation["objectgoal"].clone()
        observation, _, terminated, _, info = env.step(agent.act(observation, started))
        started = terminated.clone()
        assert torch.equal(observation["objectgoal"], torch.where(terminated, 1 - before, before))
        succeeded += info["episode"]["success"][terminated].tolist()
    assert len(succeeded) >= 2 * N and all(succeeded)


def test_a_stop_at_another_category_fails(room, toys):
    env = category_env(room)
    env.reset()
    near = torch.tensor([5.0, toys[0].HEIGHT, 1.3])  # a step from a place of category 0; headings look along -Z
    env.sim.bodies.position.copy_(near.expand(N, 3))
    env.sim.bodies.heading.zero_()
    env.step(torch.full((N,), FORWARD))
    *_, info = env.step(torch.full((N,), STOP))
    assert info["episode"]["success"].tolist() == [1.0, 0.0] * (N // 2)


def test_a_resumed_run_continues_alike(room, toys):
    env, other = category_env(room), category_env(room, seed=9)
    env.reset()
    actions = torch.randint(0, 4, (60, N), generator=torch.Generator().manual_seed(1))
    for action in actions[:20]:
        env.step(action)
    state = env.state_dict()
    assert {"category", "goal_range"} <= state.keys() and "goal_heading" not in state
    other.load_state_dict(state)
    for action in actions[20:]:
        mine, theirs = env.step(action), other.step(action)
        assert torch.equal(mine[0]["objectgoal"], theirs[0]["objectgoal"]) and torch.equal(mine[1], theirs[1])
    with pytest.raises(CheckpointError, match="category"):
        other.load_state_dict({**state, "category": torch.full((N,), 2)})


def test_a_pose_goal_needs_its_heading(room, toys):
    env = NavEnv([room], N, "cpu", task="pose_goal", sensors=("depth",), height=8, width=8, seed=3)
    observation, _ = env.reset()
    assert set(observation) == {"depth", "goal_depth"}
    image, goal, heading = observation["goal_depth"].clone(), env.task.goal_position, env.task.goal_heading
    assert heading.tolist() == [float(i % 7 - 3) for i in range(N)]
    bodies = env.sim.bodies
    bodies.position.copy_(goal)
    turned = torch.tensor([0.0, 0.9, -0.9, 1.1, -1.1, 2 * math.pi / toys[1].SUCCESS_ANGLE]) * toys[1].SUCCESS_ANGLE
    bodies.heading.copy_(heading)
    assert torch.equal(env.observe()["depth"], image)
    bodies.heading.copy_(heading + turned)
    env.task.state.distance.zero_()
    *_, info = env.step(torch.full((N,), STOP))
    assert info["episode"]["success"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
