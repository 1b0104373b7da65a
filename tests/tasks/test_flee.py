"""Flee: closed forms in simple rooms, and the farthest place against an exhaustive search."""

import math

import numpy as np
import pytest
import torch
from rooms import extent, make_room, play, starts

from batchnav.agents.shortest_path import ShortestPathAgent
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.play import evaluate
from batchnav.sim.bodies import FORWARD, LEFT, STOP

EAST, SOUTH = -math.pi / 2, math.pi
ROUNDING = 1e-4
"""Metres."""


@pytest.fixture(scope="module")
def rooms():
    return {wall: make_room(wall) for wall in (False, True)}


def make(scene, rows, **options):
    return NavEnv([scene], len(rows), "cpu", task="flee", sensors=(), episodes=starts(scene, rows), **options)


def test_rewards_are_changes_of_distance_and_add_up_to_it(rooms):
    env = make(rooms[False], [(1.0, 3.0, EAST)])
    env.reset()
    rewards, metrics = play(env, [FORWARD] * 4)
    assert rewards.flatten().tolist() == pytest.approx([0.25] * 4, abs=ROUNDING)
    assert metrics["distance_from_start"] == pytest.approx(1.0, abs=ROUNDING)
    rewards, metrics = play(env, [LEFT] * 18 + [FORWARD] * 2)  # half a turn, then half the distance back
    assert rewards.flatten().tolist() == pytest.approx([0.0] * 18 + [-0.25] * 2, abs=ROUNDING)
    _, metrics = play(env, [STOP])
    assert metrics["distance_from_start"] == pytest.approx(0.5, abs=ROUNDING)  # the last distance, not the largest
    assert metrics["return"] == pytest.approx(0.5, abs=ROUNDING)
    assert metrics["path_length"] == pytest.approx(1.5, abs=ROUNDING) and metrics["steps"] == 25
    assert metrics["ppl"] == pytest.approx(metrics["share_of_farthest"] * 0.5 / 1.5, abs=ROUNDING)


def test_the_farthest_place_of_an_empty_room_is_its_farthest_corner(rooms):
    scene = rooms[False]
    low, high = extent(scene)
    for x, z in ((1.0, 3.0), (5.0, 1.2), (2.5, 5.5)):
        env = make(scene, [(x, z, 0.0)])
        env.reset()
        expected = math.hypot(max(x - low[0], high[0] - x), max(z - low[2], high[2] - z))
        assert float(env.task.episode_info["reachable"][0]) == pytest.approx(expected, abs=0.02)
        _, metrics = play(env, [FORWARD, STOP])
        assert metrics["share_of_farthest"] == pytest.approx(0.25 / expected, abs=0.01)


def test_the_distance_is_geodesic(rooms):
    """From west of the wall, the farthest place is the north-east corner, on a path around the wall's end."""
    scene = rooms[True]
    env = make(scene, [(1.0, 1.0, SOUTH)])
    env.reset()
    target, reachable = env.task.target[0].numpy(), float(env.task.episode_info["reachable"][0])
    assert target[0] > 5.5 and target[2] < 0.5
    start = env.sim.bodies.position.numpy()
    assert reachable == pytest.approx(float(scene.navmesh.geodesic_distance(start, target[None])[0]), abs=ROUNDING)
    assert reachable > math.dist(start[0], target) + 3.0
    found = evaluate(ShortestPathAgent(env), env, 1)
    assert found["share_of_farthest"][0] > 0.9 and found["steps"][0] < 150


def test_no_point_is_much_farther_than_the_farthest_place():
    scene = load_scene("house:3")
    env = NavEnv([scene], 8, "cpu", task="flee", sensors=(), seed=3)
    env.reset()
    points = scene.navmesh.sample(1500, seed=1)
    for i in range(8):
        start = env.sim.bodies.position[i : i + 1].numpy()
        distances = scene.navmesh.geodesic_distance(np.repeat(start, len(points), axis=0), points)
        most, reachable = distances[np.isfinite(distances)].max(), float(env.task.episode_info["reachable"][i])
        assert reachable > 0.97 * most
        there = scene.navmesh.geodesic_distance(start, env.task.target[i : i + 1].numpy())[0]
        assert reachable == pytest.approx(float(there), abs=1e-3)


def test_settings_scale_the_reward(rooms):
    env = make(rooms[False], [(1.0, 3.0, EAST)], distance_reward=2.0, max_steps=3)
    env.reset()
    rewards, metrics = play(env, [FORWARD] * 3)
    assert rewards.flatten().tolist() == pytest.approx([0.5] * 3, abs=ROUNDING)
    assert env.sim.bodies.truncated.all() and metrics["return"] == pytest.approx(1.5, abs=ROUNDING)
    rewards, metrics = play(env, [FORWARD])  # the next episode, from the same start, begins at 0
    assert metrics["return"] == pytest.approx(0.5, abs=ROUNDING) and metrics["steps"] == 1
    assert torch.equal(rewards, torch.full((1, 1), float(rewards)))
