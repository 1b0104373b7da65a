"""Compiler pipelines that compile a kernel's functions together."""

import gc
import re
import subprocess
import sys
import types
from typing import NamedTuple

import gymnasium
import numba
import numpy as np
import pytest
import torch

from batchnav.errors import DeviceError
from batchnav.runtime.kernels.compiler import LoopCompiler
from batchnav.runtime.kernels.decorators import device_function, inline_function, lean_function, separate_function

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@inline_function
def _twice(values, i):
    return values[i] * np.float32(2)


@separate_function
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


def test_a_separate_function_is_in_the_machine_code_once():
    _loop(np.zeros(1, np.float32), np.zeros(1, np.float32))
    (code,) = _loop.inspect_asm().values()
    own = {name: len(re.findall(rf"^\S*{name}\S*:$", code, re.MULTILINE)) for name in ("_grown", "_twice", "_halved")}
    assert own == {"_grown": 1, "_twice": 0, "_halved": 0}


class _Terms(NamedTuple):
    values: np.ndarray
    weights: np.ndarray


@lean_function
def _sum_from(terms, negative, k):
    if k == len(terms.values):
        return np.float32(0)
    rest, product = _sum_from(terms, negative, k + 1), terms.values[k] * terms.weights[k]
    return rest - product if negative else rest + product


@numba.njit
def _weighted_sum(terms, negative):
    return _sum_from(terms, negative, 0)


def test_parts_that_call_themselves_take_tuples_of_arrays_and_flags():
    terms = _Terms(np.arange(4, dtype=np.float32), np.full(4, 2, np.float32))
    assert (_weighted_sum(terms, True), _weighted_sum(terms, False)) == (-12, 12)


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


# Kernels in forked processes: an error that says what to do, and work where no loop ran before the fork

MESSAGE = "made by fork after its parent ran a kernel .* spawn"
CARTS = {"num_envs": 2, "vectorization_mode": "async"}


class Frames(torch.utils.data.Dataset):
    """First observations of an environment, reset in the workers of a DataLoader."""

    def __init__(self, env):
        self.env = env

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.env.reset()[0].clone()


@pytest.fixture
def carts():
    from batchnav.cartpole.env import CartPoleEnv

    env = CartPoleEnv(4)
    env.reset()
    env.step(torch.ones(4, dtype=torch.int64))
    return env


def test_workers_of_a_data_loader_say_what_to_do(carts):
    loader = torch.utils.data.DataLoader(Frames(carts), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(DeviceError, match=MESSAGE):
        next(iter(loader))
    assert len(list(torch.utils.data.DataLoader(Frames(carts), num_workers=0))) == 2  # the parent still works


def test_gymnasiums_processes_say_what_to_do_and_work_when_spawned(carts, capfd):
    # Gymnasium's worker makes its environment outside its error handling: the message is in the worker's traceback.
    with pytest.raises((ConnectionError, EOFError, DeviceError)):
        gymnasium.make_vec("batchnav.gym:batchnav/CartPole-v0", **CARTS, vector_kwargs={"context": "fork"}).reset()
    assert re.search(MESSAGE, capfd.readouterr().err)
    env = gymnasium.make_vec("batchnav.gym:batchnav/CartPole-v0", **CARTS, vector_kwargs={"context": "spawn"})
    env.reset(seed=1)
    observation, *_ = env.step(np.ones(2, np.int64))
    assert observation.shape == (2, 4)
    env.close()


def _play(connection):
    from batchnav.cartpole.env import CartPoleEnv

    env = CartPoleEnv(4)
    env.reset()
    connection.send(env.step(torch.ones(4, dtype=torch.int64))[1].tolist())


FORK_FIRST = """
import multiprocessing, sys
sys.path.insert(0, "tests/runtime/kernels")
import batchnav.cartpole.env, test_compiler
here, there = multiprocessing.Pipe()
worker = multiprocessing.get_context("fork").Process(target=test_compiler._play, args=(there,))
worker.start()
assert here.poll(300), worker.exitcode
print(here.recv())
"""


def test_kernels_run_in_processes_that_are_forked_before_the_first_kernel():
    done = subprocess.run([sys.executable, "-c", FORK_FIRST], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[1.0, 1.0, 1.0, 1.0]", done.stderr


def test_a_list_of_compiled_forms_that_names_a_missing_module_is_empty(tmp_path, monkeypatch):
    """The kernel of a shared module was compiled for a task in a module that this process lacks."""
    from batchnav.runtime.kernels.decorators import _Index

    module = types.ModuleType("absent_task")
    module.Record = type("Record", (), {"__module__": "absent_task"})
    monkeypatch.setitem(sys.modules, "absent_task", module)
    _Index(str(tmp_path), "kernel", None).save(module.Record, b"")
    monkeypatch.delitem(sys.modules, "absent_task")
    assert _Index(str(tmp_path), "kernel", None).load(None) is None
