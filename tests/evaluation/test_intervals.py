import math

import numpy as np
import pytest
from scipy.stats import bootstrap

from batchnav.evaluation.intervals import (
    Interval,
    format_interval,
    mean_interval,
    proportion_interval,
    scene_interval,
    summarise,
)
from batchnav.tasks.goal_task import METRIC_SPECS, METRICS

SCENES = np.repeat(np.arange(20, dtype=np.int32), 10)


def houses(spread: float, seed: int = 0) -> np.ndarray:
    """Success in 20 houses of 10 episodes each, whose chances differ by so much."""
    rng = np.random.default_rng(seed)
    chance = np.clip(rng.normal(0.64, spread, 20), 0.0, 1.0)
    return (rng.random(200) < chance[SCENES]).astype(np.float32)


def test_t_interval_of_two_values():
    # n = 2: t(0.975, 1) = tan(0.475 pi) = 12.7062, s = sqrt(1/2), so the half width is t / 2.
    interval = mean_interval(np.array([0.0, 1.0]))
    assert interval.mean == 0.5 and interval.count == 2
    assert interval.high - interval.mean == pytest.approx(math.tan(0.475 * math.pi) / 2, rel=1e-9)
    assert interval.mean - interval.low == pytest.approx(interval.high - interval.mean)
    assert math.isnan(mean_interval(np.array([3.0])).low)


def test_wilson_interval_at_its_ends():
    # Share 0 of n: [0, z^2 / (n + z^2)].
    z2 = 1.959963984540054**2
    low = proportion_interval(np.zeros(10))
    assert (low.mean, low.low) == (0.0, 0.0)
    assert low.high == pytest.approx(z2 / (10 + z2))
    high = proportion_interval(np.ones(10))
    assert (high.high, high.low) == pytest.approx((1.0, 10 / (10 + z2)))


def test_intervals_are_possible_values():
    """No negative collisions, no SPL above 1, whatever Student's t says; a return may be negative."""
    rare = np.array([0.0, 0.0, 0.0, 1.0])
    rows = dict.fromkeys(METRICS, rare) | {"spl": 1.0 - rare, "scene": np.arange(4, dtype=np.int32)}
    summary = summarise(rows, METRIC_SPECS)
    assert summary["collisions"].low == summary["distance_to_goal"].low == 0.0
    assert summary["spl"].high == 1.0
    assert summary["return"].low < 0.0
    assert summary["collisions"].high == mean_interval(rare).high


def test_houses_that_differ_make_the_interval_over_scenes_wider():
    alike, different = houses(0.0), houses(0.3)
    for values, wider in ((alike, 1.3), (different, 1.5)):
        plain, (low, high) = proportion_interval(values), scene_interval(values, SCENES)
        ratio = (high - low) / (plain.high - plain.low)
        assert (ratio > wider) == (values is different), ratio


def test_the_interval_over_scenes_is_the_bootstraps():
    """SciPy's percentile bootstrap over pairs (sum, count) of a scene, with its percentiles as far out as ours."""
    keep = np.random.default_rng(1).random(200) < 0.7  # scenes of unequal numbers of episodes
    values, scene = houses(0.3)[keep], SCENES[keep]
    sums, counts = np.bincount(scene, values), np.bincount(scene)
    found = bootstrap(
        (sums, counts), lambda s, c, axis: s.sum(axis) / c.sum(axis), paired=True, vectorized=True,
        n_resamples=100_000, method="percentile", confidence_level=1 - 2 * 0.0159, random_state=0,
    ).confidence_interval  # fmt: skip
    # 0.0159: the normal's share beyond sqrt(20 / 19) t(0.975, 19) = 2.147.
    assert scene_interval(values, scene) == pytest.approx((found.low, found.high), abs=0.01)


def test_of_many_scenes_with_one_episode_each_both_intervals_agree():
    values = np.random.default_rng(0).normal(5.0, 1.0, 400)
    plain = mean_interval(values)
    assert scene_interval(values, np.arange(400)) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_the_interval_over_scenes_covers_as_often_as_it_says():
    """Means of 20 houses whose own means are normal: the true one lies within in 95% of the trials."""
    rng, inside, trials = np.random.default_rng(0), 0, 200
    for _ in range(trials):
        values = rng.normal(0.0, 1.0, 20)[SCENES] + rng.normal(0.0, 1.0, 200)
        low, high = scene_interval(values, SCENES)
        inside += low <= 0.0 <= high
    assert 0.91 < inside / trials < 0.99  # 0.95 within 2.6 standard errors; episodes as independent would give 0.5


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).normal(size=200)
    assert scene_interval(values, SCENES) == scene_interval(values, SCENES)
    assert scene_interval(values, SCENES, seed=1) != scene_interval(values, SCENES)
    assert scene_interval(values, 7 * SCENES + 3) == scene_interval(values, SCENES)  # any numbers name scenes


def test_scenes_that_do_not_differ_say_nothing():
    assert np.isnan(scene_interval(np.ones(200), SCENES)).all()
    assert np.isnan(scene_interval(houses(0.3), np.zeros(200, np.int32))).all()
    assert np.isnan(scene_interval(np.append(np.ones(199), np.inf), SCENES)).all()  # a goal that cannot be reached


def test_summary_has_every_metric():
    rows = {name: np.linspace(0.0, 1.0, 11).round() for name in METRICS} | {"scene": np.arange(11) // 3}
    summary = summarise(rows, METRIC_SPECS)
    assert set(summary) == set(METRICS)
    assert summary["spl"].mean == pytest.approx(5 / 11)
    assert (summary["spl"].count, summary["spl"].scenes) == (11, 4)
    # Wilson's interval for success is not Student's; over scenes there is but one.
    assert summary["success"].high != summary["spl"].high
    assert summary["success"].scene_high == summary["spl"].scene_high


def test_numbers():
    nan = math.nan
    assert format_interval(Interval(0.5, 0.4, 0.6, 9, 0.3, 0.7, 3)) == ("0.500", "0.400–0.600", "0.300–0.700")
    assert format_interval(Interval(123.45, 120.0, 126.9, 9)) == ("123.5", "120.0–126.9", "")
    assert format_interval(Interval(0.5, nan, nan, 1)) == ("0.500", "", "")
    assert format_interval(Interval(math.inf, nan, nan, 9)) == ("inf", "", "")
