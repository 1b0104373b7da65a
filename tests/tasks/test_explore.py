"""Explore: rewards and reachable cells in closed form and by brute force, the frontier explorer, errors."""

import math

import numpy as np
import pytest
import torch
from rooms import extent, make_room, play, starts

from batchnav.agents.frontier import FrontierAgent
from batchnav.agents.simple import RandomAgent
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.evaluation.play import evaluate
from batchnav.sim.bodies import FORWARD, LEFT, STOP

EAST = -math.pi / 2
ROUNDING = 1e-5


@pytest.fixture(scope="module")
def room():
    return make_room(wall=False)


def make(scene, rows, **options):
    return NavEnv([scene], len(rows), "cpu", task="explore", sensors=(), episodes=starts(scene, rows), **options)


def test_every_new_cell_gives_a_reward(room):
    """The cell of the start extends 1 m ahead. A cell counts once, also when it is entered again."""
    env = make(room, [(1.0, 3.03, EAST), (2.97, 5.0, 0.0)])
    env.reset()
    rewards, metrics = play(env, [FORWARD] * 9)  # 2.25 m: cells 1 and 2 ahead, entered after 1 and 2 m
    found = rewards.T
    for one in found:
        assert one.sum() == pytest.approx(0.5, abs=ROUNDING) and (one > 0).sum() == 2
        assert (one[:3] == 0).all() and set(one.tolist()) == {0.0, 0.25}
    assert metrics["cells"].tolist() == [2.0, 2.0] == metrics["area"].tolist()
    rewards, metrics = play(env, [LEFT] * 18 + [FORWARD] * 9)  # back to the start
    assert rewards.sum() == 0.0
    rewards, metrics = play(env, [FORWARD] * 9 + [STOP])  # past the start; walls may stop the agents
    assert (metrics["return"] == 0.25 * metrics["cells"]).all() and env.sim.bodies.terminated.all()


def test_reachable_cells_of_an_empty_room(room):
    low, high = extent(room)
    for x, z, heading, size in ((1.03, 3.07, 0.0, 1.0), (2.33, 4.4, EAST, 1.0), (5.1, 0.62, math.pi, 0.5)):
        env = make(room, [(x, z, heading)], cell_size=size)
        env.reset()
        # Cells from wall to wall along each axis of the start's frame; cell 0 extends in both directions.
        across = [math.floor((x - low[0]) / size) + math.floor((high[0] - x) / size) + 1]
        across += [math.floor((z - low[2]) / size) + math.floor((high[2] - z) / size) + 1]
        assert env.task.episode_info["reachable"].tolist() == [across[0] * across[1] - 1]
        _, metrics = play(env, [STOP])
        assert metrics["cells"] == 0.0 == metrics["share_of_reachable"]


def test_reachable_cells_of_a_house_are_those_with_sampled_points():
    """For any start heading: all cells with sampled points are counted, and few others."""
    scene = load_scene("house:3")
    env = NavEnv([scene], 6, "cpu", task="explore", sensors=(), seed=2)
    env.reset()
    points = scene.navmesh.sample(60_000, seed=1)
    islands = scene.navmesh.island(points)
    for i in range(6):
        start, heading = env.sim.bodies.position[i].numpy(), float(env.sim.bodies.heading[i])
        island = scene.navmesh.island(start[None])[0]
        d = points[islands == island] - start
        local = np.stack([d[:, 0] * math.cos(heading) - d[:, 2] * math.sin(heading), d[:, 1],
                          d[:, 0] * math.sin(heading) + d[:, 2] * math.cos(heading)], axis=1)  # fmt: skip
        held = len(np.unique(np.trunc(local).astype(int), axis=0)) - 1
        assert held <= env.task.episode_info["reachable"][i] <= 1.1 * held + 2


def test_the_frontier_explorer_visits_more_cells_than_random_actions(room):
    env = NavEnv([room], 4, "cpu", task="explore", sensors=(), max_steps=400)
    frontier, at_random = (evaluate(agent(env), env, 4) for agent in (FrontierAgent, RandomAgent))
    assert frontier["share_of_reachable"].min() > 0.6 > at_random["share_of_reachable"].max() + 0.1
    assert frontier["share_of_reachable"].max() <= 1.0


def test_a_state_with_too_many_visited_cells_is_refused(room):
    env = make(room, [(1.0, 3.0, EAST)], max_steps=10)
    env.reset()
    state = env.state_dict()
    with pytest.raises(CheckpointError, match="'progress': found 11 to 11, expected 0 to 10"):
        env.load_state_dict({**state, "progress": torch.full((1,), 11.0)})


def test_settings_are_checked(room):
    for options, message in (({"max_steps": 30_000}, "max_steps"), ({"cell_size": 0.1}, "cell_size: found 0.1")):
        with pytest.raises(ConfigError, match=message):
            make(room, [(1.0, 3.0, EAST)], **options)
