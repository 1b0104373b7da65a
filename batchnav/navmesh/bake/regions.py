"""Regions: basins of the watershed without small islands, and with small basins merged into their neighbours."""

from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.bake.growing import with_capacity
from batchnav.runtime.kernels.decorators import cpu_function, device_function, lean_function

# Watershed partition: basins of the distance field become regions, from the most open cells to the walls

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


MAX_CONTOUR = 40000
"""Largest number of steps along one outline, as in Recast; longer outlines are truncated."""
_SMALLEST = 0xFFFFFFF


def build_regions(field, min_area: int, merge_area: int) -> np.ndarray:
    """Region of each cell of a CompactField, i32 [C], 0 for none. Areas are in cells."""
    distance, largest = distance_field(field)
    region, count = watershed(field, distance, largest)
    if count < 0:
        raise NavMeshError(f"mesh: found more than {MAX_REGIONS} regions, expected fewer; use a larger cell_size")
    _merge_and_filter(field, count, min_area, merge_area, region)
    return region


@lean_function
def is_region_edge(field, region, i, direction):
    """True if the neighbour of cell i is in another region or does not exist."""
    k = field.neighbours[i, direction]
    return (region[k] if k >= 0 else 0) != region[i]


@lean_function
def _adjacent_region(field, region, i, direction):
    """Region of the neighbour of cell i; 0 for none."""
    k = field.neighbours[i, direction]
    return region[k] if k >= 0 else 0


@cpu_function
def _merge_and_filter(field, count, min_area, merge_area, region_out):
    """Remove and merge regions in place, and renumber the remaining regions from 1.

    State per region: `size` in cells; `alias`, the region that it was merged into; its ring of neighbours along the
    outline (`ring[start : start + length, 0]`); a linked list of regions above or below it (`floor_head`).
    """
    size = np.zeros(count + 1, np.int64)
    alias = np.arange(count + 1)
    overlap = np.zeros(count + 1, np.bool_)
    floor_head, floor_pool = _stack_floors(field, region_out, count, overlap)
    start, length, ring = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64), np.empty((1024, 1), np.int32)
    used = np.int64(0)
    outline = np.empty((MAX_CONTOUR + 1, 1), np.int32)
    for i in range(len(region_out)):
        r = region_out[i]
        if r == 0:
            continue
        size[r] += 1
        if length[r] > 0:
            continue
        for direction in range(4):
            if is_region_edge(field, region_out, i, direction):
                start[r], length[r] = used, _trace_neighbours(field, region_out, i, direction, outline)
                ring = with_capacity(ring, used, length[r])
                for k in range(length[r]):
                    ring[used + k, 0] = outline[k, 0]
                used += length[r]
                break
    _drop_small_islands(start, length, ring, min_area, size, alias)
    merged = True
    while merged:
        merged = False
        for r in range(1, count + 1):
            if alias[r] == 0 or overlap[r] or size[r] == 0:
                continue
            if size[r] > merge_area and _contains(ring, start[r], length[r], 0):
                continue
            target = _find_target(r, size, alias, overlap, start, length, ring, floor_head, floor_pool)
            if target == alias[r]:
                continue
            ring = with_capacity(ring, used, length[r] + length[target])
            if _join_rings(target, r, alias[r], used, start, length, ring):
                used += length[target]
                _join_floors(target, r, floor_head, floor_pool)
                size[target] += size[r]
                size[r] = 0
                _rename(alias[r], target, start, floor_head, alias, length, ring, floor_pool)
                merged = True
    _renumber(alias, region_out)


@device_function
def _renumber(alias, region_out):
    """Write the merged regions of cells, numbered from 1 in the order of their lowest old numbers."""
    number = np.zeros(len(alias), np.int32)
    last = 0
    for r in range(1, len(alias)):
        if alias[r] != 0 and number[alias[r]] == 0:
            last += 1
            number[alias[r]] = last
    for i in range(len(region_out)):
        region_out[i] = number[alias[region_out[i]]]


@device_function
def _stack_floors(field, region, count, overlap_out):
    """Regions above or below each region: list heads i32 [count + 1] and a pool of (region, next) rows."""
    head = np.full(count + 1, -1, np.int32)
    latest = np.zeros(count + 1, np.int32)
    pool, used = np.empty((1024, 2), np.int32), np.int64(0)
    for i in range(len(region)):
        r = region[i]
        if r == 0:
            continue
        for k in range(field.first[field.column[i]], field.first[field.column[i] + 1]):
            other = region[k]
            if k == i or other == 0 or other == latest[r]:
                continue
            latest[r] = other
            if other == r:
                overlap_out[r] = True
            if not _in_list(head, pool, r, other):
                pool = with_capacity(pool, used, 1)
                pool[used, 0], pool[used, 1] = other, head[r]
                head[r] = used
                used += 1
    return head, pool


@lean_function
def _in_list(head, pool, r, value):
    node = head[r]
    while node >= 0:
        if pool[node, 0] == value:
            return True
        node = pool[node, 1]
    return False


