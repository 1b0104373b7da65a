"""Convex polygons: contours are triangulated, then triangles are merged, longest shared edge first."""

from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.bake.growing import copy_row, first_rows
from batchnav.navmesh.bake.plane import distance_square, meets, sees
from batchnav.runtime.kernels.decorators import cpu_function, device_function, lean_function

# Ear clipping of a ring with integer corners, shortest cut first (O'Rourke, "Computational Geometry in C", ch. 1)


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


MAX_CORNERS = 0xFFFD
"""Largest number of contour corners, which have 16-bit numbers."""
NO_VERTEX = -1
_BUCKETS = 1 << 12


class PolygonMesh(NamedTuple):
    """P convex polygons, clockwise seen from above."""

    vertices: np.ndarray
    """i32 [V, 3]: (x cell, floor, z cell)."""
    corners: np.ndarray
    """i32 [P, vertices_per_polygon], vertices, padded with -1."""
    count: np.ndarray  # type: ignore[assignment]  # hides tuple.count
    """i32 [P], number of corners."""
    neighbours: np.ndarray
    """i32 [P, vertices_per_polygon]: polygon across the edge that starts at a corner, -1 for a wall."""
    region: np.ndarray
    """i32 [P]."""


def build_polygons(contours, vertices_per_polygon: int) -> PolygonMesh:
    """Convex polygons of all contours. NavMeshError where there are more than MAX_CORNERS corners."""
    total = int(contours.length[contours.length >= 3].sum())
    if total > MAX_CORNERS:
        raise NavMeshError(
            f"mesh: found {total} contour corners, expected at most {MAX_CORNERS}: use a larger cell_size or "
            "edge_max_error"
        )
    vertices, corners, count, region = _build(*contours, total, vertices_per_polygon)
    count, region = count[: len(corners)], region[: len(corners)]
    return PolygonMesh(vertices, corners, count, _link(corners, count, len(vertices)), region)


@cpu_function
def _build(corners, start, length, region, total, size):
    """Vertices i32 [V, 3], polygons i32 [P, size], and corner counts and regions, i32 [total], of which P are used."""
    vertices, num_vertices = np.empty((total, 3), np.int32), np.int64(0)
    first_vertex, next_vertex = np.full(_BUCKETS, -1, np.int32), np.empty(total, np.int32)
    polygons = np.full((total, size), NO_VERTEX, np.int32)
    counts, regions = np.zeros(total, np.int32), np.zeros(total, np.int32)
    num_polygons = np.int64(0)
    longest = 3
    for c in range(len(start)):
        longest = max(longest, length[c])
    index, ears = np.empty(longest, np.int32), np.empty(longest, np.bool_)
    triangles = np.empty((longest, 3), np.int32)
    for c in range(len(start)):
        if length[c] < 3:
            continue
        ring = corners[start[c] : start[c] + length[c]]
        num_triangles = triangulate(ring, index, ears, triangles)
        for k in range(len(ring)):
            index[k], num_vertices = _add_vertex(ring[k], num_vertices, vertices, first_vertex, next_vertex)
        first, last = num_polygons, num_polygons
        for k in range(num_triangles):
            a, b, d = triangles[k, 0], triangles[k, 1], triangles[k, 2]
            if a != b and a != d and b != d:
                for i in range(3, size):
                    polygons[last, i] = NO_VERTEX
                polygons[last, 0], polygons[last, 1], polygons[last, 2] = index[a], index[b], index[d]
                counts[last] = 3
                last += 1
        if size > 3:
            last = first + _merge(vertices, polygons[first:last], counts[first:last])
        for k in range(first, last):
            regions[k] = region[c]
        num_polygons = last
    return first_rows(vertices, num_vertices), first_rows(polygons, num_polygons), counts, regions


@lean_function
def _add_vertex(corner, count, vertices_out, first_out, following_out):
    """Vertex at a corner's cell within two levels of height, created if needed; also the new count."""
    bucket = (np.int64(0x8DA6B343) * corner[0] + np.int64(0xCB1AB31F) * corner[2]) & (_BUCKETS - 1)
    i = first_out[bucket]
    while i >= 0:
        x, y, z = vertices_out[i, 0], vertices_out[i, 1], vertices_out[i, 2]
        if x == corner[0] and z == corner[2] and abs(y - corner[1]) <= 2:
            return i, count
        i = following_out[i]
    for a in range(3):
        vertices_out[count, a] = corner[a]
    following_out[count] = first_out[bucket]
    first_out[bucket] = count
    return np.int32(count), count + 1


@device_function
def _merge(vertices, polygons_out, counts_out):
    """Merge polygons in place while two share an edge and their union is convex; returns the new number.

    Each step merges the first pair with the longest shared edge. `best` stores each polygon's best partner with a
    higher number, so that a step updates few pairs.
    """
    n = len(polygons_out)
    best = np.zeros((n, 2), np.int64)
    for j in range(n):
        _find_partner(polygons_out, counts_out, vertices, n, j, best)
    while True:
        pa, value = np.int64(-1), np.int64(0)
        for j in range(n - 1):
            if best[j, 0] > value:
                pa, value = j, best[j, 0]
        if pa < 0:
            return n
        pb = best[pa, 1]
        _, ea, eb = _merge_value(polygons_out, counts_out, vertices, pa, pb)
        _merge_pair(pa, pb, ea, eb, polygons_out, counts_out)
        n -= 1
        counts_out[pb] = counts_out[n]
        copy_row(polygons_out, n, pb, polygons_out)
        counts_out[n] = 0
        for j in range(n):
            if j == pa or j == pb or best[j, 1] == pa or best[j, 1] == pb or best[j, 1] == n:
                _find_partner(polygons_out, counts_out, vertices, n, j, best)
            else:
                _offer_partner(polygons_out, counts_out, vertices, j, pa, best)
                _offer_partner(polygons_out, counts_out, vertices, j, pb, best)


