"""Contours: outlines of regions, traced cell by cell and simplified to few corners.

Adjacent regions share their corners. Along walls the outline may deviate by the maximum error of the settings.
"""

from typing import NamedTuple

import numpy as np

from batchnav.navmesh.bake.growing import copy_row, first_rows, sort_keys, with_capacity
from batchnav.navmesh.bake.plane import distance_square, meets, same_place, sees, segment_distance_square
from batchnav.navmesh.bake.regions import MAX_CONTOUR, is_region_edge
from batchnav.runtime.kernels.decorators import cpu_function, lean_function

# Holes: a cut joins an inner outline of a region to the outer outline, which gives one simple ring

_NONE = np.int64(-1)
_CORNER_BITS = 24
_CORNER = (1 << _CORNER_BITS) - 1


def merge_holes(contours):
    """`Contours` in which every hole is joined to its region's outline."""
    corners, start, length = _merge_all(contours.corners, contours.region, contours.start, contours.length)
    return contours._replace(corners=corners, start=start, length=length)


@cpu_function
def _merge_all(corners, region, start_out, length_out):
    """Corners, starts and lengths after joining; a joined hole has length 0."""
    num_regions = 0
    for c in range(len(start_out)):
        num_regions = max(num_regions, region[c])
    outline = np.full(num_regions + 1, -1, np.int32)
    is_hole = np.zeros(len(start_out), np.bool_)
    num_holes = np.zeros(num_regions + 1, np.int32)
    for c in range(len(start_out)):
        is_hole[c] = _doubled_area(corners, start_out[c], length_out[c]) < -2  # half a cell does not count
        if is_hole[c]:
            num_holes[region[c]] += 1
        else:
            outline[region[c]] = c
    used = len(corners)
    holes = np.empty(len(start_out), np.int32)
    for r in range(1, num_regions + 1):
        if num_holes[r] == 0 or outline[r] < 0:
            continue
        count = np.int64(0)
        for c in range(len(start_out)):
            if is_hole[c] and region[c] == r:
                holes[count] = c
                count += 1
        _sort_holes(corners, start_out, length_out, count, holes)
        needed = length_out[outline[r]]
        for k in range(count):
            needed += length_out[holes[k]]
        diagonals = np.zeros(needed + 2 * count, np.int64)
        for k in range(count):
            # Each joined ring is appended as a new ring.
            total = length_out[outline[r]] + length_out[holes[k]] + 2
            corners = with_capacity(corners, used, total)
            at, hole_at = _find_cut(corners, start_out, length_out, outline[r], holes, k, count, diagonals)
            if at >= 0:
                _join(outline[r], holes[k], at, hole_at, used, corners, start_out, length_out)
                used += total
    return first_rows(corners, used), start_out, length_out


@lean_function
def _doubled_area(corners, start, length):
    """Twice the signed area of a ring; negative for a hole."""
    area = 0
    j = start + length - 1
    for i in range(start, start + length):
        area += corners[i, 0] * corners[j, 2] - corners[j, 0] * corners[i, 2]
        j = i
    return area


@lean_function
def _leftmost(corners, start, length):
    """Index within a ring of the corner with the lowest x, then z."""
    best = 0
    for k in range(1, length):
        x, z = corners[start + k, 0], corners[start + k, 2]
        if x < corners[start + best, 0] or (x == corners[start + best, 0] and z < corners[start + best, 2]):
            best = k
    return best


@lean_function
def _sort_holes(corners, start, length, count, holes_out):
    """Order holes by their leftmost corners (stable insertion sort, for few holes)."""
    for i in range(1, count):
        hole = holes_out[i]
        p = start[hole] + _leftmost(corners, start[hole], length[hole])
        k = i
        while k > 0:
            q = start[holes_out[k - 1]] + _leftmost(corners, start[holes_out[k - 1]], length[holes_out[k - 1]])
            if corners[q, 0] < corners[p, 0] or (corners[q, 0] == corners[p, 0] and corners[q, 2] <= corners[p, 2]):
                break
            holes_out[k] = holes_out[k - 1]
            k -= 1
        holes_out[k] = hole


@lean_function
def _find_cut(corners, start, length, outline, holes, which, num_holes, diagonals_out):
    """Shortest cut from a hole's corner to the outline without crossings: (outline corner, hole corner), or -1.

    `diagonals_out` has keys (squared length and outline corner), which persist between holes: as in Recast, edges at
    the corner of key `which` do not block a cut.
    """
    hole = holes[which]
    first, n = start[outline], length[outline]
    hole_corner = _leftmost(corners, start[hole], length[hole])
    for _ in range(length[hole]):
        p = start[hole] + hole_corner
        count = np.int64(0)
        for k in range(n):
            before, after = first + (k - 1 if k > 0 else n - 1), first + (k + 1 if k + 1 < n else 0)
            if sees(corners, before, first + k, after, p, True):
                diagonals_out[count] = distance_square(corners, p, first + k) << _CORNER_BITS | k
                count += 1
        sort_keys(count, diagonals_out)
        for k in range(count):
            corner = diagonals_out[k] & _CORNER
            q = first + corner
            blocked = _blocks(corners, first, n, diagonals_out[which] & _CORNER, q, p)
            other = which
            while other < num_holes and not blocked:
                blocked = _blocks(corners, start[holes[other]], length[holes[other]], _NONE, q, p)
                other += 1
            if not blocked:
                return corner, hole_corner
        hole_corner = (hole_corner + 1) % length[hole]
    return -1, -1


