"""The same work on many items, in processes, with progress."""

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
    """`work` of each item, in order, in as many processes as there are threads and get `per_worker` items or more.

    Results come as they are there, and work goes on while the caller looks at them, until there is none left or the
    generator is closed. A bar on a terminal, and in a notebook that has widgets, shows how far it is, a line now and
    then elsewhere.

    From any script or notebook: the caller's main module is not imported again (loky), and needs no guard. A daemonic
    process, which may start none, does the work itself. BatchnavError where a process is killed.
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

        yield from counted(map(work, items[:1]))  # compiles what is not compiled yet, once, for all processes
        if workers < 2 or multiprocessing.current_process().daemon:
            yield from counted(map(work, items[1:]))
            return
        # Started anew, not forked: a process that has started CUDA or threads cannot be forked safely.
        try:
            with ProcessPoolExecutor(workers) as pool:
                yield from counted(map(pickle.loads, pool.map(functools.partial(_pickled, work), items[1:])))
        except BrokenProcessPool as error:
            raise BatchnavError(
                f"{title}: a process was killed after {done} of {len(items)}; was there too little memory? "
                f"NUMBA_NUM_THREADS=1 takes less"
            ) from error


def _pickled(work: Callable[[T], R], item: T) -> bytes:
    """A result as bytes: torch else hands each tensor over as an open file, of which a process may have a thousand."""
    return pickle.dumps(work(item))
