"""Evaluation results as tables for a terminal of 80 columns; a narrower one wraps their lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from batchnav.evaluation.intervals import Summary, format_interval
from batchnav.report.results import STYLE
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.console.terminal import terminal
from batchnav.types import Metric

WIDTH = 80
"""Smallest width of a table, columns."""


def print_scenes(title: str, scenes: Mapping[str, Summary], metrics: Sequence[Metric]) -> None:
    """Print the mean of each shown metric, one line per scene."""
    shown = [metric.name for metric in metrics if metric.shown]
    table = Table("scene", title=title, **STYLE)
    table.columns[0].overflow = "fold"
    for name in ("episodes", *shown):
        table.add_column(name.replace("_", "\n", 1).replace("_", " "), justify="right", no_wrap=True)
    for scene, summary in scenes.items():
        means = (format_interval(summary[name])[0] for name in shown)
        table.add_row(scene, str(summary[shown[0]].count), *means)
    _print(table)


def print_agents(title: str, agents: Mapping[str, Summary], metrics: Sequence[Metric]) -> None:
    """Print means with both intervals: all shown metrics of one agent, or the headline metrics of several.

    The title names a single agent, which leaves its name's width to long names of metrics.
    """
    is_single = len(agents) == 1
    names = [metric.name for metric in metrics if (metric.shown if is_single else metric.headline)]
    table = Table(title=title, **STYLE)
    for name in ("metric",) if is_single else ("agent", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("mean", "95% over episodes", "95% over scenes"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent, summary in agents.items():
        for name in names:
            table.add_row(*([] if is_single else [agent]), name.replace("_", " "), *format_interval(summary[name]))
        table.add_section()
    count = next(iter(agents.values()))[names[0]]
    table.caption = f"{number_of(count.count, 'episode')} in {number_of(count.scenes, 'scene')}"
    _print(table)


def _print(table: Table) -> None:
    """Print a table, which leaves no column out."""
    console = terminal()
    console.width = max(console.width, WIDTH)
    console.print(table)
