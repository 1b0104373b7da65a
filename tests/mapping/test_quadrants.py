"""Quadrants of cells: closed edges and gaps against the reference, and agents that pass narrow gates."""

import itertools

import map_reference
import numpy as np
import pytest
import torch
from numba import njit

from batchnav.agents.registry import make_reference_agent
from batchnav.evaluation.play import evaluate
from batchnav.evaluation.players import find_players
from batchnav.evaluation.run import Evaluation
from batchnav.mapping import state as quadrants
from batchnav.mapping.state import CELLS, CELLS_PER_WORD, SIDE, MapState
from batchnav.runtime.bundled import find_split
from batchnav.runtime.kernels.arrays import view


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
    player = find_players(["map_planner"], torch.device("cpu"), "pointnav", True, 0)["map_planner"]
    path = find_split("course", "{split}.json.gz")
    evaluation = Evaluation(path, torch.device("cpu"), player.config, 10)
    env = evaluation._environment(evaluation.episodes[80:90], player.env_config)
    assert evaluate(make_reference_agent("map_planner", env), env, 10)["success"].all()
