"""Learning curves of one or several runs as SVG charts, cheap enough to render during training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from batchnav.errors import BatchnavError
from batchnav.learning import ALGORITHMS
from batchnav.policy import AUXILIARY
from batchnav.runtime.files import read_text

# Reading a run's `metrics.jsonl`


MAX_FRAMES = 2**63 - 1
"""Largest step of a row."""
_MAX_VALUE = 3e38
"""Largest value of a curve, about float32's."""
_MAX_DIGITS = 18


class NotJSONError(ValueError):
    """A line that is not JSON, as a killed process leaves it."""


def load_metrics(path: str | Path) -> tuple[list[dict], list[dict]]:
    """Read `metrics.jsonl`: (training rows, rows with validation results under "eval").

    A truncated last line, as a killed process leaves it, is skipped. Raises BatchnavError for any other invalid line.
    """
    path = Path(path)
    lines = read_text(path, BatchnavError).splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse_row(line)
        except ValueError as error:
            if number == len(lines) and isinstance(error, NotJSONError):
                break
            raise BatchnavError(f"{path}, line {number}: {error}") from error
        rows.append(row)
    return [r for r in rows if "eval" not in r], [r for r in rows if "eval" in r]


def parse_row(line: str) -> dict:
    """A line of `metrics.jsonl`. Integers of more than 18 digits are read as floats.

    Raises NotJSONError; ValueError where it is no object with a step "frames" from 0 to MAX_FRAMES, or its "eval" is no
    object.
    """
    try:
        row = json.loads(line, parse_int=lambda text: int(text) if len(text) <= _MAX_DIGITS else float(text))
    except (ValueError, RecursionError) as error:
        raise NotJSONError(f"is not JSON ({error})") from error
    frames = row.get("frames") if isinstance(row, dict) else None
    if not (isinstance(frames, (int, float)) and 0 <= frames <= MAX_FRAMES and isinstance(row.get("eval", {}), dict)):
        raise ValueError(
            f"found {line[:60]!r}, expected an object with 'frames', a step from 0 on, and 'eval', an object if present"
        )
    return row


def is_plottable(value: Any) -> TypeGuard[float]:
    """True for a finite number that float32 can hold."""
    return isinstance(value, (int, float)) and abs(value) <= _MAX_VALUE  # NaN fails here too


def series(rows: list[dict], key: str, x: str = "frames") -> tuple[np.ndarray, np.ndarray]:
    """The values (x, y) f64 of a key, for the rows where both are finite; rows without a finished episode hold NaN."""
    points = [(r[x], r[key]) for r in rows if is_plottable(r.get(key)) and is_plottable(r.get(x))]
    across, up = np.array(points, np.float64).reshape(-1, 2).T
    return across, up


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Centred running mean over `window` values; the window is cut at both ends."""
    if not len(values):
        return values
    window = max(1, min(window, len(values)))
    counts = np.convolve(np.ones(len(values)), np.ones(window), "same")
    return np.convolve(values, np.ones(window), "same") / counts


COLOURS = ("#0072B2", "#009E73", "#8A6D00", "#56B4E9", "#6B6B6B", "#CC79A7")
"""Colours of runs and agents, in order: the colour-blind-safe palette of Okabe and Ito, with a darker yellow.

Its orange marks shortest paths, its yellow goals."""
WIDTH, HEIGHT = 360, 200
"""Size of a chart in SVG units, about the pixels of a phone."""
LEFT, RIGHT, TOP, BOTTOM = 46, 352, 8, 180
"""Edges of the plot area, SVG units."""
_MIN_RANGE = 1e-300
"""Smallest range of an axis; smaller numbers have no power of ten to divide the range by."""
TICKS = 5
"""Maximum number of intervals on an axis, so that labels of six characters fit."""
MAX_POINTS = 400
"""Maximum number of points of a curve; longer curves are averaged over neighbours."""
SMOOTHING = 25
"""The bold line is a running mean whose window is the curve's length divided by this number."""
LAST_UPDATES = 10
"""The number beside a chart is the mean over this many last updates, or over the window of the bold line if longer."""


