"""Argument types and printing shared by commands."""

from __future__ import annotations

import sys
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

Up = Literal["auto", "y", "z"]


def show(thing: Any) -> None:
    """Print without markup; long lines are wrapped only on a terminal."""
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(thing, markup=False, highlight=False, soft_wrap=not isinstance(thing, Table))
