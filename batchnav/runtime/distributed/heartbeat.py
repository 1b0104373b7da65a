"""Heartbeat of the ranks of a run: no rank waits forever for a rank that has died, failed or stalled.

NCCL and Gloo do not name a missing rank, and a process that waits for NCCL does not handle signals. A thread in each
rank therefore writes a beat into the shared store twice a second: a counter, the number of all-reduces that the rank
has begun and, on failure, the reason. It reads the beats of the other ranks. If a rank is missing, the thread ends the
process; the lowest remaining rank prints the reason once.
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
"""Interval of the beats of a rank."""
POLL_SECONDS = 0.05
"""Time between two checks for ranks that have joined. Blocking in the store itself would delay signals."""
SILENT_BEATS = 50
"""A rank without a new beat during this many beats of the reader (25 s) counts as dead. 25 s is longer than any known
delay of a thread, and shorter than the 30 s after which torchrun kills processes that ignore SIGTERM. The limit counts
beats, not seconds, so that all ranks survive a pause of the whole machine."""
BROKEN_BEATS = 6
"""Limit in place of SILENT_BEATS after a connection has broken."""
LINGER_SECONDS = 1.2
"""A failed rank stays alive this long, so that the others read its reason; the others stay twice as long. torchrun
reports the first process that exits as the cause and ends the others."""


class Beat(NamedTuple):
    """Message of a rank to the others."""

    number: int
    """Number of beats so far."""
    begun: int
    """Number of all-reduces that the rank has begun."""
    status: int
    """Exit status for all ranks, where `reason` is not empty."""
    reason: str
    """Reason of the rank's failure; empty if it has not failed."""


