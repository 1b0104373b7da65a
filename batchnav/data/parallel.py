"""The same work on many items, in processes, with progress."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.progress import Progress

from batchnav.runtime.device import num_threads

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Iterable[T], title: str, per_worker: int = 1) -> list[R]:
    """`work` of each item, in order, in as many processes as there are threads and get `per_worker` items or more."""
    items, results = list(items), []
    workers = min(num_threads(), len(items) // per_worker)
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=len(items))

        def take(some: Iterable[R]) -> None:
            for result in some:
                results.append(result)
                progress.advance(task)

        take(map(work, items[:1]))  # compiles what is not compiled yet, once, for all processes
        if workers < 2:
            take(map(work, items[1:]))
            return results
        # Spawned, not forked: a process that has started CUDA or threads cannot be forked safely.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            take(map(pickle.loads, pool.map(functools.partial(_pickled, work), items[1:])))
    return results


def _pickled(work: Callable[[T], R], item: T) -> bytes:
    """A result as bytes: torch else hands each tensor over as an open file, of which a process may have a thousand."""
    return pickle.dumps(work(item))
