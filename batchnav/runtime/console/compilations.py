"""Status lines about kernels that numba compiles; importing this module announces them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from numba.core import event as events

from batchnav.runtime.console.announce import announce, number_of
from batchnav.runtime.files.cache import cache_folder

SECONDS = 1.0
"""Shortest compilation, and shortest wait for one, that gets a line of its own, seconds."""


class Compilations(events.Listener):
    """Announces the kernels that numba compiles; nested compilations count as one."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._depth, self._start = 0, 0.0

    def on_start(self, event: Any) -> None:
        """Start of a compilation."""
        if self._depth == 0:
            self._start = time.perf_counter()
            if self.count == 0:
                announce(f"compiling kernels, once; cached in {cache_folder()}; first: {_name(event)}")
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """End of a compilation."""
        self._depth -= 1
        if self._depth == 0:
            took = time.perf_counter() - self._start
            self.count, self.seconds = self.count + 1, self.seconds + took
            if took >= SECONDS:
                so_far = f"{number_of(self.count, 'kernel')} so far, {self.seconds:.0f} s"
                announce(f"compiled {_name(event)} in {took:.0f} s; {so_far}")


def _name(event: Any) -> str:
    if not isinstance(event.data, dict) or "dispatcher" not in event.data:
        return "a CUDA kernel"  # the CUDA compiler gives no name
    return name_of(event.data["dispatcher"].py_func)


def name_of(kernel: Callable) -> str:
    """Name of a kernel within the package, for example "navmesh.batch.step_cpu"."""
    return f"{kernel.__module__.removeprefix('batchnav.')}.{kernel.__name__}"


compilations = Compilations()
events.register("numba:compile", compilations)
