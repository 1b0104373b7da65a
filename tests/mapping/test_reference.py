"""Kernels against the reference mapper while agents move in a house, and worked numbers of its costs."""

import math

import map_reference
import numpy as np
import pytest
import torch
from map_helpers import (
    SENSORS,
    agent_and_goal,
    reference_camera,
    reference_costs,
    reference_layers,
    start_maps,
    towards,
)

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.state import SIDE, MapLayers
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import FORWARD

N = 3
BORDER = 2e-3
"""Fraction of the known cells that may differ: float32 and float64 round points on a border to different cells."""
ROUNDING = 1e-3
"""Metres and radians, from float32."""


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def update_maps(env, maps):
    """Integrate the current observation of each agent."""
    bodies, depth = env.sim.bodies, env.frame.depth("").cpu().numpy()
    for i, each in enumerate(maps):
        position, heading = bodies.position[i].cpu().numpy(), float(bodies.heading[i])
        each.update(position, heading, int(bodies.collisions[i]), depth[i], reference_camera(env, i))


def compare_layers(env, maps):
    """Kernels and reference agree, except for a few cells at borders."""
    for i, each in enumerate(maps):
        found = reference_layers(env.mapper.map_state.layers, i, env.mapper.map_state.quadrants)
        known = max(int((found.explored | found.obstacle).sum()), 1)
        for name, kernel, expected in zip(found._fields, found, each.layers, strict=True):
            if name == "collisions":  # tensors of `MapLayers` count these only in cells with an obstacle
                expected = expected * found.obstacle
            assert (kernel != expected).sum() <= max(BORDER * known, 4), (i, name)


@pytest.mark.parametrize("settings", [{}, {"max_depth": 0.05}])
def test_maps_agree(house, device, settings):
    """Agents follow their waypoints; every fourth step is forward regardless, so that they collide."""
    env = NavEnv(SceneBank.pack([house], device), N, sensors=SENSORS, height=24, width=24, **settings)
    observation, _ = env.reset(seed=5)
    maps = start_maps(env, env.task.state.goal[:, [0, 2]])
    update_maps(env, maps)
    for step in range(30):
        action = towards(observation["waypoint"][:, 1])
        observation, *_ = env.step(torch.full_like(action, FORWARD) if step % 4 == 3 else action)
        update_maps(env, maps)
    assert env.sim.bodies.collisions.sum() > 0
    compare_layers(env, maps)


def test_paths_and_waypoints_agree(house, device):
    """On equal maps, path costs are equal; waypoints agree to rounding."""
    env = NavEnv(SceneBank.pack([house], device), N, sensors=SENSORS, height=24, width=24)
    observation, _ = env.reset(seed=5)
    hidden_goals, state = 0, env.mapper.map_state
    for step in range(12):
        observation, *_ = env.step(towards(observation["waypoint"][:, 1]))
        if step % 4 != 3:
            continue
        for i in range(N):
            place, goal = agent_and_goal(env, i)
            start, end = (tuple(np.floor(each[::-1]).astype(int).tolist()) for each in (place, goal))
            layers, costs, to_go = reference_costs(state.layers, i, end, None, state.quadrants)
            assert state.expected_cost[i] == to_go[start]
            path = map_reference.extract_path(layers, costs, to_go, start)
            expected = map_reference.waypoint(layers, to_go, path, place, float(env.sim.bodies.heading[i]))
            distance, bearing = observation["waypoint"][i].tolist()
            size = float(state.origin_and_resolution[i, 2])
            if expected is None:
                assert observation["waypoint"][i].tolist() == observation["pointgoal"][i].tolist()
                continue
            hidden_goals += 1
            assert distance == pytest.approx(expected[0] * size, abs=ROUNDING)
            assert abs(math.remainder(bearing - expected[1], 2 * math.pi)) < ROUNDING
    assert hidden_goals > 3


def test_traversal_costs():
    """Worked numbers, in units of a free cell: one cell per pair of codes, with and without collisions."""
    occupancy, explored = torch.zeros(2, 1, SIDE * SIDE, dtype=torch.uint8)
    codes = {
        0: (0, 0), 1: (1, 1), 2: (2, 2), 3: (2, 5), 4: (4, 0), 5: (6, 1), 6: (0, 0), 7: (3, 0), 8: (4, 1), 9: (6, 1),
    }  # fmt: skip
    for cell, (occupancy_code, explored_code) in codes.items():
        occupancy[0, cell], explored[0, cell] = occupancy_code, explored_code
    layers = reference_layers(MapLayers(occupancy, explored), 0)
    layers.quadrants[0, [4, 8, 9]] = 7, 5, 2
    predicted = np.zeros((SIDE, SIDE), int)
    predicted[0, 6] = 6 * COST_UNITS
    costs = map_reference.traversal_costs(layers, predicted)[0, :10] / (2 * COST_UNITS)
    assert costs.tolist() == [1.0, 1.5, 2.0, 32.0, 500.0, 1500.0, 4.0, 100.0, 100.0, 300.0]


def test_edge_costs():
    """Worked numbers, in units of a straight edge between free cells."""
    layers = map_reference.Layers.empty()
    layers.explored[:] = True
    layers.obstacle[0, 2] = True
    layers.inflate()
    costs, free = map_reference.traversal_costs(layers), 2 * 5 * 2 * COST_UNITS
    edge = lambda cell, neighbour: map_reference.edge_cost(layers, costs, cell, neighbour) / free  # noqa: E731
    assert edge((9, 9), (9, 10)) == 1.0 and edge((9, 9), (10, 10)) == 1.4
    assert edge((0, 0), (0, 1)) == 1.25, "one of the two cells is inflated"
    assert edge((0, 1), (1, 2)) == pytest.approx(1.4 * (1.5 + 500) / 2), "a diagonal past an obstacle"
    layers.explored[0, 1] = False
    assert edge((0, 2), (0, 1)) == (500 + 1.5 + 1000) / 2, "an unexplored cell behind an obstacle"


def test_closed_edges():
    """A wall in the half of a cell towards its upper neighbour, and the end of a wall in a quarter."""
    layers = map_reference.Layers.empty()
    layers.explored[:] = True
    layers.obstacle[4, 4], layers.quadrants[4, 4] = True, 1 + 2
    layers.obstacle[4, 9], layers.quadrants[4, 9] = True, 1
    costs, free = map_reference.traversal_costs(layers), 2 * 5 * 2 * COST_UNITS
    edge = lambda cell, neighbour: map_reference.edge_cost(layers, costs, cell, neighbour) / free  # noqa: E731
    assert edge((4, 4), (3, 4)) == edge((3, 4), (4, 4)) == (100 + 1 + 1000) / 2, "across the wall"
    assert edge((4, 4), (5, 4)) == edge((4, 4), (4, 5)) == (100 + 1) / 2, "from the free half"
    assert edge((4, 9), (3, 9)) == edge((4, 9), (4, 8)) == (100 + 1) / 2, "past the end of a wall"
    assert edge((4, 9), (3, 8)) == pytest.approx(1.4 * (100 + 1 + 1000) / 2), "over the end of a wall"
    layers.explored[3, 9] = False
    assert edge((4, 9), (3, 9)) == (100 + 1) / 2, "the space behind a gap is not behind a wall"
