"""Measured numbers: one JSON object a row in eval/results/NAME.jsonl, and a table on the terminal."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parents[2] / "eval" / "results"
PACKAGES = ("batchnav", "torch", "numba", "numba-cuda", "numpy", "moderngl")


def row(benchmark: str, metric: str, samples: Any, params: dict[str, Any], device: str | torch.device) -> dict:
    """A row from repeated measurements: median, 5th and 95th percentile, and where it was measured."""
    samples = np.atleast_1d(np.asarray(samples, np.float64))
    low, middle, high = np.percentile(samples, [5, 50, 95])
    return {
        "benchmark": benchmark, "metric": metric, "value": float(middle), "p5": float(low), "p95": float(high),
        "repeats": len(samples), "params": params, "machine": machine(device),
    }  # fmt: skip


def record(name: str, rows: list[dict], append: bool = True) -> None:
    """Print rows as a table and append them to eval/results/NAME.jsonl with driver, versions, commit and date."""
    print_table(name, rows)
    if not append:
        return
    stamp = {
        "driver": driver(), "versions": versions(), "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip
    path = RESULTS / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**r, **stamp}) + "\n" for r in rows)


def print_table(title: str, rows: list[dict]) -> None:
    """One line a row: the parameters that differ, then median and 5th to 95th percentile; the others below."""
    values = {
        key: list(dict.fromkeys(str(r["params"].get(key, "")) for r in rows)) for r in rows for key in r["params"]
    }
    keys = [key for key in values if len(values[key]) > 1]
    table = Table(*keys, "metric", "median", "p5", "p95", title=f"{title} on {rows[0]['machine']}" if rows else title)
    for r in rows:
        numbers = [f"{r[k]:,.4g}" if abs(r[k]) < 100 else f"{r[k]:,.0f}" for k in ("value", "p5", "p95") if k in r]
        table.add_row(*(str(r["params"].get(key, "")) for key in keys), r["metric"], *numbers)
    table.caption = ", ".join(f"{key} {values[key][0]}" for key in values if len(values[key]) == 1)
    Console().print(table)


def machine(device: str | torch.device) -> str:
    """The GPU's name, or "CPU: model, N cores" for the cores that this process may use."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU: {model}, {cores} cores"


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


def commit() -> str:
    """The checkout's commit, with "+" where files differ from it; $BATCHNAV_COMMIT where there is no repository."""
    root = Path(__file__).parent
    try:
        run = {"cwd": root, "capture_output": True, "text": True, "check": True, "timeout": 20}
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **run).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], **run).stdout.strip()
        return head + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("BATCHNAV_COMMIT", "unknown")
