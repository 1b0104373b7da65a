"""Ctrl-C in a command: it ends with one line that says what was written, and exit status 130."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from batchnav.errors import printable

STATUS = 130
"""Exit status of an interrupted command: 128 + SIGINT."""
SECONDS_UNTIL_AGAIN = 0.1
"""Delay of a repeated interrupt, in which the callback that discarded the first one returns."""
_received: list[int] = []
"""Not empty after Ctrl-C in the running command."""


@contextlib.contextmanager
def interrupted_with(text: Callable[[], str]) -> Iterator[None]:
    """Context manager in which Ctrl-C ends the command with the result of `text`, which says what was written.

    It raises KeyboardInterrupt with this text, also for errors after Ctrl-C: compiled kernels turn KeyboardInterrupt
    into SystemError, PyTorch's exporter and NumPy turn it into errors of their own.
    """
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if not (is_interrupt or _received):
            raise
        raise KeyboardInterrupt((is_interrupt and str(error)) or text()) from None


@contextlib.contextmanager
def interrupts_arrive() -> Iterator[None]:
    """Context manager in which Ctrl-C also arrives while Python runs a destructor or the callback of a weak reference.

    Python discards the exceptions of such code, and the compiler of kernels runs much of it. The interrupt is repeated.
    """
    hook, timers = sys.unraisablehook, list[threading.Timer]()
    on_main = threading.current_thread() is threading.main_thread()
    is_default = on_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def repeat(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            main_thread = threading.main_thread().ident
            timers.append(threading.Timer(SECONDS_UNTIL_AGAIN, signal.pthread_kill, (main_thread, signal.SIGINT)))
            timers[-1].start()
        else:
            hook(unraisable)

    sys.unraisablehook = repeat
    if is_default:
        signal.signal(signal.SIGINT, _receive)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for timer in timers:
            timer.cancel()
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _received.clear()


def _receive(number: int, _: FrameType | None) -> NoReturn:
    """Signal handler."""
    _received.append(number)
    raise KeyboardInterrupt


def end_interrupted(text: str) -> NoReturn:
    """Print "interrupted: TEXT" and exit with `STATUS`. Of the ranks of a distributed run, rank 0 prints."""
    if os.environ.get("RANK", "0") == "0":
        begin = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C on the current line
        print(f"{begin}interrupted{text and ': '}{printable(text)}", file=sys.stderr, flush=True)
    sys.exit(STATUS)
