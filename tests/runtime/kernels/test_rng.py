"""Random numbers against the published test vectors of Random123, and their statistics."""

import numba
import numpy as np
import pytest
from numba import prange
from scipy import stats
from scipy.special import ndtri

from batchnav.runtime.kernels.decorators import (
    cpu_function,
    cpu_kernel,
    device_function,
    inline_function,
    lean_function,
)
from batchnav.runtime.kernels.rng import ACTUATION, DEPTH, normal_quantile, philox, step_uniforms, uniform4


def test_philox_known_answers():
    generate = numba.njit(lambda *words: philox(*words))
    # kat_vectors of Random123, philox4x32 with 10 rounds.
    ones = np.uint32(0xFFFFFFFF)
    assert generate(*[np.uint32(0)] * 6) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert generate(*[ones] * 6) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    assert generate(*map(np.uint32, pi)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


@cpu_kernel
def _fill(seed, out):
    for i in range(out.shape[0]):
        a, b, c, d = uniform4(seed, i, 3, 5)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = a, b, c, d


def test_uniforms_are_uniform_and_independent():
    n = 100_000
    a, b = np.empty((n, 4), np.float32), np.empty((n, 4), np.float32)
    _fill(7, a)
    _fill(8, b)
    assert a.min() >= 0.0 and a.max() < 1.0
    # Mean and correlations of n uniforms: five standard errors.
    assert np.all(abs(a.mean(0) - 0.5) < 5 * (1 / 12) ** 0.5 / n**0.5)
    both = np.concatenate([a, b], axis=1)
    correlation = np.corrcoef(both, rowvar=False) - np.eye(8)
    assert abs(correlation).max() < 5 / n**0.5


# Random numbers of steps: the normal quantile against SciPy, and statistics of samples

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


# Rounding of CPU functions: a product is rounded before an addition, whichever function compiles them first


def _product_and_sum(a, b, c):
    return a * b + c


_lean, _inlined, _device, _serial = (
    decorate(_product_and_sum) for decorate in (lean_function, inline_function, device_function, cpu_function)
)


@numba.njit(fastmath={"contract"})
def _first_caller(a, b, c):
    return _lean(a, b, c) + _inlined(a, b, c) + _device(a, b, c) + _serial(a, b, c)


@cpu_kernel
def _kernel(a, c, out):
    """Other numbers for each function: LLVM would compute equal sums once, without fusing if one of them forbids it."""
    for i in numba.prange(a.shape[1]):
        out[0, i], out[1, i] = _lean(a[0, i], a[0, i], c[0, i]), _inlined(a[1, i], a[1, i], c[1, i])
        out[2, i], out[3, i] = _device(a[2, i], a[2, i], c[2, i]), _serial(a[3, i], a[3, i], c[3, i])
        out[4, i] = a[4, i] * a[4, i] + c[4, i]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_products_are_rounded_before_sums():
    """In `a * a - c`, where c is the square rounded to float32, a fused multiply-add leaves the rounding error."""
    a = np.random.default_rng(0).uniform(1, 2, (5, 1000)).astype(np.float32)
    c = -(a * a)
    assert _first_caller(a[0, 0], a[0, 0], c[0, 0]) == 0.0  # compiles the functions under a caller that fuses
    out = np.full_like(a, np.nan)
    _kernel(a, c, out)
    assert (out == 0).all(axis=1).tolist() == [True] * 5
