"""Parallel work: one function applied to many items in processes or threads, Ctrl-C, and the number of threads."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, TypeVar

import numba
import numpy as np

from batchnav.errors import BatchnavError
from batchnav.runtime.console import progress_bar
from batchnav.runtime.imports import VARIABLE, import_in_child

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

# Ctrl-C and child processes: a terminal sends it to them too, and a child that imports or waits prints a traceback


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Context manager in which SIGINT waits for the end of the context. Processes that start in it block SIGINT."""
    waiting: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    # Another thread may receive the signal in spite of the mask, and Python then calls the handler in the main thread.
    deferred = callable(handler) and threading.current_thread() is threading.main_thread()
    if deferred:
        signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if deferred:
            signal.signal(signal.SIGINT, handler)
        if waiting:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def interrupts_received() -> Iterator[None]:
    """Context manager in which SIGINT arrives, in a process that started in `interrupts_blocked`."""
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def num_threads() -> int:
    """Number of CPU threads that a `cpu_kernel` loop uses."""
    return numba.get_num_threads()


def limit_threads(count: int) -> None:
    """Set the number of CPU threads, at least one, for the `cpu_kernel` loops that this thread starts."""
    numba.set_num_threads(max(1, count))


SCENES_PER_WORKER = 8
"""Least number of scenes per process: a process takes seconds to start, a house a fifth of a second to make."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T], R], items: Iterable[T], title: str, per_worker: int = 1
) -> Generator[R, None, None]:
    """Results of `work(item)` in the order of the items, as they become ready.

    Args:
        work: the function; picklable, as are items and results.
        items: its arguments.
        title: noun for the progress display and for errors.
        per_worker: least number of items per process.

    There are at most as many processes as `num_threads`, this one included, and fewer where a process would get less
    than `per_worker` items. The others continue while the caller handles a result; closing the generator stops them.
    Progress is a bar on a terminal and in notebooks with widgets, and occasional lines elsewhere.

    The caller's main module is not imported again (loky), so scripts need no `__main__` guard. A daemonic process may
    not start processes, so it does the work itself. Raises BatchnavError where a process is killed.
    """
    items, done = list(items), 0
    workers = min(num_threads(), len(items) // per_worker)
    with progress_bar(title, len(items)) as show:

        def counted(some: Iterable[R]) -> Iterator[R]:
            nonlocal done
            for result in some:
                done += 1
                show(done)
                yield result

        if workers < 2 or multiprocessing.current_process().daemon:
            _taken_ahead(0)
            yield from counted(map(work, items))
            return
        try:
            with (
                _taken_ahead(workers - 1) or _processes(workers - 1) as pool,
                # Closed before the pool, which waits for all work that is not cancelled, wherever an interrupt comes.
                contextlib.closing(_shared(pool, work, items)) as results,
            ):
                yield from counted(results)
        except BrokenProcessPool as error:
            raise BatchnavError(
                f"{title}: a process was killed after {done} of {len(items)}, probably because memory was short; free "
                f"memory, or set NUMBA_NUM_THREADS=1 for fewer processes"
            ) from error


_thread = threading.local()
"""Has `works`, True in a thread of `in_threads`."""


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Results of `work(item)` in the order of the items, by at most `num_threads` threads.

    For work that releases Python's lock: a `cpu_function`, or NumPy on large arrays. A `cpu_kernel` uses one thread
    there. A call within such a thread works in that thread.
    """
    items = list(items)
    count = 1 if getattr(_thread, "works", False) else min(num_threads(), len(items))
    if count < 2:
        return list(map(work, items))
    with ThreadPoolExecutor(count, initializer=_begin_thread) as pool:
        return list(pool.map(work, items))


def concatenated(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """`np.concatenate` along the first axis of arrays of one dtype, copied by `in_threads`."""
    ends = np.cumsum([len(array) for array in arrays]).tolist()
    whole = np.empty((ends[-1], *arrays[0].shape[1:]), arrays[0].dtype)

    def copy(k: int) -> None:
        whole[ends[k] - len(arrays[k]) : ends[k]] = arrays[k]

    in_threads(copy, range(len(arrays)))
    return whole


def _begin_thread() -> None:
    _thread.works = True
    limit_threads(1)


def _processes(count: int, module: str = "") -> ProcessPoolExecutor:
    """A pool whose processes start with its first task: spawned, since forks are unsafe after CUDA or threads."""
    from joblib.externals.loky import ProcessPoolExecutor  # kernels without parallel work do without it

    return ProcessPoolExecutor(count, initializer=_begin_process, initargs=(module,))


_ahead: list[tuple[ProcessPoolExecutor, int, str | None]] = []
"""At most one pool that was started ahead, its number of processes, and what they import (`imports.VARIABLE`)."""
MOST_AHEAD = 31
"""Largest number of processes that start ahead, before it is known how many the work needs. One takes 0.4 GB."""


@contextlib.contextmanager
def processes_ahead(module: str) -> Iterator[None]:
    """Context whose first `in_parallel` finds its processes started, and a module imported in them.

    They import while this process does, which takes seconds. They end with that call, or with the context. Work that
    has use for more than MOST_AHEAD processes starts its own.
    """
    count = min(num_threads() - 1, MOST_AHEAD)
    if count < 1:
        yield
        return
    resource_tracker.ensure_running()
    with interrupts_blocked():
        pool = _processes(count, module)
        pool.submit(num_threads)  # starts the processes
    _ahead.append((pool, count, os.environ.get(VARIABLE)))
    try:
        yield
    finally:
        _taken_ahead(0)


def _taken_ahead(needed: int) -> ProcessPoolExecutor | None:
    """The pool that was started ahead, once. It ends where none or more processes are needed, or other modules."""
    while _ahead:
        pool, count, imports = _ahead.pop()
        if 0 < needed <= count and imports == os.environ.get(VARIABLE):
            return pool
        pool.shutdown(wait=False, kill_workers=True)
    return None


def _shared(pool: ProcessPoolExecutor, work: Callable[[T], R], items: list[T]) -> Generator[R, None, None]:
    """Results in order. This process works until the pool has started, then on the last items while it waits."""
    begun = 0
    resource_tracker.ensure_running()  # started later, it would end the block
    with interrupts_blocked():
        ready = pool.submit(_start, work)  # starts the processes
    try:
        while begun < len(items) and not ready.done():
            yield work(items[begun])
            begun += 1
    except BaseException:  # an interrupt, an error of the work, or the end of the generator
        pool.shutdown(wait=False, kill_workers=True)  # they still start, which takes seconds
        raise
    items = items[begun:]
    futures = [pool.submit(_pickled, work, item) for item in items]
    own, end = {}, len(items)  # results of this process: all items from `end` on
    try:
        for k, future in enumerate(futures):
            while k < end and not future.done() and futures[end - 1].cancel():
                end -= 1
                own[end] = work(items[end])
            yield own.pop(k) if k >= end else pickle.loads(future.result())
    finally:
        for future in futures:
            future.cancel()


def _begin_process(module: str = "") -> None:
    """Compute on one core in this process: there are as many processes as cores. Modules of one's own are imported."""
    if module:
        importlib.import_module(module)
    import_in_child()
    numba.set_num_threads(1)


def _start(work: Callable[[T], R]) -> None:
    """Import the modules of `work`, which unpickling it does."""


def _pickled(work: Callable[[T], R], item: T) -> bytes:
    """A result as bytes. Otherwise torch sends each tensor as an open file; a process may have about 1,000 of them."""
    with interrupts_received():
        return pickle.dumps(work(item))
