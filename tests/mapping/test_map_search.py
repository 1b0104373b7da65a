"""Search for objects on the agent's own map: goal cells, frontiers, targets, and the agent that walks to them."""

import dataclasses

import map_reference
import numpy as np
import pytest
import torch
from map_helpers import check_ptx, kernel_arguments, reference_camera, reference_layers, start_maps
from numba import typeof

from batchnav.agents.registry import agent_config, make_reference_agent
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import PRESETS, with_options
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.evaluation.play import evaluate
from batchnav.mapping.search import KIND, GoalMap
from batchnav.mapping.search_mapper import search_cuda
from batchnav.mapping.state import SIDE
from batchnav.runtime.kernels.arrays import view
from batchnav.sim.bodies import FORWARD, STOP

N = 4
HOUSE = "house:100003"
BORDER = 0.02
"""Fraction of the goal's pixels that float32 and float64 may assign to different cells."""


@pytest.fixture(scope="module")
def house():
    return load_scene(HOUSE, appearance=True)


def searching(scene, device="cpu", n=N, **options):
    """An environment of the map searcher, and the agent."""
    config = with_options(agent_config("map_searcher", PRESETS["objectnav_houses"]), options)
    env = NavEnv([scene], n, device, task="objectnav", config=config, seed=3)
    return env, make_reference_agent("map_searcher", env)


def seen_hits(env, maps, i):
    """Pixels of agent i's goal in the cells of its map, of the current images, by the reference."""
    goal, triangle = env.bank.appearance.goal, env.frame.triangle("", semantic=True)[i]
    mask = (triangle >= 0) & (goal[triangle.clamp(min=0).long()] == env.task.goal_category[i] + 1)
    depth = env.frame.depth("", semantic=True)[i].cpu().numpy()
    ground = float(env.sim.bodies.position[i, 1])
    return map_reference.goal_hits(maps[i], depth, mask.cpu().numpy(), reference_camera(env, i), ground)


def test_frontiers_of_a_half_explored_plane():
    layers = map_reference.Layers.empty()
    layers.explored[:, :100] = True
    layers.obstacle[50, 100] = True
    layers.inflate()
    found = map_reference.frontiers(layers, is_open=True)
    rows = np.flatnonzero(found[:, 99])
    assert not found[:, :99].any() and not found[:, 100:].any()
    assert set(range(SIDE)) - set(rows.tolist()) == {49, 50, 51}, "cells next to the obstacle are inflated"
    assert map_reference.frontiers(layers, is_open=False)[:, 99].all()
    layers.traversed[10, 99] = True
    assert not map_reference.frontiers(layers, is_open=False)[10, 99]


def test_goals_come_before_frontiers_and_frontiers_behind_walls_come_last():
    layers, hits = map_reference.Layers.empty(), np.zeros((SIDE, SIDE), int)
    layers.explored[:, :100] = True
    straight = 2 * map_reference.FREE * 5 * map_reference.UNITS
    assert map_reference.nearest_target(layers, hits, (50, 90)) == (4, 9 * straight)
    hits[50, 60] = map_reference.HITS
    assert map_reference.nearest_target(layers, hits, (50, 90)) == (1, 29 * straight)
    layers.obstacle[49:52, 59:62] = True
    assert map_reference.nearest_target(layers, hits, (50, 90)) == (2, 28 * straight)
    layers.obstacle[48:53, 58:63] = True
    kind, cost = map_reference.nearest_target(layers, hits, (50, 90))
    assert kind == 3 and cost > map_reference.OBSTACLE_EDGE
    hits[50, 60] -= 1
    layers.obstacle[:, 97:100] = True
    layers.inflate()
    layers.explored[:, 100] = True
    kind, cost = map_reference.nearest_target(layers, hits, (50, 90))
    assert kind == 5 and cost > map_reference.OBSTACLE_EDGE
    layers.quadrants[:, 97:100] = 1  # obstacles with gaps
    assert map_reference.nearest_target(layers, hits, (50, 90))[0] == 5
    assert map_reference.nearest_target(map_reference.Layers.empty(), hits, (50, 90))[0] == 0


