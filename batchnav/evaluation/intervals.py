"""How sure a mean is: 95% intervals."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from batchnav.sim.state import METRICS

CONFIDENCE = 0.95
_Z = 1.959963984540054
"""Normal quantile of 0.975."""


class Interval(NamedTuple):
    """A mean and its 95% interval, over episodes taken as independent."""

    mean: float
    low: float
    high: float
    count: int


def mean_interval(values: np.ndarray) -> Interval:
    """Mean with Student's t interval: mean +- t(0.975, n - 1) s / sqrt(n)."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan, len(values))
    half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2) * values.std(ddof=1) / math.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half, len(values))


def proportion_interval(values: np.ndarray) -> Interval:
    """Share of ones with Wilson's score interval, which stays within 0..1 and has a width where all are alike.

    Wilson, "Probable inference, the law of succession, and statistical inference" (JASA 1927).
    """
    n, share = len(values), float(np.mean(values))
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


def summarise(episodes: dict[str, np.ndarray]) -> dict[str, Interval]:
    """Every metric's mean with its 95% interval: Wilson's for success, Student's t for the others."""
    return {name: (proportion_interval if name == "success" else mean_interval)(episodes[name]) for name in METRICS}
