"""Argument types and printing shared by commands."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

Up = Literal["auto", "y", "z"]


def show(thing: Any) -> None:
    """Print without markup; long lines are wrapped only on a terminal."""
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(thing, markup=False, highlight=False, soft_wrap=not isinstance(thing, Table))


AGENT = "AGENT"
"""Stands for an option that became a positional argument (`with_current_names`)."""


def with_current_names(arguments: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """A command line with current option names. One FutureWarning names all options that changed.

    Args:
        arguments: the command line.
        renamed: current names by former ones, with dashes. `AGENT`: the option's value is now a positional argument.
    """
    positional, others, changes = [], [], []
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        option = option.replace("_", "-") if option.startswith("--") else option
        if option not in renamed:
            others.append(word)
        elif renamed[option] == AGENT:
            positional.append(value if equals else next(words, ""))
            changes.append(f"{option} {AGENT} is now the argument {AGENT}")
        else:
            others.append(renamed[option] + equals + value)
            changes.append(f"{option} is now {renamed[option]}")
    if changes:
        warnings.warn("; ".join(changes), FutureWarning, stacklevel=3)
    return [*positional, *others]
