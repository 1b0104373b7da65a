"""Command lines of studies and example programs: options out of range are one-line errors."""

import importlib
import json
import sys
import typing

import pytest

from batchnav.cli.console import run
from batchnav.config import ranges
from batchnav.errors import ArgumentError
from eval.studies import families, floors, without_map

PROGRAMS = {
    "eval.speed_adapters": "Options", "eval.record.run": "Options", "train.ppo_single_file": "Args",
    **{
        f"eval.studies.{name}": "Options"
        for name in (
            "batch_size", "failures", "families", "floors", "habitat", "leave_out", "swapped_goals", "many_gpus",
            "without_map",
        )
    },
}  # fmt: skip
"""Name of each program's dataclass of options."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_numeric_option_has_a_range(program):
    kind = getattr(importlib.import_module(program), PROGRAMS[program])
    for name, hint in typing.get_type_hints(kind).items():
        kinds = {hint, *typing.get_args(hint)}
        if kinds & {int, float}:
            assert name in ranges(kind), name


@pytest.mark.parametrize(
    ("program", "arguments", "found"),
    [
        ("eval.speed_adapters", ["--seconds", "nan"], "--seconds: found nan"),
        ("train.ppo_single_file", ["--num-envs", "0"], "--num-envs: found 0"),
        ("train.ppo_single_file", ["--learning-rate", "1e999"], "--learning-rate: found inf"),
        ("eval.studies.batch_size", ["--learning-rates", "1e-3", "nan"], "--learning-rates: found nan"),
        ("eval.studies.failures", ["x", "--episodes", "e", "--out", "o", "--maps", "-1"], "--maps: found -1"),
        ("eval.studies.families", ["x", "--num-envs", "-1"], "--num-envs: found -1"),
        ("eval.studies.floors", ["--size", "8"], "--size: found 8"),
        ("eval.record.run", ["x", "--seeds", "-1"], "--seeds: found -1"),
        ("eval.studies.habitat", ["x", "--episodes", "e", "--count", "-1"], "--count: found -1"),
        ("eval.studies.leave_out", ["--seeds", "-1"], "--seeds: found -1"),
        ("eval.studies.swapped_goals", ["random", "--num-envs", "0"], "--num-envs: found 0"),
        ("eval.studies.many_gpus", ["--ranks", "0"], "--ranks: found 0"),
        ("eval.studies.without_map", ["--truth-within", "nan"], "--truth-within: found nan"),
    ],
)
def test_a_number_out_of_range_is_a_one_line_error(program, arguments, found, monkeypatch):
    """Before the program starts."""
    module = importlib.import_module(program)
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    with pytest.raises(SystemExit) as stopped:
        run(getattr(module, PROGRAMS[program]), pytest.fail, None)
    message = str(stopped.value)
    assert message.startswith(f"error: {found}, expected") and "\n" not in message


# Several policies on several episode files: one table per file


def test_every_policy_plays_every_file(rooms, checkpoint, monkeypatch):
    recorded = []
    monkeypatch.setattr(families, "append_rows", lambda name, rows: recorded.append(rows))
    files = (rooms / "mine.json.gz", rooms / "mine.json.gz")
    families.main(families.Options((checkpoint,), files, device="cpu", record=True))
    first, second = recorded  # one result for each file
    assert [row["metric"] for row in first] == ["success", "spl", "soft_spl"]
    assert [row["value"] for row in first] == [row["value"] for row in second]
    assert all(0.0 <= row["low"] <= row["value"] <= row["high"] <= 1.0 for row in first)


# The mapping agent: its map, its path, its actions, and the program from episodes to tables


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


def test_floors_of_learning_are_three_times_those_of_inference():
    """Forward pass, gradients of inputs, gradients of weights; the image and its one-hot product have no gradient."""
    learning, inference = floors.main(floors.Options(size=32, base_width=8))
    assert 2.5 < learning["operations"] / inference["operations"] <= 3.0
    for row in learning, inference:
        assert 0.0 < row["products"] < row["apart"]
    larger, _ = floors.main(floors.Options(size=64, base_width=8))
    assert learning["products"] < larger["products"] < 4.5 * learning["products"]
