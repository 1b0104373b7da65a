"""Compiler pipelines that compile a kernel's functions together."""

import gc

import numba
import numpy as np
import pytest

from batchnav.runtime.kernels.compiler import LoopCompiler
from batchnav.runtime.kernels.decorators import device_function, inline_function, lean_function

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@inline_function
def _twice(values, i):
    return values[i] * np.float32(2)


@lean_function
def _grown(values, i):
    return _twice(values, i) + np.float32(1)


@device_function
def _halved(i, values):
    return values[i] / np.float32(2)


@numba.njit(parallel=True, error_model="numpy", pipeline_class=LoopCompiler)
def _loop(values, out):
    for i in numba.prange(len(out)):
        out[i] = _grown(values, i) + _halved(i, values)


def test_a_loop_of_parts_and_a_function_that_it_is_the_first_to_call():
    """The function stays one that Python can call, for every type that the loop compiled it for."""
    values = np.arange(10, dtype=np.float32)
    out = np.zeros_like(values)
    _loop(values, out)
    assert (out == 2.5 * values + 1).all()
    for kind, _ in _halved.signatures:
        assert _halved(np.dtype(kind.name).type(3), values) == 1.5


@lean_function
def _sum_of_row(values, row, doubled):
    total = np.float32(0)
    for k in range(values.shape[1]):
        total += values[row, k]
    return np.float32(2) * total if doubled else total


@numba.njit
def _sums(values):
    return _sum_of_row(values, 0, True) + _sum_of_row(values, 1, False) + _sum_of_row(values, len(values) - 1, False)


def test_literal_arguments_cause_no_further_compilation():
    assert _sums(np.arange(6, dtype=np.float32).reshape(3, 2)) == 2 * 1 + 5 + 9
    assert len(_sum_of_row.overloads) == 1


def test_the_collector_runs_again_after_a_compilation():
    seen = []

    @numba.njit
    def add(x):
        return x + 1

    class Watch(numba.core.event.Listener):
        def on_start(self, event):
            seen.append(gc.isenabled())

        def on_end(self, event):
            pass

    with numba.core.event.install_listener("numba:compile", Watch()):
        assert add(1) == 2
    assert seen == [False] and gc.isenabled()
    gc.disable()
    try:
        assert add(1.0) == 2
        assert not gc.isenabled()
    finally:
        gc.enable()
