"""Traversal costs of cells and costs of the edges between them. Costs are integers, so all devices agree exactly.

    traversal cost of a cell                                    in free cells
    free, or unknown without a predictor                        1
    inflated: next to an obstacle                               1.5
    unexplored, with a predictor                                1 to 31; 0.5 more if inflated
    traversed obstacle, after k collisions in it                2 + 10 k
    interpolated obstacle                                       100
    occupied with a gap, after k repeated collisions            100 (k + 1)
    occupied, after k repeated collisions                       500 (k + 1)

An edge joins a cell to one of its eight neighbours. Its cost is its length (5 straight, 7 diagonal) times the sum of
the two cells' traversal costs. A diagonal edge passes a corner: instead of its end's cost it pays the highest cost
among its end and the two cells next to the corner. A barred edge pays 1000 more at its end: a closed edge
(`quadrants`), or one from an obstacle without gaps to an unexplored cell behind its surface. Unknown cells count as
free (free-space assumption: Zelinsky 1992; Koenig and Smirnov 1997) unless occupancy anticipation predicts a cost. No
cell is impassable, since cells can be too coarse for a narrow passage. A detour of up to 100 m is cheaper than crossing
an occupied cell.
"""

from __future__ import annotations

import numpy as np

from batchnav.mapping.state import (
    SIDE,
    collisions_while_traversed,
    has_obstacle,
    inflation,
    is_closed,
    is_explored,
    is_gap,
    is_interpolated,
    is_traversed_obstacle,
    quadrants_of,
    repeated_collisions,
)
from batchnav.runtime.kernels.decorators import inline_function

COST_UNITS = 4
"""Integer units per unit of traversal cost; predicted costs need the finer resolution."""
FREE = np.int32(2 * COST_UNITS)
"""Traversal cost of a free cell."""
INFLATION = np.int32(COST_UNITS)
"""Addition to the cost of an inflated cell; a traversed obstacle costs twice as much more."""
OCCUPIED_COST = np.int32(1000 * COST_UNITS)
"""Traversal cost of an occupied cell, and of each repeated collision with it."""
GAP_COST = np.int32(200 * COST_UNITS)
"""Traversal cost of an interpolated obstacle, of an occupied cell with a gap, and of each repeated collision with the
latter."""
COLLISION_COST = np.int32(10) * FREE
"""Addition to the cost of a traversed obstacle for each collision in it: the cost of ten free cells."""
BARRED_COST = np.int32(2) * OCCUPIED_COST
"""Addition to the cost that a barred edge pays at its end."""
STRAIGHT, DIAGONAL = np.int32(5), np.int32(7)
"""Lengths of edges."""
FREE_EDGE = np.int32(2) * FREE * STRAIGHT
"""Cost of a straight edge between free cells. Path costs divided by this are lengths in cells."""
_FREE_DIAGONAL = np.int32(2) * FREE * DIAGONAL
"""Cost of a diagonal edge between free cells."""


@inline_function
def traversal_cost(i, cell, state):
    """Traversal cost of a cell, i32 units."""
    occupancy, extra = state.occupancy[i, cell], np.int32(0)
    times = repeated_collisions(occupancy) + np.int32(1)
    if times > 0:
        return times * (GAP_COST if is_gap(quadrants_of(i, cell, state)) else OCCUPIED_COST)
    if is_interpolated(occupancy):
        return GAP_COST
    if is_traversed_obstacle(occupancy):
        extra = collisions_while_traversed(state.explored[i, cell]) * COLLISION_COST
    elif len(state.predicted_cost) > 0 and not is_explored(state.explored[i, cell]):
        extra = np.int32(state.predicted_cost[i, cell])
    return FREE + INFLATION * inflation(occupancy) + extra


@inline_function
def octile_cost(cell, other):
    """Path cost between two cells if all cells were free (octile distance): a lower bound of the path cost."""
    side = np.int32(SIDE)
    across, along = abs(cell % side - other % side), abs(cell // side - other // side)
    longer, shorter = max(across, along), min(across, along)
    return FREE_EDGE * longer + (_FREE_DIAGONAL - FREE_EDGE) * shorter


@inline_function
def edge_length(dr, dc):
    """Length of an edge over `dr` rows and `dc` columns: the factor of its two cells' traversal costs."""
    return STRAIGHT if dr == 0 or dc == 0 else DIAGONAL


@inline_function
def _leads_behind(i, cell, other, state):
    """True where a cell holds a detected obstacle without a gap, and its neighbour is unexplored."""
    occupancy = state.occupancy[i, cell]
    if is_explored(state.explored[i, other]) or not has_obstacle(occupancy) or is_interpolated(occupancy):
        return False
    return not is_gap(quadrants_of(i, cell, state))


@inline_function
def _is_barred(i, cell, to, state):
    """True where an edge is closed, or leads from the surface of an obstacle to unexplored space behind it."""
    return is_closed(i, cell, to, state) or _leads_behind(i, cell, to, state) or _leads_behind(i, to, cell, state)


@inline_function
def entry_cost(i, cell, dr, dc, state):
    """Traversal cost that an edge pays at its far end, and the cell whose cost it is.

    The far end is `dr` rows and `dc` columns from `cell`. A diagonal edge pays for the costliest of its far end and the
    two cells next to the corner.
    """
    down = dr * np.int32(SIDE)
    to = cell + down + dc
    cost, payer = traversal_cost(i, to, state), to
    beside_obstacle = has_obstacle(state.occupancy[i, cell]) or has_obstacle(state.occupancy[i, to])
    if beside_obstacle and _is_barred(i, cell, to, state):
        cost += BARRED_COST
    if dr != 0 and dc != 0:
        for corner in (cell + down, cell + dc):
            other = traversal_cost(i, corner, state)
            if other > cost:
                cost, payer = other, corner
    return cost, payer


@inline_function
def edge_cost(i, cell, own, dr, dc, state):
    """Cost of the edge from a cell with traversal cost `own` to the neighbour `dr` rows and `dc` columns away."""
    cost, _ = entry_cost(i, cell, dr, dc, state)
    return edge_length(dr, dc) * (own + cost)
