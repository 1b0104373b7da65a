"""`batchnav bench NAME`: benchmarks of this machine."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchnav.bench import options
from batchnav.errors import ArgumentError
from batchnav.renamed_keys import current_options
from batchnav.runtime.checks import check_int, check_number
from batchnav.runtime.console.command_line import parse_options

BENCHMARKS = {
    "render": "renderers, frames per second",
    "sim": "simulator, steps per second",
    "train": "end-to-end training, frames per second",
    "navmesh": "navmesh: queries per second, baking time in seconds",
    "load": "scene loading, seconds",
}
"""Descriptions of the benchmarks by name; each is a module of `batchnav.bench`."""

INTEGERS = {
    "num_envs": (1, 2**24), "num_agents": (1, 2**24), "sizes": (1, 4096), "steps": (1, 2**31 - 1),
    "repeats": (1, 100_000), "houses": (1, 100_000), "resident_scenes": (0, 100_000), "rollout_steps": (1, 10_000),
    "minibatch_frames": (1, 2**31 - 1), "updates": (1, 2**31 - 1), "batch": (1, 2**28), "seed": (0, 2**62),
    "num_steps": (1, 10_000), "epochs": (1, 10_000), "minibatches": (1, 2**24),
}  # fmt: skip
"""Lowest and highest value of integer options of the benchmarks and of `eval/speed_adapters.py`, by name."""
NUMBERS = {"seconds": (1e-3, 86_400.0), "noise": (0.0, 1000.0)}
"""Lowest and highest value of the other numeric options, by name."""
OPTIONAL = ("num_agents",)
"""Options of several values that may be empty: the benchmark then has a default for the device."""


def check_options(chosen: Any) -> None:
    """ArgumentError for a numeric option out of range, or an option of several values that has none."""
    for name, value in vars(chosen).items():
        values = value if isinstance(value, tuple) else (value,)
        option = "--" + name.replace("_", "-")
        if not values and name not in OPTIONAL:
            raise ArgumentError(f"{option}: found no value, expected at least one")
        for single in values:
            if name in INTEGERS:
                check_int(option, single, *INTEGERS[name])
            elif name in NUMBERS:
                check_number(option, single, *NUMBERS[name])


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav bench NAME`."""
    name, *rest = arguments or [""]
    if name not in BENCHMARKS:
        lines = (f"  batchnav bench {known} ...\n      {about}" for known, about in BENCHMARKS.items())
        print("\n".join(["usage:", *lines, "", "options of a benchmark: batchnav bench sim --help"]))
        sys.exit(0 if name in ("-h", "--help") else 2)
    kind = bench_options(name)
    arguments = current_options(kind, rest)
    found = parse_options(kind, f"batchnav bench {name}", arguments, describe(name))
    check_options(found)
    importlib.import_module(f"batchnav.bench.{name}").main(found)  # imports PyTorch, which `--help` does not need


def bench_options(name: str) -> type:
    """The options of a benchmark, a dataclass."""
    return getattr(options, f"{name.capitalize()}Options")


def describe(name: str) -> str:
    """The docstring of a benchmark's module, which is not imported."""
    path = Path(options.__file__).with_name(f"{name}.py")
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
