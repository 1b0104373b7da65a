"""Progress of long work: a bar on terminals and in notebooks, else a line every few seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from typing import Protocol

from rich.progress import Progress

from batchnav.runtime.console.announce import announce
from batchnav.runtime.console.terminal import terminal

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
