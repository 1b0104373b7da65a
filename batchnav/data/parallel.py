"""One function applied to many items, in parallel processes, with progress."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from joblib.externals.loky import ProcessPoolExecutor

from batchnav.errors import BatchnavError
from batchnav.runtime.console.progress import progress_bar
from batchnav.runtime.threads import num_threads

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

    There are at most as many processes as `num_threads`, and fewer where a process would get less than `per_worker`
    items. The processes continue while the caller handles a result; closing the generator stops them. Progress is a bar
    on a terminal and in notebooks with widgets, and occasional lines elsewhere.

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

        yield from counted(map(work, items[:1]))  # compiles missing kernels once, for all processes
        if workers < 2 or multiprocessing.current_process().daemon:
            yield from counted(map(work, items[1:]))
            return
        # Spawned, not forked: forking is unsafe after CUDA or threads have started.
        try:
            with ProcessPoolExecutor(workers) as pool:
                yield from counted(map(pickle.loads, pool.map(functools.partial(_pickled, work), items[1:])))
        except BrokenProcessPool as error:
            raise BatchnavError(
                f"{title}: a process was killed after {done} of {len(items)}, probably because memory was short; free "
                f"memory, or set NUMBA_NUM_THREADS=1 for fewer processes"
            ) from error


def _pickled(work: Callable[[T], R], item: T) -> bytes:
    """A result as bytes. Otherwise torch sends each tensor as an open file; a process may have about 1,000 of them."""
    return pickle.dumps(work(item))
