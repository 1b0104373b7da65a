"""Cells that moving bodies leave: obstacles of the map that an image shows to be free become free again.

A static obstacle stays visible next to the ground before it, or above the ground under it. So a cell with an obstacle
becomes free where an image shows ground in it, and no obstacle within NEAR of that ground. Cells with which an agent
collided repeatedly stay occupied: cameras look over low obstacles and through glass.

Environments without moving bodies do not launch this kernel: their maps keep every obstacle.
"""

from __future__ import annotations

import numpy as np

from batchnav.mapping.integrate import eye_of, is_ground, is_obstacle, pixel_point
from batchnav.mapping.state import (
    CELLS_PER_WORD,
    INFLATED,
    MAX_OCCUPIED,
    OCCUPIED,
    TRAVERSED_OBSTACLE,
    cell_of,
    has_obstacle,
    is_inflated,
    touches_codes,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import sync_lanes

NEAR = 0.25
"""Horizontal distance from a ground pixel within which a visible obstacle keeps the cell occupied, metres."""
_NEAR, _NEAR_SQUARED, _MOST_COLUMNS = np.float32(NEAR), np.float32(NEAR * NEAR), np.int32(16)
LEFT = np.uint8(255)
"""Temporary occupancy code of cells that become free."""
_FREE, _ONE, _TWO = np.uint8(0), np.int32(1), np.float32(2.0)


@inline_function
def is_forgettable(occupancy):
    """True for the code of an obstacle with which the agent did not collide repeatedly."""
    return has_obstacle(occupancy) and occupancy <= OCCUPIED


@lean_function
def _is_clear(i, line, column, depth, eye, parameters):
    """True if no pixel near the one at (line, column) shows an obstacle within NEAR of its point."""
    _, height, width = depth.shape
    _, dx, dz = pixel_point(i, line, column, depth, eye, parameters)
    metres, (_, scale, _) = depth[i, line, column], eye
    half = min(np.int32(_NEAR / (_TWO * scale * metres)) + _ONE, _MOST_COLUMNS)
    for row in range(height):
        for place in range(max(column - half, 0), min(column + half + 1, width)):
            kind, x, z = pixel_point(i, np.int32(row), np.int32(place), depth, eye, parameters)
            if is_obstacle(kind) and (x - dx) * (x - dx) + (z - dz) * (z - dz) < _NEAR_SQUARED:
                return False
    return True


@lean_function
def _mark_left(lane, lanes, i, depth, cameras, parameters, left_out, state_out):
    """Give LEFT to the cells of agent i's map that an image shows to be free; sets `left_out` if there are any."""
    _, height, width = depth.shape
    eye = eye_of(i, cameras, width)
    x, z = cameras.position[i, 0], cameras.position[i, 2]
    for pixel in range(lane, height * width, lanes):
        line, column = np.int32(pixel) // np.int32(width), np.int32(pixel) % np.int32(width)
        kind, dx, dz = pixel_point(i, line, column, depth, eye, parameters)
        if not is_ground(kind):
            continue
        cell = cell_of(i, x + dx, z + dz, state_out.origin_and_resolution)
        if cell < 0 or not is_forgettable(state_out.occupancy[i, cell]):
            continue
        if _is_clear(i, line, column, depth, eye, parameters):
            state_out.occupancy[i, cell], left_out[i] = LEFT, _ONE


@lean_function
def deflate(lane, lanes, i, state_out):
    """Free the inflated cells of agent i's map that were next to a cell with LEFT alone."""
    for cell in range(lane, state_out.occupancy.shape[1], lanes):
        if is_inflated(state_out.occupancy[i, cell]):
            c = np.int32(cell)
            if touches_codes(i, c, LEFT, LEFT, state_out) and not _touches_obstacle(i, c, state_out):
                state_out.occupancy[i, cell] = _FREE


@lean_function
def _touches_obstacle(i, cell, state):
    """True where one of the 3x3 cells around a cell has an obstacle."""
    return touches_codes(i, cell, TRAVERSED_OBSTACLE, MAX_OCCUPIED, state)


@lean_function
def replace_left(lane, lanes, i, state_out):
    """Replace LEFT by the code of a free or an inflated cell, and clear the quadrants of these cells.

    A lane has all cells of a word of quadrants.
    """
    for word in range(lane, state_out.quadrants.shape[1], lanes):
        for k in range(CELLS_PER_WORD):
            cell = np.int32(word) * np.int32(CELLS_PER_WORD) + np.int32(k)
            if state_out.occupancy[i, cell] == LEFT:
                near = _touches_obstacle(i, cell, state_out)
                state_out.occupancy[i, cell] = np.uint8(INFLATED) if near else _FREE
                state_out.quadrants[i, word] &= ~(np.int32(15) << np.int32(4 * k))


@kernel(over="blocks")
def free_cells(lane, lanes, i, depth, cameras, agents, parameters, left_out, state_out):
    """Free the cells of agent i's map that moving bodies left, before the image is integrated.

    `left_out`: i32 [N], 0 before and after a call. Nothing happens where an episode begins: its map is still empty.
    """
    if state_out.episode[i] != agents.episode[i]:
        return
    _mark_left(lane, lanes, i, depth, cameras, parameters, left_out, state_out)
    sync_lanes()
    if left_out[i] == 0:
        return
    deflate(lane, lanes, i, state_out)
    sync_lanes()
    replace_left(lane, lanes, i, state_out)
    sync_lanes()
    if lane == 0:
        left_out[i] = np.int32(0)
        # A shorter path may have become possible, and a new prediction is due.
        state_out.path_length[i], state_out.dirty[i] = np.int32(0), _ONE
