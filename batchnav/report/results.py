"""Measured numbers: a JSON object a row in eval/results/NAME.jsonl, tables on the terminal, and which commit it was."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from batchnav.runtime.device import machine

ROOT = Path(__file__).resolve().parents[2]
RESULTS = (ROOT if (ROOT / "pyproject.toml").is_file() else Path()) / "eval" / "results"
"""In a checkout; of a package that is installed elsewhere, below the current folder."""
COMMIT_FILE = ".commit"
PACKAGES = ("batchnav", "torch", "numba", "numba-cuda", "numpy", "moderngl")
STYLE: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
"""Of tables on a terminal: two spaces between columns, so that many fit."""
LATER = {
    "sim": {"task": "pointnav", "actuation_noise": 0.0},
    "train": {"slots": 0, "deterministic": False, "tuned": False, "ranks": 1, "one_graph": False},
}
"""Parameters that a benchmark got after its first rows, and what those rows had."""


def row(benchmark: str, metric: str, samples: Any, params: dict[str, Any], device: str | torch.device) -> dict:
    """A row from repeated measurements: median, 5th and 95th percentile, and where it was measured."""
    samples = np.atleast_1d(np.asarray(samples, np.float64))
    low, middle, high = np.percentile(samples, [5, 50, 95])
    return {
        "benchmark": benchmark, "metric": metric, "value": float(middle), "p5": float(low), "p95": float(high),
        "repeats": len(samples), "params": params, "machine": machine(device),
    }  # fmt: skip


def record(name: str, rows: list[dict], append: bool = False) -> None:
    """Print rows as a table and, where it was asked for, append them to eval/results/NAME.jsonl."""
    print_table(name, rows)
    if append:
        append_rows(name, rows)


def append_rows(name: str, rows: list[dict]) -> None:
    """Append rows to eval/results/NAME.jsonl with driver, versions, commit and date."""
    stamp = {
        "driver": driver(), "versions": versions(), "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip
    path = RESULTS / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**r, **stamp}) + "\n" for r in rows)


def rows_of(name: str) -> list[dict]:
    """The newest row for each (machine, metric, parameters) in eval/results/NAME.jsonl, in the file's order.

    The folder of a checkpoint is none of these: of agents alike in all else the newest figure stands. A parameter that
    a benchmark got later has its default in the rows from before (LATER).
    """
    path, newest = RESULTS / f"{name}.jsonl", {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        found = json.loads(line)
        found["params"] = LATER.get(name, {}) | found["params"]
        params = {key: value for key, value in found["params"].items() if key != "checkpoint"}
        newest[found["machine"], found["metric"], json.dumps(params, sort_keys=True)] = found
    return list(newest.values())


def print_table(title: str, rows: list[dict]) -> None:
    """One line a row, within the terminal's width: the parameters that differ, and the figure; below it the others."""
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
    console = Console(highlight=False)
    console.print(f"{title} on {rows[0]['machine']}", table, sep="\n")
    console.print(", ".join(f"{key.replace('_', ' ')} {values[key][0]}" for key in values if len(values[key]) == 1))


def figure(value: float) -> str:
    """Three digits, and thousands apart."""
    if abs(value) < 100:
        return f"{value:.3g}"
    digits = max(0, len(str(int(abs(value)))) - 3)
    return f"{round(value, -digits):,.0f}"


def spread(row: dict) -> str:
    """A row's interval, or its 5th to 95th percentile; empty where it was measured once."""
    low, high = row.get("low", row.get("p5")), row.get("high", row.get("p95"))
    return "" if low is None or high is None or row.get("repeats") == 1 else f"{figure(low)} to {figure(high)}"


def unit(metric: str) -> str:
    """A metric's name as tables have it."""
    return metric.replace("_per_second", "/s").replace("_", " ")


def shown(value: Any) -> str:
    """A parameter as tables have it: millions as "300 M", nothing for None."""
    if isinstance(value, int) and abs(value) >= 1_000_000:
        return f"{value / 1e6:.3g} M"
    return "" if value is None else str(value)


def driver() -> str | None:
    """The NVIDIA driver's version; None where there is none."""
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide speed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def commit() -> str:
    """The commit of this tree, with "+" where files differ from it; "unknown" where nobody says it.

    Looked up once a process, before its first row, and without looking at eval/results: what a measurement writes does
    not change what was measured. A tree that was sent to a machine without its repository has it in the file `.commit`,
    which the sender writes just before, and which git ignores:

        python -m batchnav.report.results
    """
    run: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "check": True, "timeout": 20}
    try:
        top = subprocess.run(["git", "rev-parse", "--show-toplevel"], **run).stdout.strip()
        if Path(top).resolve() == ROOT:  # and not a repository that this tree only lies in
            head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **run).stdout.strip()
            status = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)eval/results"]
            return head + ("+" if subprocess.run(status, **run).stdout.strip() else "")
    except (OSError, subprocess.SubprocessError):
        pass  # no git, or no repository
    sent = ROOT / COMMIT_FILE
    return sent.read_text(encoding="utf-8").strip() if sent.is_file() else "unknown"


if __name__ == "__main__":
    (ROOT / COMMIT_FILE).write_text(commit() + "\n", encoding="utf-8")
