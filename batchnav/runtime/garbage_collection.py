"""Pauses of Python's garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()
_pauses = 0
_was_on = True


def pause() -> None:
    """Switch the collector off until `resume`. Pauses nest and may overlap in several threads."""
    global _pauses, _was_on
    with _lock:
        if _pauses == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _pauses += 1


def resume() -> None:
    """End a `pause`; the last one switches the collector on again, if it was on before."""
    global _pauses
    with _lock:
        _pauses -= 1
        if _pauses == 0 and _was_on:
            gc.enable()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Context manager of `pause` and `resume`."""
    pause()
    try:
        yield
    finally:
        resume()
