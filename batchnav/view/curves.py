"""Learning curves from a run's `metrics.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from batchnav.errors import BatchnavError
from batchnav.types import Metric

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#6B6B6B"
"""Okabe and Ito's colours, which colour-blind eyes tell apart."""
SMOOTHING = 40
"""The bold line is the mean over a window of this fraction of the curve: one fortieth of its rows."""

PANELS = (
    ("Return", (("return", GREEN),)),
    ("Policy loss and KL", (("policy_loss", PURPLE), ("approx_kl", GREY))),
    ("Value loss", (("value_loss", BLUE),)),
    ("Entropy (nats)", (("entropy", ORANGE),)),
    ("Frames per second", (("frames_per_second", GREEN),)),
)
"""Titles, and the keys that each panel draws, beside the panel of the task's own metrics."""


def load_metrics(path: str | Path) -> tuple[list[dict], list[dict]]:
    """Read `metrics.jsonl`: the rows of training, and those that hold an evaluation ("eval").

    A last line that was cut short by a kill is left out. BatchnavError names the file and line of any other bad one.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BatchnavError(f"{path}: cannot be read ({error})") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise BatchnavError(f"{path}, line {number}: is not JSON ({error})") from error
        if not isinstance(row, dict) or not isinstance(row.get("frames"), (int, float)):
            raise BatchnavError(f"{path}, line {number}: found {line[:60]!r}, expected an object with 'frames'")
        rows.append(row)
    return [r for r in rows if "eval" not in r], [r for r in rows if "eval" in r]


def series(rows: list[dict], key: str, x: str = "frames") -> tuple[np.ndarray, np.ndarray]:
    """The points (x, key) of the rows where the key is a finite number; NaN marks rows in which no episode ended."""
    points = [(r[x], r[key]) for r in rows if isinstance(r.get(key), (int, float)) and math.isfinite(r[key])]
    across, up = np.array(points, np.float64).reshape(-1, 2).T
    return across, up


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Centred running mean; near the ends over what there is of the window."""
    window = max(1, min(window, len(values)))
    counts = np.convolve(np.ones(len(values)), np.ones(window), "same")
    return np.convolve(values, np.ones(window), "same") / counts


def plot_curves(path: str | Path, out: str | Path, metrics: Sequence[Metric], title: str = "") -> None:
    """Draw the curves of a `metrics.jsonl` against frames (below) and seconds (above) into a PNG.

    Args:
        path: of the curves.
        out: of the PNG.
        metrics: the task's; those by which agents are compared and that have a range go into the first panel.
        title: heading.
    """
    from matplotlib.figure import Figure

    rows, evals = load_metrics(path)
    names = [metric.name for metric in metrics if metric.headline and math.isfinite(metric.high - metric.low)]
    own = (", ".join(names).replace("_", " "), tuple(zip(names, (BLUE, ORANGE, GREEN, PURPLE), strict=False)))
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    for axes, (name, keys) in zip(figure.subplots(2, 3).flat, (own, *PANELS), strict=True):
        for key, colour in keys:
            x, y = series(rows, key)
            if len(x):
                axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
                axes.plot(x, smooth(y, len(y) // SMOOTHING), color=colour, linewidth=1.8, label=key.replace("_", " "))
            tests = [(e["frames"], e["eval"][key]) for e in evals if key in e["eval"]]
            if tests:
                axes.plot(*zip(*tests, strict=True), "o", color=colour, markeredgecolor="white", markersize=6)
        axes.set_title(name, fontsize=11, loc="left", fontweight="bold")
        _finish(axes, rows, len(keys) > 1, bool(evals) and name == own[0])
    if title:
        figure.suptitle(title, fontsize=13)
    figure.savefig(out, dpi=110)


def _finish(axes, rows: list[dict], legend: bool, unseen: bool) -> None:
    """Grid, legend, and the second axis in seconds."""
    if unseen:
        axes.set_ylim(0.0, 1.0)
        axes.plot([], [], "o", color=GREY, label="evaluation, unseen scenes")
    if (legend or unseen) and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)
    axes.set_xlabel("frames", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color="#E5E5E5", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    frames, seconds = series(rows, "seconds")
    if len(frames) and frames[-1] > 0.0 and seconds[-1] > 0.0:
        # Both only grow, so each can be read off the other.
        frames, seconds = np.append(0.0, frames), np.append(0.0, seconds)
        axes.set_xlim(0.0, frames[-1])
        above = axes.secondary_xaxis(
            "top",
            functions=(lambda f: np.interp(f, frames, seconds), lambda s: np.interp(s, seconds, frames)),
        )
        above.set_xlabel("seconds", fontsize=9)
        above.tick_params(labelsize=8)
