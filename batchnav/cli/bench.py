"""`batchnav bench NAME`: benchmarks of this machine."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from batchnav.bench import options
from batchnav.cli.console import check_options, show
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import new_run, next_command

SUBCOMMANDS = {
    "render": "renderers, frames per second",
    "sim": "simulator, steps per second",
    "env": "NavEnv.step, frames per second",
    "train": "end-to-end training, frames per second",
    "navmesh": "navmesh: queries per second, baking time in seconds",
    "scans": "scans of real size: loading, memory, frames per second",
}
"""Descriptions of the benchmarks by name; each is a module of `batchnav.bench`."""
NEXT = {
    "render": ("measure training", "batchnav", "bench", "train"),
    "sim": ("measure training", "batchnav", "bench", "train"),
    "train": ("train an agent", "batchnav", "train"),
}
"""Next steps after a benchmark: the purpose and the words of a command, which takes the same device."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav bench NAME`."""
    name, *rest = arguments or [""]
    if name not in SUBCOMMANDS:
        lines = (f"  batchnav bench {known} ...\n      {about}" for known, about in SUBCOMMANDS.items())
        print("\n".join(["usage:", *lines, "", "options of a benchmark: batchnav bench sim --help"]))
        sys.exit(0 if name in ("-h", "--help") else 2)
    kind = bench_options(name)
    found = parse_options(kind, f"batchnav bench {name}", rest, describe(name))
    check_options(found)
    importlib.import_module(f"batchnav.bench.{name}").main(found)  # imports PyTorch, which `--help` does not need
    if name in NEXT and os.environ.get("RANK", "0") == "0" and not getattr(found, "json", False):
        out = new_run() if name == "train" else ()
        show(next_command(*NEXT[name], "--device", found.device, *out))


def bench_options(name: str) -> type:
    """The options of a benchmark, a dataclass."""
    return getattr(options, f"{name.capitalize()}Options")


def describe(name: str) -> str:
    """The docstring of a benchmark's module, which is not imported."""
    path = Path(options.__file__).with_name(f"{name}.py")
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