def learning_curves() -> dict[str, tuple[str, str]]:
    """Title and unit of each learning curve, by key: those that algorithms and auxiliary losses declare.

    Charts omit those that a run lacks. The task's metrics precede them on the page.
    """
    found = {"return": ("return of an episode", "")}
    for algorithm in ALGORITHMS.values():
        found |= algorithm.curves
    for name, auxiliary in AUXILIARY.items():
        found |= {f"{name}_{key}": curve for key, curve in auxiliary.curves.items()}
    return found | {"frames_per_second": ("speed", "frames/s")}


class Rows(NamedTuple):
    """A run's curves, as `load_metrics` returns them."""

    training: list[dict]
    evaluations: list[dict]


class Mark(NamedTuple):
    """A tick: position in SVG units, and label."""

    at: float
    text: str


class Line(NamedTuple):
    """A run's curve in SVG units."""

    colour: str
    faint: str
    """Raw values, in the syntax of SVG's `points` attribute."""
    bold: str
    """Smoothed values, in the same syntax."""
    dots: list[tuple[float, float]]
    """Validation results, (x, y) each."""


class Chart(NamedTuple):
    """One quantity plotted against frames."""

    title: str
    unit: str
    across: list[Mark]
    up: list[Mark]
    lines: list[Line]
    last: list[tuple[str, str]]
    """Colour and mean over the last updates (formatted) of each run."""


def charts(runs: Mapping[str, Rows], metrics: Mapping[str, tuple[float, float]]) -> list[Chart]:
    """Charts of the task's metrics and of `learning_curves`. Quantities that no run has are omitted.

    Args:
        runs: curves by run name; colours follow this order.
        metrics: (low, high) of each metric of the task, by name.
    """
    titles = {name: (in_words(name), "") for name in metrics} | learning_curves()
    drawn = (_chart(key, *titles[key], list(runs.values()), metrics.get(key)) for key in titles)
    return [chart for chart in drawn if chart is not None]


def _chart(key: str, title: str, unit: str, runs: Sequence[Rows], possible: tuple[float, float] | None) -> Chart | None:
    """The chart of one key; None if no run has values for it."""
    raw = [series(run.training, key) for run in runs]
    curves = [_condensed(*curve) for curve in raw]
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
    for i, ((frames, values), test, (_, whole)) in enumerate(zip(curves, tests, raw, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        mean = smooth(values, len(values) // SMOOTHING)
        lines.append(Line(colour, _text(place(frames, values)), _text(place(frames, mean)), place(*test)))
        if len(values):
            latest = float(whole[-max(LAST_UPDATES, len(whole) // SMOOTHING) :].mean())
            last.append((colour, f"{latest:.3f}" if possible == (0.0, 1.0) else short(latest)))
    return Chart(title, unit, _marks(across, ends_x, LEFT, RIGHT), _marks(up, ends_y, BOTTOM, TOP), lines, last)


def _marks(ticks: list[float], ends: tuple[float, float], first: float, last: float) -> list[Mark]:
    places = _scaled(np.array(ticks), ends, first, last)
    return [Mark(at, short(tick)) for at, tick in zip(places, ticks, strict=True)]


def in_words(name: str) -> str:
    """A metric's name for display."""
    return name.replace("_", " ").replace("spl", "SPL")


def short(value: float) -> str:
    """A number in about six characters, with k, M and G for thousands, millions and billions."""
    sizes = ((1e9, " G"), (1e6, " M"), (1e3, " k"), (0.0, ""))
    size, letter = next((size, letter) for size, letter in sizes if abs(value) >= size)
    return f"{value / (size or 1.0):.3g}{letter}".replace("-", "\N{MINUS SIGN}")


def _ticks(low: float, high: float) -> list[float]:
    """Evenly spaced round values within a range, at most TICKS + 1 of them."""
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _MIN_RANGE):
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    least = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * k for k in range(first, last + 1)]


def _condensed(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MAX_POINTS points, each the mean of neighbouring points."""
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
