"""Watershed partition: basins of the distance field become regions, from the most open cells to the walls."""

import numpy as np

from batchnav.navmesh.bake.compact import sweep_distances
from batchnav.runtime.kernels.decorators import cpu_function, lean_function

MAX_REGIONS = 0x7FFF
"""Largest number of regions, as in Recast."""
_LEVELS = 8  # levels (of two distance units) that are sorted together
_EXPANSIONS = np.int64(8)  # growth steps per level before new regions may start
_UNLIMITED = np.int64(-1)


@cpu_function
def distance_field(field):
    """Twice the distance in cells to the nearest edge, smoothed, i32 [C]; and its largest value before smoothing."""
    count = len(field.area)
    distance = np.empty(count, np.int32)
    for i in range(count):
        inside = True
        for direction in range(4):
            k = field.neighbours[i, direction]
            inside = inside and k >= 0 and field.area[k] == field.area[i]
        distance[i] = 0xFFFF if inside else 0
    sweep_distances(field.neighbours, distance)
    largest = 0
    smooth = np.empty(count, np.int32)
    for i in range(count):
        largest = max(largest, distance[i])
        smooth[i] = distance[i] if distance[i] <= 2 else _box_mean(field.neighbours, distance, i)
    return smooth, largest


@lean_function
def _box_mean(neighbours, distance, i):
    """Rounded mean over the 3 x 3 cells around cell i; missing cells count as cell i."""
    total = distance[i]
    for direction in range(4):
        adjacent = neighbours[i, direction]
        if adjacent >= 0:
            diagonal = neighbours[adjacent, (direction + 1) & 3]
            total += distance[adjacent] + (distance[diagonal] if diagonal >= 0 else distance[i])
        else:
            total += 2 * distance[i]
    return (total + 5) // 9


@cpu_function
def watershed(field, distance, largest):
    """Region of each cell, i32 [C], 0 for closed cells; and the number of regions, -1 if there are too many."""
    count = len(field.area)
    region = np.zeros(count, np.int32)
    steps = np.zeros(count, np.int32)
    sorted_cells, starts = np.empty(count, np.int32), np.zeros(_LEVELS + 1, np.int64)
    front, scratch = np.empty(count, np.int32), np.empty((count, 3), np.int32)
    waiting, num_waiting = np.empty(count, np.int32), 0
    num_regions = 0
    level = (largest + 1) & ~1
    turn = -1
    while level > 0:
        level = max(level - 2, 0)
        turn = (turn + 1) % _LEVELS
        if turn == 0:
            _sort_by_level(field, distance, region, level, sorted_cells, starts)
            num_waiting = 0
        num_front = np.int64(0)
        for j in range(starts[turn], starts[turn + 1]):
            if region[sorted_cells[j]] == 0:
                front[num_front] = sorted_cells[j]
                num_front += 1
        for j in range(num_waiting):  # left over from the level above
            front[num_front] = waiting[j]
            num_front += 1
        num_front = _expand(field, num_front, _EXPANSIONS if level > 0 else _UNLIMITED, scratch, region, steps, front)
        for j in range(num_front):
            if region[front[j]] == 0 and _flood(
                field, distance, front[j], level, num_regions + 1, scratch, region, steps
            ):
                num_regions += 1
                if num_regions > MAX_REGIONS:
                    return region, -1
        num_waiting = 0
        for j in range(num_front):
            if region[front[j]] == 0:
                waiting[num_waiting] = front[j]
                num_waiting += 1
    num_front = np.int64(0)
    for i in range(count):
        if region[i] == 0 and field.area[i] != 0:
            front[num_front] = i
            num_front += 1
    _expand(field, num_front, _UNLIMITED, scratch, region, steps, front)
    return region, num_regions


@lean_function
def _sort_by_level(field, distance, region, top, cells_out, starts_out):
    """Sort cells without a region by level, from `top` down, then by index; higher cells join the first level."""
    for k in range(len(starts_out)):
        starts_out[k] = 0
    for i in range(len(region)):
        if region[i] == 0 and field.area[i] != 0:
            k = max((top >> 1) - (distance[i] >> 1), 0)
            if k < _LEVELS:
                starts_out[k + 1] += 1
    for k in range(_LEVELS):
        starts_out[k + 1] += starts_out[k]
    for i in range(len(region)):
        if region[i] == 0 and field.area[i] != 0:
            k = max((top >> 1) - (distance[i] >> 1), 0)
            if k < _LEVELS:
                cells_out[starts_out[k]] = i
                starts_out[k] += 1
    for k in range(_LEVELS, 0, -1):
        starts_out[k] = starts_out[k - 1]
    starts_out[0] = 0


@lean_function
def _expand(field, count, max_rounds, scratch, region_out, steps_out, front_out):
    """Grow regions into the cells of `front_out`, simultaneously per round. Returns the number of remaining cells."""
    rounds = 0
    while count > 0:
        num_left = num_dirty = 0
        for j in range(count):
            i = front_out[j]
            best, best_steps = 0, 0xFFFF
            for direction in range(4):
                k = field.neighbours[i, direction]
                if k >= 0 and region_out[k] > 0 and field.area[k] == field.area[i] and steps_out[k] + 2 < best_steps:
                    best, best_steps = region_out[k], steps_out[k] + 2
            if best > 0:
                scratch[num_dirty, 0], scratch[num_dirty, 1], scratch[num_dirty, 2] = i, best, best_steps
                num_dirty += 1
            else:
                front_out[num_left] = i
                num_left += 1
        for j in range(num_dirty):
            region_out[scratch[j, 0]] = scratch[j, 1]
            steps_out[scratch[j, 0]] = scratch[j, 2]
        count = num_left
        rounds += 1
        if num_dirty == 0 or rounds == max_rounds:
            break
    return count


@lean_function
def _flood(field, distance, start, level, new_region, stack, region_out, steps_out):
    """Flood-fill a new region from a cell through cells at `level` or above that touch no other region.

    Returns True if any cell was filled.
    """
    floor = max(level - 2, 0)
    region_out[start], steps_out[start] = new_region, 0
    stack[0, 0] = start
    size, filled = 1, False
    while size > 0:
        size -= 1
        i = stack[size, 0]
        if _touches_other(field, region_out, i, new_region):
            region_out[i] = 0
            continue
        filled = True
        for direction in range(4):
            k = field.neighbours[i, direction]
            if k >= 0 and field.area[k] == field.area[i] and distance[k] >= floor and region_out[k] == 0:
                region_out[k], steps_out[k] = new_region, 0
                stack[size, 0] = k
                size += 1
    return filled


@lean_function
def _touches_other(field, region, i, own):
    """True if one of the eight cells around cell i is in another region."""
    for direction in range(4):
        k = field.neighbours[i, direction]
        if k >= 0 and field.area[k] == field.area[i]:
            if region[k] != 0 and region[k] != own:
                return True
            k = field.neighbours[k, (direction + 1) & 3]
            if k >= 0 and field.area[k] == field.area[i] and region[k] != 0 and region[k] != own:
                return True
    return False
