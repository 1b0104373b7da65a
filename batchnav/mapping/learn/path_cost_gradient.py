"""Path costs on whole maps and their gradient with respect to the cells' predicted costs.

A path's cost is a sum over edges, each of which pays the traversal costs of two cells. The derivative of a shortest
path's cost with respect to a cell's cost is how often the path pays it, as long as no other path becomes shorter
(envelope theorem; Vlastelica et al., "Differentiation of blackbox combinatorial solvers", ICLR 2020, use shortest paths
as a network layer). The search is that of `mapping.shortest_path`, without a bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.mapping.costs import edge_length, entry_cost
from batchnav.mapping.shortest_path import EVERYWHERE, UNREACHED, SearchBuffers, cost_to_go, next_cell
from batchnav.mapping.state import CELLS, CELLS_PER_WORD, SIDE, MapLayers, MapState
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import atomic_add

_BLOCK, _GRADIENT_BLOCK = 512, 32
"""CUDA: threads that search one map, and threads that follow its paths."""
_FIXED_POINT = 2**16
"""Resolution of summed gradients, relative to the largest: integer sums do not depend on their order."""


class PathEnds(NamedTuple):
    """Ends of the paths on B maps."""

    goal: Any
    """i32 [B]: the goal's cell, -1 where it is off the map: no path exists then."""
    starts: Any
    """i32 [B, K]: first cells of the paths; -1: no path."""


def path_costs(layers: MapLayers, ends: PathEnds, predicted_cost: torch.Tensor) -> torch.Tensor:
    """Costs of the shortest paths, f32 [B, K], in units of `mapping.costs`; UNREACHED where there is no path.

    Args:
        layers: u8 [B, CELLS] each, contiguous, on the device of all other tensors.
        ends: cells on the map, or -1.
        predicted_cost: f32 [B, CELLS], 0 to 255: addition to the costs of unexplored cells, rounded to integers as in
            the mapper. The gradient ignores the rounding (straight-through).
    """
    return _PathCosts.apply(layers, ends, predicted_cost)


class _PathCosts(torch.autograd.Function):
    """`path_costs` with its gradient."""

    @staticmethod
    def forward(ctx, layers, ends, predicted_cost):
        device, (n, number) = predicted_cost.device, ends.starts.shape
        rounded = predicted_cost.detach().round().to(torch.uint8).contiguous()
        state = MapState.empty(0, device)._replace(
            occupancy=layers.occupancy, explored=layers.explored, predicted_cost=rounded,
            quadrants=torch.zeros(n, CELLS // CELLS_PER_WORD, dtype=torch.int32, device=device),
        )  # fmt: skip
        search, costs = SearchBuffers.empty(n, device), torch.empty(n, number, dtype=torch.int32, device=device)
        arguments = view(ends), view(state), view(search)
        path_costs_one(n, *arguments, view(costs))
        ctx.kept = ends, state, search
        return costs.float()

    @staticmethod
    def backward(ctx, gradient):
        ends, state, search = ctx.kept
        largest = gradient.abs().max().clamp(min=1e-30)
        weights = (gradient / largest * _FIXED_POINT).round().int()
        summed = torch.zeros(len(weights), CELLS, dtype=torch.int32, device=weights.device)
        arguments = view(ends), view(weights), view(state), view(search), view(summed)
        gradient_one(len(weights), *arguments)
        return None, None, summed * ~state.layers.is_known * (largest / _FIXED_POINT)  # known cells have no prediction


# One map.


@kernel(over="blocks", block=_BLOCK, fastmath=True)
@inline_function
def path_costs_one(lane, lanes, i, ends, state, search_out, cost_out):
    """Search map i from the goal and read the costs of its starts. The lanes share the work."""
    cost_to_go(lane, lanes, i, i, (EVERYWHERE, ends.goal[i]), UNREACHED, state, search_out)
    for k in range(lane, ends.starts.shape[1], lanes):
        start = ends.starts[i, k]
        cost_out[i, k] = search_out.cost_to_go[i, start] if start >= 0 else UNREACHED


@kernel(over="blocks", block=_GRADIENT_BLOCK, fastmath=True)
def gradient_one(lane, lanes, i, ends, weights, state, search, gradient_out):
    """Follow each path to the goal and add its weight to the cells whose costs it pays. The lanes share the paths."""
    side = np.int32(SIDE)
    for k in range(lane, ends.starts.shape[1], lanes):
        cell, weight = ends.starts[i, k], weights[i, k]
        while cell >= 0 and weight != 0 and 0 < search.cost_to_go[i, cell] < UNREACHED:
            following = next_cell(i, i, cell, state, search)
            if following == cell:
                break
            dr, dc = cell // side - following // side, cell % side - following % side
            _, payer = entry_cost(i, following, dr, dc, state)
            atomic_add(gradient_out, i, following, edge_length(dr, dc) * weight)
            atomic_add(gradient_out, i, payer, edge_length(dr, dc) * weight)
            cell = following
