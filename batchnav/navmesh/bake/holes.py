"""Holes: an inner outline of a region is joined to the outer one by a cut, so that the whole is one simple ring."""

import numpy as np

from batchnav.navmesh.bake.growing import copy_row, first_rows, room_for, sort_keys
from batchnav.navmesh.bake.plane import distance_square, meets, sees
from batchnav.runtime.kernels import cpu_function, lean_function

_NONE = np.int64(-1)
_CORNER_BITS = 24
_CORNER = (1 << _CORNER_BITS) - 1


def merge_holes(contours):
    """The same `Contours` with every hole cut open and joined to its region's outline."""
    corners, start, length = _merge_all(*contours)
    return contours._replace(corners=corners, start=start, length=length)


@cpu_function
def _merge_all(corners, start, length, region):
    """Corners, starts and lengths after joining; a joined hole has length 0."""
    num_regions = 0
    for c in range(len(start)):
        num_regions = max(num_regions, region[c])
    outline = np.full(num_regions + 1, -1, np.int32)
    is_hole = np.zeros(len(start), np.bool_)
    num_holes = np.zeros(num_regions + 1, np.int32)
    for c in range(len(start)):
        is_hole[c] = _doubled_area(corners, start[c], length[c]) < -2  # a sliver of one cell's half is none
        if is_hole[c]:
            num_holes[region[c]] += 1
        else:
            outline[region[c]] = c
    used = len(corners)
    holes = np.empty(len(start), np.int32)
    for r in range(1, num_regions + 1):
        if num_holes[r] == 0 or outline[r] < 0:
            continue
        count = np.int64(0)
        for c in range(len(start)):
            if is_hole[c] and region[c] == r:
                holes[count] = c
                count += 1
        _sort_holes(corners, start, length, holes, count)
        needed = length[outline[r]]
        for k in range(count):
            needed += length[holes[k]]
        diagonals = np.zeros(needed + 2 * count, np.int64)
        for k in range(count):
            # Each joined ring is written anew behind all others.
            total = length[outline[r]] + length[holes[k]] + 2
            corners = room_for(corners, used, total)
            at, hole_at = _find_cut(corners, start, length, outline[r], holes, k, count, diagonals)
            if at >= 0:
                _join(corners, start, length, outline[r], holes[k], at, hole_at, used)
                used += total
    return first_rows(corners, used), start, length


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
    """Index, within a ring, of its lowest corner by x, then z."""
    best = 0
    for k in range(1, length):
        x, z = corners[start + k, 0], corners[start + k, 2]
        if x < corners[start + best, 0] or (x == corners[start + best, 0] and z < corners[start + best, 2]):
            best = k
    return best


@lean_function
def _sort_holes(corners, start, length, holes, count):
    """Order holes by their leftmost corners (a stable insertion sort: there are few)."""
    for i in range(1, count):
        hole = holes[i]
        p = start[hole] + _leftmost(corners, start[hole], length[hole])
        k = i
        while k > 0:
            q = start[holes[k - 1]] + _leftmost(corners, start[holes[k - 1]], length[holes[k - 1]])
            if corners[q, 0] < corners[p, 0] or (corners[q, 0] == corners[p, 0] and corners[q, 2] <= corners[p, 2]):
                break
            holes[k] = holes[k - 1]
            k -= 1
        holes[k] = hole


@lean_function
def _find_cut(corners, start, length, outline, holes, which, num_holes, diagonals):
    """The shortest cut from a hole's corner to the outline that crosses nothing: (outline corner, hole corner) or -1.

    `diagonals` holds keys, squared length and outline corner, and keeps them between holes: as in Recast, edges at the
    corner of key `which` do not block a cut.
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
                diagonals[count] = distance_square(corners, p, first + k) << _CORNER_BITS | k
                count += 1
        sort_keys(diagonals, count)
        for k in range(count):
            corner = diagonals[k] & _CORNER
            q = first + corner
            blocked = _blocks(corners, first, n, diagonals[which] & _CORNER, q, p)
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
    """Whether a ring's edge, other than those at corner `skip` or at the ends, meets segment ab."""
    for k in range(length):
        following = k + 1 if k + 1 < length else 0
        if k != skip and following != skip and meets(corners, a, b, start + k, start + following, True):
            return True
    return False


@lean_function
def _join(corners, start, length, outline, hole, at, hole_at, free):
    """Write the outline from corner `at` round to it, then the hole from `hole_at` round to it, at `corners[free:]`."""
    _append_ring(corners, start[outline], length[outline], at, free)
    _append_ring(corners, start[hole], length[hole], hole_at, free + length[outline] + 1)
    start[outline] = free
    length[outline] += length[hole] + 2
    length[hole] = 0


@lean_function
def _append_ring(corners, start, length, first, free):
    """Copy a ring from its corner `first` round to that corner again."""
    for k in range(length + 1):
        source = start + (first + k) % length
        copy_row(corners, source, corners, free + k)