@lean_function
def _blocks(corners, start, length, skip, a, b):
    """True if an edge of a ring, except those at corner `skip` or at the ends, intersects segment ab."""
    for k in range(length):
        following = k + 1 if k + 1 < length else 0
        if k != skip and following != skip and meets(corners, a, b, start + k, start + following, True):
            return True
    return False


@lean_function
def _join(outline, hole, at, hole_at, free, corners_out, start_out, length_out):
    """Append at `free` the outline from corner `at` back to it, then the hole from `hole_at` back to it."""
    _append_ring(start_out[outline], length_out[outline], at, free, corners_out)
    _append_ring(start_out[hole], length_out[hole], hole_at, free + length_out[outline] + 1, corners_out)
    start_out[outline] = free
    length_out[outline] += length_out[hole] + 2
    length_out[hole] = 0


@lean_function
def _append_ring(start, length, first, free, corners_out):
    """Append a ring from its corner `first` back to that corner."""
    for k in range(length + 1):
        source = start + (first + k) % length
        copy_row(corners_out, source, free + k, corners_out)


_REGION_MASK = 0xFFFF
_AREA_BORDER = 0x20000  # the adjacent cell is closed open space, not a wall


class Contours(NamedTuple):
    """K closed outlines, clockwise seen from above, with holes joined to them."""

    corners: np.ndarray
    """i32 [N, 3], (x cell, floor, z cell)."""
    start: np.ndarray
    """i32 [K], first corner."""
    length: np.ndarray
    """i32 [K]: number of corners, 0 for a hole that was joined to its outline."""
    region: np.ndarray
    """i32 [K]."""


def build_contours(field, region: np.ndarray, width: int, max_error: np.float32, max_length: int) -> Contours:
    """Outlines of all regions; `region` i32 [C] holds each cell's region; error and edge length are in cells."""
    corners, table = _trace_all(field, region, width, max_error, max_length)
    return merge_holes(Contours(corners, table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()))


@cpu_function
def _trace_all(field, region, width, max_error, max_length):
    """Corners i32 [N, 3] and rows (start, length, region)."""
    edges = np.zeros(len(region), np.uint8)
    for i in range(len(region)):
        if region[i] != 0:
            for direction in range(4):
                if is_region_edge(field, region, i, direction):
                    edges[i] |= 1 << direction
    raw = np.empty((MAX_CONTOUR + 1, 4), np.int32)
    simple = np.empty((MAX_CONTOUR + 2, 4), np.int32)
    corners, used = np.empty((1024, 3), np.int32), np.int64(0)
    table, count = np.empty((64, 3), np.int32), np.int64(0)
    for i in range(len(region)):
        if edges[i] == 0 or edges[i] == 0xF:
            edges[i] = 0
            continue
        num_raw = _trace_outline(i, field, region, width, edges, raw)
        num_simple = _simplify(raw, num_raw, max_error, max_length, simple)
        if num_simple < 3:
            continue
        corners = with_capacity(corners, used, num_simple)
        table = with_capacity(table, count, 1)
        table[count, 0], table[count, 1], table[count, 2] = used, num_simple, region[i]
        count += 1
        for k in range(num_simple):
            copy_row(simple, k, used + k, corners)
        used += num_simple
    return first_rows(corners, used), first_rows(table, count)


@lean_function
def _trace_outline(i, field, region, width, edges_out, raw_out):
    """Trace an outline from cell i and clear its edges; returns the number of rows written.

    A row is (x, floor, z, adjacent region | _AREA_BORDER).
    """
    direction = 0
    while not edges_out[i] & (1 << direction):
        direction += 1
    start, start_direction = i, direction
    area = field.area[i]
    count = 0
    for _ in range(MAX_CONTOUR - 1):
        if edges_out[i] & (1 << direction):
            z, x = divmod(field.column[i], width)
            raw_out[count, 0] = x + (direction == 1 or direction == 2)
            raw_out[count, 1] = _corner_floor(field, i, direction)
            raw_out[count, 2] = z + (direction <= 1)
            adjacent = field.neighbours[i, direction]
            mark = 0
            if adjacent >= 0:
                mark = region[adjacent]
                if field.area[adjacent] != area:
                    mark |= _AREA_BORDER
            raw_out[count, 3] = mark
            count += 1
            edges_out[i] ^= 1 << direction
            direction = (direction + 1) & 3
        else:
            adjacent = field.neighbours[i, direction]
            if adjacent < 0:
                break
            i = adjacent
            direction = (direction + 3) & 3
        if i == start and direction == start_direction:
            break
    return count


