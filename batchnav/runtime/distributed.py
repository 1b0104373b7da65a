"""Distributed training: ranks, the start of local ranks, their collectives and their heartbeat.

    with join("auto") as ranks:
        ranks.sum_(gradients)
        everyones = ranks.all_gather(mine)

Each rank is one process with one device. NCCL reduces CUDA tensors, Gloo reduces CPU tensors and transfers objects.
torchrun starts the program once per GPU, on one or several machines, and sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR
and MASTER_PORT; `start_local_ranks` sets the same variables, and so may any other launcher. `join` reads them. A single
process has a `Ranks` too, which initialises no process group and sends nothing.

If a rank fails, is killed or stalls, all ranks end with one message that names it. NCCL and Gloo name no missing rank,
and a process that waits for NCCL does not handle signals. A thread in each rank, the heartbeat, therefore writes a beat
into the shared store twice a second: a counter, the number of all-reduces that the rank has begun and, on failure, the
reason. It reads the beats of the other ranks. If a rank is missing, the thread ends the process; the lowest remaining
rank prints the reason once.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from batchnav.errors import BatchnavError, ConfigError, DeviceError
from batchnav.runtime.device import resolve_device
from batchnav.runtime.parallel import interrupts_blocked, limit_threads, num_threads

T = TypeVar("T")

BEAT_SECONDS = 0.5
"""Interval of the beats of a rank."""
POLL_SECONDS = 0.05
"""Time between two checks for ranks that have joined. Blocking in the store itself would delay signals."""
SILENT_BEATS = 50
"""A rank without a new beat during this many beats of the reader (25 s) counts as dead. 25 s is longer than any known
delay of a thread, and shorter than the 30 s after which torchrun kills processes that ignore SIGTERM. The limit counts
beats, not seconds, so that all ranks survive a pause of the whole machine."""
LOST_SECONDS = 60.0
"""Longest wait for an answer of the store, seconds; after it, the network to the store's machine counts as broken."""
BROKEN_BEATS = 6
"""Limit in place of SILENT_BEATS after a connection has broken."""
LINGER_SECONDS = 1.2
"""A failed rank stays alive this long, so that the others read its reason; the others stay twice as long. torchrun
reports the first process that exits as the cause and ends the others."""
OBJECT_TIMEOUT = timedelta(days=7)
"""Gloo's time limit. Ranks may wait long for one that loads scenes; `Heartbeat` finds ranks that are gone or stall."""
PORT_ON_STDIN = "stdin"
"""Value of MASTER_PORT: rank 0 takes a free port and sends it to the local ranks through their stdin."""
_EXIT_SECONDS = 60.0
"""Longest wait for a local rank to exit by itself, seconds."""
_local_ranks: dict[int, subprocess.Popen] = {}
"""Processes of the other local ranks, by rank."""
RENDEZVOUS_SECONDS = 600.0
"""Longest wait of the ranks for each other at the start, seconds."""
STALL_SECONDS = 600.0
"""Longest time that a rank may keep the others waiting for its gradients, seconds."""
_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of a network interface (netdevice(7))."""
_SLACK_SECONDS = 60.0
"""NCCL's time limit minus `stall_seconds`: the heartbeat reacts first, since NCCL's error names no rank."""


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
        self._store, self._own_store, self.stall_seconds = store, own_store, stall_seconds
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

    def _lost(self, error: RuntimeError | str) -> str:
        """Error message for a store that cannot be reached, since its process or machine has ended."""
        text = " ".join(str(error).split())[:200]
        return f"rank {self.rank}: lost the store that rank 0 or torchrun keeps ({text})"

    def stop(self, seconds: float | None = None) -> None:
        """End the thread, after all ranks have finished; wait for it `seconds` at most."""
        self._over.set()
        self.join(seconds)

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
        threading.Thread(target=self._watch, name="heartbeat watch", daemon=True).start()
        try:
            self._beat()
        except RuntimeError as error:
            if not self._shutting_down:
                _exit_now(f"error: {self._lost(error)}", 1)

    def _watch(self) -> None:
        """End the process if the store does not answer: its client may wait forever where the network is gone."""
        number, silent = 0, 0
        while not self._over.wait(BEAT_SECONDS):
            silent = silent + 1 if self._number == number else 0  # a pause of the whole process does not count
            number = self._number
            if silent * BEAT_SECONDS >= LOST_SECONDS and not self._shutting_down:
                _exit_now(f"error: {self._lost(f'no answer for {LOST_SECONDS:g} s')}", 1)

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
            if len(late) < self.world_size and waited * BEAT_SECONDS > self.stall_seconds:
                names, seconds = ", ".join(map(self.title, late)), f"{self.stall_seconds:g} s"
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


class Ranks:
    """One process of a distributed training run, made by `join`; `Ranks(device)` is for a single process.

    As a context manager it waits for all ranks at the end. An exception ends all ranks, this process included, with one
    message; a SystemExit that all ranks expect (`expect_exit`) passes.
    """

    def __init__(self, device: torch.device, rank: int = 0, world_size: int = 1, heartbeat: Heartbeat | None = None):
        self.device, self.rank, self.world_size = device, rank, world_size
        self.is_distributed = heartbeat is not None
        """True if there is a process group; it may have one rank (`join(force_process_group=True)`)."""
        self._heartbeat, self._expected_exit = heartbeat, -1
        self._host = dist.new_group(backend="gloo", timeout=OBJECT_TIMEOUT) if self.is_distributed else None

    @property
    def is_rank_zero(self) -> bool:
        """True if this is rank 0, which writes files and shows progress."""
        return self.rank == 0

    def name(self, rank: int) -> str:
        """A rank with its machine and device, for messages."""
        return self._heartbeat.title(rank) if self._heartbeat else "rank 0"

    def shard(self, items: list[T]) -> list[T]:
        """Contiguous part of a list for this rank, never empty: with fewer items than ranks, several ranks get one."""
        count = len(items)
        first = self.rank * count // self.world_size
        return items[first : max(first + 1, (self.rank + 1) * count // self.world_size)]

    # Tensors, on the device.

    def sum_(self, tensor: torch.Tensor) -> None:
        """All-reduce a tensor in place by addition; bit-equal on all ranks. On CUDA the host does not wait."""
        if self._heartbeat:
            self._heartbeat.begun += 1
            with self._connection():
                dist.all_reduce(tensor)

    def average(self, tensor: torch.Tensor) -> torch.Tensor:
        """Mean of each element over the ranks: a new tensor, bit-equal on all ranks."""
        total = tensor.clone()
        self.sum_(total)
        return total / self.world_size

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """Mean over all elements and ranks; the tensor has the same shape on all ranks."""
        if not self.is_distributed:
            return tensor.mean()
        mean = tensor.mean()
        self.sum_(mean)
        return mean / self.world_size

    def var(self, tensor: torch.Tensor) -> torch.Tensor:
        """Unbiased variance over all elements and ranks."""
        if not self.is_distributed:
            return tensor.var()
        squares = (tensor - self.mean(tensor)).square().sum()
        self.sum_(squares)
        return squares / (self.world_size * tensor.numel() - 1)

    def std(self, tensor: torch.Tensor) -> torch.Tensor:
        """Standard deviation over all elements and ranks: the square root of `var`."""
        return self.var(tensor).sqrt() if self.is_distributed else tensor.std()

    def broadcast_(self, tensor: torch.Tensor) -> None:
        """Broadcast rank 0's values to all ranks, in place."""
        if self.is_distributed:
            with self._connection():
                dist.broadcast(tensor, src=0)

    # Python objects, through the host.

    def all_gather(self, item: T) -> list[T]:
        """The items of all ranks, in order of rank."""
        if not self.is_distributed:
            return [item]
        items: list[Any] = [None] * self.world_size
        with self._connection():
            dist.all_gather_object(items, item, group=self._host)
        return items

    def gather(self, item: T) -> list[T]:
        """The items of all ranks on rank 0, an empty list on the others."""
        if not self.is_distributed:
            return [item]
        items: list[Any] | None = [None] * self.world_size if self.is_rank_zero else None
        with self._connection():
            dist.gather_object(item, items, dst=0, group=self._host)
        return items or []

    def scatter(self, items: list[Any] | None) -> Any:
        """Item r of rank 0's list, on rank r. Other ranks pass None."""
        if not self.is_distributed:
            return (items or [None])[0]
        mine: list[Any] = [None]
        with self._connection():
            dist.scatter_object_list(mine, items if self.is_rank_zero else None, src=0, group=self._host)
        return mine[0]

    def broadcast(self, item: T | None) -> T:
        """Rank 0's item, on all ranks."""
        received: list[Any] = [item]
        if self.is_distributed:
            with self._connection():
                dist.broadcast_object_list(received, src=0, group=self._host)
        return received[0]

    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""
        self.all_gather(None)

    # End of the run.

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if self._heartbeat is None:
            return
        expected = isinstance(error, SystemExit) and error.code == self._expected_exit
        if error is None or expected:
            self.close()
        else:
            self._fail(error, self._heartbeat)

    def expect_exit(self, status: int) -> None:
        """Declare that all ranks are about to raise SystemExit with this status: then it is not a failure."""
        self._expected_exit = status

    def close(self) -> None:
        """Wait for all ranks and destroy the process group. CUDA graphs with NCCL calls must be freed before."""
        if self._heartbeat:
            self.barrier()
            self._heartbeat.expect_shutdown()
            self.barrier()
            self._heartbeat.stop()
            gc.collect()
            dist.destroy_process_group()
            self.is_distributed, self._heartbeat = False, None

    def _fail(self, error: BaseException, heartbeat: Heartbeat) -> None:
        """End all ranks with a message that states this rank's error."""
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            heartbeat.fail(f"{self.name(self.rank)}: exited with status {status}", status)
        if not isinstance(error, BatchnavError):
            traceback.print_exception(error, file=sys.stderr)
        text = " ".join(f"{error}".split())[:1000]
        text = text if isinstance(error, BatchnavError) else f"{type(error).__name__}: {text}"
        # An error that all ranks raise together names the rank itself.
        heartbeat.fail(
            text if isinstance(error, BatchnavError) and error.of_all_ranks else f"{self.name(self.rank)}: {text}"
        )

    @contextlib.contextmanager
    def _connection(self) -> Iterator[None]:
        """Context manager: after a failed collective, the heartbeat ends this process if another rank is dead."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            if self._heartbeat:
                self._heartbeat.end_if_rank_is_gone()
            raise


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


def join(
    device: str = "auto",
    rendezvous_seconds: float = RENDEZVOUS_SECONDS,
    stall_seconds: float = STALL_SECONDS,
    force_process_group: bool = False,
) -> Ranks:
    """Join the other processes of a run that torchrun or `start_local_ranks` started.

    Args:
        device: "cpu", "cuda" or "auto". With several ranks each takes the CUDA device of its local rank; a single
            process may also name one, for example "cuda:1".
        rendezvous_seconds: longest wait for the other ranks.
        stall_seconds: longest time that one rank may keep the others waiting during training.
        force_process_group: initialise NCCL or Gloo for a single process too, for tests.

    Raises:
        DeviceError: a rank does not join, or a machine has fewer GPUs than ranks.
        ConfigError: environment variables are missing or inconsistent.
    """
    world_size = _variable("WORLD_SIZE", 1)
    rank = _variable("RANK", 0 if world_size == 1 else None)
    if world_size == 1 and not force_process_group:
        return Ranks(resolve_device(device))
    if not 0 <= rank < world_size:
        raise ConfigError(f"RANK: found {rank} with WORLD_SIZE {world_size}, expected 0 to {world_size - 1}")
    chosen = _own_device(device, _variable("LOCAL_RANK", rank), world_size)
    limit_threads(num_threads() // _variable("LOCAL_WORLD_SIZE", 1))  # the ranks of a machine share its cores
    label = f"{platform.node()}, {chosen}"
    heartbeat = Heartbeat(*_stores(rendezvous_seconds), rank, world_size, label, stall_seconds)
    heartbeat.wait_for_all(rendezvous_seconds, exited_ranks)
    with contextlib.ExitStack() as undo:
        undo.callback(_leave, heartbeat)
        heartbeat.start()
        ranks = _connect(heartbeat, chosen, rank, world_size)
        undo.pop_all()
    return ranks


def _connect(heartbeat: Heartbeat, device: torch.device, rank: int, world_size: int) -> Ranks:
    """Initialise PyTorch's process group. DeviceError where the ranks cannot reach each other."""
    limit = timedelta(seconds=heartbeat.stall_seconds + _SLACK_SECONDS)
    on_cuda = device.type == "cuda"
    if _variable("LOCAL_WORLD_SIZE", 1) < world_size:
        _choose_interface()
    try:
        dist.init_process_group(
            "nccl" if on_cuda else "gloo", store=heartbeat.store_for("groups"), rank=rank, world_size=world_size,
            timeout=limit if on_cuda else OBJECT_TIMEOUT, device_id=device if on_cuda else None,
        )  # fmt: skip
        ranks = Ranks(device, rank, world_size, heartbeat)
    except RuntimeError as error:
        text, interface = " ".join(str(error).split())[:200], os.environ.get("GLOO_SOCKET_IFNAME", "that of its name")
        raise DeviceError(
            f"{heartbeat.title(rank)}: cannot reach the other ranks from the network interface {interface} ({text}); "
            "name another with GLOO_SOCKET_IFNAME (CPU) and NCCL_SOCKET_IFNAME (GPU)"
        ) from error
    _check_all_reduce(ranks)
    return ranks


