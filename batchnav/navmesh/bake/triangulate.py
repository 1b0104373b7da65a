"""Ear clipping of a ring with integer corners, shortest cut first (O'Rourke, "Computational Geometry in C", ch. 1)."""

import numpy as np

from batchnav.navmesh.bake.plane import distance_square, meets, sees
from batchnav.runtime.kernels.decorators import lean_function


@lean_function
def triangulate(ring, index_out, ears_out, triangles_out):
    """Triangulate a ring of corners i32 [n, 3]; returns the number of triangles. Scratch: index i32 [n], ears bool [n].

    A ring that intersects itself may not be triangulated completely.
    """
    n = len(ring)
    for i in range(n):
        index_out[i] = i
    for i in range(n):
        middle = _next(i, n)
        ears_out[middle] = _is_cut(ring, index_out, i, _next(middle, n), n, True)
    count = np.int64(0)
    while n > 3:
        i = _shortest_ear(ring, index_out, ears_out, n)
        if i < 0:
            # Edges overlap, as at the cut to a hole: allow cuts along them.
            i = _shortest_loose_cut(ring, index_out, n)
            if i < 0:
                return count
        middle = _next(i, n)
        _emit(count, i, middle, _next(middle, n), index_out, triangles_out)
        count += 1
        n -= 1
        for k in range(middle, n):
            index_out[k], ears_out[k] = index_out[k + 1], ears_out[k + 1]
        if middle >= n:
            middle = 0
        i = _previous(middle, n)
        ears_out[i] = _is_cut(ring, index_out, _previous(i, n), middle, n, True)
        ears_out[middle] = _is_cut(ring, index_out, i, _next(middle, n), n, True)
    for k in range(3):
        triangles_out[count, k] = index_out[k]
    return count + 1


@lean_function
def _emit(count, a, b, c, index, triangles_out):
    triangles_out[count, 0], triangles_out[count, 1], triangles_out[count, 2] = index[a], index[b], index[c]


@lean_function
def _next(i, n):
    return i + 1 if i + 1 < n else 0


@lean_function
def _previous(i, n):
    return i - 1 if i > 0 else n - 1


@lean_function
def _shortest_ear(ring, index, ears, n):
    """Corner before the ear with the shortest cut, -1 for none."""
    best, shortest = -1, 0
    for i in range(n):
        middle = _next(i, n)
        if ears[middle]:
            length = distance_square(ring, index[i], index[_next(middle, n)])
            if best < 0 or length < shortest:
                best, shortest = i, length
    return best


@lean_function
def _shortest_loose_cut(ring, index, n):
    """Corner before the shortest cut that may touch edges, -1 for none. Measured one corner further, as in Recast."""
    best, shortest = -1, 0
    for i in range(n):
        after = _next(_next(i, n), n)
        if _is_cut(ring, index, i, after, n, False):
            length = distance_square(ring, index[i], index[_next(after, n)])
            if best < 0 or length < shortest:
                best, shortest = i, length
    return best


@lean_function
def _is_cut(ring, index, i, j, n, strict):
    """True if the line from corner i to j is inside the ring; with `strict` it must not touch an edge."""
    a, b = index[i], index[j]
    if not sees(ring, index[_previous(i, n)], a, index[_next(i, n)], b, strict):
        return False
    for k in range(n):
        following = _next(k, n)
        if k == i or following == i or k == j or following == j:
            continue
        if meets(ring, a, b, index[k], index[following], strict):
            return False
    return True
