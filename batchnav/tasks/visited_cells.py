"""Cells that Explore counts: cubes in the frame of the episode's start, and the cells that an island overlaps.

The cell of a point is its coordinates in the start's frame, divided by the cell size and truncated towards zero, as in
the release of Shacklett et al. (2021). Cell 0 therefore extends from -1 to 1 cell sizes along every axis, twice as far
as other cells.
"""

from __future__ import annotations

import math

import numpy as np

from batchnav.geometry.polygon import ZERO
from batchnav.navmesh.data import polygon_size, polygon_vertex, scene_polygons
from batchnav.runtime.kernels.decorators import inline_function, lean_function

MAX_MARKS = 65536
"""Maximum number of cells in the bounding box of an island: more than 250 x 250 cells on one storey."""
_SIDE, _LEVELS = np.int32(2047), np.int32(127)
"""Largest cell coordinates, horizontal and vertical. Coordinates farther from the start are clamped to them."""
_TOUCH = np.float32(1e-3)
"""Tolerance, in cell sizes: cells that an island only touches count as reachable, since rounding may lead there."""


@inline_function
def start_frame(start, heading, size):
    """The frame of an episode's start: (start, sine of the heading, cosine of the heading, cells per metre)."""
    return start, np.float32(math.sin(heading)), np.float32(math.cos(heading)), np.float32(1.0) / size


@inline_function
def in_frame(point, frame):
    """A point in a start's frame, in cell sizes: to the right, up, backwards."""
    start, sine, cosine, scale = frame
    dx, dy, dz = point[0] - start[0], point[1] - start[1], point[2] - start[2]
    return (dx * cosine - dz * sine) * scale, dy * scale, (dx * sine + dz * cosine) * scale


@inline_function
def cut(value, limit):
    """The cell of a coordinate: truncated towards zero, and clamped to -limit to limit."""
    return min(max(np.int32(value), -limit), limit)


@inline_function
def cell_of(point, frame):
    """The cell of a point, encoded as one i32; 0 is the cell of the start."""
    x, y, z = in_frame(point, frame)
    return (cut(y, _LEVELS) << np.int32(24)) + (cut(x, _SIDE) << np.int32(12)) + cut(z, _SIDE)


@inline_function
def was_visited(i, cell, count, cells):
    """True if a cell is that of the start or among the first `count` entries of row i of cells i32 [N, M]."""
    found = cell == 0
    while not found and count > 0:  # newest first: an agent is mostly in a cell that it visited recently
        count -= np.int32(1)
        found = cells[i, count] == cell
    return found


@lean_function
def box_of_island(nav, scene, island, frame):
    """The bounding box of an island in cells: lowest x, y, z, and numbers of cells along x, y, z."""
    first, number = scene_polygons(nav, scene)
    big = np.int32(2**30)
    low_x, low_y, low_z, high_x, high_y, high_z = big, big, big, -big, -big, -big
    for polygon in range(first, first + number):
        if nav.polygon_island[polygon] == island:
            for k in range(polygon_size(nav, polygon)):
                x, y, z = in_frame(polygon_vertex(nav, polygon, k), frame)
                low_x, high_x = min(low_x, cut(x - _TOUCH, _SIDE)), max(high_x, cut(x + _TOUCH, _SIDE))
                low_y, high_y = min(low_y, cut(y - _TOUCH, _LEVELS)), max(high_y, cut(y + _TOUCH, _LEVELS))
                low_z, high_z = min(low_z, cut(z - _TOUCH, _SIDE)), max(high_z, cut(z + _TOUCH, _SIDE))
    one = np.int32(1)
    return low_x, low_y, low_z, high_x - low_x + one, high_y - low_y + one, high_z - low_z + one


@lean_function
def clear_marks(lane, lanes, number, row, marks_out):
    """Clear the first `number` marks of a row of u8 [rows, MAX_MARKS]. The lanes share the marks."""
    for k in range(lane, number, lanes):
        marks_out[row, k] = np.uint8(0)


@lean_function
def mark_island(lane, lanes, nav, scene, island, frame, box, row, marks_out):
    """Mark the cells of a box that an island's polygons overlap. Lanes share the polygons; several may write a cell."""
    first, number = scene_polygons(nav, scene)
    for polygon in range(first + lane, first + number, lanes):
        if nav.polygon_island[polygon] == island:
            _mark_polygon(nav, np.int32(polygon), frame, box, row, marks_out)


@lean_function
def count_marks(lane, lanes, number, marks, row):
    """Number of marked cells among every `lanes`-th cell from `lane` on."""
    count = 0
    for k in range(lane, number, lanes):
        count += np.int32(marks[row, k])
    return count


@inline_function
def _mark_polygon(nav, polygon, frame, box, row, marks_out):
    """Mark the cells that a polygon overlaps in plan view, on all levels between its lowest and highest vertex."""
    count = polygon_size(nav, polygon)
    x, y, z = in_frame(polygon_vertex(nav, polygon, 0), frame)
    low_x, high_x, low_y, high_y, low_z, high_z = x, x, y, y, z, z
    area, before_x, before_z = ZERO, x, z
    for k in range(1, count):
        x, y, z = in_frame(polygon_vertex(nav, polygon, k), frame)
        low_x, high_x, low_y, high_y = min(low_x, x), max(high_x, x), min(low_y, y), max(high_y, y)
        low_z, high_z = min(low_z, z), max(high_z, z)
        area += before_x * z - x * before_z
        before_x, before_z = x, z
    x, y, z = in_frame(polygon_vertex(nav, polygon, 0), frame)
    area += before_x * z - x * before_z
    first_x, first_y, first_z, wide, _, deep = box
    for cx in range(cut(low_x - _TOUCH, _SIDE), cut(high_x + _TOUCH, _SIDE) + 1):
        for cz in range(cut(low_z - _TOUCH, _SIDE), cut(high_z + _TOUCH, _SIDE) + 1):
            if _polygon_meets(nav, polygon, count, area, np.int32(cx), np.int32(cz), frame):
                for cy in range(cut(low_y - _TOUCH, _LEVELS), cut(high_y + _TOUCH, _LEVELS) + 1):
                    marks_out[row, ((cy - first_y) * deep + cz - first_z) * wide + cx - first_x] = np.uint8(1)


@inline_function
def _polygon_meets(nav, polygon, count, area, cx, cz, frame):
    """True if a cell overlaps a convex polygon whose box it overlaps: no edge has the whole cell on its outer side."""
    one = np.float32(1.0)
    left = (np.float32(cx) if cx > 0 else np.float32(cx) - one) - _TOUCH
    right = (np.float32(cx) if cx < 0 else np.float32(cx) + one) + _TOUCH
    back = (np.float32(cz) if cz > 0 else np.float32(cz) - one) - _TOUCH
    front = (np.float32(cz) if cz < 0 else np.float32(cz) + one) + _TOUCH
    sign = one if area > ZERO else -one
    ax, _, az = in_frame(polygon_vertex(nav, polygon, count - 1), frame)
    for k in range(count):
        bx, _, bz = in_frame(polygon_vertex(nav, polygon, k), frame)
        nx, nz = sign * (az - bz), sign * (bx - ax)  # points into the polygon
        inmost = nx * ((right if nx > ZERO else left) - ax) + nz * ((front if nz > ZERO else back) - az)
        if inmost < ZERO:
            return False
        ax, az = bx, bz
    return True
