"""Rounding of CPU functions: a product is rounded before an addition, whichever function compiles them first."""

import numba
import numpy as np
import pytest

from batchnav.runtime.kernels.decorators import (
    cpu_function,
    cpu_kernel,
    device_function,
    inline_function,
    lean_function,
)

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@lean_function
def _lean(a, b, c):
    return a * b + c


@inline_function
def _inlined(a, b, c):
    return a * b + c


@device_function
def _device(a, b, c):
    return a * b + c


@cpu_function
def _serial(a, b, c):
    return a * b + c


@numba.njit(fastmath={"contract"})
def _first_caller(a, b, c):
    return _lean(a, b, c) + _inlined(a, b, c) + _device(a, b, c) + _serial(a, b, c)


@cpu_kernel
def _kernel(a, b, c, out):
    for i in numba.prange(len(a)):
        out[i, 0], out[i, 1], out[i, 2] = _lean(a[i], b[i], c[i]), _inlined(a[i], b[i], c[i]), _device(a[i], b[i], c[i])
        out[i, 3], out[i, 4] = _serial(a[i], b[i], c[i]), a[i] * b[i] + c[i]


def test_products_are_rounded_before_sums():
    """In `a * a - c`, where c is the square rounded to float32, a fused multiply-add leaves the rounding error."""
    a = np.random.default_rng(0).uniform(1, 2, 1000).astype(np.float32)
    c = -(a * a)
    assert np.isfinite(_first_caller(a[0], a[0], c[0]))  # compiles the functions under a caller that fuses
    out = np.full((1000, 5), np.nan, np.float32)
    _kernel(a, a, c, out)
    assert (out == 0).all(axis=0).tolist() == [True] * 5
