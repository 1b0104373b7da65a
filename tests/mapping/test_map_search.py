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
from batchnav.mapping.search import GOAL_CELLS, KIND, GoalMap
from batchnav.mapping.search_mapper import search_cuda
from batchnav.mapping.state import SIDE
from batchnav.runtime.kernels.arrays import view
from batchnav.sim.bodies import FORWARD, STOP
from tests.tasks.rooms import metrics_of

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


def look(evidence, env, maps, i):
    """Count agent i's current view in the reference of the evidence."""
    goal, triangle = env.bank.appearance.goal, env.frame.triangle("", semantic=True)[i]
    mask = (triangle >= 0) & (goal[triangle.clamp(min=0).long()] == env.task.goal_category[i] + 1)
    depth = env.frame.depth("", semantic=True)[i].cpu().numpy()
    evidence.look(maps[i], depth, mask.cpu().numpy(), reference_camera(env, i), float(env.sim.bodies.position[i, 1]))


def unpacked(words):
    """Pixels, views and misses of words of evidence, int [SIDE, SIDE]."""
    words = words.view(SIDE, SIDE).cpu().numpy()
    return words & 0xFFF, words >> 16 & 15, words >> 20 & 31


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
    layers, goals = map_reference.Layers.empty(), np.zeros((SIDE, SIDE), bool)
    layers.explored[:, :100] = True
    straight = 2 * map_reference.FREE * 5 * map_reference.UNITS
    assert map_reference.nearest_target(layers, goals, (50, 90)) == (4, 9 * straight)
    goals[50, 60] = True
    assert map_reference.nearest_target(layers, goals, (50, 90)) == (1, 29 * straight)
    layers.obstacle[49:52, 59:62] = True
    assert map_reference.nearest_target(layers, goals, (50, 90)) == (2, 28 * straight)
    layers.obstacle[48:53, 58:63] = True
    kind, cost = map_reference.nearest_target(layers, goals, (50, 90))
    assert kind == 3 and cost > map_reference.OBSTACLE_EDGE
    goals[50, 60] = False
    layers.obstacle[:, 97:100] = True
    layers.inflate()
    layers.explored[:, 100] = True
    kind, cost = map_reference.nearest_target(layers, goals, (50, 90))
    assert kind == 5 and cost > map_reference.OBSTACLE_EDGE
    layers.quadrants[:, 97:100] = 1  # obstacles with gaps
    assert map_reference.nearest_target(layers, goals, (50, 90))[0] == 5
    assert map_reference.nearest_target(map_reference.Layers.empty(), goals, (50, 90))[0] == 0


def test_targets_agree_with_the_reference(house, device):
    env, agent = searching(house, device, initial_scan=False)
    observation, _ = env.reset()
    maps = start_maps(env, env.sim.bodies.position[:, [0, 2]])
    evidence = [map_reference.GoalEvidence() for _ in range(N)]
    start, kinds = torch.ones(N, dtype=torch.bool, device=env.device), set()
    for step in range(40):
        for i in range(N):
            look(evidence[i], env, maps, i)
        if step % 8 == 7:
            words = env.mapper.goal_map.evidence.clone()
            env.mapper.map_state.path_length.zero_()
            env.observe()
            state, counters = env.mapper.map_state, env.mapper.goal_map.counters
            for i in range(N):
                pixels, views, misses = unpacked(words[i])
                assert np.abs(pixels - evidence[i].pixels).sum() <= max(2 * BORDER * evidence[i].pixels.sum(), 4)
                for own, expected in ((views, evidence[i].views), (misses, evidence[i].misses)):
                    assert np.abs(own - expected).sum() <= max(2 * BORDER * expected.sum(), 8)
                place = maps[i].place(env.sim.bodies.position[i, [0, 2]].cpu().numpy())
                here = int(place[1]), int(place[0])
                layers, cells = reference_layers(state.layers, i, state.quadrants), env.mapper.goal_cells(i)
                kind, cost = map_reference.nearest_target(layers, cells.view(SIDE, SIDE).cpu().numpy(), here)
                assert int(counters[i, KIND]) == kind
                assert kind == 0 or int(state.cost_to_go[i, 0]) == cost
                assert int(counters[i, GOAL_CELLS]) == int(cells.sum())
                kinds.add(kind)
                look(evidence[i], env, maps, i)  # the images were counted twice
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
        counts.append(int(unpacked(env.mapper.goal_map.evidence[0])[0].sum()))
    assert counts[0] < counts[1] == counts[2]


def test_cells_that_later_views_do_not_confirm_are_taken_back(house):
    """One false mask; then views of the same places without it. True masks that are missed in some views stay."""
    env, _ = searching(house, initial_scan=False)
    env.reset()
    camera, cameras = env.config.camera, env.mapper._run[0]
    depth = torch.full((N, camera.height, camera.width), 2.0)
    goal, nothing = (torch.full(depth.shape, value, dtype=torch.uint8) for value in (255, 0))

    def cells_after(*masks):
        env.mapper.reset()
        for mask in masks:
            env.mapper.search(depth, mask, cameras)
        return int(env.mapper.goal_cells(0).sum())

    seen = cells_after(goal)
    assert seen > 0 and cells_after(goal, nothing, nothing) == seen
    assert cells_after(goal, nothing, nothing, nothing) == 0
    assert cells_after(*(goal, nothing, goal) * 20) == seen
    assert cells_after(goal, *(nothing,) * 60, *(goal,) * 40) == seen
    env.mapper.reset()
    env.mapper.search(depth / 4, goal, cameras)
    assert not env.mapper.arrived.any(), "one view of a goal close by is no proof"
    for _ in range(2):
        env.mapper.search(depth / 4, goal, cameras)
    assert env.mapper.arrived.all()
    env.mapper.search(depth * 2, goal, cameras)
    far = env.mapper.goal_cells(0)
    for _ in range(8):
        env.mapper.search(depth * 2, nothing, cameras)
    assert torch.equal(env.mapper.goal_cells(0), far), "what is far is not taken back"


def test_map_searcher_with_the_masks_of_a_detector(house):
    """It finds most goals although the masks miss, confuse, invent, and come late."""
    env, agent = searching(house, n=8, mask_noise=1.0)
    found = evaluate(agent, env, 16)
    assert found["success"].mean() >= 0.6


def test_map_searcher_finds_most_goals(house):
    ended = metrics_of("map_searcher", searching(house, n=8)[0], 150)
    assert len(ended) >= 8 and ended.mean() >= 0.75


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
