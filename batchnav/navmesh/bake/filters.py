"""Filters of the voxel field, which determine the spans that an agent can stand on."""

import numpy as np

from batchnav.runtime.kernels.decorators import cpu_function, lean_function

OPEN_SKY = 0xFFFF
"""Ceiling height, in cell heights, without a span above."""


@cpu_function
def allow_low_obstacles(climb, solid_out):
    """Make obstacles walkable that are on a walkable span and at most `climb` higher (kerbs, carpets)."""
    for column in range(len(solid_out.first) - 1):
        below_walkable, below_area, below_high = False, np.uint8(0), 0
        for i in range(solid_out.first[column], solid_out.first[column + 1]):
            walkable = solid_out.area[i] != 0
            if not walkable and below_walkable and abs(solid_out.high[i] - below_high) <= climb:
                solid_out.area[i] = below_area
            # The original value, so that an obstacle on an obstacle does not become walkable.
            below_walkable, below_area, below_high = walkable, solid_out.area[i], solid_out.high[i]


@lean_function
def _ceiling(solid, i, column):
    """Bottom of the span above span `i` of a column."""
    return solid.low[i + 1] if i + 1 < solid.first[column + 1] else OPEN_SKY


@cpu_function
def drop_ledges(width, depth, height, climb, solid_out):
    """Close spans next to a drop of more than `climb`, and on slopes steeper than `climb` in two cells."""
    for z in range(depth):
        for x in range(width):
            column = x + z * width
            for i in range(solid_out.first[column], solid_out.first[column + 1]):
                if solid_out.area[i] != 0 and _is_ledge(solid_out, i, x, z, width, depth, height, climb):
                    solid_out.area[i] = 0


@lean_function
def _is_ledge(solid, i, x, z, width, depth, height, climb):
    floor = solid.high[i]
    ceiling = _ceiling(solid, i, x + z * width)
    lowest = highest = floor
    for direction in range(4):
        nx = x + (direction == 2) - (direction == 0)
        nz = z + (direction == 1) - (direction == 3)
        if nx < 0 or nz < 0 or nx >= width or nz >= depth:
            return True  # the grid's border is a drop
        column = nx + nz * width
        first, last = solid.first[column], solid.first[column + 1]
        # Below the neighbour's first span the drop is unbounded.
        bottom = solid.low[first] if first < last else OPEN_SKY
        if min(ceiling, bottom) - floor > height:
            return True
        for k in range(first, last):
            other = solid.high[k]
            if min(ceiling, _ceiling(solid, k, column)) - max(floor, other) > height:
                if other - floor < -climb:
                    return True
                if other - floor <= climb:
                    lowest, highest = min(lowest, other), max(highest, other)
    return highest - lowest > climb


@cpu_function
def drop_low_ceilings(height, solid_out):
    """Close spans with less than `height` of free space above."""
    for column in range(len(solid_out.first) - 1):
        for i in range(solid_out.first[column], solid_out.first[column + 1]):
            if _ceiling(solid_out, i, column) - solid_out.high[i] < height:
                solid_out.area[i] = 0