def test_targets_agree_with_the_reference(house, device):
    env, agent = searching(house, device, initial_scan=False)
    observation, _ = env.reset()
    maps, hits = start_maps(env, env.sim.bodies.position[:, [0, 2]]), np.zeros((N, SIDE, SIDE), int)
    start, kinds = torch.ones(N, dtype=torch.bool, device=env.device), set()
    for step in range(40):
        for i in range(N):
            hits[i] += seen_hits(env, maps, i)
        if step % 8 == 7:
            before = env.mapper.goal_map.hits.clone()
            env.mapper.map_state.path_length.zero_()
            env.observe()
            state, counters = env.mapper.map_state, env.mapper.goal_map.counters
            for i in range(N):
                own = env.mapper.goal_map.hits[i].view(SIDE, SIDE).cpu().numpy()
                counted = before[i].view(SIDE, SIDE).cpu().numpy()
                assert np.abs(counted - hits[i]).sum() <= max(2 * BORDER * hits[i].sum(), 4)
                place = maps[i].place(env.sim.bodies.position[i, [0, 2]].cpu().numpy())
                here = int(place[1]), int(place[0])
                layers = reference_layers(state.layers, i, state.quadrants)
                kind, cost = map_reference.nearest_target(layers, own, here)
                assert int(counters[i, KIND]) == kind
                assert kind == 0 or int(state.cost_to_go[i, 0]) == cost
                kinds.add(kind)
                hits[i] = own  # the images were counted twice
        action = agent.act(observation, start)
        observation, *_ = env.step(torch.where(action == STOP, FORWARD, action))
    assert {1, 4} <= kinds


def test_each_update_reads_its_own_masks(house):
    env, _ = searching(house, initial_scan=False)
    env.reset()
    camera, cameras = env.config.camera, env.mapper._run[0]
    depth = torch.full((N, camera.height, camera.width), 2.0)
    counts = []
    for value in (0, 255, 0):
        env.mapper.search(depth, torch.full(depth.shape, value, dtype=torch.uint8), cameras)
        counts.append(int(env.mapper.goal_map.hits.sum()))
    assert counts[0] < counts[1] == counts[2]


def test_map_searcher_finds_most_goals(house):
    env, agent = searching(house, n=8)
    observation, _ = env.reset()
    agent.reset(8)
    start, ended = torch.ones(8, dtype=torch.bool), []
    for _ in range(150):
        observation, _, terminated, truncated, info = env.step(agent.act(observation, start))
        start = terminated | truncated
        ended += info["episode"]["success"][start].tolist()
    assert len(ended) >= 8 and np.mean(ended) >= 0.75


def test_map_searcher_stops_at_goals_with_large_steps_and_turns(house):
    """No episode takes all 500 steps: no agent walks to and fro."""
    env, agent = searching(house, n=8, turn_angle_deg=30.0, forward_step=0.5, height=32, width=32)
    found = evaluate(agent, env, 8)
    assert found["steps"].max() < 250 and found["success"].mean() >= 0.75


def test_ego_map_shows_goals_and_frontiers(house):
    config = dataclasses.replace(PRESETS["objectnav_houses"], sensors=("depth", "ego_map", "waypoint"))
    env = NavEnv([house], N, "cpu", task="objectnav", config=config)
    agent = make_reference_agent("map_searcher", env)
    observation, _ = env.reset()
    start, shown = torch.zeros(N, dtype=torch.bool), set()
    for _ in range(60):
        shown |= set((observation["ego_map"] * 10).int().unique().tolist())
        observation, *_ = env.step(agent.act(observation, start))
    assert {0, 1, 2, 3, 4, 5, 6, 7} <= shown


def test_anticipation_is_refused(house):
    with pytest.raises(ConfigError, match="anticipation: found 'occupancy' with a search for objects"):
        searching(house, anticipation="occupancy")


def test_the_kernel_compiles_for_the_gpu(compile_ptx):
    given, device = kernel_arguments(), torch.device("cpu")
    depth, mask, waypoint = np.zeros((1, 8, 8), np.float32), np.zeros((1, 8, 8), np.uint8), np.zeros((1, 2), np.float32)
    seen = tuple(given[name] for name in ("cameras", "agents", "parameters"))
    records = given["schedule"], given["search"], given["state"], view(GoalMap.empty(1, device))
    ego_map = np.zeros((1, 1, 8, 8), np.float32)
    check_ptx(compile_ptx(search_cuda, *map(typeof, (depth, mask, seen, *records, waypoint, ego_map))))
