"""Further ranks on this machine, started by rank 0 without torchrun."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import NoReturn

import torch

from batchnav.runtime.child_processes import interrupts_blocked
from batchnav.runtime.threads import limit_threads, num_threads

PORT_ON_STDIN = "stdin"
"""Value of MASTER_PORT: rank 0 takes a free port and sends it to the local ranks through their stdin."""
_EXIT_SECONDS = 60.0
"""Longest wait for a local rank to exit by itself, seconds."""
_local_ranks: dict[int, subprocess.Popen] = {}
"""Processes of the other local ranks, by rank."""


@contextlib.contextmanager
def start_local_ranks(processes: int, command: Sequence[str]) -> Iterator[None]:
    """Make this process rank 0 of `processes` ranks on this machine, which share its CPU cores.

    `command` starts each of the other ranks. It must call `join`, and so must this process. The other ranks import
    their modules, then sleep until rank 0 joins. They have exited when the context ends, even if SIGTERM ends this
    process before it joins. If this process is killed, they exit without a message.
    """
    before, threads, loop_threads = dict(os.environ), torch.get_num_threads(), num_threads()
    each = max(1, loop_threads // processes)
    os.environ |= {
        "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": PORT_ON_STDIN, "OMP_NUM_THREADS": str(each),
    }  # fmt: skip
    torch.set_num_threads(each)
    on_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGTERM, _exit_by_signal) if on_main else None
    try:
        with interrupts_blocked():  # a rank receives Ctrl-C from when it knows the port
            for rank in range(1, processes):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                _local_ranks[rank] = subprocess.Popen(command, 0, env={**os.environ, **own}, stdin=subprocess.PIPE)
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            for other in _local_ranks.values():
                other.wait(_EXIT_SECONDS)
    finally:
        for other in _local_ranks.values():
            with other:  # closes its stdin and waits for its exit
                other.kill()
        _local_ranks.clear()
        if on_main:
            signal.signal(signal.SIGTERM, handler)
        os.environ.clear()
        os.environ |= before
        torch.set_num_threads(threads)
        limit_threads(loop_threads)


def _exit_by_signal(number: int, _: object) -> NoReturn:
    """Signal handler that raises SystemExit, so that `finally` blocks run."""
    sys.exit(128 + number)


def send_port(port: int) -> None:
    """Send the port of rank 0's store to the local ranks. Ranks that have exited are skipped."""
    for other in _local_ranks.values():
        if other.stdin:
            with contextlib.suppress(BrokenPipeError):
                other.stdin.write(f"{port}\n".encode())


def receive_port() -> int:
    """Port of rank 0's store, read from stdin; exits silently if rank 0 has exited."""
    line = sys.stdin.readline()  # blocks while rank 0 loads scenes
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    poll = select.poll()
    poll.register(sys.stdin, select.POLLHUP)
    if not line or any(event & select.POLLHUP for _, event in poll.poll(0)):  # rank 0 was killed after it wrote
        sys.exit(1)
    return int(line)


def exited_ranks() -> Collection[int]:
    """The local ranks that have exited."""
    return [rank for rank, other in _local_ranks.items() if other.poll() is not None]
