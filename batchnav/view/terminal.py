"""What an evaluation found, on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from batchnav.evaluation.intervals import Summary, format_interval
from batchnav.runs.results import STYLE

SHOWN = ("success", "spl", "soft_spl", "distance_to_goal", "collisions", "steps")
"""Metrics of an agent, in this order; the report's columns."""
COMPARED = ("success", "spl")
"""Metrics of several agents."""


def print_scenes(title: str, scenes: Mapping[str, Summary]) -> None:
    """Means by scene, a line a scene."""
    table = Table("scene", title=title, **STYLE)
    table.columns[0].overflow = "fold"
    for name in ("episodes", *SHOWN):
        table.add_column(name.replace("_", "\n", 1).replace("_", " "), justify="right", no_wrap=True)
    for scene, summary in scenes.items():
        means = (format_interval(summary[metric])[0] for metric in SHOWN)
        table.add_row(scene, str(summary["success"].count), *means)
    Console().print(table)


def print_agents(title: str, agents: Mapping[str, Summary]) -> None:
    """Means with both intervals: all metrics of one agent, or success and SPL of several."""
    table = Table(title=title, **STYLE)
    for name in ("agent", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("mean", "95% over episodes", "95% over scenes"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent, summary in agents.items():
        for metric in SHOWN if len(agents) == 1 else COMPARED:
            table.add_row(agent, metric.replace("_", " "), *format_interval(summary[metric]))
        table.add_section()
    count = next(iter(agents.values()))["success"]
    table.caption = f"{count.count} episodes in {count.scenes} scenes"
    Console().print(table)
