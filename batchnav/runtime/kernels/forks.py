"""Kernels in forked processes: an error that names the remedy.

numba runs `prange` loops on GNU OpenMP, whose threads do not survive `os.fork`: the first loop in a child would end the
process with SIGTERM. Of numba's other thread pools, "workqueue" ends the process where two threads run loops at a time,
as scene streams do, and "tbb" is a package that few machines have; with it, loops also run in forked processes.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import numba

from batchnav.errors import DeviceError

_loops: weakref.WeakSet[Any] = weakref.WeakSet()
"""All kernels with `prange` loops in this process."""


def refused_after_fork(dispatcher: Any) -> Any:
    """Make calls of a numba function with `prange` loops a DeviceError in forked processes that cannot run them."""
    _loops.add(dispatcher)
    return dispatcher


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise DeviceError(
        "kernels: found a process made by fork after its parent ran a kernel on the CPU, expected one made by spawn; "
        'pass multiprocessing_context="spawn" to DataLoader, vector_kwargs={"context": "spawn"} to gymnasium.make_vec, '
        'or use multiprocessing.get_context("spawn")'
    )


def _after_fork() -> None:
    """In the child: replace the kernels if the parent's OpenMP threads are running."""
    try:
        layer = numba.threading_layer()
    except ValueError:  # no loop has run: this process starts threads of its own
        return
    if layer == "omp":
        for dispatcher in _loops:
            dispatcher._clear()  # compiled code, which numba calls without Python
            dispatcher._compile_for_args = _refuse


os.register_at_fork(after_in_child=_after_fork)
