"""Helpers of commands and programs: options within their ranges, one-line errors, printing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rich.table import Table

from batchnav.cli.interrupts import end_interrupted, interrupted_with, interrupts_arrive
from batchnav.config import ranges
from batchnav.errors import ArgumentError, BatchnavError, printable
from batchnav.runtime.checks import check_int, check_number
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import terminal

if TYPE_CHECKING:
    from batchnav.data.formats import EpisodeDataset

T = TypeVar("T")


def show(content: Any, width: int = 240) -> None:
    """Print one line of text, or a rich table, wrapped at `width` columns unless stdout is a terminal; no markup."""
    content = printable(content) if isinstance(content, str) else content
    terminal(width=None if sys.stdout.isatty() else width).print(content, soft_wrap=not isinstance(content, Table))


def with_axes(arguments: Sequence[str]) -> list[str]:
    """A command line with "--up -z" as "--up=-z", since a word that begins with a dash is an option otherwise."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--up" and word in ("-x", "-y", "-z"):
            words[-1] = f"--up={word}"
        else:
            words.append(word)
    return words


def check_options(chosen: Any) -> None:
    """ArgumentError for an option out of the range of its field, or an option of several values that has none.

    `chosen`: a dataclass of options. One of several values may be empty where that is its default.
    """
    limits = ranges(type(chosen))
    for field in dataclasses.fields(chosen):
        name, value = "--" + field.name.replace("_", "-"), getattr(chosen, field.name)
        if value == () and field.default != ():
            raise ArgumentError(f"{name}: found no value, expected at least one")
        for single in (value if isinstance(value, tuple) else (value,)) if field.name in limits else ():
            low, high = limits[field.name]
            if isinstance(low, float) and single is not None:
                check_number(name, single, low, high)
            elif single is not None:
                check_int(name, single, int(low), int(high))


def run(kind: type[T], main: Callable[[T], object], description: str | None) -> object:
    """Run a program with the options of the command line; errors of the package and Ctrl-C are printed as one line.

    Args:
        kind: dataclass of the options.
        main: the program; its result is returned.
        description: text of the help above the options.

    Raises:
        SystemExit: an option is out of range, the program raised a BatchnavError, or Ctrl-C.
    """
    try:
        chosen = parse_options(kind, sys.argv[0], sys.argv[1:], description)
        check_options(chosen)
        with interrupts_arrive(), interrupted_with(lambda: ""):
            return main(chosen)
    except BatchnavError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt as error:
        end_interrupted(str(error))


def part_of(options: Any) -> Callable[[EpisodeDataset], EpisodeDataset]:
    """A function that gives the episodes of a file that the options of `evaluate` or `view` choose."""
    from batchnav.data.play import part_to_play

    chosen = options.content_scenes, options.skip_missing
    return lambda dataset: part_to_play(dataset, options.scenes_dir, *chosen)
