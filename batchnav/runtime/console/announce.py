"""What takes long the first time says so: kernels that compile, scenes that are made."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from numba.core import event as events

from batchnav.runtime.files.cache import cache_folder

SECONDS = 1.0
"""Kernels that took less to compile are counted, and not named."""
log = logging.getLogger("batchnav")


def announce(text: str) -> None:
    """A line for whoever waits: in the log where there is one, else on stderr, in terminals and notebooks alike."""
    if log.hasHandlers():
        log.info("%s", text)
    elif log.isEnabledFor(logging.INFO) or log.level == logging.NOTSET:
        print(text, file=sys.stderr, flush=True)


def number_of(count: int, noun: str) -> str:
    """A number with what it counts, as "1 scene" or "1,024 scenes"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class Compilations(events.Listener):
    """Tells which kernels numba compiles, one within another as one."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._depth, self._start = 0, 0.0

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        if self._depth == 0:
            self._start = time.perf_counter()
            if self.count == 0:
                announce(
                    f"compiling kernels, which is done once and kept in {cache_folder()}: the first is {_name(event)}"
                )
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """A compilation is over."""
        self._depth -= 1
        if self._depth == 0:
            took = time.perf_counter() - self._start
            self.count, self.seconds = self.count + 1, self.seconds + took
            if took >= SECONDS:
                so_far = f"{number_of(self.count, 'kernel')} so far, {self.seconds:.0f} s"
                announce(f"compiled {_name(event)} in {took:.0f} s; {so_far}")


def _name(event: Any) -> str:
    if not isinstance(event.data, dict) or "dispatcher" not in event.data:
        return "one for CUDA"  # whose compiler names none
    return name_of(event.data["dispatcher"].py_func)


def name_of(kernel: Callable) -> str:
    """A kernel's name in the package, as "navmesh.batch.step_cpu"."""
    return f"{kernel.__module__.removeprefix('batchnav.')}.{kernel.__name__}"


compilations = Compilations()
events.register("numba:compile", compilations)
