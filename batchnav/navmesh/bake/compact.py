"""Compact field: the open space above walkable spans; each cell is linked to its four neighbours.

Order of cells: row by row along z, column by column along x, bottom to top. Directions: 0 -x, 1 +z, 2 +x, 3 -z.
"""

from typing import NamedTuple

import numpy as np

from batchnav.navmesh.bake.filters import OPEN_SKY
from batchnav.runtime.kernels.decorators import cpu_function, lean_function

NO_NEIGHBOUR = -1
_MAX_LAYERS = 63  # per column, as Recast's six-bit links allow
_MAX_HEADROOM = 255
"""Largest free height above a span that is stored, cell heights."""


class CompactField(NamedTuple):
    """C cells in which an agent can stand."""

    first: np.ndarray
    """i32 [width * depth + 1]: first cell of each column."""
    column: np.ndarray
    """i32 [C]: column x + z * width of each cell."""
    floor: np.ndarray
    """i32 [C]: floor height in cell heights above the grid's floor."""
    neighbours: np.ndarray
    """i32 [C, 4]: adjacent cell in each direction, -1 if it cannot be reached."""
    area: np.ndarray
    """u8 [C]: 0 for closed cells (too near to a wall)."""


@cpu_function
def build_compact(solid, width, depth, walkable_height, walkable_climb):
    """The walkable spans of the solid field as (first, column, floor, neighbours, area) of a CompactField."""
    count = 0
    for i in range(len(solid.area)):
        count += solid.area[i] != 0
    first = np.empty(len(solid.first), np.int32)
    column = np.empty(count, np.int32)
    floor = np.empty(count, np.int32)
    headroom = np.empty(count, np.int32)
    area = np.empty(count, np.uint8)
    cell = 0
    for c in range(width * depth):
        first[c] = cell
        last = solid.first[c + 1]
        for i in range(solid.first[c], last):
            if solid.area[i] != 0:
                ceiling = solid.low[i + 1] if i + 1 < last else OPEN_SKY
                column[cell] = c
                floor[cell] = solid.high[i]
                headroom[cell] = min(max(ceiling - solid.high[i], 0), _MAX_HEADROOM)
                area[cell] = solid.area[i]
                cell += 1
    first[width * depth] = cell
    neighbours = np.full((count, 4), NO_NEIGHBOUR, np.int32)
    for i in range(count):
        z, x = divmod(column[i], width)
        for direction in range(4):
            nx = x + (direction == 2) - (direction == 0)
            nz = z + (direction == 1) - (direction == 3)
            if nx < 0 or nz < 0 or nx >= width or nz >= depth:
                continue
            start, end = first[nx + nz * width], first[nx + nz * width + 1]
            for k in range(start, min(end, start + _MAX_LAYERS)):
                bottom = max(floor[i], floor[k])
                top = min(floor[i] + headroom[i], floor[k] + headroom[k])
                if top - bottom >= walkable_height and abs(floor[k] - floor[i]) <= walkable_climb:
                    neighbours[i, direction] = k
                    break
    return first, column, floor, neighbours, area


@lean_function
def sweep_distances(neighbours, distance_out):
    """Chamfer distances from cells with distance 0, in half cells: 2 per side step, 3 per diagonal step."""
    for i in range(len(distance_out)):
        _relax(i, 0, 3, neighbours, distance_out)
        _relax(i, 3, 2, neighbours, distance_out)
    for i in range(len(distance_out) - 1, -1, -1):
        _relax(i, 2, 1, neighbours, distance_out)
        _relax(i, 1, 0, neighbours, distance_out)


@lean_function
def _relax(i, side, turn, neighbours, distance_out):
    """Relax cell i's distance through the neighbour on `side` and that neighbour's neighbour towards `turn`."""
    adjacent = neighbours[i, side]
    if adjacent >= 0:
        distance_out[i] = min(distance_out[i], distance_out[adjacent] + 2)
        diagonal = neighbours[adjacent, turn]
        if diagonal >= 0:
            distance_out[i] = min(distance_out[i], distance_out[diagonal] + 3)


@cpu_function
def erode(radius, field_out):
    """Close the cells within `radius` cells of an edge."""
    distance = np.empty(len(field_out.area), np.int32)
    for i in range(len(distance)):
        inside = field_out.area[i] != 0
        for direction in range(4):
            k = field_out.neighbours[i, direction]
            inside = inside and k >= 0 and field_out.area[k] != 0
        distance[i] = 255 if inside else 0
    sweep_distances(field_out.neighbours, distance)
    for i in range(len(distance)):
        if distance[i] < 2 * radius:
            field_out.area[i] = 0
