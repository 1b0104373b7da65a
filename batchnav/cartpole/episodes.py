"""Results of ended CartPole episodes: compact records during steps, tensors by environment when they are read.

In a step of a random agent one cart in 22 ends its episode. Writing final state and length to an environment's rows of
two tensors would move 32 bytes of memory per value, and every cart would need a flag that says whether its rows are
new. Instead a step writes records of exactly 32 bytes, packed from the first row of each block of carts, and their
number. `EpisodeInfo` scatters them to environments when it is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_function, cuda, cuda_kernel, inline_function
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.launch import BoundKernel

# State of all carts: `CartPoleEnv` owns it, the kernels read and write it


class Carts(NamedTuple):
    """Tensors with one row or element per environment, or per block of environments.

    A step depends on state, began, clock and timed_out of the previous step; the other tensors are outputs.
    """

    seed: int
    """Seed of the start states."""
    block: int
    """Number of carts in a block: the threads of a CUDA block, or the carts that a CPU thread steps at a time."""
    state: torch.Tensor
    """f32 [N, 4]: cart position (m) and velocity (m/s), pole angle (rad, 0 is upright) and angular velocity (rad/s)."""
    began: torch.Tensor
    """i16 [N]: clock at the start of the running episode, modulo 2**16; an episode's length fits into nine bits."""
    clock: torch.Tensor
    """i64 [blocks]: number of steps since the seed was set; `reset` advances it to the next multiple of
    `physics.WINDOW`. All blocks have equal clocks; each advances its own, without synchronisation. The clock is on the
    device, since a CUDA graph repeats its steps with fixed arguments."""
    terminated: torch.Tensor
    """bool [N]: the last step failed."""
    truncated: torch.Tensor
    """bool [N]: the last step was the episode's 500th. Written only in blocks where a cart had its 500th step in this
    step or the previous one."""
    timed_out: torch.Tensor
    """i32 [blocks]: 1 where a cart of the block had its 500th step in the last step, else 0."""
    record: torch.Tensor
    """f32 [N, 8]: final states and lengths of the episodes that ended in the last step (`episodes.write_record`). A
    block's records are contiguous, from the row of its first cart, in no particular order."""
    count: torch.Tensor  # type: ignore[assignment]  # hides `tuple.count`
    """i32 [blocks]: number of records of a block."""
    invalid: np.ndarray
    """i32 [1]: 1 + the index of an environment with an action other than 0 and 1; 0 if there is none."""


_FIRST, _SECOND_HALF, _UNUSED = np.int32(0), np.int32(4), np.float32(0.0)


class LastEpisodes(NamedTuple):
    """Results of the last step by environment; final state and length are valid where `ended` is set."""

    ended: torch.Tensor
    """bool [N]: an episode ended in the last step."""
    final_state: torch.Tensor
    """f32 [N, 4]: final state of the episode."""
    final_steps: torch.Tensor
    """f32 [N]: length of the episode, which is also its return."""

    @classmethod
    def none(cls, num_envs: int, device: torch.device) -> LastEpisodes:
        """Results before the first step: no episode has ended."""
        return cls(
            torch.zeros(num_envs, dtype=torch.bool, device=device),
            torch.zeros(num_envs, 4, dtype=torch.float32, device=device),
            torch.zeros(num_envs, dtype=torch.float32, device=device),
        )

    def named(self) -> dict[str, Any]:
        """The tensors by Gymnasium's names."""
        episode = {"return": self.final_steps, "steps": self.final_steps}
        return {
            "episode": episode, "_episode": self.ended, "final_obs": self.final_state, "_final_obs": self.ended,
        }  # fmt: skip


@inline_function
def write_record(row, place, cart, steps, record_out):
    """Write a row of the record: final state and length of the ended episode of cart number `place` in its block."""
    store4(record_out, row, _FIRST, cart)
    store4(record_out, row, _SECOND_HALF, (np.float32(steps), np.float32(place), _UNUSED, _UNUSED))


@inline_function
def read_record(row, first, record, last_out):
    """Copy a record to the row of its environment; `first` is the first environment of the block."""
    steps, place, _, _ = load4(record, row, _SECOND_HALF)
    i = np.int32(first + np.int32(place))
    store4(last_out.final_state, i, _FIRST, load4(record, row, _FIRST))
    last_out.final_steps[i] = steps


@cpu_function
def spread_cpu(carts, last_out):
    """Fill `last_out` from the records, in one thread, since the work is small."""
    for i in range(len(carts.began)):
        last_out.ended[i] = carts.terminated[i] | carts.truncated[i]
    for b in range(len(carts.count)):
        first = np.int32(b * carts.block)
        for k in range(carts.count[b]):
            read_record(np.int32(first + k), first, carts.record, last_out)


@cuda_kernel
def spread_cuda(carts, last_out):
    """Fill `last_out` from the records: each thread writes one environment's flag and at most one record."""
    thread, i = np.int32(cuda.threadIdx.x), np.int32(cuda.grid(1))
    if i < len(carts.began):
        last_out.ended[i] = carts.terminated[i] | carts.truncated[i]
        if thread < carts.count[np.uint32(cuda.blockIdx.x)]:
            read_record(i, np.int32(i - thread), carts.record, last_out)


class EpisodeInfo(Mapping):
    """`info` of the last step: "episode", "_episode", "final_obs" and "_final_obs", as `CartPoleEnv` describes them.

    The tensors are filled when the first of them is read, once per step, so that unread results cost nothing. A CUDA
    graph that records a step must record the reading too, since a replay calls no Python code.
    """

    def __init__(self, carts: Carts):
        self._carts = carts
        self._last = LastEpisodes.none(len(carts.began), carts.began.device)
        self._named, self._filled = self._last.named(), False

    def expire(self) -> None:
        """Mark the tensors as outdated, after a step."""
        self._filled = False

    def __getitem__(self, name: str) -> Any:
        value = self._named[name]
        if not self._filled:
            self._fill()
            self._filled = True
        return value

    @functools.cached_property
    def _fill(self) -> Callable[[], None]:
        carts, last = view(self._carts), view(self._last)
        if self._carts.began.is_cuda:
            return BoundKernel(spread_cuda, len(carts.began), carts, last, block=carts.block)
        return functools.partial(spread_cpu, carts, last)

    def __contains__(self, name: object) -> bool:
        return name in self._named  # `Mapping.__contains__` would read the value

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)
