"""Holes: an inner outline of a region is joined to the outer one by a cut, so that the whole is one simple ring."""

import numpy as np

from batchnav.device import cpu_function, device_function
from batchnav.navmesh.bake.growing import copy_row, first_rows, room_for, sort_keys
from batchnav.navmesh.bake.plane import same_place, sees, touches

_NONE = np.int64(-1)


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
        diagonals = np.zeros((needed + 2 * count, 2), np.int64)
        for k in range(count):
            # Each joined ring is written anew behind all others.
            total = length[outline[r]] + length[holes[k]] + 2
            corners = room_for(corners, used, total)
            at, hole_at = _find_cut(corners, start, length, outline[r], holes, k, count, diagonals)
            if at >= 0:
                _join(corners, start, length, outline[r], holes[k], at, hole_at, used)
                used += total
    return first_rows(corners, used), start, length


@device_function
def _doubled_area(corners, start, length):
    """Twice the signed area of a ring; negative for a hole."""
    area = 0
    j = start + length - 1
    for i in range(start, start + length):
        area += corners[i, 0] * corners[j, 2] - corners[j, 0] * corners[i, 2]
        j = i
    return area


@device_function
def _leftmost(corners, start, length):
    """Index, within a ring, of its lowest corner by x, then z."""
    best = 0
    for k in range(1, length):
        x, z = corners[start + k, 0], corners[start + k, 2]
        if x < corners[start + best, 0] or (x == corners[start + best, 0] and z < corners[start + best, 2]):
            best = k
    return best


@device_function
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


@device_function
def _find_cut(corners, start, length, outline, holes, which, num_holes, diagonals):
    """The shortest cut from a hole's corner to the outline that crosses nothing: (outline corner, hole corner) or -1.

    `diagonals` holds rows (outline corner, squared length) and keeps them between holes: as in Recast, edges at the
    corner of row `which` do not block a cut.
    """
    hole = holes[which]
    first, n = start[outline], length[outline]
    hole_corner = _leftmost(corners, start[hole], length[hole])
    for _ in range(length[hole]):
        p = corners[start[hole] + hole_corner]
        count = np.int64(0)
        for k in range(n):
            before, after = corners[first + (k - 1 if k > 0 else n - 1)], corners[first + (k + 1 if k + 1 < n else 0)]
            q = corners[first + k]
            if sees(before, q, after, p, True):
                dx, dz = q[0] - p[0], q[2] - p[2]
                diagonals[count, 0], diagonals[count, 1] = k, dx * dx + dz * dz
                count += 1
        _sort_diagonals(diagonals, count)
        for k in range(count):
            q = corners[first + diagonals[k, 0]]
            blocked = _blocks(corners, first, n, diagonals[which, 0], q, p)
            other = which
            while other < num_holes and not blocked:
                blocked = _blocks(corners, start[holes[other]], length[holes[other]], _NONE, q, p)
                other += 1
            if not blocked:
                return diagonals[k, 0], hole_corner
        hole_corner = (hole_corner + 1) % length[hole]
    return -1, -1


@device_function
def _sort_diagonals(diagonals, count):
    """Order rows by length, equal ones by corner."""
    keys = np.empty(count, np.int64)
    for k in range(count):
        keys[k] = (diagonals[k, 1] << 24) | diagonals[k, 0]
    sort_keys(keys, count)
    for k in range(count):
        diagonals[k, 0], diagonals[k, 1] = keys[k] & 0xFFFFFF, keys[k] >> 24


@device_function
def _blocks(corners, start, length, skip, a, b):
    """Whether a ring's edge, other than those at corner `skip` or at the ends, meets segment ab."""
    for k in range(length):
        following = k + 1 if k + 1 < length else 0
        if k == skip or following == skip:
            continue
        c, d = corners[start + k], corners[start + following]
        if same_place(a, c) or same_place(b, c) or same_place(a, d) or same_place(b, d):
            continue
        if touches(a, b, c, d):
            return True
    return False


@device_function
def _join(corners, start, length, outline, hole, at, hole_at, free):
    """Write the outline from corner `at` round to it, then the hole from `hole_at` round to it, at `corners[free:]`."""
    _append_ring(corners, start[outline], length[outline], at, free)
    _append_ring(corners, start[hole], length[hole], hole_at, free + length[outline] + 1)
    start[outline] = free
    length[outline] += length[hole] + 2
    length[hole] = 0


@device_function
def _append_ring(corners, start, length, first, free):
    """Copy a ring from its corner `first` round to that corner again."""
    for k in range(length + 1):
        source = start + (first + k) % length
        copy_row(corners, source, corners, free + k)
