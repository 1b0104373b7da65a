"""Handling of SIGTERM, SIGINT and SIGUSR1: a run saves, then exits."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Literal

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

ONE_SIGNAL = 0.5
"""Time within which further signals count as the first one, seconds. `timeout` and some schedulers signal a process
and then its group, so each signal arrives twice."""


class StopSignals:
    """Context manager in which SIGTERM, SIGINT and SIGUSR1 request an exit.

    A signal ends the process immediately; inside `deferred` it only sets `status`, and the run checks `status`, saves
    and calls `end`. The exit status is 128 + the signal's number (143 and 130). For SIGUSR1, with which schedulers
    request a restart, it is 0. A second signal at least `ONE_SIGNAL` seconds later ends the process immediately.
    Outside the main thread this has no effect, since Python sets handlers in the main thread only.

    Args:
        on_sigusr1: "restart", or "save" if SIGUSR1 requests a save without an exit.
        once: ignore further signals. Processes that torchrun started receive each signal twice: from the terminal or
            the scheduler, and from torchrun, which kills processes that are still running after 30 s.
    """

    def __init__(self, on_sigusr1: Literal["restart", "save"] = "restart", once: bool = False):
        self.on_sigusr1, self.once = on_sigusr1, once
        self.status: int | None = None
        """Requested exit status; None: continue."""
        self._save_asked = self._deferred = self._ended = False
        self._name = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._ended:  # compiled code turns SystemExit into SystemError
            raise SystemExit(self.status) from None

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGUSR1 and self.on_sigusr1 == "save":
            self._save_asked = True
            return
        self.status, self._name = 0 if number == signal.SIGUSR1 else 128 + number, signal.Signals(number).name
        self._leave_others()
        if not self._deferred:
            self.end("no training data was lost")

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Context manager in which a signal only sets `status`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def save_asked(self) -> bool:
        """True if SIGUSR1 requested a save since the last call."""
        asked, self._save_asked = self._save_asked, False
        return asked

    @property
    def asked(self) -> tuple[int, str] | None:
        """Requested exit status and name of the signal; None: continue."""
        return None if self.status is None else (self.status, self._name)

    def follow(self, asked: tuple[int, str]) -> None:
        """Adopt an exit request that another rank received."""
        self.status, self._name = asked
        self._leave_others()

    def _leave_others(self) -> None:
        """Ignore further signals, or restore their default action after `ONE_SIGNAL` seconds."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        if not self.once:
            time.sleep(ONE_SIGNAL)
            for number in self._before:
                signal.signal(number, signal.SIG_DFL)

    def end(self, done: str) -> None:
        """Log `done`, a description of what was saved, and raise SystemExit, if an exit was requested."""
        if self.status is not None:
            again = "; to continue, start the same command again" if self.status == 0 else ""
            self._ended = True
            log.warning("%s: %s%s", self._name, done, again)
            raise SystemExit(self.status)
