"""Signals that end a run: schedulers and users send them, and nothing may be lost."""

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
"""Seconds: `timeout`, and some schedulers, signal a process and at once its group, so that each signal comes twice."""


class StopSignals:
    """Within it, SIGTERM, SIGINT and SIGUSR1 ask a run to end: at once, or inside `deferred` when it next looks.

    A run that was asked to looks at `status`, saves, and calls `end`. The exit status is 128 + the signal's number (143
    and 130), but 0 for SIGUSR1, by which schedulers ask for a restart. A second signal, half a second
    later or more, ends the process at once. In threads but the main one signals do what they did.

    Args:
        on_sigusr1: "restart", or "save": SIGUSR1 then asks for a save alone.
        once: a second signal changes nothing. Processes that torchrun started get each twice, from the terminal or the
            scheduler and from torchrun, which ends by force what has not ended after 30 s.
    """

    def __init__(self, on_sigusr1: Literal["restart", "save"] = "restart", once: bool = False):
        self.on_sigusr1, self.once = on_sigusr1, once
        self.status: int | None = None
        """The exit status that was asked for; None: go on."""
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
        if self._ended:  # compiled code makes a SystemError of the SystemExit that reached it
            raise SystemExit(self.status) from None

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGUSR1 and self.on_sigusr1 == "save":
            self._save_asked = True
            return
        self.status, self._name = 0 if number == signal.SIGUSR1 else 128 + number, signal.Signals(number).name
        self._leave_others()
        if not self._deferred:
            self.end("nothing was lost")

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Within it, a signal only sets `status`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def save_asked(self) -> bool:
        """Whether a save was asked for since the last call."""
        asked, self._save_asked = self._save_asked, False
        return asked

    @property
    def asked(self) -> tuple[int, str] | None:
        """The exit status and the signal that asked for it; None: go on."""
        return None if self.status is None else (self.status, self._name)

    def follow(self, asked: tuple[int, str]) -> None:
        """Do as if this process had been asked, where another was."""
        self.status, self._name = asked
        self._leave_others()

    def _leave_others(self) -> None:
        """Let further signals do what they are to do."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        if not self.once:
            time.sleep(ONE_SIGNAL)
            for number in self._before:
                signal.signal(number, signal.SIG_DFL)

    def end(self, done: str) -> None:
        """End the process as it was asked to, and say what was done; nothing where it was not asked."""
        if self.status is not None:
            again = "; start the same command again to go on" if self.status == 0 else ""
            self._ended = True
            log.warning("%s: %s%s", self._name, done, again)
            raise SystemExit(self.status)
