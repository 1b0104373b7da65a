"""CUDA: the order in which blocks of threads take agents.

All agents wait for the longest search, so agents whose previous search was long come first. A block that has finished
an agent takes the next one.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.synchronization import atomic_add

LONG = np.int32(int(os.environ.get("MAPX_LONG", "2048")))
"""Number of cells from which on a search is long."""
_TAKEN, _ENDED, _STEP, _NUM_LONG = np.int32(0), np.int32(1), np.int32(2), np.int32(3)
_ONE, _ZERO = np.int32(1), np.int32(0)


class Schedule(NamedTuple):
    """Order of N agents."""

    counters: Any
    """i32 [1, 5]: entries that were taken; blocks that have ended; number of the step; and numbers of long searches of even
    and odd steps."""
    long_ones: Any
    """i32 [2, N]: agents with long searches in even and odd steps."""
    long_at: Any
    """i32 [1, N]: number of the step of an agent's last long search."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Schedule:
        """Order of `n` agents without a search."""
        counters, long_ones, long_at = (
            torch.zeros(*size, dtype=torch.int32, device=device) for size in ((1, 5), (2, n), (1, n))
        )
        counters[0, 2] = 2
        return cls(counters, long_ones, long_at)


@lean_function
def next_agent(schedule_out):
    """The agent to be updated next by a block; -1 if all were taken."""
    step, n = schedule_out.counters[0, _STEP], np.int32(schedule_out.long_at.shape[1])
    even = step & _ONE
    num_long = schedule_out.counters[0, _NUM_LONG + even]
    agent = np.int32(-1)
    searching = True
    while searching:
        place = atomic_add(schedule_out.counters, _ZERO, _TAKEN, _ONE)
        if place < num_long:
            agent, searching = schedule_out.long_ones[even, place], False
        elif place - num_long >= n:
            searching = False
        elif schedule_out.long_at[0, place - num_long] < step - _ONE:
            agent, searching = place - num_long, False
    return agent


@lean_function
def note_search(i, cells, schedule_out):
    """Record how many cells the search of an agent spread."""
    if cells >= LONG:
        step = schedule_out.counters[0, _STEP]
        odd = (step + _ONE) & _ONE
        place = atomic_add(schedule_out.counters, _ZERO, _NUM_LONG + odd, _ONE)
        schedule_out.long_ones[odd, place], schedule_out.long_at[0, i] = np.int32(i), step


@lean_function
def end_block(blocks, schedule_out):
    """End a block. The last one prepares the next step."""
    if atomic_add(schedule_out.counters, _ZERO, _ENDED, _ONE) == np.int32(blocks) - _ONE:
        step = schedule_out.counters[0, _STEP]
        schedule_out.counters[0, _TAKEN], schedule_out.counters[0, _ENDED] = _ZERO, _ZERO
        schedule_out.counters[0, _NUM_LONG + (step & _ONE)] = _ZERO
        schedule_out.counters[0, _STEP] = step + _ONE
