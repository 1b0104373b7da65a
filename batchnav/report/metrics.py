"""Reading a run's `metrics.jsonl`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from batchnav.errors import BatchnavError


def load_metrics(path: str | Path) -> tuple[list[dict], list[dict]]:
    """Read `metrics.jsonl`: (training rows, rows with validation results under "eval").

    A truncated last line, as a killed process leaves it, is skipped. Raises BatchnavError for any other invalid line.
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
    """The values (x, y) f64 of a key, for the rows where it is finite; rows without a finished episode hold NaN."""
    points = [(r[x], r[key]) for r in rows if isinstance(r.get(key), (int, float)) and math.isfinite(r[key])]
    across, up = np.array(points, np.float64).reshape(-1, 2).T
    return across, up


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Centred running mean over `window` values; the window is cut at both ends."""
    if not len(values):
        return values
    window = max(1, min(window, len(values)))
    counts = np.convolve(np.ones(len(values)), np.ones(window), "same")
    return np.convolve(values, np.ones(window), "same") / counts
