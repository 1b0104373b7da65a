"""Obstacle inflation: cells next to an obstacle become inflated, which raises their traversal cost.

Integration lists the cells that became obstacles in this step in the worklist of the search buffers. Inflation reads
that list.
"""

from __future__ import annotations

import numpy as np

from batchnav.mapping.quadrants import quadrants_of
from batchnav.mapping.state import INFLATED, SIDE, is_interpolated, is_near_obstacle, obstacle_code
from batchnav.runtime.kernels.decorators import lean_function


@lean_function
def clear_new_obstacles(row, search_out):
    """Empty the list of new obstacles in row `row` of the worklist."""
    search_out.counters[row, 0] = np.int32(0)


@lean_function
def inflate(lane, lanes, i, row, search, state_out):
    """Mark the neighbours of the new obstacles as inflated. The lanes share the list.

    A cell in which depth showed an obstacle is no interpolated obstacle, whichever lane marked it last.
    """
    for k in range(lane, min(search.counters[row, 0], search.worklist.shape[1]), lanes):
        cell = search.worklist[row, k]
        occupancy = state_out.occupancy[i, cell]
        if is_interpolated(occupancy) and quadrants_of(i, cell, state_out) != 0:
            state_out.occupancy[i, cell] = obstacle_code(occupancy, state_out.explored[i, cell])
        r, c = cell // np.int32(SIDE), cell % np.int32(SIDE)
        for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
            for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
                if not is_near_obstacle(state_out.occupancy[i, nr * SIDE + nc]):
                    state_out.occupancy[i, nr * SIDE + nc] = np.uint8(INFLATED)
