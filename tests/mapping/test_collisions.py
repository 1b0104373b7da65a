"""Collisions and traversed cells on the map, and the paths around and through them."""

import itertools
import math

import map_reference
import numpy as np
import pytest
import torch
from map_helpers import SENSORS, check_path_costs, follow_waypoints, map_codes, reached_by
from numba import njit

from batchnav.agents.registry import make_reference_agent
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.play import evaluate
from batchnav.evaluation.players import find_players
from batchnav.evaluation.run import Evaluation
from batchnav.mapping import state as quadrants
from batchnav.mapping.state import (
    CELLS,
    CELLS_PER_WORD,
    EXPLORED,
    MAX_TRAVERSED,
    OCCUPIED,
    SIDE,
    TRAVERSED,
    TRAVERSED_OBSTACLE,
    MapState,
)
from batchnav.runtime.bundled import find_split
from batchnav.runtime.kernels.arrays import view
from batchnav.sim.bodies import FORWARD, LEFT


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def test_collisions_are_on_the_map(house):
    """The map of a blind agent holds its collisions and nothing else. Agents reach their goals by touch alone."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_depth=0.05, max_steps=200)
    follow_waypoints(env, 40)
    before = map_codes(env)[0].copy()
    collisions, found = env.sim.bodies.collisions.numpy(), (before >= TRAVERSED_OBSTACLE).sum((1, 2))
    assert (found <= collisions).all() and np.mean(found > 0) > 0.8  # sliding along a wall marks nothing
    for _ in range(3):  # neither a second observation nor a turn is another collision
        env.observe()
        env.step([LEFT] * 32)
    assert (map_codes(env)[0] == before).all()
    assert reached_by(env, "waypoint", 2) > reached_by(env, "pointgoal", 2) + 0.2


def test_repeated_collisions_raise_the_cost(house):
    """Agents that keep going forward collide in the same cells. Path costs agree with the reference mapper."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    for _ in range(40):
        distances = env.step([FORWARD] * 32)[0]["waypoint"][:, 0].numpy()
    occupancy, _ = map_codes(env)
    check_path_costs(env, distances)
    assert (occupancy.max((1, 2)) > OCCUPIED + 10).mean() > 0.8
    repeated = (occupancy > OCCUPIED + 5).sum((1, 2))  # includes the nearer cell, unless it is the agent's own
    assert (repeated >= 2).mean() > 0.4
    for _ in range(220):
        env.step([FORWARD] * 32)
    assert 190 < map_codes(env)[0].max() <= 200


def test_collisions_in_traversed_cells_raise_the_cost(house):
    """Traversed cells do not become occupied; their cost rises up to a bound, as in the reference mapper."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    env.mapper.map_state.explored.fill_(TRAVERSED)
    for _ in range(40):
        distances = env.step([FORWARD] * 32)[0]["waypoint"][:, 0].numpy()
    occupancy, explored = map_codes(env)
    assert occupancy.max() == TRAVERSED_OBSTACLE and ((explored > TRAVERSED + 5).sum((1, 2)) > 0).mean() > 0.8
    check_path_costs(env, distances)
    for _ in range(60):
        env.step([FORWARD] * 32)
    as_occupied = 1000 // (10 * 2)  # collisions that cost as much as an occupied cell
    assert 30 < map_codes(env)[1].max() <= MAX_TRAVERSED < TRAVERSED + as_occupied


def test_a_collision_in_a_traversed_obstacle_blocks_the_line_of_sight(house):
    """The waypoint lies straight across a traversed wall until the agent collides in it."""
    wall = dict.fromkeys(RING, TRAVERSED_OBSTACLE)
    deviation = []
    for collisions in (0, 1):
        env, waypoint, goal = in_a_clearing(house, wall, TRAVERSED + collisions)
        deviation.append((waypoint[:, 1] - goal[:, 1]).abs())
        assert env.mapper.map_state.occupancy.max() == TRAVERSED_OBSTACLE
    before, after = deviation
    assert (before < 1e-6).any() and (after >= before - 1e-6).all() and (after > before + 0.05).any()


def test_traversed_cells_have_no_gaps(house):
    """With steps longer than a cell, cells between two positions are traversed too, from the start position on."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, max_steps=50, forward_step=0.5)
    follow_waypoints(env, 60)  # into the second episode
    positions = [env.sim.bodies.position[:, [0, 2]].clone()]
    for _ in range(30):
        env.step([FORWARD] * 8)
        positions.append(env.sim.bodies.position[:, [0, 2]].clone())
    state = env.mapper.map_state
    for before, after in itertools.pairwise(positions):
        for place in (before + share * (after - before) for share in (0.0, 1 / 3, 2 / 3, 1.0)):
            u, v = ((place - state.origin_and_resolution[:, :2]) / state.origin_and_resolution[:, 2:]).int().unbind(1)
            assert (state.explored[torch.arange(8), v * SIDE + u] >= TRAVERSED).all()
    traversed = (state.explored >= TRAVERSED).sum(1)
    assert (traversed <= 3 * 41 + 1).all(), "the map holds positions of the previous episode"


