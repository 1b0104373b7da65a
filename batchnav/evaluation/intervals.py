"""95% intervals of means, over episodes and over scenes.

Episodes of one scene are correlated, so 200 episodes in 20 houses say less about other houses than 200 episodes in 200
houses. The interval over episodes treats them as independent. Papers print it; it covers the mean of other episodes in
the same scenes. The interval over scenes covers the mean in other scenes of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from batchnav.types import Metric

CONFIDENCE = 0.95
"""Confidence level of all intervals."""
RESAMPLES = 10_000
"""Bootstrap samples. The ends of the interval then vary by 1/30 of the mean's standard error between seeds."""
_Z = 1.959963984540054
"""0.975 quantile of the standard normal distribution."""


class Interval(NamedTuple):
    """A mean with its 95% intervals; an end is NaN where the data do not determine it."""

    mean: float
    low: float
    """Lower end over episodes, treated as independent."""
    high: float
    """Upper end over episodes."""
    count: int  # type: ignore[assignment]  # shadows tuple.count
    """Number of episodes."""
    scene_low: float = math.nan
    """Lower end over scenes; each scene is resampled with all its episodes."""
    scene_high: float = math.nan
    """Upper end over scenes."""
    scenes: int = 0
    """Number of scenes."""


Summary = Mapping[str, Interval]
"""Intervals by metric."""


def mean_interval(values: np.ndarray, possible: tuple[float, float] = (-math.inf, math.inf)) -> Interval:
    """Mean with Student's t interval, mean +- t(0.975, n - 1) s / sqrt(n), clipped to the `possible` range.

    One value has no interval: its ends are NaN.
    """
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan, len(values))
    half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2) * values.std(ddof=1) / math.sqrt(len(values)))
    return Interval(mean, max(possible[0], mean - half), min(possible[1], mean + half), len(values))


def proportion_interval(values: np.ndarray) -> Interval:
    """Proportion of ones with Wilson's score interval, which stays within 0..1 and has a width for equal values.

    Wilson, "Probable inference, the law of succession, and statistical inference" (JASA 1927).
    """
    n, share = len(values), float(np.mean(values))
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


def scene_interval(values: np.ndarray, scene: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95% interval of a mean over scenes: a cluster bootstrap that resamples scenes with all their episodes.

    Method: the expanded percentile interval. Plain percentiles are too narrow for few scenes, so the percentiles are
    moved outwards to match Student's t (Hesterberg, "What teachers should know about the bootstrap", The American
    Statistician 2015). Both ends are means of resampled scenes, and so possible values. For the resampling of clusters
    see Davison and Hinkley, "Bootstrap methods and their application" (1997), section 3.8.

    Args:
        values: f32 or f64 [M], one for each episode.
        scene: i32 [M], the scene of each episode.
        seed: seed of the bootstrap.

    Returns:
        Lower and upper end; NaN where all scenes have the same mean or a mean is not finite.
    """
    _, index, counts = np.unique(scene, return_inverse=True, return_counts=True)
    sums, k = np.bincount(index, np.asarray(values, np.float64)), len(counts)
    if not np.isfinite(sums).all() or np.ptp(sums / counts) == 0.0:
        return math.nan, math.nan
    resampled = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), RESAMPLES)
    tail = float(ndtr(math.sqrt(k / (k - 1)) * stdtrit(k - 1, 0.5 - CONFIDENCE / 2)))
    low, high = np.quantile((resampled @ sums) / (resampled @ counts), [tail, 1 - tail])
    return float(low), float(high)


def summarise(episodes: Mapping[str, np.ndarray], metrics: Iterable[Metric]) -> dict[str, Interval]:
    """Mean of every metric with both intervals. Over episodes: Wilson's for proportions, Student's t for the others.

    Args:
        episodes: results that `evaluate` returns: [M] for each metric, and "scene" i32 [M].
        metrics: the task's descriptions of its metrics.
    """
    summary = {}
    for metric in metrics:
        values = episodes[metric.name]
        mean = proportion_interval(values) if metric.binary else mean_interval(values, (metric.low, metric.high))
        low, high = scene_interval(values, episodes["scene"])
        summary[metric.name] = mean._replace(scene_low=low, scene_high=high, scenes=len(np.unique(episodes["scene"])))
    return summary


def format_interval(interval: Interval) -> tuple[str, str, str]:
    """Texts of the mean and of the intervals over episodes and over scenes, "low–high"; "" for a missing interval."""
    digits = 3 if abs(interval.mean) < 10 else 1

    def text(value: float) -> str:
        return f"{value + 0.0:.{digits}f}"

    def spread(low: float, high: float) -> str:
        return f"{text(low)}–{text(high)}" if math.isfinite(high - low) else ""

    return text(interval.mean), spread(interval.low, interval.high), spread(interval.scene_low, interval.scene_high)
