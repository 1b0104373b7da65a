"""Compile lock: when several processes need a kernel, one compiles it; the others wait and load it from the cache.

Processes that start together with an empty cache (ranks, workers, `runtime/kernels/precompile.py`) thus share the work.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core import event as events
from numba.core.compiler_lock import global_compiler_lock

from batchnav.runtime.cache import LOCK, cache_folder, versioned_cache_folder, warn_not_kept
from batchnav.runtime.console import announce, number_of

# Status lines about kernels that numba compiles; importing this module announces them

SECONDS = 1.0
"""Shortest compilation, and shortest wait for one, that gets a line of its own, seconds."""


class Compilations(events.Listener):
    """Announces the kernels that numba compiles; nested compilations count as one.

    numba sends an event for each compilation on the CPU. For CUDA some versions send none, and some one without a name,
    so `compiled_once` calls `begin` and `end`.
    """

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._depth, self._start = 0, 0.0

    def on_start(self, event: Any) -> None:
        """Start of a compilation."""
        self.begin(_name(event))

    def on_end(self, event: Any) -> None:
        """End of a compilation."""
        self.end(_name(event))

    def begin(self, name: str) -> None:
        """Start of the compilation of a kernel, possibly within another one."""
        if self._depth == 0:
            self._start = time.perf_counter()
            if self.count == 0:
                announce(f"compiling kernels, once; cached in {cache_folder()}; first: {name}")
        self._depth += 1

    def end(self, name: str) -> None:
        """End of the compilation of a kernel."""
        self._depth -= 1
        if self._depth == 0:
            took = time.perf_counter() - self._start
            self.count, self.seconds = self.count + 1, self.seconds + took
            if took >= SECONDS:
                so_far = f"{number_of(self.count, 'kernel')} so far, {self.seconds:.0f} s"
                announce(f"compiled {name} in {took:.0f} s; {so_far}")


def _name(event: Any) -> str:
    known = isinstance(event.data, dict) and "dispatcher" in event.data
    return name_of(event.data["dispatcher"].py_func) if known else "a CUDA kernel"


def name_of(kernel: Callable) -> str:
    """Name of a kernel within the package, for example "navmesh.batch.step_cpu"."""
    return f"{kernel.__module__.removeprefix('batchnav.')}.{kernel.__name__}"


compilations = Compilations()
events.register("numba:compile", compilations)


LONGEST_SECONDS = 600.0
"""Longest wait for another process, which may be suspended, seconds; then this process compiles the kernel itself."""
POLL_SECONDS = 0.02
"""Time between two attempts to take the lock, seconds."""


def compiled_once(dispatcher: Any) -> Any:
    """Wrap a numba function or CUDA kernel with a cache so that one process at a time compiles it.

    All may load it from disk at a time.
    """
    function, compile_it = dispatcher.py_func, dispatcher.compile
    load, save = dispatcher._cache.load_overload, dispatcher._cache.save_overload
    path = versioned_cache_folder("kernels", function.__module__) / f"{function.__qualname__}{LOCK}"
    turn, held = contextlib.ExitStack(), False

    def load_or_take_turn(signature, context):
        nonlocal held
        found = load(signature, context)
        if found is None and not held:  # not within a recursive function
            turn.enter_context(_turn(path, name_of(function)))
            held = True
            found = load(signature, context)  # another process may have compiled it
            if found is None:
                turn.enter_context(_announced(name_of(function)))
        return found

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
            try:
                return compile_it(signature)
            finally:
                turn.close()
                held = False

    dispatcher.compile = compile_in_turn
    dispatcher._cache.load_overload, dispatcher._cache.save_overload = load_or_take_turn, save_if_possible
    return dispatcher


@contextlib.contextmanager
def _announced(name: str) -> Iterator[None]:
    """Count and announce the compilation within; numba's events come within it, and count no further one."""
    compilations.begin(name)
    try:
        yield
    finally:
        compilations.end(name)


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
