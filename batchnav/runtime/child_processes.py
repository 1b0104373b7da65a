"""Ctrl-C and child processes: a terminal sends it to them too, and a child that imports or waits prints a traceback."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


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