@lean_function
def _trace_neighbours(field, region, i, direction, ring_out):
    """Write the regions adjacent to the outline from cell i, in order, without repetitions; returns their number."""
    start, start_direction = i, direction
    adjacent = _adjacent_region(field, region, i, direction)
    ring_out[0, 0] = adjacent
    count = 1
    for _ in range(MAX_CONTOUR - 1):
        if is_region_edge(field, region, i, direction):
            other = _adjacent_region(field, region, i, direction)
            if other != adjacent:
                adjacent = other
                ring_out[count, 0] = adjacent
                count += 1
            direction = (direction + 1) & 3
        else:
            i = field.neighbours[i, direction]
            direction = (direction + 3) & 3
        if i == start and direction == start_direction:
            break
    return _without_repeats(np.int64(0), count, ring_out)


@lean_function
def _without_repeats(start, count, ring_out):
    """Remove entries that equal the next entry of the ring; returns the new length."""
    i = 0
    while i < count and count > 1:
        if ring_out[start + i, 0] == ring_out[start + (i + 1) % count, 0]:
            for k in range(i, count - 1):
                ring_out[start + k, 0] = ring_out[start + k + 1, 0]
            count -= 1
        else:
            i += 1
    return count


@lean_function
def _contains(ring, start, length, value):
    found = False
    for k in range(start, start + length):
        found = found or ring[k, 0] == value
    return found


@device_function
def _drop_small_islands(start, length, ring, min_area, size_out, alias_out):
    """Remove connected groups of regions with less than `min_area` cells in total."""
    visited = np.zeros(len(size_out), np.bool_)
    members = np.empty(len(size_out), np.int32)
    for r in range(1, len(size_out)):
        if visited[r] or size_out[r] == 0:
            continue
        members[0] = r
        visited[r] = True
        total, done, count = 0, 0, 1
        while done < count:
            member = members[done]
            done += 1
            total += size_out[member]
            for k in range(start[member], start[member] + length[member]):
                other = ring[k, 0]
                if other != 0 and not visited[other]:
                    visited[other] = True
                    members[count] = other
                    count += 1
        if total < min_area:
            for k in range(count):
                size_out[members[k]] = 0
                alias_out[members[k]] = 0


@lean_function
def _find_target(r, size, alias, overlap, start, length, ring, floor_head, floor_pool):
    """Alias of the smallest neighbour that region r can merge with; its own alias if there is none."""
    best, target = _SMALLEST, alias[r]
    for k in range(start[r], start[r] + length[r]):
        other = np.int64(ring[k, 0])
        if alias[other] == 0 or overlap[other] or size[other] >= best:
            continue
        if _can_merge(r, alias[other], start, length, ring, floor_head, floor_pool) and _can_merge(
            other, alias[r], start, length, ring, floor_head, floor_pool
        ):
            best, target = size[other], alias[other]
    return target


@lean_function
def _can_merge(r, other, start, length, ring, floor_head, floor_pool):
    """True if region r touches `other` along at most one stretch and is nowhere above or below it."""
    contacts = 0
    for k in range(start[r], start[r] + length[r]):
        contacts += ring[k, 0] == other
    return contacts <= 1 and not _in_list(floor_head, floor_pool, r, other)


@lean_function
def _join_rings(target, r, name, free, start_out, length_out, ring_out):
    """Splice region r's ring into the target's, at `ring_out[free:]`; False if they do not touch."""
    na, nb = length_out[target], length_out[r]
    a = b = -1
    for k in range(na):
        if ring_out[start_out[target] + k, 0] == name:
            a = k
            break
    for k in range(nb):
        if ring_out[start_out[r] + k, 0] == target:
            b = k
            break
    if a < 0 or b < 0:
        return False
    for k in range(na - 1):
        ring_out[free + k, 0] = ring_out[start_out[target] + (a + 1 + k) % na, 0]
    for k in range(nb - 1):
        ring_out[free + na - 1 + k, 0] = ring_out[start_out[r] + (b + 1 + k) % nb, 0]
    start_out[target] = free
    length_out[target] = _without_repeats(free, na + nb - 2, ring_out)
    length_out[r] = 0
    return True


@lean_function
def _join_floors(target, r, head_out, pool_out):
    """Move region r's list of floors to the target."""
    node = head_out[r]
    head_out[r] = -1
    while node >= 0:
        following = pool_out[node, 1]
        if not _in_list(head_out, pool_out, target, pool_out[node, 0]):
            pool_out[node, 1] = head_out[target]
            head_out[target] = node
        node = following


@lean_function
def _rename(old, new, start, floor_head, alias_out, length_out, ring_out, floor_pool_out):
    """Replace region `old` by `new` in all lists and rings."""
    for j in range(1, len(alias_out)):
        if alias_out[j] == 0:
            continue
        if alias_out[j] == old:
            alias_out[j] = new
        changed = False
        for k in range(start[j], start[j] + length_out[j]):
            if ring_out[k, 0] == old:
                ring_out[k, 0] = new
                changed = True
        if changed:
            length_out[j] = _without_repeats(start[j], length_out[j], ring_out)
        node = floor_head[j]
        while node >= 0:
            if floor_pool_out[node, 0] == old:
                floor_pool_out[node, 0] = new
            node = floor_pool_out[node, 1]


# Compact field: the open space above walkable spans; each cell is linked to its four neighbours

# Filters of the voxel field, which determine the spans that an agent can stand on

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
