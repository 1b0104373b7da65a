"""Compile lock: when several processes need a kernel, one compiles it; the others wait and load it from the cache.

Processes that start together with an empty cache (ranks, workers, `runtime/kernels/precompile.py`) thus share the work.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

from batchnav.runtime.console.announce import announce
from batchnav.runtime.console.compilations import SECONDS, name_of
from batchnav.runtime.files.cache import versioned_cache_folder, warn_not_kept

LONGEST_SECONDS = 600.0
"""Longest wait for another process, which may be suspended, seconds; then this process compiles the kernel itself."""
POLL_SECONDS = 0.02
"""Time between two attempts to take the lock, seconds."""


def compiled_once(dispatcher: Any) -> Any:
    """Wrap a cached numba function so that one process at a time compiles it or loads it from disk."""
    function, compile_it = dispatcher.py_func, dispatcher.compile
    save = dispatcher._cache.save_overload
    path = versioned_cache_folder("kernels", function.__module__) / f"{function.__qualname__}.lock"
    held = False

    def save_if_possible(signature, compiled):
        try:
            save(signature, compiled)
        except OSError as error:  # a full disk: the function is compiled and can be called
            warn_not_kept(error)

    def compile_in_turn(signature):
        nonlocal held
        with global_compiler_lock:  # taken first, so that the threads of this process lock in one order
            if held:  # recursive function
                return compile_it(signature)
            with _turn(path, name_of(function)):
                held = True
                try:
                    return compile_it(signature)
                finally:
                    held = False

    dispatcher.compile, dispatcher._cache.save_overload = compile_in_turn, save_if_possible
    return dispatcher


@contextlib.contextmanager
def _turn(path: Path, name: str) -> Iterator[None]:
    """Hold a file lock; proceed without it if the file system has no locks or the wait exceeds LONGEST_SECONDS."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        # Workers are silent: there are many, and the process that compiles announces it.
        start, announced = time.monotonic(), multiprocessing.parent_process() is not None
        while not _locked(file) and time.monotonic() - start < LONGEST_SECONDS:
            if not announced and time.monotonic() - start >= SECONDS:
                announced = True
                announce(f"waiting for another process to compile {name}")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    """True if this process may proceed: it has the lock, or the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