@lean_function
def _corner_floor(field, i, direction):
    """The highest floor of the up to four cells around the corner at the end of edge `direction` of cell i."""
    turned = (direction + 1) & 3
    floor = field.floor[i]
    k = field.neighbours[i, direction]
    if k >= 0:
        floor = max(floor, field.floor[k])
        k = field.neighbours[k, turned]
        if k >= 0:
            floor = max(floor, field.floor[k])
    k = field.neighbours[i, turned]
    if k >= 0:
        floor = max(floor, field.floor[k])
        k = field.neighbours[k, direction]
        if k >= 0:
            floor = max(floor, field.floor[k])
    return floor


@lean_function
def _simplify(raw, num_raw, max_error, max_length, simple_out):
    """Simplify an outline: rows (x, floor, z, index of the raw row). Returns their number."""
    count = _mandatory_corners(raw, num_raw, simple_out)
    if count == 0:
        count = _extreme_corners(raw, num_raw, simple_out)
    i = np.int64(0)
    while i < count:
        far = _farthest(raw, num_raw, simple_out, count, i, max_error * max_error)
        if far >= 0:
            count = _insert(raw, count, i + 1, far, simple_out)
        else:
            i += 1
    i = np.int64(0)
    while max_length > 0 and i < count:
        middle = _middle_of_long_edge(raw, num_raw, simple_out, count, i, max_length)
        if middle >= 0:
            count = _insert(raw, count, i + 1, middle, simple_out)
        else:
            i += 1
    return _without_repeated_corners(count, simple_out)


@lean_function
def _insert(raw, count, at, index, simple_out):
    """Insert raw row `index` as corner `at`; returns the new count."""
    for k in range(count, at, -1):
        copy_row(simple_out, k - 1, k, simple_out)
    copy_row(raw, index, at, simple_out)
    simple_out[at, 3] = index
    return count + 1


@lean_function
def _mandatory_corners(raw, num_raw, simple_out):
    """Corners where the adjacent region changes; none if no region is adjacent."""
    connected = False
    for i in range(num_raw):
        connected = connected or raw[i, 3] & _REGION_MASK != 0
    count = np.int64(0)
    if connected:
        for i in range(num_raw):
            if raw[i, 3] != raw[(i + 1) % num_raw, 3]:
                count = _insert(raw, count, count, i, simple_out)
    return count


@lean_function
def _extreme_corners(raw, num_raw, simple_out):
    """The lowest corner and the highest, by x, then z."""
    low = high = np.int64(0)
    for i in range(1, num_raw):
        x, z = raw[i, 0], raw[i, 2]
        if x < raw[low, 0] or (x == raw[low, 0] and z < raw[low, 2]):
            low = i
        if x > raw[high, 0] or (x == raw[high, 0] and z > raw[high, 2]):
            high = i
    count = np.int64(0)
    count = _insert(raw, count, count, low, simple_out)
    return _insert(raw, count, count, high, simple_out)


@lean_function
def _forwards(points, a, b):
    """True if b comes after a by x, then z; it makes the treatment of segments independent of direction."""
    return points[b, 0] > points[a, 0] or (points[b, 0] == points[a, 0] and points[b, 2] > points[a, 2])


@lean_function
def _farthest(raw, num_raw, simple, count, i, max_square):
    """Raw row with the largest distance from the edge after corner i, if on a wall and above the maximum, else -1."""
    a, b = i, (i + 1) % count
    if _forwards(simple, a, b):
        step, k, end = 1, (simple[a, 3] + 1) % num_raw, simple[b, 3]
    else:
        step, k, end = num_raw - 1, (simple[b, 3] + num_raw - 1) % num_raw, simple[a, 3]
        a, b = b, a
    if raw[k, 3] & _REGION_MASK != 0 and raw[k, 3] & _AREA_BORDER == 0:
        return -1
    ax, az = np.float32(simple[a, 0]), np.float32(simple[a, 2])
    bx, bz = np.float32(simple[b, 0]), np.float32(simple[b, 2])
    farthest, largest = -1, np.float32(0.0)
    while k != end:
        square = segment_distance_square(np.float32(raw[k, 0]), np.float32(raw[k, 2]), ax, az, bx, bz)
        if square > largest:
            farthest, largest = k, square
        k = (k + step) % num_raw
    return farthest if largest > max_square else -1


@lean_function
def _middle_of_long_edge(raw, num_raw, simple, count, i, max_length):
    """Middle raw row of the edge after corner i, if it is a wall and longer than `max_length`, else -1."""
    b = (i + 1) % count
    first, last = simple[i, 3], simple[b, 3]
    if raw[(first + 1) % num_raw, 3] & _REGION_MASK != 0:
        return -1
    between = last - first + (num_raw if last < first else 0)
    if distance_square(simple, i, b) <= max_length * max_length or between <= 1:
        return -1
    return (first + (between if _forwards(simple, i, b) else between + 1) // 2) % num_raw


@lean_function
def _without_repeated_corners(count, simple_out):
    """Remove corners that coincide with the next corner; returns the new count."""
    i = 0
    while i < count:
        following = i + 1 if i + 1 < count else 0
        if same_place(simple_out, i, following):
            for k in range(i, count - 1):
                copy_row(simple_out, k + 1, k, simple_out)
            count -= 1
        i += 1
    return count
