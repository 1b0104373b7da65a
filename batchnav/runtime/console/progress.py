"""Progress of long work: a bar on terminals and in notebooks, else a line every few seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator

from rich.progress import Progress

from batchnav.runtime.console.announce import announce
from batchnav.runtime.console.terminal import terminal

SECONDS_BETWEEN_LINES = 5.0
"""Shortest time between two lines where no bar is shown."""


@contextlib.contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Context manager that displays progress and yields a function: call it with the number of finished items.

    It shows a bar on a terminal and in a notebook with widgets, else a line every SECONDS_BETWEEN_LINES.

    Args:
        title: name of the items, for example "maps".
        total: number of items.
    """
    console, last = terminal(stderr=True), time.monotonic()
    shown = console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)
    with Progress(transient=True, console=console, disable=not shown) as progress:
        task = progress.add_task(title, total=total)

        def show(done: int) -> None:
            nonlocal last
            progress.update(task, completed=done)
            if not shown and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                announce(f"{title}: {done} of {total}")

        yield show
