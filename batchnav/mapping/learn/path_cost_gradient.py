"""How long the ways from cells of a map to the goal are, and which tolls make them so: what tolls are taught by.

A way's length is a sum over its steps, each of which pays the tolls of two cells. So by how much the shortest way
changes with a toll is how often the way pays it, as long as no other way becomes shorter (envelope theorem; Vlastelica
et al., "Differentiation of blackbox combinatorial solvers", ICLR 2020, have the shortest path as a layer of a network).
The search is that of `mapping/shortest_path.py`, over the whole map.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.mapping.integrate import CELLS, OBSTACLE, SIDE, Known
from batchnav.mapping.shortest_path import NEVER, NOWHERE, Search, dearest, find_ways, next_of_way, pace
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, inline_function, lean_function
from batchnav.runtime.kernels.launch import launch
from batchnav.runtime.kernels.synchronization import atomic_add

_BLOCK, _CREDIT_BLOCK = 512, 32
"""CUDA: threads that search a map, and that follow its ways back."""
_SHARES = 2**16
"""A way's credit in whole shares of the largest one, so that every order of adding them up gives the same."""


class Ends(NamedTuple):
    """Of every map."""

    goal: Any
    """i32 [B]: the goal's cell, -1 where it is off the map: no way has a length then."""
    starts: Any
    """i32 [B, K]: cells from which ways begin, -1: none."""


class Maps(NamedTuple):
    """What B agents know of their surroundings."""

    stands: torch.Tensor
    """u8 [B, CELLS]: as in `Known`."""
    ground: torch.Tensor
    """u8 [B, CELLS]: likewise."""


def way_times(maps: Maps, ends: Ends, added: torch.Tensor) -> torch.Tensor:
    """The times of the shortest ways, f32 [B, K], as `sensors.search` counts them; NEVER where there is none.

    Args:
        maps: contiguous, on one device with all others.
        ends: cells that are on the map, or -1.
        added: f32 [B, CELLS], 0 to 255: to the tolls of unseen cells, in whole parts as agents have it. Its gradient
            is that of the numbers before they were rounded.
    """
    return _WayTimes.apply(maps, ends, added)


class _WayTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, maps, ends, added):
        device, (n, number) = added.device, ends.starts.shape
        known = Known.empty(0, device)._replace(
            stands=maps.stands, ground=maps.ground, anticipated=added.detach().round().to(torch.uint8).contiguous()
        )
        search, time = Search.empty(n, device), torch.empty(n, number, dtype=torch.int32, device=device)
        arguments = view(ends), view(known), view(search)
        if added.is_cuda:
            launch(times_cuda, n * _BLOCK, *arguments, view(time), block=_BLOCK)
        else:
            times_cpu(*arguments, view(time))
        ctx.kept = ends, known, search
        return time.float()

    @staticmethod
    def backward(ctx, gradient):
        ends, known, search = ctx.kept
        largest = gradient.abs().max().clamp(min=1e-30)
        shares = (gradient / largest * _SHARES).round().int()
        credit = torch.zeros(len(shares), CELLS, dtype=torch.int32, device=shares.device)
        arguments = view(ends), view(shares), view(known), view(search), view(credit)
        if shares.is_cuda:
            launch(credit_cuda, len(shares) * _CREDIT_BLOCK, *arguments, block=_CREDIT_BLOCK)
        else:
            credit_cpu(*arguments)
        matters = (known.ground == 0) & (known.stands < OBSTACLE)  # elsewhere nothing is added
        return None, None, credit * matters * (largest / _SHARES)


# One map.


@inline_function
def times_one(lane, lanes, i, ends, known, search_out, time_out):
    """Search from the goal, and read the times of the cells that are asked for; every lane does its share."""
    find_ways(lane, lanes, i, i, (NOWHERE, ends.goal[i]), NEVER, known, search_out)
    for k in range(lane, ends.starts.shape[1], lanes):
        start = ends.starts[i, k]
        time_out[i, k] = search_out.time[i, start] if start >= 0 else NEVER


@lean_function
def credit_one(lane, lanes, i, ends, shares, known, search, credit_out):
    """Follow each way to the goal, and add what it counts for to the cells whose tolls it pays; likewise."""
    side = np.int32(SIDE)
    for k in range(lane, ends.starts.shape[1], lanes):
        cell, share = ends.starts[i, k], shares[i, k]
        while cell >= 0 and share != 0 and 0 < search.time[i, cell] < NEVER:
            before = next_of_way(i, i, cell, known, search)
            if before == cell:
                break
            dr, dc = cell // side - before // side, cell % side - before % side
            _, payer = dearest(i, before, dr, dc, known)
            atomic_add(credit_out, i, before, pace(dr, dc) * share)
            atomic_add(credit_out, i, payer, pace(dr, dc) * share)
            cell = before


# All maps.


@cpu_kernel
def times_cpu(ends, known, search_out, time_out):
    """`times_one` of every map."""
    for i in prange(len(time_out)):
        times_one(0, 1, np.int64(i), ends, known, search_out, time_out)


@cuda_kernel
def times_cuda(ends, known, search_out, time_out):
    """Likewise; a block works for a map."""
    times_one(cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x, ends, known, search_out, time_out)


@cpu_kernel
def credit_cpu(ends, shares, known, search, credit_out):
    """`credit_one` of every map."""
    for i in prange(len(credit_out)):
        credit_one(0, 1, np.int64(i), ends, shares, known, search, credit_out)


@cuda_kernel
def credit_cuda(ends, shares, known, search, credit_out):
    """Likewise; a block works for a map."""
    credit_one(cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x, ends, shares, known, search, credit_out)
