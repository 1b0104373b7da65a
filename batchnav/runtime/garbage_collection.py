"""Python's garbage collector, and who asks it to rest."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()
_resting = 0
_was_on = True


def pause() -> None:
    """Switch the collector off until `resume`; threads that do so at once wait for the last of them."""
    global _resting, _was_on
    with _lock:
        if _resting == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _resting += 1


def resume() -> None:
    """The end of a `pause`: the last one's switches the collector on again, if it was on."""
    global _resting
    with _lock:
        _resting -= 1
        if _resting == 0 and _was_on:
            gc.enable()


@contextmanager
def collection_paused() -> Iterator[None]:
    """`pause`, and `resume` at the end."""
    pause()
    try:
        yield
    finally:
        resume()
