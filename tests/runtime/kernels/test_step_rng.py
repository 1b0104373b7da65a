"""Random numbers of steps: the normal quantile against SciPy, and statistics of samples."""

import numpy as np
import pytest
from numba import prange
from scipy import stats
from scipy.special import ndtri

from batchnav.runtime.kernels.decorators import cpu_kernel
from batchnav.runtime.kernels.step_rng import ACTUATION, DEPTH, normal_quantile, step_uniforms

SEVEN_DIGITS = 2e-6
"""Relative, with the rounding of float32."""


@cpu_kernel
def _quantiles(p, out):
    for i in prange(len(p)):
        out[i] = normal_quantile(p[i])


@cpu_kernel
def _draw(seed, stream, out):
    for i in prange(len(out)):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = step_uniforms(seed, i % 50, 3, i // 50, stream, 7)


def test_quantiles_are_scipys():
    p = np.unique(np.concatenate([np.linspace(2**-23, 1 - 2**-23, 10_001), np.geomspace(2**-24, 0.5, 1000)]))
    p = np.concatenate([p, [1 - 2**-24]]).astype(np.float32)
    found = np.empty_like(p)
    _quantiles(p, found)
    np.testing.assert_allclose(found, ndtri(p.astype(np.float64)), rtol=SEVEN_DIGITS, atol=SEVEN_DIGITS)


def test_what_is_drawn_is_normal_and_independent():
    n = 100_000
    a, b = np.empty((n, 4), np.float32), np.empty((n, 4), np.float32)
    _draw(5, ACTUATION, a)
    _draw(5, DEPTH, b)
    assert min(a.min(), b.min()) > 0.0 and max(a.max(), b.max()) < 1.0
    normal = np.empty(8 * n, np.float32)
    _quantiles(np.concatenate([a, b], axis=1).ravel(), normal)
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert stats.kurtosis(normal) == pytest.approx(0.0, abs=5 * (24 / len(normal)) ** 0.5)
    correlation = np.corrcoef(normal.reshape(n, 8), rowvar=False) - np.eye(8)
    assert abs(correlation).max() < 5 / n**0.5
