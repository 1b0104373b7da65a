"""The pulse of ranks that work together: no rank waits for ever for one that is gone, failed or stuck.

A thread in each rank writes twice a second into the ranks' store that it lives, how many sums it has begun, and, where
it failed, why; and reads what the others wrote. NCCL and gloo name no rank when one is missing, and a host that waits
for NCCL hears no signal: so the thread ends the process, and the lowest rank that is left says why, once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import torch.distributed as dist

from batchnav.errors import DeviceError

BEAT_SECONDS = 0.5
ROLL_SECONDS = 0.05
"""Between two looks at who has come: what waits in the store itself hears no signal until it has waited enough."""
SILENT_BEATS = 50
"""A rank that has not said a word for so many of one's own beats is gone: 25 s, longer than anything keeps a thread
from running, and less than the 30 s after which torchrun ends by force what does not heed it. Counted and not by the
clock, so that a machine which pauses as a whole finds everyone there when it goes on."""
BROKEN_BEATS = 6
"""The same once a connection has broken."""
LINGER_SECONDS = 1.2
"""A rank that failed stays so long, so that the others read why, and they a little longer: torchrun takes the first
that ends for the cause, and ends the others."""


class Beat(NamedTuple):
    """What a rank says."""

    number: int
    """Of beats so far."""
    begun: int
    """Sums over ranks that it has begun."""
    status: int
    """With which all are to end, where there are words."""
    words: str
    """Why it failed; empty: it did not."""


class Pulse(threading.Thread):
    """The thread of one rank.

    Args:
        store: the rank's connection to the store.
        own_store: another one, for the thread: the first may be busy waiting.
        rank: of this process.
        world_size: how many there are.
        label: machine and device, for messages.
        stall_seconds: how long a rank may have begun fewer sums than others.
    """

    def __init__(
        self, store: dist.Store, own_store: dist.Store, rank: int, world_size: int, label: str, stall_seconds: float
    ):
        super().__init__(name="pulse", daemon=True)
        self.rank, self.world_size, self.begun = rank, world_size, 0
        self._store, self._own_store, self._stall_seconds = store, own_store, stall_seconds
        self._labels = [label] * world_size
        self._words, self._status, self._number = "", 1, 0
        self._over, self._broken = threading.Event(), threading.Event()
        self._ending = False

    def title(self, rank: int) -> str:
        """A rank for messages."""
        return f"rank {rank} ({self._labels[rank]})"

    def store_for(self, purpose: str) -> dist.Store:
        """The store, with keys of their own."""
        return dist.PrefixStore(purpose, self._store)

    def call_the_roll(self, seconds: float, ended: Callable[[], Collection[int]] = tuple) -> None:
        """Wait for all ranks. DeviceError names those that did not come, or have `ended` before."""
        until = time.monotonic() + seconds
        self._store.set(f"beat/{self.rank}", json.dumps(Beat(0, 0, 1, "")))
        self._store.set(f"here/{self.rank}", self._labels[self.rank])
        missing = []
        for rank in range(self.world_size):
            while not self._is_here(rank):
                if rank in ended():
                    raise DeviceError(f"rank {rank} of {self.world_size}: ended before it came, expected all")
                if time.monotonic() > until:
                    missing.append(str(rank))
                    break
                time.sleep(ROLL_SECONDS)
            else:
                self._labels[rank] = self._store.get(f"here/{rank}").decode()
        if missing:
            raise DeviceError(
                f"rank {', '.join(missing)} of {self.world_size}: did not come within {seconds:g} s, expected all"
            )

    def _is_here(self, rank: int) -> bool:
        try:
            return self._store.check([f"here/{rank}"])
        except RuntimeError as error:
            raise DeviceError(self._lost(error)) from error

    def _lost(self, error: RuntimeError) -> str:
        """Why the store cannot be spoken to: its machine is gone."""
        text = " ".join(str(error).split())[:200]
        return f"rank {self.rank}: lost the store that rank 0 or torchrun keeps ({text})"

    def stop(self) -> None:
        """All ranks have come to the end."""
        self._over.set()
        self.join()

    def expect_end(self) -> None:
        """All will have come to the end soon, and the store may be gone before this rank knows it."""
        self._ending = True

    def fail(self, words: str, status: int = 1) -> None:
        """End all ranks with these words and status; does not return."""
        self._status, self._words = status, words
        self.join(SILENT_BEATS * BEAT_SECONDS)
        _end(f"error: {words}", status)  # the thread could not say it

    def find_silent(self) -> None:
        """A connection broke: end with the name of the rank that is gone, or return where none is."""
        self._broken.set()
        self.join(SILENT_BEATS * BEAT_SECONDS)

    def run(self) -> None:
        """Beat until all is over."""
        try:
            self._beat()
        except RuntimeError as error:
            if not self._ending:
                _end(f"error: {self._lost(error)}", 1)

    def _beat(self) -> None:
        heard, silent = [-1] * self.world_size, [0] * self.world_size
        least = waited = 0
        while not self._over.wait(BEAT_SECONDS):
            beats = self._say_and_hear()
            silent = [
                count + 1 if beat.number == last else 0 for beat, last, count in zip(beats, heard, silent, strict=True)
            ]
            heard = [beat.number for beat in beats]
            limit = BROKEN_BEATS if self._broken.is_set() else SILENT_BEATS
            gone = [rank for rank, count in enumerate(silent) if count >= limit]
            if gone:
                self._end_all(f"{', '.join(map(self.title, gone))}: is gone without a word (killed?)", 1, gone)
            failed = [beat for beat in beats if beat.words]
            if failed:
                self._end_all(failed[0].words, failed[0].status)
            fewest = min(beat.begun for beat in beats)
            least, waited = fewest, waited + 1 if fewest == least else 0
            late = [rank for rank, beat in enumerate(beats) if beat.begun == least]
            if len(late) < self.world_size and waited * BEAT_SECONDS > self._stall_seconds:
                names, seconds = ", ".join(map(self.title, late)), f"{self._stall_seconds:g} s"
                self._end_all(f"{names}: did not begin sum {least + 1} over all ranks within {seconds}", 1)

    def _say_and_hear(self) -> list[Beat]:
        self._number += 1
        own = Beat(self._number, self.begun, self._status, self._words)
        self._own_store.set(f"beat/{self.rank}", json.dumps(own))
        keys = [f"beat/{rank}" for rank in range(self.world_size)]
        return [Beat(*json.loads(text)) for text in self._own_store.multi_get(keys)]

    def _end_all(self, words: str, status: int, gone: list[int] | None = None) -> None:
        speaker = min(rank for rank in range(self.world_size) if rank not in (gone or []))
        if self.rank == speaker:
            print(f"error: {words}; all {self.world_size} ranks end", file=sys.stderr, flush=True)
        failed, self._words = bool(self._words), self._words or words
        self._say_and_hear()  # who has not seen it hears it, while the store is there
        time.sleep(LINGER_SECONDS if failed else 2 * LINGER_SECONDS)
        _end("", status)


def _end(words: str, status: int) -> None:
    """End this process at once: to part from communicators of which a rank is missing may take for ever."""
    if words:
        print(words, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
