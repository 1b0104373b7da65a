"""`batchnav doctor`: what this machine can do."""

from __future__ import annotations

from collections.abc import Sequence

import tyro
from rich.table import Table

from batchnav.cli.console import show
from batchnav.diagnostics.doctor import examine, memory_findings
from batchnav.runtime.files.bundled import find_config


def doctor(config: str | None = None) -> None:
    """Say what this machine can do and what will be used; for what is missing, what to install.

    Args:
        config: a training configuration, by file or name: also predict the memory that its run takes (makes scenes).
    """
    table = Table("what", "found", "to do")
    for finding in [*examine(), *(memory_findings(find_config(config)) if config else ())]:
        table.add_row(*finding)
    show(table)


def command(arguments: Sequence[str]) -> None:
    """`batchnav doctor`."""
    tyro.cli(doctor, prog="batchnav doctor", args=list(arguments))
