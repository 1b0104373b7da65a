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


def test_products_are_rounded_before_sums():
    """In `a * a - c`, where c is the square rounded to float32, a fused multiply-add leaves the rounding error."""
    a = np.random.default_rng(0).uniform(1, 2, (5, 1000)).astype(np.float32)
    c = -(a * a)
    assert _first_caller(a[0, 0], a[0, 0], c[0, 0]) == 0.0  # compiles the functions under a caller that fuses
    out = np.full_like(a, np.nan)
    _kernel(a, c, out)
    assert (out == 0).all(axis=1).tolist() == [True] * 5
