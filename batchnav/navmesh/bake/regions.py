"""Regions: basins of the watershed without small islands, and with small basins merged into their neighbours."""

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.bake.growing import with_capacity
from batchnav.navmesh.bake.watershed import MAX_REGIONS, distance_field, watershed
from batchnav.runtime.kernels.decorators import cpu_function, device_function, lean_function

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
