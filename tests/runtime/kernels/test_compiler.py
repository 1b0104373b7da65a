"""Compiler pipelines that compile a kernel's functions together."""

import gc

import numba
import numpy as np
import pytest
from numba import extending, types

from batchnav.runtime.kernels.compiler import LoopCompiler, _Part, needed
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
    assert all(isinstance(compiled.library, _Part) for compiled in _grown.overloads.values())
    for kind, _ in _halved.signatures:
        assert _halved(np.dtype(kind.name).type(3), values) == 1.5
    assert all(isinstance(compiled.library, _Part) for compiled in _halved.overloads.values())


def test_a_part_holds_its_own_code_only_and_names_what_its_callers_link():
    _loop(np.arange(3, dtype=np.float32), np.zeros(3, np.float32))
    caller = next(iter(_grown.overloads.values()))
    names = [function.name for function in caller.library._final_module.functions if not function.is_declaration]
    assert names == [caller.fndesc.llvm_func_name]
    own, *others = needed(caller.library)
    assert own is caller.library and set(others) & {compiled.library for compiled in _twice.overloads.values()}


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


def test_the_collector_is_paused_during_cuda_compilation(compile_ptx):
    seen = []

    def fill(values_out):
        seen_by(0)
        values_out[0] = 1.0

    @extending.intrinsic
    def seen_by(typingctx, anything):
        seen.append(gc.isenabled())
        return types.void(types.int64), lambda context, builder, signature, args: context.get_dummy_value()

    assert ".entry" in compile_ptx(fill, types.float32[::1])
    assert seen and not any(seen) and gc.isenabled()
