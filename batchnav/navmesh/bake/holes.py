"""Holes: a cut joins an inner outline of a region to the outer outline, which gives one simple ring."""

import numpy as np

from batchnav.navmesh.bake.growing import copy_row, first_rows, sort_keys, with_capacity
from batchnav.navmesh.bake.plane import distance_square, meets, sees
from batchnav.runtime.kernels.decorators import cpu_function, lean_function

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
