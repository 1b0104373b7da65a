"""Learning curves as small SVG charts, of one run or of several: quick enough to be drawn while training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from batchnav.report.metrics import series, smooth

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#56B4E9", "#6B6B6B")
"""Of runs and agents in turn. Okabe and Ito's, which colour-blind eyes tell apart, the yellow darker."""
LEARNING = {
    "return": ("return of an episode", ""),
    "entropy": ("entropy", "nats"),
    "approx_kl": ("KL divergence, approximate", "nats"),
    "policy_loss": ("policy loss", ""),
    "value_loss": ("value loss", ""),
    "explained_variance": ("explained variance of returns", ""),
    "frames_per_second": ("speed", "frames/s"),
}
"""Titles and units of the curves that every run has, by their keys; a task's own metrics stand before them."""

WIDTH, HEIGHT = 360, 200
"""Of a chart, in its own units: about pixels on a telephone."""
LEFT, RIGHT, TOP, BOTTOM = 46, 352, 8, 180
"""The box of its axes."""
TICKS = 5
"""Intervals on an axis, at most: labels of six letters have room."""
MAX_POINTS = 400
"""Longer curves are drawn by the means of so many parts."""
SMOOTHING = 25
"""The bold line is the mean over a window of this fraction of the curve."""


class Rows(NamedTuple):
    """A run's curves: see `load_metrics`."""

    training: list[dict]
    evaluations: list[dict]


class Mark(NamedTuple):
    """A tick: where it is in the chart's units, and what it says."""

    at: float
    text: str


class Line(NamedTuple):
    """A run's curve in the chart's units."""

    colour: str
    faint: str
    """As SVG's `points`: as it was."""
    bold: str
    """Smoothed."""
    dots: list[tuple[float, float]]
    """Evaluations in scenes that are not trained in."""


class Chart(NamedTuple):
    """One figure against frames."""

    title: str
    unit: str
    across: list[Mark]
    up: list[Mark]
    lines: list[Line]
    last: list[tuple[str, str]]
    """Each run's colour, and its last smoothed value in words."""


def charts(runs: Mapping[str, Rows], metrics: Mapping[str, tuple[float, float]]) -> list[Chart]:
    """A chart for each of a task's metrics, named with their ranges, and for `LEARNING`; what no run has is left out.

    Runs have COLOURS in their order.
    """
    titles = {name: (in_words(name), "") for name in metrics} | LEARNING
    drawn = (_chart(key, *titles[key], list(runs.values()), metrics.get(key)) for key in titles)
    return [chart for chart in drawn if chart is not None]


def _chart(key: str, title: str, unit: str, runs: Sequence[Rows], possible: tuple[float, float] | None) -> Chart | None:
    """The curves of one key; None where no run has it."""
    curves = [_condensed(*series(run.training, key)) for run in runs]
    tests = [series([{"frames": r["frames"], **r["eval"]} for r in run.evaluations], key) for run in runs]
    points = [pair for pair in (*curves, *tests) if len(pair[0])]
    if not points:
        return None
    x, y = (np.concatenate([pair[axis] for pair in points]) for axis in (0, 1))
    low, high = float(y.min()), float(y.max())
    if possible and math.isfinite(possible[1] - possible[0]):
        low, high = possible
    across, up = _ticks(0.0, float(x.max())), _ticks(low, high)
    ends_x, ends_y = (0.0, max(float(x.max()), 1.0)), (min(low, up[0]), max(high, up[-1]))

    def place(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
        return list(zip(_scaled(x, ends_x, LEFT, RIGHT), _scaled(y, ends_y, BOTTOM, TOP), strict=True))

    lines, last = [], []
    for i, ((frames, values), test) in enumerate(zip(curves, tests, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        mean = smooth(values, len(values) // SMOOTHING)
        lines.append(Line(colour, _text(place(frames, values)), _text(place(frames, mean)), place(*test)))
        if len(values):
            last.append((colour, short(float(mean[-1]))))
    return Chart(title, unit, _marks(across, ends_x, LEFT, RIGHT), _marks(up, ends_y, BOTTOM, TOP), lines, last)


def _marks(ticks: list[float], ends: tuple[float, float], first: float, last: float) -> list[Mark]:
    places = _scaled(np.array(ticks), ends, first, last)
    return [Mark(at, short(tick)) for at, tick in zip(places, ticks, strict=True)]


def in_words(name: str) -> str:
    """A metric's name as people write it."""
    return name.replace("_", " ").replace("spl", "SPL")


def short(value: float) -> str:
    """A figure in six letters or so: thousands and millions as k and M."""
    sizes = ((1e9, " G"), (1e6, " M"), (1e3, " k"), (0.0, ""))
    size, letter = next((size, letter) for size, letter in sizes if abs(value) >= size)
    return f"{value / (size or 1.0):.3g}{letter}".replace("-", "\N{MINUS SIGN}")


def _ticks(low: float, high: float) -> list[float]:
    """Round values within a range, at most TICKS + 1, evenly spaced."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    least = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * k for k in range(first, last + 1)]


def _condensed(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MAX_POINTS points: the means of neighbours."""
    parts = np.linspace(0, len(x), min(len(x), MAX_POINTS) + 1).astype(int)
    if len(parts) < 2:
        return x, y
    counts = np.diff(parts)
    return np.add.reduceat(x, parts[:-1]) / counts, np.add.reduceat(y, parts[:-1]) / counts


def _scaled(values: np.ndarray, ends: tuple[float, float], first: float, last: float) -> list[float]:
    share = (values - ends[0]) / (ends[1] - ends[0])
    return np.round(first + share * (last - first), 1).tolist()


def _text(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
