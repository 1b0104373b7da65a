"""Ranks: the collectives of distributed training, on tensors and on Python objects.

    with join("auto") as ranks:
        ranks.sum_(gradients)
        everyones = ranks.all_gather(mine)

Each rank is one process with one device. NCCL reduces CUDA tensors, Gloo reduces CPU tensors and transfers objects.
Every method is a collective: all ranks must call the same methods in the same order. If a rank fails, is killed or
stalls, all ranks end with one message that names it (`runtime/distributed/heartbeat.py`). A single process has a
`Ranks` too, which initialises no process group and sends nothing.

`runtime/distributed/join.py` makes a `Ranks` from the environment variables that torchrun sets.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from batchnav.errors import BatchnavError
from batchnav.runtime.distributed.heartbeat import Heartbeat

T = TypeVar("T")

OBJECT_TIMEOUT = timedelta(days=7)
"""Gloo's time limit. Ranks may wait long for one that loads scenes; `Heartbeat` finds ranks that are gone or stall."""


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
