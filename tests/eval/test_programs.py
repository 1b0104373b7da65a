"""Command lines of studies and example programs: options out of range are one-line errors."""

import importlib
import sys
import typing

import pytest

from batchnav.cli.console import run
from batchnav.config import ranges

PROGRAMS = {
    "eval.speed_adapters": "Options", "train.ppo_single_file": "Args",
    **{
        f"eval.studies.{name}": "Options"
        for name in (
            "batch_size", "failures", "families", "habitat", "leave_out", "swapped_goals", "two_gpus", "without_map",
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
        ("eval.studies.habitat", ["x", "--episodes", "e", "--count", "-1"], "--count: found -1"),
        ("eval.studies.leave_out", ["--seeds", "-1"], "--seeds: found -1"),
        ("eval.studies.swapped_goals", ["random", "--num-envs", "0"], "--num-envs: found 0"),
        ("eval.studies.two_gpus", ["--ranks", "0"], "--ranks: found 0"),
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
