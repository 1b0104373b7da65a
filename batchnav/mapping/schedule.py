"""CUDA: the order in which blocks of threads take agents.

A block that has finished an agent takes the next one. All blocks wait for the longest search, so the agents whose
previous search was long come first; a search that is long once is often long again. Results do not depend on the order.

Functions without a `lane` argument run on one lane.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, sync_lanes

LONG = np.int32(2048)
"""Number of cells from which on a search is long."""
_TAKEN, _ENDED, _STEP, _NUM_LONG = np.int32(0), np.int32(1), np.int32(2), np.int32(3)
_FIRST_STEP = 2
_ONE = np.int32(1)


class Schedule(NamedTuple):
    """Order of N agents."""

    counters: Any
    """i32 [1, 5]: places of the order that were taken; blocks that have ended; number of the step; and numbers of long
    searches of the last even and of the last odd step."""
    long_searches: Any
    """i32 [2, N]: agents with long searches of the last even and of the last odd step."""
    long_at: Any
    """i32 [1, N]: number of the step of each agent's last long search; 0: none."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Schedule:
        """Order of `n` agents before their first search."""
        sizes = (1, 5), (2, n), (1, n)
        schedule = cls(*(torch.zeros(size, dtype=torch.int32, device=device) for size in sizes))
        schedule.counters[0, int(_STEP)] = _FIRST_STEP
        return schedule


@inline_function
def take_agent(lane, taken_out, schedule_out):
    """The agent that this block updates next, i64; -1 if all were taken. `taken_out`: i32 [1] in shared memory."""
    if lane == 0:
        taken_out[0] = _next_agent(schedule_out)
    sync_lanes()
    return np.int64(taken_out[0])


@lean_function
def _next_agent(schedule_out):
    """The agent at the next place of the order: those with long searches in the previous step, then the others."""
    step, n = schedule_out.counters[0, _STEP], np.int32(schedule_out.long_at.shape[1])
    previous = (step + _ONE) & _ONE
    num_long = schedule_out.counters[0, _NUM_LONG + previous]
    while True:
        place = atomic_add(schedule_out.counters, np.int32(0), _TAKEN, _ONE)
        if place < num_long:
            return schedule_out.long_searches[previous, place]
        agent = place - num_long
        if agent >= n:
            return np.int32(-1)
        if schedule_out.long_at[0, agent] < step - _ONE:  # else it was among the first
            return agent


@inline_function
def end_agent(lane, i, cells, schedule_out):
    """Record the number of cells that the search of an agent spread over."""
    if lane == 0 and cells >= LONG:
        _add_long(i, schedule_out)


@lean_function
def _add_long(i, schedule_out):
    """Record a long search of agent i."""
    step = schedule_out.counters[0, _STEP]
    place = atomic_add(schedule_out.counters, np.int32(0), _NUM_LONG + (step & _ONE), _ONE)
    schedule_out.long_searches[step & _ONE, place], schedule_out.long_at[0, i] = np.int32(i), step


@inline_function
def end_block(lane, blocks, schedule_out):
    """End a block; the last of all `blocks` prepares the next step."""
    if lane == 0 and atomic_add(schedule_out.counters, np.int32(0), _ENDED, _ONE) == np.int32(blocks) - _ONE:
        _begin_step(schedule_out)


@lean_function
def _begin_step(schedule_out):
    """Begin the next step: no agent is taken, and no search was long."""
    step = schedule_out.counters[0, _STEP] + _ONE
    schedule_out.counters[0, _TAKEN], schedule_out.counters[0, _ENDED] = np.int32(0), np.int32(0)
    schedule_out.counters[0, _STEP], schedule_out.counters[0, _NUM_LONG + (step & _ONE)] = step, np.int32(0)
