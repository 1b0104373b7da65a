"""Result rows: JSON objects in eval/results/NAME.jsonl, with machine, versions, commit and date; terminal tables."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from rich import box
from rich.table import Table

from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import Summary, format_interval
from batchnav.evaluation.predicted_masks import MASK_PIXELS, MaskRow
from batchnav.runtime.console import number_of, terminal
from batchnav.runtime.device import machine
from batchnav.runtime.files import read_text
from batchnav.types import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
RESULTS = (ROOT if (ROOT / "pyproject.toml").is_file() else Path()) / "eval" / "results"
"""Folder of the result files: in the checkout, or below the current folder for an installed package."""
COMMIT_FILE = ".commit"
"""File with the commit's hash, in copies of the tree without a repository (`commit`)."""
PACKAGES = ("batchnav", "torch", "numba", "numba-cuda", "numpy", "moderngl")
STYLE: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
"""Style of terminal tables: narrow, so that many columns fit."""


MASK_COLUMNS = "goal in view", "mask predicted", "both", "precision", "recall", "pixels predicted"
"""Columns of the table of predicted masks."""
MASK_CAPTION = f"views with at least {MASK_PIXELS} pixels; pixels: mean where the goal is in view"


def row(benchmark: str, metric: str, samples: Any, params: dict[str, Any], device: str | torch.device) -> dict:
    """A result row of repeated measurements: median, 5th and 95th percentile, parameters and machine."""
    samples = np.atleast_1d(np.asarray(samples, np.float64))
    low, middle, high = np.percentile(samples, [5, 50, 95])
    return {
        "benchmark": benchmark, "metric": metric, "value": float(middle), "p5": float(low), "p95": float(high),
        "repeats": len(samples), "params": params, "machine": machine(device),
    }  # fmt: skip


def record(name: str, rows: list[dict], append: bool = False) -> None:
    """Print rows as a table; with `append` also append them to eval/results/NAME.jsonl."""
    print_table(name, rows)
    if append:
        append_rows(name, rows)


def append_rows(name: str, rows: list[dict], folder: Path | None = None) -> None:
    """Append rows to NAME.jsonl in a folder, by default eval/results, with a `stamp` unless they have one."""
    now = stamp()
    path = (folder or RESULTS) / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**now, **r}) + "\n" for r in rows)