def test_paths_of_agents_in_a_walls_cells_do_not_cross_it(house):
    """A wall one cell thick, explored on one side only; agents traverse its cells. The goal is on the other side."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    state = env.mapper.map_state
    places = [env.sim.bodies.position[:, [0, 2]], env.task.state.goal[:, [0, 2]]]
    here, goal = (
        ((place - state.origin_and_resolution[:, :2]) / state.origin_and_resolution[:, 2:]).int() for place in places
    )
    crossing = (goal[:, 1] - here[:, 1]).abs() > 2
    occupancy, explored = (part.view(-1, SIDE, SIDE) for part in (state.occupancy, state.explored))
    for i in range(8):  # along a row; the goal is on its far side
        u, v = here[i].tolist()
        near = v - 4 if goal[i, 1] > v else v + 1
        occupancy[i, v, u - 20 : u + 21] = OCCUPIED
        explored[i, v, u - 20 : u + 21] = EXPLORED
        explored[i, near : near + 4, u - 20 : u + 21] = EXPLORED
    observation = env.step([LEFT] * 8)[0]
    around = 0.9 * 20 * state.origin_and_resolution[:, 2]
    assert crossing.sum() >= 3
    assert (observation["waypoint"][crossing, 0] > around[crossing]).all()
    assert (state.expected_cost[crossing] < 5_000).all(), "the path crosses an obstacle"


def in_a_clearing(house, codes, explored=EXPLORED):
    """Eight agents on a map that is free except for some cells, their waypoints and their goal sensors.

    Args:
        house: the scene.
        codes: occupancy codes by row and column, relative to the agent's cell.
        explored: exploration code of all cells.
    """
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    state = env.mapper.map_state
    state.explored.fill_(explored)
    for i in range(8):
        x, z = env.sim.bodies.position[i, [0, 2]].tolist()
        left, top, size = state.origin_and_resolution[i].tolist()
        u, v = int((x - left) / size), int((z - top) / size)
        for (r, c), value in codes.items():
            state.occupancy[i].view(SIDE, SIDE)[v + r, u + c] = value
    obstacles = (state.occupancy >= OCCUPIED).view(8, 1, SIDE, SIDE).float()
    inflated = torch.nn.functional.max_pool2d(obstacles, 3, 1, 1).flatten(1).byte()
    state.occupancy.copy_(torch.maximum(state.occupancy, inflated))
    observation = env.step([LEFT] * 8)[0]
    return env, observation["waypoint"], observation["pointgoal"]


RING = [cell for cell in itertools.product(range(-3, 4), repeat=2) if max(map(abs, cell)) == 3]
"""Rows and columns of a closed ring of cells around the agent, 3 cells away."""


def test_a_path_through_an_obstacle_leads_straight_to_it(house):
    """The waypoint of an enclosed agent is the obstacle on its path, not the cell before it."""
    env, waypoint, _ = in_a_clearing(house, dict.fromkeys(RING, OCCUPIED))
    bodies, state = env.sim.bodies, env.mapper.map_state
    assert (waypoint[:, 0] > 40.0).all(), "the path does not cross an obstacle"
    for i in range(8):
        path = state.path[i, : int(state.path_length[i])].long()
        first = path[(state.occupancy[i, path] >= OCCUPIED).nonzero()[0, 0]]
        origin, size = state.origin_and_resolution[i, :2], state.origin_and_resolution[i, 2]
        centre = (torch.stack([first % SIDE, first // SIDE]) + 0.5) * size + origin
        dx, dz = (centre - bodies.position[i, [0, 2]]).tolist()
        angle = math.atan2(-dx, -dz) - float(bodies.heading[i])
        assert abs(math.remainder(angle - float(waypoint[i, 1]), 2 * math.pi)) < 1e-3


def test_repeated_collisions_block_the_line_of_sight_next_to_them(house):
    """Lines of sight pass through gaps of three cells between posts, but not next to repeated collisions."""
    posts = [(r, c) for r in (-4, -2, 2, 4) for c in (-4, -2, 2, 4)]
    observed = [in_a_clearing(house, dict.fromkeys(posts, code))[1:] for code in (OCCUPIED, OCCUPIED + 1)]
    before, after = ((waypoint[:, 1] - goal[:, 1]).abs() for waypoint, goal in observed)
    assert (after >= before - 1e-6).all() and (after > before + 0.05).any()


# Quadrants of cells: closed edges and gaps against the reference, and agents that pass narrow gates


@njit
def quadrants_of(cell, state):
    return quadrants.quadrants_of(0, np.int32(cell), state)


@njit
def quadrant_bit(cell, u, v):
    return quadrants.quadrant_bit(np.int32(cell), np.float32(u), np.float32(v))


@njit
def is_closed(cell, other, state):
    return quadrants.is_closed(0, np.int32(cell), np.int32(other), state)


@njit
def is_gap(value):
    return quadrants.is_gap(np.int32(value))


def with_quadrants(values):
    """A map with quadrants: values by row and column."""
    state = MapState.empty(1, torch.device("cpu"))
    words = np.zeros(CELLS // CELLS_PER_WORD, np.uint32)
    for (r, c), value in values.items():
        cell = r * SIDE + c
        words[cell // 8] |= np.uint32(value) << np.uint32(4 * (cell % 8))
    state.quadrants[0] = torch.from_numpy(words.view(np.int32))
    return view(state)


def test_every_cell_has_its_own_quadrants():
    values = {(r, c): 1 + (3 * r + c) % 15 for r in range(3) for c in range(20)}
    state = with_quadrants(values)
    for (r, c), value in values.items():
        assert quadrants_of(r * SIDE + c, state) == value
    assert quadrants_of(3 * SIDE, state) == 0


def test_a_point_sets_the_bit_of_its_quarter():
    for (z, x), bit in map_reference.QUARTERS.items():
        for c in range(8, 16):
            found = quadrant_bit(2 * SIDE + c, c + 0.1 + x / 2, 2.1 + z / 2)
            assert int(found) & 0xFFFFFFFF == bit << 4 * (c % 8)


@pytest.mark.parametrize("value", range(16))
def test_closed_edges_and_gaps_equal_the_reference(value):
    own, cells = (5, 6), np.zeros((12, 12), int)
    cells[own] = value
    state = with_quadrants({own: value})
    for dr, dc in itertools.product((-1, 0, 1), repeat=2):
        other = own[0] + dr, own[1] + dc
        here, there = (r * SIDE + c for r, c in (own, other))
        expected = map_reference.is_closed(cells, own, other)
        assert is_closed(here, there, state) == is_closed(there, here, state) == expected
    assert is_gap(value) == (value in map_reference.GAPS)


def test_a_wall_closes_the_edge_that_it_lies_along():
    """A thin wall in the half of a row towards the previous row."""
    wall = with_quadrants({(4, c): 1 + 2 for c in range(9)})
    own = 4 * SIDE + 4
    assert [is_closed(own, 3 * SIDE + c, wall) for c in (3, 4, 5)] == [True] * 3
    assert not any(is_closed(own, cell, wall) for cell in (own - 1, own + 1, 5 * SIDE + 4, 5 * SIDE + 5))


def test_agents_pass_narrow_gates():
    """A map planner reaches all goals in pens with gates of 0.32 to 0.42 m, which no free cell may lie in."""
    player = find_players(["map_planner"], torch.device("cpu"), "pointnav", False, 0)["map_planner"]
    path = find_split("course", "{split}.json.gz")
    evaluation = Evaluation(path, torch.device("cpu"), player.config, 10)
    env = evaluation._environment(range(80, 90), player.env_config)
    assert evaluate(make_reference_agent("map_planner", env), env, 10)["success"].all()
