"""Kernels that several processes need at once, compiled by one of them: the others wait, and read it from disk.

So processes that start together, as ranks, workers and those of `runtime.ahead`, share the work of an empty cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

from batchnav.runtime.console.announce import SECONDS, announce, name_of
from batchnav.runtime.files.cache import versioned_cache_folder

LONGEST_SECONDS = 600.0
"""That a process is waited for, which may have been stopped; then this one compiles by itself."""
POLL_SECONDS = 0.02


def compiled_once(dispatcher: Any) -> Any:
    """Have a cached function of numba's compiled, or read from disk, by one process at a time."""
    function, compile_it = dispatcher.py_func, dispatcher.compile
    path = versioned_cache_folder("kernels", function.__module__) / f"{function.__qualname__}.lock"
    held = False

    def compile_in_turn(signature):
        nonlocal held
        with global_compiler_lock:  # first, so that threads of this process come to it in one order
            if held:  # it calls itself
                return compile_it(signature)
            with _turn(path, name_of(function)):
                held = True
                try:
                    return compile_it(signature)
                finally:
                    held = False

    dispatcher.compile = compile_in_turn
    return dispatcher


@contextlib.contextmanager
def _turn(path: Path, name: str) -> Iterator[None]:
    """The lock of a file; without it where the file system locks nothing, or another process holds it too long."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        start, told = time.monotonic(), False
        while not _locked(file) and time.monotonic() - start < LONGEST_SECONDS:
            if not told and time.monotonic() - start >= SECONDS:
                told = True
                announce(f"waiting for {name}, which another process compiles")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    """Whether nothing is to be waited for: the lock is this process's, or there is none to be had."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
