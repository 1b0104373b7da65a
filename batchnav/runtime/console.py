"""Terminal output: consoles that never print control characters of names, status lines, progress of long work."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.progress import Progress
from rich.segment import Segment

from batchnav.errors import printable, shell_word
from batchnav.runtime.imports import shortest_install


def terminal(**options: Any) -> Console:
    """A console without markup and emoji codes, on which control characters in texts and tables appear escaped.

    `options`: as in `rich.console.Console`, for example `stderr`, `width`, `quiet`.
    """
    console = Console(markup=False, emoji=False, highlight=False, **options)
    console.push_render_hook(_Escaping())
    return console


class _Escaping(RenderHook):
    """Wraps all that a console renders, except rich's own control codes."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [each if isinstance(each, Control) else _Escaped(each) for each in renderables]


class _Escaped:
    """A renderable whose text has no control characters."""

    def __init__(self, content: ConsoleRenderable):
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._content, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(_lines(segment.text), segment.style)


class PlainStream:
    """A text stream that writes control characters other than line breaks escaped, and is no terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        return self._stream.write(_lines(text))

    def isatty(self) -> bool:
        """False: programs shall write no colours."""
        return False


def _lines(text: str) -> str:
    """Text whose characters are printable, apart from line breaks."""
    return "\n".join(map(printable, text.split("\n")))


# Status lines, without rich

log = logging.getLogger("batchnav")


def announce(text: str) -> None:
    """Print a status line: to the `batchnav` logger if it has handlers, else to stderr."""
    if log.hasHandlers():
        log.info("%s", printable(text))
    elif log.isEnabledFor(logging.INFO) or log.level == logging.NOTSET:
        print(printable(text), file=sys.stderr, flush=True)


def next_command(purpose: str, *words: object) -> str:
    """A line that names a command for a next step: "To evaluate: batchnav evaluate runs/mine --report".

    Args:
        purpose: what the command does, a verb phrase.
        words: words of the command; they are quoted for a shell.
    """
    if words[:2] == ("batchnav", "view") and importlib.util.find_spec("viser") is None:
        purpose += f" (first: {shortest_install('viewer')})"
    return f"To {purpose}: {' '.join(map(shell_word, words))}"


def new_run(name: str = "mine") -> tuple[str, Path]:
    """Words of a training command that name a folder for a new run: runs/NAME, or runs/NAME_2 ... where that exists."""
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = folder.with_name(f"{name}_{number}")
        number += 1
    return "--out", folder


def number_of(count: int, noun: str) -> str:
    """A count with its noun, for example "1 scene" or "1,024 scenes"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# Progress of long work: a bar on terminals and in notebooks, else a line every few seconds

SECONDS_BETWEEN_LINES = 5.0
"""Shortest time between two lines where no bar is shown; long work has ten lines for each factor e of its duration."""


class Show(Protocol):
    """Displays progress."""

    def __call__(self, done: int, step: int = 0, most_steps: int = 0) -> None:
        """Show the number of finished items.

        Args:
            done: finished items.
            step: steps done, where the items advance together in steps.
            most_steps: largest number of steps; 0: the items do not advance in steps.
        """
        ...


@contextlib.contextmanager
def progress_bar(title: str, total: int) -> Iterator[Show]:
    """Context manager that displays progress and yields a function: call it with the number of finished items.

    It shows a bar on a terminal and in a notebook with widgets, else lines that state the time left: from the second
    call on, since kernels compile before the first.

    Args:
        title: name of the items, for example "maps".
        total: number of items.
    """
    console, start = terminal(stderr=True), time.monotonic()
    last = start
    first: tuple[int, float] | None = None  # amount of work and time at the first call
    shown = console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)
    with Progress(transient=True, console=console, disable=not shown) as progress:
        task = progress.add_task(title, total=total)

        def show(done: int, step: int = 0, most_steps: int = 0) -> None:
            nonlocal last, first
            now = time.monotonic()
            amount, most = (step, most_steps) if most_steps else (done, total)
            first = first or (amount, now)
            worked, seconds = amount - first[0], now - first[1]
            left = seconds * (most - amount) / worked if worked and done < total else None
            text = progress_line(title, done, total, step, most_steps, left)
            progress.update(task, completed=done, description=text if shown and most_steps else title)
            if not shown and now - last >= max(SECONDS_BETWEEN_LINES, (now - start) / 10):
                last = now
                announce(text)

        yield show


def progress_line(title: str, done: int, total: int, step: int, most_steps: int, seconds_left: float | None) -> str:
    """A line of progress, for example "maps: 3 of 12, about 40 s left"; without a time where that is unknown or 0.

    Items that advance together in steps may all end long before `most_steps`, so their time left is an upper bound.
    """
    line = f"{title}: {done} of {total}"
    if most_steps:
        line += f", step {step} of at most {most_steps}"
    return line + (f", {'at most' if most_steps else 'about'} {seconds_left:,.0f} s left" if seconds_left else "")
