"""Helpers of the commands: option types, printing, and translation of former option names."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from batchnav.errors import printable
from batchnav.renamed import warn_renamed
from batchnav.runtime.console.terminal import terminal


def show(content: Any) -> None:
    """Print one line of text, or a rich table, wrapped at 240 columns unless stdout is a terminal; without markup."""
    content = printable(content) if isinstance(content, str) else content
    terminal(width=None if sys.stdout.isatty() else 240).print(content, soft_wrap=not isinstance(content, Table))


AGENT = "AGENT"
"""Value in the mapping of `with_current_names` for an option that became a positional argument."""


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
        warn_renamed("; ".join(changes))
    return [*positional, *others]


def with_axes(arguments: Sequence[str]) -> list[str]:
    """A command line with "--up -z" as "--up=-z", since a word that begins with a dash is an option otherwise."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--up" and word in ("-x", "-y", "-z"):
            words[-1] = f"--up={word}"
        else:
            words.append(word)
    return words