def stamp() -> dict[str, Any]:
    """Driver, versions of packages, commit and date (UTC), which a row keeps."""
    return {
        "driver": driver(), "versions": versions(), "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip


def rows_of(name: str) -> list[dict]:
    """The latest row for each (machine, metric, parameters) in eval/results/NAME.jsonl, in file order.

    The checkpoint's folder is not part of the key.
    """
    path, newest = RESULTS / f"{name}.jsonl", {}
    for line in read_text(path, BatchnavError).splitlines() if path.exists() else []:
        found = json.loads(line)
        params = {key: value for key, value in found["params"].items() if key != "checkpoint"}
        newest[found["machine"], found["metric"], json.dumps(params, sort_keys=True)] = found
    return list(newest.values())


def save_chart(figure: Figure, to: Path | BinaryIO, dpi: int = 110) -> None:
    """Write a chart in the format of the path's suffix, or to an open file as WebP.

    WebP is lossless, with half the size of PNG.
    """
    suffix = to.suffix if isinstance(to, Path) else ".webp"
    lossless: dict[str, Any] = {"pil_kwargs": {"lossless": True, "quality": 100, "method": 6}}
    figure.savefig(to, dpi=dpi, format=suffix[1:], **(lossless if suffix == ".webp" else {}))


def print_table(title: str, rows: list[dict]) -> None:
    """Print one line per row: the parameters that differ and the value. Common parameters follow below the table."""
    if not rows:
        return
    values = {key: list(dict.fromkeys(shown(r["params"].get(key)) for r in rows)) for r in rows for key in r["params"]}
    keys = [key for key in values if len(values[key]) > 1]
    metrics = list(dict.fromkeys(unit(r["metric"]) for r in rows))
    table = Table(**STYLE)
    for key in (*keys, *(["metric"] if len(metrics) > 1 else [])):
        table.add_column(key.replace("_", " "), overflow="fold")
    table.add_column(metrics[0] if len(metrics) == 1 else "", justify="right", no_wrap=True)
    table.add_column("95% interval" if "low" in rows[0] else "5th to 95th percentile", no_wrap=True)
    for r in rows:
        labels = [shown(r["params"].get(key)) for key in keys] + ([unit(r["metric"])] if len(metrics) > 1 else [])
        table.add_row(*labels, figure(r["value"]), spread(r))
    console = terminal()
    console.print(f"{title} on {rows[0]['machine']}", table, sep="\n")
    console.print(", ".join(f"{key.replace('_', ' ')} {values[key][0]}" for key in values if len(values[key]) == 1))


def figure(value: float) -> str:
    """A number with three significant digits and thousands separators."""
    if abs(value) < 100:
        return f"{value:.3g}"
    digits = max(0, len(str(int(abs(value)))) - 3)
    return f"{round(value, -digits):,.0f}"


def spread(row: dict) -> str:
    """A row's confidence interval, or its 5th to 95th percentile; empty for a single measurement."""
    low, high = row.get("low", row.get("p5")), row.get("high", row.get("p95"))
    return "" if low is None or high is None or row.get("repeats") == 1 else f"{figure(low)} to {figure(high)}"


def unit(metric: str) -> str:
    """A metric's name for a table."""
    return metric.replace("_per_second", "/s").replace("_", " ")


def shown(value: Any) -> str:
    """A parameter for a table: millions as "300 M", empty for None."""
    if isinstance(value, int) and abs(value) >= 1_000_000:
        return f"{value / 1e6:.3g} M"
    return "" if value is None else str(value)


def driver() -> str | None:
    """Version of the NVIDIA driver; None without one."""
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect speed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def commit() -> str:
    """Short hash of the checked-out commit, with "+" for a modified tree; "unknown" without a repository.

    Changes in eval/results do not count as modifications, since measurements write there. A copy of the tree without
    its repository takes the hash from the file `.commit` (ignored by git), which this command writes in the checkout:

        python -m batchnav.report.results
    """
    run: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "check": True, "timeout": 20}
    try:
        top = subprocess.run(["git", "rev-parse", "--show-toplevel"], **run).stdout.strip()
        if Path(top).resolve() == ROOT:  # not an outer repository
            head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **run).stdout.strip()
            status = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)eval/results"]
            return head + ("+" if subprocess.run(status, **run).stdout.strip() else "")
    except (OSError, subprocess.SubprocessError):
        pass  # no git, or no repository
    sent = ROOT / COMMIT_FILE
    return sent.read_text(encoding="utf-8").strip() if sent.is_file() else "unknown"


if __name__ == "__main__":
    (ROOT / COMMIT_FILE).write_text(commit() + "\n", encoding="utf-8")


# Evaluation results as tables for a terminal of 80 columns; a narrower one wraps their lines


WIDTH = 80
"""Smallest width of a table, columns."""
MOST_METRICS = 8
"""Number of metrics that fit a line of `WIDTH` beside a scene's name."""


def print_scenes(title: str, scenes: Mapping[str, Summary], metrics: Sequence[Metric]) -> None:
    """Print the mean of each shown metric, one line per scene; the headline metrics where the others do not fit."""
    shown = [metric.name for metric in metrics if metric.shown]
    if len(shown) > MOST_METRICS:
        shown = [metric.name for metric in metrics if metric.headline]
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


def print_masks(rows: Sequence[MaskRow]) -> None:
    """Print what a policy's predicted masks said, one line a kind of failure; nothing for a policy without."""
    if not rows:
        return
    table = Table("episodes", title="predicted mask of the goal", **STYLE)
    for name in ("number", *MASK_COLUMNS):
        table.add_column(name.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.label, str(row.episodes), *mask_cells(row))
    table.caption = MASK_CAPTION
    _print(table)


def mask_cells(row: MaskRow) -> list[str]:
    """Values of MASK_COLUMNS as text; empty where there are no such views."""
    shares = (("{:.3f}", row.precision), ("{:.3f}", row.recall), ("{:.0f}", row.pixels))
    return [
        *map(str, (row.in_view, row.predicted, row.hits)),
        *("" if math.isnan(value) else text.format(value) for text, value in shares),
    ]


def _print(table: Table) -> None:
    """Print a table, which leaves no column out."""
    console = terminal()
    console.width = max(console.width, WIDTH)
    console.print(table)