def _leave(heartbeat: Heartbeat) -> None:
    """Undo a failed start, so that this process can start ranks again, as a notebook does."""
    heartbeat.expect_shutdown()
    heartbeat.stop(2 * LINGER_SECONDS)  # the store may not answer
    if dist.is_initialized():
        dist.destroy_process_group()
    # PyTorch numbers process groups, failed ones too, and ranks meet under the number: new processes begin at 0.
    distributed_c10d._world.group_count = 0


def _choose_interface() -> None:
    """Let Gloo use the network interface that leads to MASTER_ADDR, unless GLOO_SOCKET_IFNAME names one.

    Gloo would take the address of the machine's name, which many machines map to the loopback interface.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ.get("MASTER_ADDR", "localhost"), 9))  # sends nothing
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                request = struct.pack("256s", name.encode()[:15])
                if fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24] == own:
                    os.environ["GLOO_SOCKET_IFNAME"] = name


def _check_all_reduce(ranks: Ranks) -> None:
    """One all-reduce, which sets up the communicator before a CUDA graph or a timer includes it.

    DeviceError if its result is wrong.
    """
    ones = torch.ones(1024, dtype=torch.float32, device=ranks.device)
    dist.all_reduce(ones)
    if not bool((ones == ranks.world_size).all()):
        raise DeviceError(
            f"all-reduce of ones: found {ones[0].item():g}, expected {ranks.world_size}, the number of ranks"
        )
    ranks.barrier()


def _own_device(device: str, local_rank: int, world_size: int) -> torch.device:
    """The device of a rank: the CUDA device of its local rank, or the only one that it sees."""
    if ":" in device and world_size > 1:
        raise ConfigError(f"device: found {device!r} with {world_size} ranks, expected 'cuda': each takes its own")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return resolve_device("cpu")
    count = torch.cuda.device_count()
    if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        local_rank = 0  # a scheduler shows each process its own GPU only
    if local_rank >= count:
        raise DeviceError(f"rank {local_rank} of this machine: found {count} CUDA devices, expected one for each rank")
    return resolve_device(torch.device("cuda", local_rank))


def _stores(rendezvous_seconds: float) -> tuple[dist.Store, dist.Store]:
    """Two connections to the store where ranks find each other: one for this process, one for its heartbeat."""
    host = os.environ.get("MASTER_ADDR", "localhost")
    of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serve = _variable("RANK", 0) == 0 and not of_agent
    if os.environ.get("MASTER_PORT") == PORT_ON_STDIN:
        port = 0 if serve else receive_port()
    else:
        port = _variable("MASTER_PORT", 29500)
    # The store of torchrun's agent outlives a restart of its processes, so each attempt has its own keys.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if of_agent else "0"
    stores = []
    for is_master in (serve, False):
        try:
            store = dist.TCPStore(
                host, port, None, is_master, timedelta(seconds=rendezvous_seconds), wait_for_workers=False,
                multi_tenant=True,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            raise DeviceError(
                f"rank 0: cannot be reached at {host}:{port} within {rendezvous_seconds:g} s ({text})"
            ) from error
        if is_master:
            port = store.port
            send_port(port)
        stores.append(dist.PrefixStore(f"batchnav/{attempt}", store))
    return stores[0], stores[1]


def _variable(name: str, default: int | None) -> int:
    """An environment variable as an integer. ConfigError where it is not one, or is unset and has no default."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise ConfigError(f"{name}: found {text or 'nothing'!r}, expected a whole number, as torchrun sets it")
    return int(text)
