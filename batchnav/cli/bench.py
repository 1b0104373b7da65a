"""`batchnav bench ...`: frames and steps per second of this machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import tyro

BENCHMARKS = {
    "render": "frames per second of the renderers",
    "sim": "simulator steps per second",
    "train": "training frames per second from end to end",
    "navmesh": "navmesh queries per second, seconds of baking",
    "load": "seconds to load scenes",
}
"""The modules of `batchnav.bench`, and what each measures."""


def command(arguments: Sequence[str]) -> None:
    """`batchnav bench NAME ...`."""
    name, *rest = arguments or [""]
    if name not in BENCHMARKS:
        lines = (f"  batchnav bench {known} ...\n      {about}" for known, about in BENCHMARKS.items())
        print("\n".join(["usage:", *lines, "", "batchnav bench sim --help ... says more"]))
        sys.exit(0 if name in ("-h", "--help") else 2)
    benchmark = importlib.import_module(f"batchnav.bench.{name}")
    prog = f"batchnav bench {name}"
    benchmark.main(tyro.cli(benchmark.Options, prog=prog, description=benchmark.__doc__, args=rest))
