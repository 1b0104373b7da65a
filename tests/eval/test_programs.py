"""Command lines of studies and example programs: options out of range are one-line errors."""

import importlib
import json
import sys
import typing

import pytest

from batchnav.cli.console import run
from batchnav.config import ranges
from eval.studies import floors, without_map

PROGRAMS = {
    "eval.speed_adapters": "Options", "eval.record.run": "Options", "train.ppo_single_file": "Args",
    **{
        f"eval.studies.{name}": "Options"
        for name in (
            "batch_size", "failures", "floors", "habitat", "swapped_goals", "many_gpus", "without_map",
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
        ("eval.studies.floors", ["--size", "8"], "--size: found 8"),
        ("eval.record.run", ["x", "--seeds", "-1"], "--seeds: found -1"),
        ("eval.studies.habitat", ["x", "--episodes", "e", "--count", "-1"], "--count: found -1"),
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


# The mapping agent: its map, its path, its actions, and the program from episodes to tables


@pytest.mark.parametrize(("within", "file"), [(None, "mine_map.json"), (1.0, "mine_map_truth_1.json")])
def test_program(rooms, tmp_path, capsys, within, file):
    """On an empty floor with the goal ahead, an unknown map costs no SPL."""
    options = without_map.Options((rooms / "mine.json.gz",), size=16, truth_within=within, num_envs=4, out=tmp_path)
    without_map.main(options)
    found = json.loads((tmp_path / file).read_text())
    assert found["overall"]["success"]["mean"] == 1.0 and found["overall"]["spl"]["mean"] > 0.98
    assert "SPL lost" in capsys.readouterr().out


def test_floors_of_learning_are_three_times_those_of_inference():
    """Forward pass, gradients of inputs, gradients of weights; the image and its one-hot product have no gradient."""
    learning, inference = floors.main(floors.Options(size=32, base_width=8))
    assert 2.5 < learning["operations"] / inference["operations"] <= 3.0
    for row in learning, inference:
        assert 0.0 < row["products"] < row["apart"]
    larger, _ = floors.main(floors.Options(size=64, base_width=8))
    assert learning["products"] < larger["products"] < 4.5 * learning["products"]
