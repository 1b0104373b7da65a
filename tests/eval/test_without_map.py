"""The mapping agent: what it sees, the way that it plans, and the program from episodes to its tables."""

import json
import math

import numpy as np
import pytest

from batchnav.data.episodes.episode_file import save_episodes
from batchnav.data.episodes.generate import generate_episodes
from batchnav.data.scenes import load_scenes
from batchnav.errors import ArgumentError
from eval.studies import free_space, without_map
from eval.studies.free_space import BLOCKED, CELL, MARGIN, Maps, Settings

SETTINGS = Settings(1.25, 10.0, np.zeros(1), math.radians(10.0), 0.19, 1.0)


@pytest.fixture
def maps():
    """One map of 4 m by 4 m, of which nothing is known: a wall across at z = 2 m, with a door at its right end."""
    rows = columns = 80
    free = np.ones((1, rows, columns), bool)
    free[0, 38:42, :60] = False
    cost = np.ones((1, rows, columns), np.float32)
    known, dearer = (np.zeros((1, rows, columns), bool) for _ in range(2))
    time = np.zeros((1, rows, columns), np.float32)
    return Maps(free, known, cost, dearer, time, np.zeros((1, 2)), np.array([[rows, columns]]), np.ones(1, bool))


def arrival_time(maps):
    """Metres that the plan says it takes from (1, 3.5) to (1, 0.5), x and z."""
    free_space.plan(0, 70, 20, 20.5, 10.5, maps)
    return float(maps.time[0, 70, 20]) * CELL


def test_unknown_is_free_and_a_wall_costs_the_way_around(maps):
    assert arrival_time(maps) == pytest.approx(3.0, abs=0.01)
    free_space.reveal_all(0, maps)
    around = 2 * math.hypot(2.0, 1.5)
    assert around < arrival_time(maps) < 1.08 * around
    path = np.zeros((400, 2))
    count = free_space.descend(0, 70, 20, 20.5, 10.5, maps, path)
    assert count > 0 and path[:count, 0].max() > 60


def test_a_wall_hides_what_is_behind_it(maps):
    """From (2, 3.5) along -Z a wall 1.5 m away fills the view, but for its lowest rows: the floor before it."""
    depth = np.full((64, 64), 1.5 / SETTINGS.reach, np.float32)
    free_space.look(0, SETTINGS, 0.0, depth, 40.0, 70.0, maps)
    known = maps.known[0]
    assert known[50, 40] and known[40, 40] and not known[:36].any() and not known[71:].any()
    assert maps.cost[0, 40, 40] == free_space.BLOCKED and maps.dearer[0, 40, 40] and maps.cost[0, 50, 40] == 1.0


def test_turns_end():
    """It turns to what lies aside, and does not turn back at once."""
    turn = SETTINGS.turn
    assert free_space.choose(0.0, 0.0, -1.0, turn, 0) == without_map.FORWARD
    assert free_space.choose(0.0, -1.0, 0.0, turn, 0) == free_space.LEFT
    assert free_space.choose(0.0, 1.0, 0.0, turn, free_space.LEFT) == free_space.LEFT
    assert free_space.choose(0.0, 0.2, -1.0, turn, free_space.LEFT) == free_space.FORWARD


@pytest.mark.parametrize("sees", ["ahead", "around", "map"])
def test_program(rooms, tmp_path, capsys, sees):
    """On a bare floor with the goal ahead nothing is lost by not knowing."""
    without_map.main(without_map.Options((rooms / "mine.json.gz",), sees, size=16, num_envs=4, out=tmp_path))
    found = json.loads((tmp_path / f"mine_{sees}.json").read_text())
    assert found["overall"]["success"]["mean"] == 1.0 and found["overall"]["spl"]["mean"] > 0.98
    assert "SPL lost" in capsys.readouterr().out


def test_truth_is_told_within_a_distance(maps):
    """The wall goes on to the right of column 40: 1 m of it are told, and what is beside those cells is dearer."""
    free, known = maps.free[0], maps.known[0]
    free[38:42] = False
    known[38:, :40] = True
    cost = without_map.true_cost(free, known, 1.0)
    assert (cost[38:42, 40:60] == BLOCKED).all() and (cost[38:42, 61:] == 1.0).all()
    assert (cost[37, :60] == MARGIN).all() and (cost[:37] == 1.0).all()


def test_truth_of_everything_is_the_map(tmp_path):
    """Nearly: seen cells beside an unseen wall become dearer when it is seen, so ways along walls differ by a cell."""
    houses, spl = load_scenes(["house:0-1"], appearance=False), {}
    save_episodes([episode for house in houses for episode in generate_episodes(house, 2)], tmp_path / "mine.json.gz")
    for name, options in {"ahead_truth_100": {"truth_within": 100.0}, "map": {"sees": "map"}}.items():
        without_map.main(without_map.Options((tmp_path / "mine.json.gz",), num_envs=4, out=tmp_path, **options))
        found = json.loads((tmp_path / f"mine_{name}.json").read_text())["overall"]
        assert found["success"]["mean"] == 1.0
        spl[name] = found["spl"]["mean"]
    assert spl["ahead_truth_100"] == pytest.approx(spl["map"], abs=0.01)


def test_what_makes_no_sense_is_refused():
    for options, message in (
        ({"unknown": 0.5}, r"unknown: found 0\.5, expected 1"),
        ({"truth_within": -1.0}, r"truth_within: found -1\.0, expected metres"),
        ({"truth_within": 1.0, "sees": "map"}, r"truth_within: found 1\.0 with sees map, expected eyes"),
        ({"truth_within": 1.0, "unknown": 2.0}, "found truth_within and unknown, expected one of them"),
    ):
        with pytest.raises(ArgumentError, match=message):
            without_map.MapPlayer(**options)
