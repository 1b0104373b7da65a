"""Reading a run's `metrics.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from batchnav.errors import BatchnavError
from batchnav.runtime.files.reading import read_text

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
