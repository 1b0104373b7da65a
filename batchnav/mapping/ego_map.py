"""Egocentric map: an image of the map and the path around the agent, which is in the centre and faces up."""

from __future__ import annotations

import numpy as np

from batchnav.geometry.pose import forward
from batchnav.mapping.path import locate
from batchnav.mapping.shortest_path import POSITION
from batchnav.mapping.state import cell_at, is_explored, is_inflated, is_occupied, is_traversed
from batchnav.mapping.waypoint import LOOKAHEAD
from batchnav.runtime.kernels.decorators import inline_function, lean_function

PIXELS = 48
"""Pixels along a side of the image."""
_PIXEL = np.float32(0.25)
"""Side of a pixel, metres."""
_LEVELS = 10
UNKNOWN, EXPLORED, INFLATED, OCCUPIED, TRAVERSED, PATH, GOAL, FRONTIER = (
    np.float32((level + 0.5) / _LEVELS) for level in range(8)
)
"""Values of a pixel: centres of the first eight of ten equal ranges, so that an encoder can tell them apart."""
_HALF = np.float32(0.5)


@lean_function
def mark_path(i, row, state, search_out):
    """Mark the next path cells in the bit set of the first worklist, which is empty, for `_is_marked`."""
    position = search_out.counters[row, POSITION]
    for k in range(position + 1, min(position + 1 + LOOKAHEAD, state.path_length[i])):
        cell = state.path[i, k]
        search_out.pending[row, cell >> np.int32(5)] |= np.int32(1) << (cell & np.int32(31))


@inline_function
def _is_marked(row, cell, search):
    """True where `mark_path` marked a cell."""
    return (search.pending[row, cell >> np.int32(5)] >> (cell & np.int32(31))) & np.int32(1) == 1


@inline_function
def pixel_scale(i, state):
    """Side of a pixel in cells."""
    return _PIXEL / state.origin_and_resolution[i, 2]


@inline_function
def pixel_place(pixel, u, v, fx, fz, scale):
    """Map coordinates of a pixel's centre. (u, v): those of the agent; (fx, fz): its forward direction."""
    pixels = np.int32(PIXELS)
    r, c = np.int32(pixel) // pixels, np.int32(pixel) % pixels
    ahead = (np.float32(pixels // 2 - r) - _HALF) * scale
    right = (np.float32(c - pixels // 2) + _HALF) * scale
    return u + ahead * fx - right * fz, v + ahead * fz + right * fx


@inline_function
def cell_value(i, row, cell, state, search):
    """Value of a pixel from the cell at its centre; `cell`: -1 off the map."""
    value = UNKNOWN
    if cell >= 0:
        if _is_marked(row, cell, search):
            value = PATH
        elif is_occupied(state.occupancy[i, cell]):
            value = OCCUPIED
        elif is_traversed(state.explored[i, cell]):
            value = TRAVERSED
        elif is_inflated(state.occupancy[i, cell]):
            value = INFLATED
        elif is_explored(state.explored[i, cell]):
            value = EXPLORED
    return value


@lean_function
def render_ego_map(lane, lanes, i, row, agents, state, search, ego_map_out):
    """Render agent i's image in ego_map_out f32 [N, 1, PIXELS, PIXELS]. The lanes share the pixels."""
    fx, fz = forward(agents.heading[i])
    u, v, goal_u, goal_v, _, _ = locate(i, agents, state)
    scale = pixel_scale(i, state)
    for pixel in range(lane, PIXELS * PIXELS, lanes):
        at_u, at_v = pixel_place(pixel, u, v, fx, fz, scale)
        value = GOAL
        if abs(at_u - goal_u) >= scale or abs(at_v - goal_v) >= scale:
            value = cell_value(i, row, cell_at(at_u, at_v), state, search)
        ego_map_out[i, 0, np.int32(pixel) // np.int32(PIXELS), np.int32(pixel) % np.int32(PIXELS)] = value
