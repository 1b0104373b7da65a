"""Compile lock: one of several processes compiles a kernel."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import types
from pathlib import Path

import numba
import numpy as np
import pytest

import batchnav
from batchnav.runtime.kernels import compile_lock as once
from batchnav.runtime.kernels.decorators import _Index, cpu_function

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
PACKAGE = Path(batchnav.__file__).parent
PROGRAM = """
from kernel_of_test import total
import numpy as np
print(total(np.arange(5)), len(total.stats.cache_misses), len(total.stats.cache_hits), flush=True)
"""
KERNEL = """
from batchnav.runtime.kernels.decorators import cpu_function

@cpu_function
def total(values):
    result = 0
    for value in values:
        result += value
    return result
"""


@pytest.fixture
def start(tmp_path):
    """Starts processes that call the same kernel, which nobody has compiled yet, with a cache below `tmp_path`."""
    (tmp_path / "kernel_of_test.py").write_text(KERNEL)
    paths = [str(tmp_path), *filter(None, sys.path)]
    env = {**os.environ, "BATCHNAV_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(paths)}
    processes = []

    def start():
        pipe = subprocess.PIPE
        processes.append(
            subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=pipe, stderr=pipe, text=True)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_one_of_several_processes_compiles(start):
    outputs = [process.communicate(timeout=900) for process in [start() for _ in range(3)]]
    assert sorted(out for out, _ in outputs) == ["10 0 1\n", "10 0 1\n", "10 1 0\n"], outputs


def test_a_process_waits_for_the_compiling_process_and_announces_it(start, tmp_path):
    first = start().communicate(timeout=900)
    assert first[0] == "10 1 0\n", first
    (lock,) = (tmp_path / "cache").rglob("total.lock")
    (index,) = (tmp_path / "cache").rglob("*total*.nbi")
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        index.rename(tmp_path / "index")  # not compiled yet
        second = start()
        line = ""
        while "waiting for" not in line:
            line = second.stderr.readline()
            assert line, "found no line, expected one that says what is waited for"
        assert line == "waiting for another process to compile kernel_of_test.total\n"
        assert second.poll() is None
        (tmp_path / "index").rename(index)
    assert second.communicate(timeout=900)[0] == "10 0 1\n"


INSTALLED = """
import batchnav
import numpy as np
from batchnav.navmesh.bake.heightfield import _bounds
_bounds(np.eye(3, dtype=np.float32), np.array([[0, 1, 2]], np.int32))
print(batchnav.__file__, len(_bounds.stats.cache_hits))
"""


def test_another_installation_of_the_same_sources_finds_the_machine_code(tmp_path):
    """At another path and with later dates."""
    for hits, folder in enumerate((tmp_path / "first", tmp_path / "second")):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, folder / "batchnav", copy_function=shutil.copyfile, ignore=ignored)
        env = {**os.environ, "BATCHNAV_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(folder)}
        done = subprocess.run(
            [sys.executable, "-c", INSTALLED], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        assert done.stdout.split() == [str(folder / "batchnav" / "__init__.py"), str(hits)], done.stderr


def test_types_of_other_programs_keep_their_machine_code(tmp_path, monkeypatch):
    """A process without the types of some forms finds and adds the others, and runs no program that has them."""
    index = _Index(str(tmp_path), "kernel", source_stamp=None)
    other = types.ModuleType("other_program")
    exec("from typing import NamedTuple\nclass Own(NamedTuple):\n    value: float", vars(other))
    monkeypatch.setitem(sys.modules, other.__name__, other)
    own = numba.typeof(other.Own(1.0))
    index.save(own, "of another program")
    monkeypatch.delitem(sys.modules, other.__name__)
    (tmp_path / f"{other.__name__}.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for form in (numba.int64, numba.float32):
        index.save(form, f"of {form}")
        assert index.load(form) == f"of {form}"
    monkeypatch.setitem(sys.modules, other.__name__, other)
    assert [index.load(form) for form in (own, numba.int64)] == ["of another program", "of int64"]


@cpu_function
def _sum(values):
    return values.sum()


@pytest.fixture
def held():
    """The lock of `_sum`, in other hands."""
    file = once.versioned_cache_folder("kernels", __name__) / "_sum.lock"
    with open(file, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def test_the_wait_for_a_lock_is_limited(monkeypatch, held):
    monkeypatch.setattr(once, "LONGEST_SECONDS", 0.0)
    assert _sum(np.arange(4, dtype=np.int16)) == 6


def test_without_file_locks_each_process_compiles(monkeypatch, held):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(once.fcntl, "flock", refuse)
    assert _sum(np.arange(4, dtype=np.int8)) == 6


@cpu_function
def _twice(values):
    return 2 * _sum(values)


def test_kernels_that_call_each_other_from_two_threads():
    """Each holds its lock while it is compiled, and neither waits for the other for ever."""
    results = []
    threads = [
        threading.Thread(target=lambda kernel=kernel: results.append(int(kernel(np.arange(4, dtype=np.uint16)))))
        for kernel in (_sum, _twice)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
    assert sorted(results) == [6, 12]
