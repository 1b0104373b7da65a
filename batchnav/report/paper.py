"""Results for a paper: tables in LaTeX, CSV and Markdown, and learning curves with intervals over seeds."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import yaml

from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.intervals import Summary, format_interval, mean_interval
from batchnav.report.charts import COLOURS, SMOOTHING, in_words, load_metrics, series, smooth
from batchnav.runtime.console import number_of
from batchnav.runtime.files import read_text, replacing
from batchnav.types import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TableKind = Literal["latex", "csv", "markdown"]
SUFFIXES: Mapping[TableKind, str] = {"latex": ".tex", "csv": ".csv", "markdown": ".md"}
"""End of a table's file name, by kind."""
GRID = 200
"""Number of points of a mean curve."""
PANEL = 3.2, 2.6
"""Width and height of a panel, inches."""
_SEED = re.compile(r"[_\-. ]*(?:seed|s)?[_\-. ]*$")
"""The end of a name that several seeds have in common."""
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {c: f"\\{c}" for c in "&%$#_{}"}


# Tables


def table(kind: TableKind, agents: Mapping[str, Summary], metrics: Sequence[Metric], changed: str = "") -> str:
    """A table of agents. LaTeX (booktabs) and Markdown: a row per agent, headline metrics with 95% intervals.

    CSV: a row per agent and shown metric, with both intervals in columns of their own.

    Args:
        kind: "latex", "csv" or "markdown".
        agents: means and intervals by agent name.
        metrics: the task's descriptions of its metrics.
        changed: settings that differ from the agents' own environments, for the caption.
    """
    if kind == "csv":
        return _csv(agents, [m for m in metrics if m.shown])
    names = [m.name for m in metrics if m.headline]
    rows = [[agent, *(_cell(summary, name) for name in names)] for agent, summary in agents.items()]
    header = ["agent", *map(in_words, names)]
    first = next(iter(agents.values()))[names[0]]
    played = f"{number_of(first.count, 'episode')} in {number_of(first.scenes, 'scene')}"
    caption = f"Means over {played}, with 95% intervals over episodes."
    caption += f" Settings: {changed}." if changed else ""
    if kind == "latex":
        return _latex(header, rows, caption)
    lines = [header, ["---", *["---:"] * len(names)], *([_plain(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + f"\n{caption}\n"


def write_table(
    folder: Path, kind: TableKind, agents: Mapping[str, Summary], metrics: Sequence[Metric], changed: str = ""
) -> tuple[Path, str]:
    """Write `table` to a file in a folder; returns the file and its text."""
    file, text = folder / f"table{SUFFIXES[kind]}", table(kind, agents, metrics, changed)
    with replacing(file, BatchnavError) as part:
        part.write_text(text, encoding="utf-8")
    return file, text


def _cell(summary: Summary, name: str) -> str:
    mean, over_episodes, _ = format_interval(summary[name])
    return f"{mean} ({over_episodes})" if over_episodes else mean


def _csv(agents: Mapping[str, Summary], metrics: Sequence[Metric]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = "mean", "low", "high", "scene_low", "scene_high", "count", "scenes"
    writer.writerow(["agent", "metric", *("episodes" if name == "count" else name for name in columns)])
    for agent, summary in agents.items():
        for metric in metrics:
            numbers = [getattr(summary[metric.name], name) for name in columns]
            shown = ["" if isinstance(v, float) and not math.isfinite(v) else f"{v:.6g}" for v in numbers]
            writer.writerow([agent, metric.name, *shown])
    return text.getvalue()


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    lines = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (header, *rows)]
    return "\n".join([
        r"% needs \usepackage{booktabs}",
        r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule",
        lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}",
        rf"\caption{{{_escaped(caption)}}}", r"\end{table}", "",
    ])  # fmt: skip


def _escaped(text: str) -> str:
    """Text in which LaTeX finds no commands; en dashes as LaTeX writes them."""
    return "".join(_LATEX.get(c, c) for c in text).replace("–", "--")


def _plain(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|")


# Learning curves


class Curves(NamedTuple):
    """Runs of one configuration with several seeds."""

    name: str
    runs: tuple[Path, ...]
    """Folders of the runs."""


def group_seeds(runs: Sequence[Path]) -> list[Curves]:
    """Runs by configuration, in order: those whose `config.yaml` differ in the seed only belong together.

    A group is named after what its folders' names begin with. ArgumentError for a folder without curves.
    """
    found: dict[str, list[Path]] = {}
    for run in runs:
        for name in ("metrics.jsonl", "config.yaml"):
            if not (run / name).is_file():
                raise ArgumentError(f"--plot: found no {name} in {run}, expected run folders of batchnav train")
        try:
            config = yaml.safe_load(read_text(run / "config.yaml", BatchnavError))
        except yaml.YAMLError as error:
            raise BatchnavError(f"{run / 'config.yaml'}: found no YAML ({error})") from error
        config = {key: value for key, value in config.items() if key != "seed"} if isinstance(config, dict) else {}
        found.setdefault(yaml.safe_dump(config, sort_keys=True), []).append(run)
    groups = []
    for same in found.values():
        first, last = (end([run.absolute().name for run in same]) for end in (min, max))
        equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
        common = "".join(letter for letter, _ in equal)
        name = (_SEED.sub("", common) if len(same) > 1 else "") or same[0].absolute().name
        groups.append(Curves(name, tuple(same)))
    return groups


def mean_curve(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Mean of smoothed curves (x, y), with the 95% interval over them: x, mean, low, high f64 [K].

    x covers what all curves have. One curve has no interval: its ends are NaN.
    """
    begin, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    x = np.linspace(begin, max(begin, end), GRID)
    values = np.stack([np.interp(x, at, smooth(y, len(y) // SMOOTHING)) for at, y in curves])
    intervals = [mean_interval(column) for column in values.T]
    return x, *(np.array([getattr(each, part) for each in intervals]) for part in ("mean", "low", "high"))


def plot_curves(groups: Sequence[Curves], metrics: Sequence[Metric]) -> Figure:
    """Headline metrics of each group against frames: mean over its seeds, shaded: 95% interval over seeds."""
    from matplotlib.figure import Figure  # takes a second

    names = [m.name for m in metrics if m.headline]
    rows = {run: load_metrics(run / "metrics.jsonl")[0] for group in groups for run in group.runs}
    figure = Figure(figsize=(PANEL[0] * len(names), PANEL[1]), layout="constrained")
    panels: Any = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for i, group in enumerate(groups):
            curves = [found for run in group.runs if len((found := series(rows[run], name))[0])]
            if not curves:
                continue
            x, mean, low, high = mean_curve(curves)
            colour = COLOURS[i % len(COLOURS)]
            seeds = f" ({len(curves)} seeds)" if len(curves) > 1 else ""
            axes.plot(x, mean, color=colour, label=group.name + seeds)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="frames", ylabel=in_words(name))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize="small")
    return figure
