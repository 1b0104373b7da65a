"""`batchnav doctor`: check of this machine, and memory prediction for a training run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from batchnav import __version__
from batchnav.cli.console import show
from batchnav.errors import ArgumentError
from batchnav.runtime.bundled import find_config
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import new_run, next_command

if TYPE_CHECKING:
    from batchnav.diagnostics.installation import Finding

WIDTH = 100
"""Columns of the table where stdout is no terminal."""


def doctor(config: str | None = None, scenes: Path | None = None, split: str = "train") -> None:
    """Check Python, packages, CUDA and OpenGL, and list what to install.

    Args:
        config: training configuration, a file or a bundled name; predict the memory of its run too, which generates the
            scenes.
        scenes: mesh files in a folder, or a dataset: plan memory, disk space and time of all of them. Loads three.
        split: split of a dataset.
    """
    from batchnav.diagnostics.installation import installation  # imports numba, which `--help` does not need

    table = Table("what", "found", "to do", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for finding in [*installation(__version__), *_devices(config, scenes, split)]:
        table.add_row(*finding)
    show(table, WIDTH)
    show(next_command("train an agent", "batchnav", "train", *(("--config", config) if config else ()), *new_run()))
    if not config:
        show(next_command("predict the memory of a run", "batchnav", "doctor", "--config", "pointnav_waypoint_cpu"))


def _devices(config: str | None, scenes: Path | None, split: str) -> list[Finding]:
    """Devices, renderers and memory; without a usable cache folder, the reason why they are missing."""
    from batchnav.diagnostics.installation import Finding

    try:
        # imports kernels, which are cached
        from batchnav.diagnostics.doctor import examine, memory_findings, plan_findings
    except ArgumentError as error:
        return [Finding("kernels, devices", "not examined: kernels need the cache folder", str(error))]
    plan = plan_findings(scenes, split) if scenes else ()
    return [*examine(), *plan, *(memory_findings(find_config(config)) if config else ())]


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav doctor`."""
    parse_options(doctor, "batchnav doctor", arguments)
