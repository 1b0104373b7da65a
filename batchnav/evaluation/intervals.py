"""How sure a mean is: 95% intervals over episodes, and over the scenes that they were played in.

Episodes of one scene resemble each other, so 200 episodes in 20 houses say less about other houses than 200 episodes in
200 houses. The plain interval takes episodes as independent: it is what papers print, and says how another 200 episodes
in these same scenes would come out. The interval over scenes says what other scenes of the kind would give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from batchnav.types import Metric

CONFIDENCE = 0.95
RESAMPLES = 10_000
"""Of the bootstrap: its ends then vary by a thirtieth of the mean's standard error from seed to seed."""
_Z = 1.959963984540054
"""Normal quantile of 0.975."""


class Interval(NamedTuple):
    """A mean with its 95% intervals; NaN stands for an end that cannot be known."""

    mean: float
    low: float
    """Over episodes, taken as independent."""
    high: float
    count: int  # type: ignore[assignment]  # hides what tuples have by this name
    """Episodes."""
    scene_low: float = math.nan
    """Over scenes, each drawn with all its episodes."""
    scene_high: float = math.nan
    scenes: int = 0


Summary = Mapping[str, Interval]
"""By metric."""


def mean_interval(values: np.ndarray, possible: tuple[float, float] = (-math.inf, math.inf)) -> Interval:
    """Mean with Student's t interval: mean +- t(0.975, n - 1) s / sqrt(n), as far as such a mean is `possible`."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan, len(values))
    half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2) * values.std(ddof=1) / math.sqrt(len(values)))
    return Interval(mean, max(possible[0], mean - half), min(possible[1], mean + half), len(values))


def proportion_interval(values: np.ndarray) -> Interval:
    """Share of ones with Wilson's score interval, which stays within 0..1 and has a width where all are alike.

    Wilson, "Probable inference, the law of succession, and statistical inference" (JASA 1927).
    """
    n, share = len(values), float(np.mean(values))
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


def scene_interval(values: np.ndarray, scene: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95% interval of a mean over scenes, by a cluster bootstrap: scenes are drawn with all their episodes.

    The expanded percentile interval: few scenes make plain percentiles too narrow, so they are taken as far out as
    Student's t has them (Hesterberg, "What teachers should know about the bootstrap", The American Statistician 2015).
    Its ends are means of drawn scenes, so they are possible values. Drawing scenes and not episodes: Davison and
    Hinkley, "Bootstrap methods and their application" (1997), section 3.8.

    Args:
        values: f32 or f64 [M], one an episode.
        scene: i32 [M], in which scene each was played.
        seed: of the bootstrap; the same seed gives the same interval.

    Returns:
        Its ends. NaN where all scenes have the same mean, or one's is not finite: then drawing scenes tells nothing.
    """
    _, index, counts = np.unique(scene, return_inverse=True, return_counts=True)
    sums, k = np.bincount(index, np.asarray(values, np.float64)), len(counts)
    if not np.isfinite(sums).all() or np.ptp(sums / counts) == 0.0:
        return math.nan, math.nan
    drawn = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), RESAMPLES)
    tail = float(ndtr(math.sqrt(k / (k - 1)) * stdtrit(k - 1, 0.5 - CONFIDENCE / 2)))
    low, high = np.quantile((drawn @ sums) / (drawn @ counts), [tail, 1 - tail])
    return float(low), float(high)


def summarise(episodes: Mapping[str, np.ndarray], metrics: Iterable[Metric]) -> dict[str, Interval]:
    """Every metric's mean with both intervals: over episodes Wilson's for proportions and Student's t for the others.

    Args:
        episodes: what `evaluate` returns: [M] for each metric, and "scene" i32 [M].
        metrics: what the task says of them.
    """
    summary = {}
    for metric in metrics:
        values = episodes[metric.name]
        plain = proportion_interval(values) if metric.binary else mean_interval(values, (metric.low, metric.high))
        low, high = scene_interval(values, episodes["scene"])
        summary[metric.name] = plain._replace(scene_low=low, scene_high=high, scenes=len(np.unique(episodes["scene"])))
    return summary


def format_interval(interval: Interval) -> tuple[str, str, str]:
    """The mean and both intervals, over episodes and over scenes, as "low–high"; empty where there is none."""
    digits = 3 if abs(interval.mean) < 10 else 1

    def text(value: float) -> str:
        return f"{value + 0.0:.{digits}f}"

    def spread(low: float, high: float) -> str:
        return f"{text(low)}–{text(high)}" if math.isfinite(high - low) else ""

    return text(interval.mean), spread(interval.low, interval.high), spread(interval.scene_low, interval.scene_high)
