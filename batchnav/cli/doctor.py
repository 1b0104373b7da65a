"""`batchnav doctor`: check of this machine, and memory prediction for a training run."""

from __future__ import annotations

from collections.abc import Sequence

import tyro
from rich.table import Table

from batchnav.cli.console import show
from batchnav.diagnostics.doctor import examine, memory_findings
from batchnav.runtime.files.bundled import find_config


def doctor(config: str | None = None) -> None:
    """Check Python, packages, CUDA and OpenGL, and list what to install.

    Args:
        config: training configuration, a file or a bundled name; predict the memory of its run too, which generates the
            scenes.
    """
    table = Table("what", "found", "to do")
    for finding in [*examine(), *(memory_findings(find_config(config)) if config else ())]:
        table.add_row(*finding)
    show(table)


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav doctor`."""
    tyro.cli(doctor, prog="batchnav doctor", args=list(arguments))
