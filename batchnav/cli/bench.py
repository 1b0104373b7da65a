"""`batchnav bench NAME`: benchmarks of this machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import tyro

from batchnav.renamed_keys import current_options

BENCHMARKS = {
    "render": "renderers, frames per second",
    "sim": "simulator, steps per second",
    "train": "end-to-end training, frames per second",
    "navmesh": "navmesh: queries per second, baking time in seconds",
    "load": "scene loading, seconds",
}
"""Descriptions of the benchmarks by name; each is a module of `batchnav.bench`."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav bench NAME`."""
    name, *rest = arguments or [""]
    if name not in BENCHMARKS:
        lines = (f"  batchnav bench {known} ...\n      {about}" for known, about in BENCHMARKS.items())
        print("\n".join(["usage:", *lines, "", "options of a benchmark: batchnav bench sim --help"]))
        sys.exit(0 if name in ("-h", "--help") else 2)
    benchmark = importlib.import_module(f"batchnav.bench.{name}")
    options = current_options(benchmark.Options, rest)
    prog = f"batchnav bench {name}"
    benchmark.main(tyro.cli(benchmark.Options, prog=prog, description=benchmark.__doc__, args=options))
