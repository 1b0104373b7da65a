"""Helpers of the commands: printing, and options whose values begin with a dash."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from batchnav.errors import printable
from batchnav.runtime.console import terminal


def show(content: Any) -> None:
    """Print one line of text, or a rich table, wrapped at 240 columns unless stdout is a terminal; without markup."""
    content = printable(content) if isinstance(content, str) else content
    terminal(width=None if sys.stdout.isatty() else 240).print(content, soft_wrap=not isinstance(content, Table))


def with_axes(arguments: Sequence[str]) -> list[str]:
    """A command line with "--up -z" as "--up=-z", since a word that begins with a dash is an option otherwise."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--up" and word in ("-x", "-y", "-z"):
            words[-1] = f"--up={word}"
        else:
            words.append(word)
    return words