@lean_function
def _find_partner(polygons, counts, vertices, n, j, best_out):
    """Write the best partner of polygon j among those after it to row j of `best_out`: (value, partner)."""
    best_out[j, 0], best_out[j, 1] = 0, -1
    for k in range(j + 1, n):
        value, _, _ = _merge_value(polygons, counts, vertices, j, k)
        if value > best_out[j, 0]:
            best_out[j, 0], best_out[j, 1] = value, k


@lean_function
def _offer_partner(polygons, counts, vertices, j, k, best_out):
    """Update polygon j's best partner after a change of polygon k."""
    if k > j:
        value, _, _ = _merge_value(polygons, counts, vertices, j, k)
        if value > best_out[j, 0] or (value == best_out[j, 0] and value > 0 and k < best_out[j, 1]):
            best_out[j, 0], best_out[j, 1] = value, k


@lean_function
def _merge_value(polygons, counts, vertices, pa, pb):
    """Squared length of the shared edge of two polygons if they can merge, else -1; and that edge in both polygons."""
    na, nb = counts[pa], counts[pb]
    if na + nb - 2 > polygons.shape[1]:
        return np.int64(-1), -1, -1
    ea = eb = -1
    for i in range(na):
        a0, a1 = polygons[pa, i], polygons[pa, i + 1 if i + 1 < na else 0]
        for j in range(nb):
            b0, b1 = polygons[pb, j], polygons[pb, j + 1 if j + 1 < nb else 0]
            if (a0 == b0 and a1 == b1) or (a0 == b1 and a1 == b0):
                ea, eb = i, j
                break
    if ea < 0:
        return np.int64(-1), -1, -1
    a, b = polygons[pa, ea], polygons[pa, (ea + 1) % na]
    if not _turns_left(vertices, polygons[pa, (ea + na - 1) % na], a, polygons[pb, (eb + 2) % nb]):
        return np.int64(-1), -1, -1
    if not _turns_left(vertices, polygons[pb, (eb + nb - 1) % nb], polygons[pb, eb], polygons[pa, (ea + 2) % na]):
        return np.int64(-1), -1, -1
    dx, dz = np.int64(vertices[a, 0] - vertices[b, 0]), np.int64(vertices[a, 2] - vertices[b, 2])
    return dx * dx + dz * dz, ea, eb


@lean_function
def _turns_left(vertices, a, b, c):
    """True if c is left of the line from a to b."""
    ux, uz = vertices[b, 0] - vertices[a, 0], vertices[b, 2] - vertices[a, 2]
    vx, vz = vertices[c, 0] - vertices[a, 0], vertices[c, 2] - vertices[a, 2]
    return ux * vz - vx * uz < 0


@device_function
def _merge_pair(pa, pb, ea, eb, polygons_out, counts_out):
    """Replace polygon pa by the union: corners of pa from the end of the shared edge, then corners of pb."""
    na, nb = counts_out[pa], counts_out[pb]
    merged = np.full((1, polygons_out.shape[1]), NO_VERTEX, np.int32)
    for i in range(na - 1):
        merged[0, i] = polygons_out[pa, (ea + 1 + i) % na]
    for i in range(nb - 1):
        merged[0, na - 1 + i] = polygons_out[pb, (eb + 1 + i) % nb]
    copy_row(merged, 0, pa, polygons_out)
    counts_out[pa] = na + nb - 2


@cpu_function
def _link(polygons, counts, num_vertices):
    """Polygon across each edge, -1 for none; an edge links the first two polygons that have it."""
    neighbours = np.full(polygons.shape, -1, np.int32)
    first = np.full(num_vertices, -1, np.int32)
    edges, following, count = np.empty((polygons.size, 3), np.int32), np.empty(polygons.size, np.int32), 0
    for p in range(len(polygons)):
        for i in range(counts[p]):
            a, b = polygons[p, i], polygons[p, (i + 1) % counts[p]]
            if a < b:
                edges[count, 0], edges[count, 1], edges[count, 2] = b, p, i
                following[count] = first[a]
                first[a] = count
                count += 1
    taken = np.zeros(count, np.bool_)
    for p in range(len(polygons)):
        for i in range(counts[p]):
            a, b = polygons[p, i], polygons[p, (i + 1) % counts[p]]
            if a > b:
                e = first[b]
                while e >= 0 and (edges[e, 0] != a or taken[e]):
                    e = following[e]
                if e >= 0 and edges[e, 1] != p:
                    taken[e] = True
                    neighbours[edges[e, 1], edges[e, 2]] = p
                    neighbours[p, i] = edges[e, 1]
    return neighbours
