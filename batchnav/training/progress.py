"""Progress of a training run: a bar on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from batchnav.runtime.console import terminal

SECONDS_BETWEEN_LINES = 15.0
"""Interval of plain lines, seconds, where the output is not a terminal."""
SECONDS_BETWEEN_REFRESHES = 1.0
"""Interval of bar updates in a notebook, seconds; each update is a message to the browser."""
RECENT = 1000
"""Number of episodes in the displayed means."""


class RecentEpisodes:
    """Means of metrics over the latest updates that together have at least `RECENT` episodes.

    A single update has too few episodes to show a trend.
    """

    def __init__(self, metrics: Sequence[str]):
        self.metrics = tuple(metrics)
        self._updates: deque[tuple[float, tuple[float, ...]]] = deque()

    def add(self, row: Mapping[str, float]) -> dict[str, float]:
        """Add the row of an update. Returns the mean of each metric, by name; NaN before the first episode ends."""
        if row["episodes"]:
            self._updates.append((row["episodes"], tuple(row[name] for name in self.metrics)))
        while sum(count for count, _ in self._updates) - (self._updates[0][0] if self._updates else 0) >= RECENT:
            self._updates.popleft()
        weight = sum(count for count, _ in self._updates)
        if not weight:
            return dict.fromkeys(self.metrics, math.nan)
        return {
            name: sum(count * values[k] for count, values in self._updates) / weight
            for k, name in enumerate(self.metrics)
        }


class TrainingProgress:
    """Display of the frames done, of further figures, and of the time left.

    Lines state the time left from the second update on: kernels compile during the first.

    Args:
        total: frames of the whole run.
        done: frames done before a resume.
        quiet: display nothing.
    """

    def __init__(self, total: int, done: int = 0, quiet: bool = False):
        self.console = terminal(quiet=quiet)
        self.total = total
        self._first: tuple[int, float] | None = None  # frames and time of the first update
        self._last_shown = -math.inf
        self._in_notebook = self.console.is_jupyter and not quiet
        self._notebook_display: Any = None
        self._bar = Progress(
            TextColumn("{task.fields[figures]}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("train", total=total, completed=done, figures="")

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        if self._in_notebook:  # rich's live display needs widgets in a notebook
            from IPython.display import display

            self._notebook_display = display(self._bar, display_id=True)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._bar.stop()

    def show(self, frames: int, figures: Mapping[str, float]) -> None:
        """Display the number of frames done and further figures by name; NaN figures are omitted."""
        text = "  ".join(f"{name} {_short(value)}" for name, value in figures.items() if not math.isnan(value))
        self._bar.update(self._task, completed=frames, figures=text)
        now = time.monotonic()
        self._first = self._first or (frames, now)
        pause = SECONDS_BETWEEN_REFRESHES if self._notebook_display else SECONDS_BETWEEN_LINES
        if self.console.is_terminal or (frames < self.total and now - self._last_shown < pause):
            return
        self._last_shown = now
        if self._notebook_display:
            self._notebook_display.update(self._bar)
        else:
            first_frames, first_time = self._first
            self._print_line(frames, text, frames - first_frames, now - first_time)

    def _print_line(self, frames: int, text: str, played: int, seconds: float) -> None:
        line = f"{frames:,} of {max(self.total, frames):,} frames  {text}"
        remaining = max(self.total - frames, 0)  # the last update may exceed the total
        if played or not remaining:
            line += f"  {remaining * seconds / max(played, 1):,.0f} s left"
        self.console.print(line, highlight=False, soft_wrap=True)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"
