"""Quadrants of cells: which of the four quarters of a cell hold points of an obstacle.

Bit 2 r + c of a cell's quadrants is 1 if depth showed an obstacle in half r along Z and half c along X of the cell.
Obstacles that are known from collisions alone, or interpolated, have no quadrants.

A body as wide as a cell passes between two obstacles only if a quarter between them is free. The edge between two cells
is therefore closed where all quarters of one of them that face the other hold obstacles. A cell has a gap where its
obstacle leaves a free side: the end of a wall, or a post of a narrow gate.
"""

from __future__ import annotations

import numpy as np

from batchnav.mapping.state import SIDE
from batchnav.runtime.kernels.decorators import inline_function

_ALL, _LOW_Z, _HIGH_Z, _LOW_X, _HIGH_X = (np.int32(bits) for bits in (15, 3, 12, 5, 10))
"""Quadrants of a whole cell and of its halves."""
_GAPS = np.int32(sum(1 << bits for bits in (1, 2, 4, 8, 3, 12, 5, 10)))
"""Bit k is 1 where quadrants k are one quarter, or two that share a side."""
_TWO = np.float32(2.0)


@inline_function
def word_of(cell):
    """Index of the word of `MapState.quadrants` that holds the quadrants of a cell and of its seven neighbours."""
    return cell >> np.int32(3)


@inline_function
def quadrants_of(i, cell, state):
    """Quadrants of a cell, i32, 0 to 15."""
    return quadrants_in(cell, state.quadrants[i, word_of(cell)])


@inline_function
def quadrants_in(cell, word):
    """Quadrants of a cell in its word."""
    return (word >> (np.int32(4) * (cell & np.int32(7)))) & _ALL


@inline_function
def quadrant_bit(cell, u, v):
    """Bit of the quarter at map coordinates (u, v) in the word that holds the quadrants of its cell."""
    right, down = np.int32(_TWO * u) & np.int32(1), np.int32(_TWO * v) & np.int32(1)
    return np.int32(1) << (np.int32(4) * (cell & np.int32(7)) + np.int32(2) * down + right)


@inline_function
def is_gap(quadrants):
    """True where the obstacle in a cell leaves one of the cell's sides free."""
    return (_GAPS >> quadrants) & np.int32(1) != 0


@inline_function
def _holds_all_facing(quadrants, dr, dc):
    """True where all quarters that face the neighbour `dr` rows and `dc` columns away hold obstacles."""
    facing = _ALL
    if dr != 0:
        facing &= _HIGH_Z if dr > 0 else _LOW_Z
    if dc != 0:
        facing &= _HIGH_X if dc > 0 else _LOW_X
    return quadrants & facing == facing


@inline_function
def is_closed(i, cell, to, state):
    """True where the edge between two neighbouring cells is closed; False for a cell and itself."""
    side = np.int32(SIDE)
    dr, dc = to // side - cell // side, to % side - cell % side
    if dr == 0 and dc == 0:
        return False
    return _holds_all_facing(quadrants_of(i, cell, state), dr, dc) or _holds_all_facing(
        quadrants_of(i, to, state), -dr, -dc
    )