class Heartbeat(threading.Thread):
    """The heartbeat thread of one rank.

    Args:
        store: the rank's connection to the store.
        own_store: a second connection for the thread, since the first may be blocked.
        rank: rank of this process.
        world_size: number of ranks.
        label: machine and device, for messages.
        stall_seconds: longest time that a rank may have begun fewer all-reduces than another, without beginning one.
    """

    def __init__(
        self, store: dist.Store, own_store: dist.Store, rank: int, world_size: int, label: str, stall_seconds: float
    ):
        super().__init__(name="heartbeat", daemon=True)
        self.rank, self.world_size, self.begun = rank, world_size, 0
        self._store, self._own_store, self._stall_seconds = store, own_store, stall_seconds
        self._labels = [label] * world_size
        self._reason, self._status, self._number = "", 1, 0
        self._over, self._broken = threading.Event(), threading.Event()
        self._shutting_down = False

    def title(self, rank: int) -> str:
        """A rank with its machine and device, for messages."""
        return f"rank {rank} ({self._labels[rank]})"

    def store_for(self, purpose: str) -> dist.Store:
        """The store with a key prefix."""
        return dist.PrefixStore(purpose, self._store)

    def wait_for_all(self, seconds: float, exited: Callable[[], Collection[int]] = tuple) -> None:
        """Wait until all ranks have joined. DeviceError names ranks that did not join in time or have exited."""
        until = time.monotonic() + seconds
        self._store.set(f"beat/{self.rank}", json.dumps(Beat(0, 0, 1, "")))
        self._store.set(f"here/{self.rank}", self._labels[self.rank])
        missing = []
        for rank in range(self.world_size):
            while not self._has_joined(rank):
                if rank in exited():
                    raise DeviceError(
                        f"rank {rank} of {self.world_size}: exited before it joined, expected all to join"
                    )
                if time.monotonic() > until:
                    missing.append(str(rank))
                    break
                time.sleep(POLL_SECONDS)
            else:
                self._labels[rank] = self._store.get(f"here/{rank}").decode()
        if missing:
            raise DeviceError(
                f"rank {', '.join(missing)} of {self.world_size}: did not join within {seconds:g} s, expected all ranks"
            )

    def _has_joined(self, rank: int) -> bool:
        try:
            return self._store.check([f"here/{rank}"])
        except RuntimeError as error:
            raise DeviceError(self._lost(error)) from error

    def _lost(self, error: RuntimeError) -> str:
        """Error message for a store that cannot be reached, since its process or machine has ended."""
        text = " ".join(str(error).split())[:200]
        return f"rank {self.rank}: lost the store that rank 0 or torchrun keeps ({text})"

    def stop(self) -> None:
        """End the thread, after all ranks have finished."""
        self._over.set()
        self.join()

    def expect_shutdown(self) -> None:
        """Accept that the store disappears: all ranks are about to finish."""
        self._shutting_down = True

    def fail(self, reason: str, status: int = 1) -> None:
        """End all ranks with this message and exit status; does not return."""
        self._status, self._reason = status, reason
        self.join(SILENT_BEATS * BEAT_SECONDS)
        _exit_now(f"error: {reason}", status)  # the thread has not ended the process in time

    def end_if_rank_is_gone(self) -> None:
        """After a broken connection: end the process and name the dead rank, or return if no rank is dead."""
        self._broken.set()
        self.join(SILENT_BEATS * BEAT_SECONDS)

    def run(self) -> None:
        """Beat until `stop`."""
        try:
            self._beat()
        except RuntimeError as error:
            if not self._shutting_down:
                _exit_now(f"error: {self._lost(error)}", 1)

    def _beat(self) -> None:
        """Exchange beats until `stop`; end the process if a rank is dead, has failed or stalls."""
        last_number, silent = [-1] * self.world_size, [0] * self.world_size
        least = waited = 0
        while not self._over.wait(BEAT_SECONDS):
            beats = self._exchange()
            silent = [
                count + 1 if beat.number == last else 0
                for beat, last, count in zip(beats, last_number, silent, strict=True)
            ]
            last_number = [beat.number for beat in beats]
            limit = BROKEN_BEATS if self._broken.is_set() else SILENT_BEATS
            dead = [rank for rank, count in enumerate(silent) if count >= limit]
            if dead:
                self._end_all(f"{', '.join(map(self.title, dead))}: no heartbeat (killed?)", 1, dead)
            failed = [beat for beat in beats if beat.reason]
            if failed:
                self._end_all(failed[0].reason, failed[0].status)
            fewest = min(beat.begun for beat in beats)
            least, waited = fewest, waited + 1 if fewest == least else 0
            late = [rank for rank, beat in enumerate(beats) if beat.begun == least]
            if len(late) < self.world_size and waited * BEAT_SECONDS > self._stall_seconds:
                names, seconds = ", ".join(map(self.title, late)), f"{self._stall_seconds:g} s"
                self._end_all(f"{names}: did not begin all-reduce {least + 1} within {seconds}", 1)

    def _exchange(self) -> list[Beat]:
        """Write this rank's beat and read those of all ranks."""
        self._number += 1
        own = Beat(self._number, self.begun, self._status, self._reason)
        self._own_store.set(f"beat/{self.rank}", json.dumps(own))
        keys = [f"beat/{rank}" for rank in range(self.world_size)]
        return [Beat(*json.loads(text)) for text in self._own_store.multi_get(keys)]

    def _end_all(self, reason: str, status: int, dead: list[int] | None = None) -> None:
        """Print the reason if this is the lowest rank not in `dead`, pass it to the others and exit."""
        speaker = min(rank for rank in range(self.world_size) if rank not in (dead or []))
        if self.rank == speaker:
            print(f"error: {reason}; all {self.world_size} ranks end", file=sys.stderr, flush=True)
        failed, self._reason = bool(self._reason), self._reason or reason
        self._exchange()  # while the store exists, for ranks that have not found the failure themselves
        time.sleep(LINGER_SECONDS if failed else 2 * LINGER_SECONDS)
        _exit_now("", status)


def _exit_now(message: str, status: int) -> None:
    """Exit at once: destroying communicators of which a rank is missing may block forever."""
    if message:
        print(message, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
