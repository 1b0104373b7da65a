"""The commands `batchnav bench`: bounds of options, default scene."""

import importlib
from typing import get_args, get_type_hints

import pytest

from batchnav.bench import options
from batchnav.cli.bench import SUBCOMMANDS
from batchnav.config import ranges
from batchnav.procedural import BENCHMARK_HOUSE


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_numeric_option_of_a_benchmark_has_bounds(name):
    options = importlib.import_module(f"batchnav.bench.{name}").Options
    for option, kind in get_type_hints(options).items():
        if {int, float} & {kind, *get_args(kind)}:
            assert option in ranges(options)


def test_the_scene_of_benchmarks():
    assert f"house:{BENCHMARK_HOUSE}" == options.SCENE
