"""The mapping agent: its map, its path, its actions, and the program from episodes to tables."""

import json
import math

import numpy as np
import pytest

from batchnav.data.episodes.episode_file import save_episodes
from batchnav.data.episodes.generate import generate_episodes
from batchnav.data.scenes import load_scenes
from batchnav.errors import ArgumentError
from eval.studies import free_space, without_map
from eval.studies.free_space import BLOCKED, CELL, INFLATED, MapperSettings, Maps

SETTINGS = MapperSettings(1.25, 10.0, np.zeros(1), math.radians(10.0), 0.19, 1.0)


@pytest.fixture
def maps():
    """One unexplored map of 4 m by 4 m: a wall across it at z = 2 m, with a door at its right end."""
    rows = columns = 80
    free = np.ones((1, rows, columns), bool)
    free[0, 38:42, :60] = False
    cost = np.ones((1, rows, columns), np.float32)
    explored, increased = (np.zeros((1, rows, columns), bool) for _ in range(2))
    cost_to_go = np.zeros((1, rows, columns), np.float32)
    origin, size = np.zeros((1, 2)), np.array([[rows, columns]])
    return Maps(free, explored, cost, increased, cost_to_go, origin, size, np.ones(1, bool))


def planned_length(maps):
    """Length in metres of the planned path from (1, 3.5) to (1, 0.5), x and z."""
    free_space.march(0, 70, 20, 20.5, 10.5, maps)
    return float(maps.cost_to_go[0, 70, 20]) * CELL


def test_unexplored_cells_are_free_and_a_wall_costs_a_detour(maps):
    assert planned_length(maps) == pytest.approx(3.0, abs=0.01)
    free_space.explore_all(0, maps)
    detour = 2 * math.hypot(2.0, 1.5)
    assert detour < planned_length(maps) < 1.08 * detour
    path = np.zeros((400, 2))
    count = free_space.extract_path(0, 70, 20, 20.5, 10.5, maps, path)
    assert count > 0 and path[:count, 0].max() > 60


def test_a_wall_hides_the_cells_behind_it(maps):
    """From (2, 3.5) along -Z, a wall 1.5 m away fills the image except for the floor in its lowest rows."""
    depth = np.full((64, 64), 1.5 / SETTINGS.reach, np.float32)
    free_space.integrate_depth(0, SETTINGS, 0.0, depth, 40.0, 70.0, maps)
    explored = maps.explored[0]
    assert explored[50, 40] and explored[40, 40] and not explored[:36].any() and not explored[71:].any()
    assert maps.cost[0, 40, 40] == free_space.BLOCKED and maps.increased[0, 40, 40] and maps.cost[0, 50, 40] == 1.0


def test_turns_do_not_alternate():
    """The agent turns towards its waypoint, and does not reverse its previous turn."""
    turn = SETTINGS.turn_angle
    assert free_space.choose_action(0.0, 0.0, -1.0, turn, 0) == without_map.FORWARD
    assert free_space.choose_action(0.0, -1.0, 0.0, turn, 0) == free_space.LEFT
    assert free_space.choose_action(0.0, 1.0, 0.0, turn, free_space.LEFT) == free_space.LEFT
    assert free_space.choose_action(0.0, 0.2, -1.0, turn, free_space.LEFT) == free_space.FORWARD


@pytest.mark.parametrize("sees", ["ahead", "around", "map"])
def test_program(rooms, tmp_path, capsys, sees):
    """On an empty floor with the goal ahead, an unknown map costs no SPL."""
    without_map.main(without_map.Options((rooms / "mine.json.gz",), sees, size=16, num_envs=4, out=tmp_path))
    found = json.loads((tmp_path / f"mine_{sees}.json").read_text())
    assert found["overall"]["success"]["mean"] == 1.0 and found["overall"]["spl"]["mean"] > 0.98
    assert "SPL lost" in capsys.readouterr().out


def test_true_costs_reach_a_distance(maps):
    """The wall extends to the right of column 40: its next metre has true costs, and so do the cells next to it."""
    free, explored = maps.free[0], maps.explored[0]
    free[38:42] = False
    explored[38:, :40] = True
    cost = without_map.true_cost(free, explored, 1.0)
    assert (cost[38:42, 40:60] == BLOCKED).all() and (cost[38:42, 61:] == 1.0).all()
    assert (cost[37, :60] == INFLATED).all() and (cost[:37] == 1.0).all()


def test_true_costs_everywhere_equal_the_map(tmp_path):
    """Paths along walls differ by a cell: the cost of explored cells next to a wall increases when the wall is seen."""
    houses, spl = load_scenes(["house:0-1"], appearance=False), {}
    save_episodes([episode for house in houses for episode in generate_episodes(house, 2)], tmp_path / "mine.json.gz")
    for name, options in {"ahead_truth_100": {"truth_within": 100.0}, "map": {"sees": "map"}}.items():
        without_map.main(without_map.Options((tmp_path / "mine.json.gz",), num_envs=4, out=tmp_path, **options))
        found = json.loads((tmp_path / f"mine_{name}.json").read_text())["overall"]
        assert found["success"]["mean"] == 1.0
        spl[name] = found["spl"]["mean"]
    assert spl["ahead_truth_100"] == pytest.approx(spl["map"], abs=0.01)


def test_invalid_options_are_refused():
    for options, message in (
        ({"unknown": 0.5}, r"unknown: found 0\.5, expected a cost of at least 1"),
        ({"truth_within": -1.0}, r"truth_within: found -1\.0, expected 0 metres or more"),
        (
            {"truth_within": 1.0, "sees": "map"},
            r"truth_within: found 1\.0 with sees map, expected sees ahead or around",
        ),
        ({"truth_within": 1.0, "unknown": 2.0}, r"unknown: found 2\.0 with truth_within, expected one of the two"),
    ):
        with pytest.raises(ArgumentError, match=message):
            without_map.MapPlayer(**options)
