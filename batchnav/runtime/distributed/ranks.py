"""Several processes, one a GPU, that train one policy: who is who, and what they say to one another.

torchrun starts the same program once a GPU, on one machine or several, and says by RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT which is which; so do `companions`, and so may whatever else starts it. `join` then gives
the process its device and its `Ranks`. On CUDA tensors are summed by NCCL, on the CPU by gloo; objects always go by
gloo, beside the devices.

    with join("auto") as ranks:
        ranks.sum_(gradients)
        everyones = ranks.all_gather(mine)

Every method is a collective: all ranks call the same ones in the same order. A rank that fails, is killed or stalls
ends all of them with one message that names it (`runtime/distributed/heartbeat.py`). A process alone has a `Ranks` too, with which
nothing is initialised and nothing sent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from batchnav.errors import BatchnavError, ConfigError, DeviceError
from batchnav.runtime.device import limit_threads, num_threads, resolve_device
from batchnav.runtime.distributed.heartbeat import Pulse

T = TypeVar("T")

MEETING_SECONDS = 600.0
"""How long ranks wait for one another at the start."""
STALL_SECONDS = 600.0
"""How long one may keep the others waiting for its gradients."""
_LONG = timedelta(days=7)
"""Objects are waited for as long as it takes to make scenes: `Pulse` sees who is gone or stalls."""
_SLACK_SECONDS = 60.0
"""By which NCCL's own time limit, whose end names nobody, lies after ours."""
_companions: dict[int, subprocess.Popen] = {}
"""By rank."""
_ON_STDIN = "stdin"
"""As MASTER_PORT: rank 0 takes a port that the system gives, and says it there to its companions."""


