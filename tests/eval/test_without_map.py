"""The mapping agent: its map, its path, its actions, and the program from episodes to tables."""

import json

import pytest

from batchnav.errors import ArgumentError
from eval.studies import without_map


@pytest.mark.parametrize("sees", ["ahead", "around", "map"])
def test_program(rooms, tmp_path, capsys, sees):
    """On an empty floor with the goal ahead, an unknown map costs no SPL."""
    without_map.main(without_map.Options((rooms / "mine.json.gz",), sees, size=16, num_envs=4, out=tmp_path))
    found = json.loads((tmp_path / f"mine_{sees}.json").read_text())
    assert found["overall"]["success"]["mean"] == 1.0 and found["overall"]["spl"]["mean"] > 0.98
    assert "SPL lost" in capsys.readouterr().out


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
