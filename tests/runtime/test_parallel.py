"""The same work on many items, in processes and threads."""

import functools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from joblib.externals.loky import ProcessPoolExecutor

from batchnav.errors import BatchnavError
from batchnav.runtime import parallel
from batchnav.runtime.parallel import in_parallel


def _few(n):
    return [torch.full((2,), n + k) for k in range(10)]


def _half(n):
    return 1 / n


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setattr(parallel, "num_threads", lambda: 2)


def test_results_come_in_order_and_hold_no_file_open(two_processes):
    """A process may often have but 1,024 files open, and a scene holds several tensors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))
    try:
        results = list(in_parallel(_few, range(100), "tensors"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [few[9][1].item() for few in results] == list(range(9, 109))


def _pid(_):
    time.sleep(0.02)  # stands for work
    return os.getpid()


def test_processes_that_started_ahead_are_used_once(two_processes):
    with parallel.processes_ahead("colorsys"):
        (pool, *_), caller = parallel._ahead[0], os.getpid()
        (started,) = pool._processes
        assert pool.submit(_has_module, "colorsys").result()
        assert {*in_parallel(_pid, range(20), "numbers")} - {caller} == {started}
        assert not parallel._ahead
        assert {*in_parallel(_pid, range(20), "numbers")}.isdisjoint({started})


def _has_module(name):
    return name in sys.modules


def test_processes_that_started_ahead_end_where_they_are_not_needed(two_processes, monkeypatch):
    """One item needs none; other modules, and more processes, need others; an error leaves the context."""
    pools = []
    with parallel.processes_ahead("colorsys"):
        pools.append(parallel._ahead[0][0])
        assert [*in_parallel(_half, [2], "halves")] == [0.5] and not parallel._ahead
    with parallel.processes_ahead("colorsys"):
        pools.append(parallel._ahead[0][0])
        monkeypatch.setenv(parallel.VARIABLE, '["json"]')
        assert [*in_parallel(_half, [2, 4, 8], "halves")] == [0.5, 0.25, 0.125] and not parallel._ahead
    with parallel.processes_ahead("colorsys"):
        pools.append(parallel._ahead[0][0])
        monkeypatch.setattr(parallel, "num_threads", lambda: 3)
        assert [*in_parallel(_half, [2, 4, 8], "halves")] == [0.5, 0.25, 0.125] and not parallel._ahead
    with pytest.raises(KeyError), parallel.processes_ahead("colorsys"):
        pools.append(parallel._ahead[0][0])
        raise KeyError
    assert not parallel._ahead
    for pool in pools:
        with pytest.raises(RuntimeError):
            pool.submit(_half, 2)


def test_an_error_in_a_process_is_raised_here(two_processes):
    with pytest.raises(ZeroDivisionError):
        list(in_parallel(_half, [2, 1, 0, 1], "halves"))


def test_an_error_of_the_first_item_does_not_wait_for_processes_that_start(two_processes, monkeypatch):
    ended = []
    shutdown = ProcessPoolExecutor.shutdown
    monkeypatch.setattr(ProcessPoolExecutor, "shutdown", lambda pool, **how: ended.append(how) or shutdown(pool, **how))
    with pytest.raises(ZeroDivisionError):
        list(in_parallel(_half, [0, 1, 2], "halves"))
    assert ended[0] == {"wait": False, "kill_workers": True}


def _write_pid(path):
    time.sleep(0.05)  # stands for work
    path.write_text(str(os.getpid()))


def test_the_caller_works_too_and_closing_the_generator_ends_the_processes(two_processes, tmp_path):
    caller, paths, done = os.getpid(), [tmp_path / str(n) for n in range(1000)], []
    working = in_parallel(_write_pid, paths, "files")
    for path in paths:
        next(working)
        done.append(int(path.read_text()))
        if done[-1] != caller:
            break
    working.close()
    assert done[:2] == [caller, caller]  # a process takes longer to start than two items
    files = list(tmp_path.iterdir())
    (worker,) = {int(file.read_text()) for file in files} - {caller}
    assert len(done) <= len(files) < 1000
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def _die_elsewhere(caller, n):
    if os.getpid() != caller:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)  # stands for work


def test_a_killed_process_is_named(two_processes):
    killed = r"deaths: a process was killed after [1-9]\d* of 1000, probably because memory was short; free memory"
    with pytest.raises(BatchnavError, match=killed):
        list(in_parallel(functools.partial(_die_elsewhere, os.getpid()), range(1000), "deaths"))


SCRIPT = """
from batchnav.runtime.parallel import in_parallel
def square(n):
    return n * n
print("begins")
print(list(in_parallel(square, range(6), "squares")))
"""


@pytest.mark.parametrize("how", ["file", "stdin", "-c"])
def test_a_script_without_a_guard_is_not_run_again(tmp_path, how):
    """Nor does it have to be importable: its functions travel by value."""
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = {"file": [str(tmp_path / "script.py")], "stdin": ["-"], "-c": ["-c", SCRIPT]}[how]
    done = subprocess.run(
        [sys.executable, *arguments], input=SCRIPT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.stdout == "begins\n[0, 1, 4, 9, 16, 25]\n", done.stderr


def test_a_daemonic_process_works_by_itself(two_processes, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert list(in_parallel(_half, [1, 2, 4], "halves")) == [1, 0.5, 0.25]


STARTS = """
import os, signal, sys
if "popen_loky" in "".join(sys.orig_argv):
    with open(os.environ["STARTS"], "a") as file:
        print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), file=file)
"""
"""Code that Python runs when it starts: writes whether SIGINT is blocked in a new worker."""
INTERRUPTED = """
import os, signal, time
from batchnav.runtime.parallel import in_parallel
def wait(n):
    time.sleep(0.01)
    return os.getpid(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
for pid, blocks in in_parallel(wait, range(100_000), "waits"):
    assert not blocks
    if pid != os.getpid():
        print("working", flush=True)
"""


def test_an_interrupt_is_silent_in_processes_that_start_or_wait(tmp_path):
    """A terminal sends it to all of them. They receive it only while they work."""
    (tmp_path / "sitecustomize.py").write_text(STARTS)
    (tmp_path / "script.py").write_text(INTERRUPTED)
    changes = {"NUMBA_NUM_THREADS": "2", "STARTS": str(tmp_path / "starts")}
    changes["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **changes}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout.readline() == "working\n"
    assert (tmp_path / "starts").read_text() == "True\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert errors.count("Traceback") == 1 and errors.splitlines()[-1] == "KeyboardInterrupt"  # of the caller


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_return_results_in_order_and_work_alone_within(monkeypatch, cores):
    monkeypatch.setattr(parallel, "num_threads", lambda: cores)
    meet = threading.Barrier(cores)

    def work(item):
        if item < cores:
            meet.wait(timeout=60)  # as many threads as cores
        return parallel.in_threads(lambda each: (each, threading.get_ident()), [item, item + 1])

    found = parallel.in_threads(work, range(5))
    assert [[each for each, _ in part] for part in found] == [[k, k + 1] for k in range(5)]
    assert all(len({thread for _, thread in part}) == 1 for part in found)


def test_an_error_in_a_thread_is_raised_here(monkeypatch):
    monkeypatch.setattr(parallel, "num_threads", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        parallel.in_threads(lambda item: 1 // item, [1, 0, 2])


def test_concatenation_in_threads_is_that_of_numpy():
    arrays = [np.arange(6 * k, dtype=np.int32).reshape(-1, 2) for k in (3, 0, 1)]
    found = parallel.concatenated(arrays)
    assert found.dtype == np.int32 and np.array_equal(found, np.concatenate(arrays))