class Ranks:
    """One process among those that train together; `Ranks(device)` is alone. `join` makes them.

    Leaving it as a context manager waits for all ranks. With an exception it ends them all, this process included, with
    one message; but SystemExit that all ranks come to (`all_gather` told them) passes.
    """

    def __init__(self, device: torch.device, rank: int = 0, world_size: int = 1, pulse: Pulse | None = None):
        self.device, self.rank, self.world_size = device, rank, world_size
        self.several = pulse is not None
        """Whether there is somebody to speak to: also a process alone that was asked to go through NCCL or gloo."""
        self._pulse, self._agreed = pulse, -1
        self._host = dist.new_group(backend="gloo", timeout=_LONG) if self.several else None

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and shows progress."""
        return self.rank == 0

    def name(self, rank: int) -> str:
        """A rank for messages, with its machine and device."""
        return self._pulse.title(rank) if self._pulse else "rank 0"

    def share(self, items: list[T]) -> list[T]:
        """The rank's part of a list: neighbours, as evenly as goes; ranks share an item where there are too few."""
        count = len(items)
        first = self.rank * count // self.world_size
        return items[first : max(first + 1, (self.rank + 1) * count // self.world_size)]

    # Tensors, on the device.

    def sum_(self, tensor: torch.Tensor) -> None:
        """Add up a tensor over the ranks, in place: the same bits on all. On CUDA the host does not wait."""
        if self._pulse:
            self._pulse.begun += 1
            with self._connection():
                dist.all_reduce(tensor)

    def average(self, tensor: torch.Tensor) -> torch.Tensor:
        """The mean over the ranks of each element: a new tensor, of the same bits on all."""
        total = tensor.clone()
        self.sum_(total)
        return total / self.world_size

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """Mean over all elements and ranks; tensors have the same shape on all."""
        if not self.several:
            return tensor.mean()
        mean = tensor.mean()
        self.sum_(mean)
        return mean / self.world_size

    def var(self, tensor: torch.Tensor) -> torch.Tensor:
        """Unbiased variance over all elements and ranks."""
        if not self.several:
            return tensor.var()
        squares = (tensor - self.mean(tensor)).square().sum()
        self.sum_(squares)
        return squares / (self.world_size * tensor.numel() - 1)

    def std(self, tensor: torch.Tensor) -> torch.Tensor:
        """The square root of `var`."""
        return self.var(tensor).sqrt() if self.several else tensor.std()

    def broadcast_(self, tensor: torch.Tensor) -> None:
        """Give all ranks the values that rank 0 has, in place."""
        if self.several:
            with self._connection():
                dist.broadcast(tensor, src=0)

    # Objects, by way of the host.

    def all_gather(self, item: T) -> list[T]:
        """Everyone's item, in order of rank."""
        if not self.several:
            return [item]
        items: list[Any] = [None] * self.world_size
        with self._connection():
            dist.all_gather_object(items, item, group=self._host)
        return items

    def gather(self, item: T) -> list[T]:
        """Everyone's item on rank 0, nothing elsewhere."""
        if not self.several:
            return [item]
        items: list[Any] | None = [None] * self.world_size if self.first else None
        with self._connection():
            dist.gather_object(item, items, dst=0, group=self._host)
        return items or []

    def scatter(self, items: list[Any] | None) -> Any:
        """Item r of rank 0's list, on rank r; others give None."""
        if not self.several:
            return (items or [None])[0]
        mine: list[Any] = [None]
        with self._connection():
            dist.scatter_object_list(mine, items if self.first else None, src=0, group=self._host)
        return mine[0]

    def broadcast(self, item: T | None) -> T:
        """Rank 0's item, on all ranks."""
        told: list[Any] = [item]
        if self.several:
            with self._connection():
                dist.broadcast_object_list(told, src=0, group=self._host)
        return told[0]

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        self.all_gather(None)

    # The end.

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if self._pulse is None:
            return
        agreed = isinstance(error, SystemExit) and error.code == self._agreed
        if error is None or agreed:
            self.close()
        else:
            self._fail(error, self._pulse)

    def agree_to_end(self, status: int) -> None:
        """Say that all ranks know of the SystemExit that comes: it is no failure of one of them."""
        self._agreed = status

    def close(self) -> None:
        """Wait for all ranks, and part. Graphs in which NCCL was recorded have to be gone by then."""
        if self._pulse:
            self.barrier()
            self._pulse.expect_end()
            self.barrier()
            self._pulse.stop()
            gc.collect()
            dist.destroy_process_group()
            self.several, self._pulse = False, None

    def _fail(self, error: BaseException, pulse: Pulse) -> None:
        """End all ranks with a message of this one's error."""
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            pulse.fail(f"{self.name(self.rank)}: was told to end", status)
        if not isinstance(error, BatchnavError):
            traceback.print_exception(error, file=sys.stderr)
        words = " ".join(f"{error}".split())[:1000]
        words = words if isinstance(error, BatchnavError) else f"{type(error).__name__}: {words}"
        # What all ranks found together names its rank itself.
        pulse.fail(
            words if isinstance(error, BatchnavError) and error.of_all_ranks else f"{self.name(self.rank)}: {words}"
        )

    @contextlib.contextmanager
    def _connection(self) -> Iterator[None]:
        """Where a connection breaks, another rank is gone: let the pulse find out which, and end this one."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            if self._pulse:
                self._pulse.find_silent()
            raise


@contextlib.contextmanager
def companions(processes: int, command: Sequence[str]) -> Iterator[None]:
    """Within it this process is rank 0 of so many on this machine, which share its cores.

    `command` starts each of the others, and is to `join` as this one is: what takes long before, as making scenes, they
    spend with imports, then asleep. At the end they have ended, too; so they have where SIGTERM ends this process
    before it has joined, and of themselves, without a word, where it is killed.
    """
    before, threads, loop_threads = dict(os.environ), torch.get_num_threads(), num_threads()
    each = max(1, loop_threads // processes)
    os.environ |= {
        "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": _ON_STDIN, "OMP_NUM_THREADS": str(each),
    }  # fmt: skip
    torch.set_num_threads(each)
    on_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGTERM, _leave) if on_main else None
    # Ctrl-C goes to all, and one that imports would answer with a traceback: it hears it once it knows the port.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for rank in range(1, processes):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            _companions[rank] = subprocess.Popen(command, 0, env={**os.environ, **own}, stdin=subprocess.PIPE)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            for other in _companions.values():
                other.wait(_SLACK_SECONDS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for other in _companions.values():
            with other:  # closes what it is told by, and waits for its end
                other.kill()
        _companions.clear()
        if on_main:
            signal.signal(signal.SIGTERM, handler)
        os.environ.clear()
        os.environ |= before
        torch.set_num_threads(threads)
        limit_threads(loop_threads)


def _leave(number: int, _: Any) -> NoReturn:
    """End as the signal would, by way of what is to be done before."""
    sys.exit(128 + number)


def _tell_companions(port: int) -> None:
    """Say where this process listens. One that has ended hears nothing, which `_ended` finds."""
    for other in _companions.values():
        if other.stdin:
            with contextlib.suppress(BrokenPipeError):
                other.stdin.write(f"{port}\n".encode())


def _port_told() -> int:
    """Where rank 0 listens, as it tells a companion, which ends without a word where rank 0 has."""
    line = sys.stdin.readline()  # waits while rank 0 makes scenes, and ends with it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    poll = select.poll()
    poll.register(sys.stdin, select.POLLHUP)
    if not line or any(event & select.POLLHUP for _, event in poll.poll(0)):  # told, and then killed
        sys.exit(1)
    return int(line)


def _ended() -> Collection[int]:
    """The companions that are there no more."""
    return [rank for rank, other in _companions.items() if other.poll() is not None]


def join(
    device: str = "auto",
    meeting_seconds: float = MEETING_SECONDS,
    stall_seconds: float = STALL_SECONDS,
    even_alone: bool = False,
) -> Ranks:
    """Meet the other processes that were started with this one.

    Args:
        device: "cpu", "cuda" or "auto": each rank of a machine takes the CUDA device of its number there. A process
            alone may name one.
        meeting_seconds: how long to wait for the others.
        stall_seconds: how long one may keep the others waiting in training.
        even_alone: also a process alone goes through NCCL or gloo, to try them.

    DeviceError where others do not come, or there are fewer GPUs than ranks; ConfigError for variables that make no
    sense.
    """
    world_size = _variable("WORLD_SIZE", 1)
    rank = _variable("RANK", 0 if world_size == 1 else None)
    if world_size == 1 and not even_alone:
        return Ranks(resolve_device(device))
    if not 0 <= rank < world_size:
        raise ConfigError(f"RANK: found {rank} with WORLD_SIZE {world_size}, expected 0 to {world_size - 1}")
    chosen = _own_device(device, _variable("LOCAL_RANK", rank), world_size)
    limit_threads(num_threads() // _variable("LOCAL_WORLD_SIZE", 1))  # the others of this machine have theirs
    pulse = Pulse(*_stores(meeting_seconds), rank, world_size, f"{platform.node()}, {chosen}", stall_seconds)
    pulse.call_the_roll(meeting_seconds, _ended)
    pulse.start()
    limit = timedelta(seconds=stall_seconds + _SLACK_SECONDS)
    on_cuda = chosen.type == "cuda"
    dist.init_process_group(
        "nccl" if on_cuda else "gloo", store=pulse.store_for("groups"), rank=rank, world_size=world_size,
        timeout=limit if on_cuda else _LONG, device_id=chosen if on_cuda else None,
    )  # fmt: skip
    ranks = Ranks(chosen, rank, world_size, pulse)
    _try_out(ranks)
    return ranks


def _try_out(ranks: Ranks) -> None:
    """Have the communicator set up, on all ranks, before anything is recorded in a CUDA graph or timed."""
    ones = torch.ones(1024, device=ranks.device)
    dist.all_reduce(ones)
    if not bool((ones == ranks.world_size).all()):
        raise DeviceError(f"all-reduce: found {ones[0].item():g} as the sum of {ranks.world_size} ones")
    ranks.barrier()


def _own_device(device: str, local_rank: int, world_size: int) -> torch.device:
    """The device of a rank: the CUDA device of its number on this machine, or the one that it alone can see."""
    if ":" in device and world_size > 1:
        raise ConfigError(f"device: found {device!r} with {world_size} ranks, expected 'cuda': each takes its own")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return resolve_device("cpu")
    count = torch.cuda.device_count()
    if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        local_rank = 0  # a scheduler shows each its own
    if local_rank >= count:
        raise DeviceError(f"rank {local_rank} of this machine: found {count} CUDA devices, expected one for each rank")
    return resolve_device(torch.device("cuda", local_rank))


def _stores(meeting_seconds: float) -> tuple[dist.Store, dist.Store]:
    """The store through which ranks find one another: this process's connection, and one for its pulse alone."""
    host = os.environ.get("MASTER_ADDR", "localhost")
    of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serve = _variable("RANK", 0) == 0 and not of_agent
    if os.environ.get("MASTER_PORT") == _ON_STDIN:
        port = 0 if serve else _port_told()
    else:
        port = _variable("MASTER_PORT", 29500)
    # An agent's store outlives its processes: a restart has keys of its own.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if of_agent else "0"
    stores = []
    for is_master in (serve, False):
        try:
            store = dist.TCPStore(
                host, port, None, is_master, timedelta(seconds=meeting_seconds), wait_for_workers=False,
                multi_tenant=True,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            raise DeviceError(
                f"rank 0: cannot be reached at {host}:{port} within {meeting_seconds:g} s ({text})"
            ) from error
        if is_master:
            port = store.port
            _tell_companions(port)
        stores.append(dist.PrefixStore(f"batchnav/{attempt}", store))
    return stores[0], stores[1]


def _variable(name: str, default: int | None) -> int:
    """An environment variable that is a whole number. ConfigError where it is none, or lacks and has no default."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise ConfigError(f"{name}: found {text or 'nothing'!r}, expected a whole number, as torchrun sets it")
    return int(text)
