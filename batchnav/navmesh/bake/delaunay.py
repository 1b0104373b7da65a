"""Triangulation of a detail mesh: of the rim only, or Delaunay with interior points."""

import numpy as np

from batchnav.navmesh.bake.growing import copy_row
from batchnav.navmesh.bake.plane import distance_square, turn
from batchnav.runtime.kernels.decorators import lean_function

_OPEN, _RIM = np.int32(-1), np.int32(-2)  # side of an edge without a face yet; side on the rim
_FAR = np.float32(3.4e38)


@lean_function
def _distance(points, a, b):
    return np.sqrt(distance_square(points, a, b))


@lean_function
def hull_triangles(points, hull, num_hull, num_corners, triangles_out):
    """Triangulate a convex polygon with points on its edges; returns the number of triangles.

    Starts at the ear of least perimeter and adds triangles on the side with the shorter new edges. Only the first
    `num_corners` points, the polygon's corners, can be the tip of the ear.
    """
    start, left, right = 0, 1, num_hull - 1
    shortest = _FAR
    for i in range(num_hull):
        if hull[i] >= num_corners:
            continue
        before, after = (i - 1 if i > 0 else num_hull - 1), (i + 1 if i + 1 < num_hull else 0)
        p, c, n = hull[before], hull[i], hull[after]
        perimeter = _distance(points, p, c) + _distance(points, c, n) + _distance(points, n, p)
        if perimeter < shortest:
            start, left, right, shortest = i, after, before, perimeter
    count = np.int64(0)
    _emit(count, hull[start], hull[left], hull[right], triangles_out)
    count += 1
    while (left + 1) % num_hull != right:
        next_left, next_right = (left + 1) % num_hull, (right + num_hull - 1) % num_hull
        a, b, c, d = hull[left], hull[next_left], hull[right], hull[next_right]
        by_left = _distance(points, a, b) + _distance(points, b, c)
        by_right = _distance(points, c, d) + _distance(points, a, d)
        if by_left < by_right:
            _emit(count, a, b, c, triangles_out)
            left = next_left
        else:
            _emit(count, a, d, c, triangles_out)
            right = next_right
        count += 1
    return count


@lean_function
def _emit(t, a, b, c, triangles_out):
    triangles_out[t, 0], triangles_out[t, 1], triangles_out[t, 2] = a, b, c


@lean_function
def retriangulate(points, count, hull, num_hull, edges_out, triangles_out):
    """Delaunay triangulation of `count` points inside a rim; returns the number of triangles.

    `edges_out` i32 [>= 10 * count, 4] is scratch: rows (from, to, face on the left, face on the right).
    """
    num_edges, num_faces = np.int64(0), np.int64(0)
    j = num_hull - 1
    for i in range(num_hull):
        num_edges = _add_edge(hull[j], hull[i], _RIM, _OPEN, num_edges, 10 * count, edges_out)
        j = i
    current = np.int64(0)
    while current < num_edges:
        for side in range(2, 4):
            if edges_out[current, side] == _OPEN:
                num_edges, num_faces = _complete(current, points, count, num_edges, num_faces, edges_out)
        current += 1
    for f in range(num_faces):
        _emit(f, _OPEN, _OPEN, _OPEN, triangles_out)
    for e in range(num_edges):
        _add_side(edges_out[e, 3], edges_out[e, 0], edges_out[e, 1], triangles_out)
        _add_side(edges_out[e, 2], edges_out[e, 1], edges_out[e, 0], triangles_out)
    f = 0
    while f < num_faces:
        if triangles_out[f, 0] == _OPEN or triangles_out[f, 1] == _OPEN or triangles_out[f, 2] == _OPEN:
            num_faces -= 1
            copy_row(triangles_out, num_faces, f, triangles_out)
        else:
            f += 1
    return num_faces


@lean_function
def _add_side(face, a, b, triangles_out):
    """Add the side from a to b to an incomplete triangle, if it is a side of it."""
    if face < 0:
        return
    if triangles_out[face, 0] == _OPEN:
        triangles_out[face, 0], triangles_out[face, 1] = a, b
    elif triangles_out[face, 0] == b:
        triangles_out[face, 2] = a
    elif triangles_out[face, 1] == a:
        triangles_out[face, 2] = b


@lean_function
def _find_edge(edges, num_edges, a, b):
    for e in range(num_edges):
        if (edges[e, 0] == a and edges[e, 1] == b) or (edges[e, 0] == b and edges[e, 1] == a):
            return e
    return -1


@lean_function
def _add_edge(a, b, left, right, num_edges, max_edges, edges_out):
    """Append an edge if it is new; returns the number of edges."""
    if num_edges < max_edges and _find_edge(edges_out, num_edges, a, b) < 0:
        edges_out[num_edges, 0], edges_out[num_edges, 1] = a, b
        edges_out[num_edges, 2], edges_out[num_edges, 3] = left, right
        num_edges += 1
    return num_edges


@lean_function
def _set_face(e, a, b, face, edges_out):
    """Set the face on the left of the direction from a to b, if it is open."""
    if edges_out[e, 0] == a and edges_out[e, 1] == b and edges_out[e, 2] == _OPEN:
        edges_out[e, 2] = face
    elif edges_out[e, 1] == a and edges_out[e, 0] == b and edges_out[e, 3] == _OPEN:
        edges_out[e, 3] = face


@lean_function
def _complete(e, points, count, num_edges, num_faces, edges_out):
    """Add the Delaunay triangle on the open side of edge e, or mark the side as rim.

    Returns the numbers of edges and faces.
    """
    if edges_out[e, 2] == _OPEN:
        s, t = edges_out[e, 0], edges_out[e, 1]
    else:
        s, t = edges_out[e, 1], edges_out[e, 0]
    best = _best_apex(points, count, edges_out, num_edges, s, t)
    if best < 0:
        _set_face(e, s, t, _RIM, edges_out)
        return num_edges, num_faces
    face = np.int32(num_faces)
    _set_face(e, s, t, face, edges_out)
    num_edges = _connect(best, s, face, num_edges, 10 * count, edges_out)
    num_edges = _connect(t, best, face, num_edges, 10 * count, edges_out)
    return num_edges, num_faces + 1


@lean_function
def _connect(a, b, face, num_edges, max_edges, edges_out):
    """Set the face of the edge from a to b, which is created if needed."""
    e = _find_edge(edges_out, num_edges, a, b)
    if e < 0:
        return _add_edge(a, b, face, _OPEN, num_edges, max_edges, edges_out)
    _set_face(e, a, b, face, edges_out)
    return num_edges


@lean_function
def _best_apex(points, count, edges, num_edges, s, t):
    """Point left of the edge from s to t whose circumcircle with the edge is empty; -1 if there is none."""
    best = _OPEN
    cx, cz, radius = np.float32(0.0), np.float32(0.0), np.float32(-1.0)
    tolerance = np.float32(0.001)
    one = np.float32(1.0)
    for k in range(count):
        u = np.int32(k)
        if u == s or u == t or turn(points, s, t, u) <= np.float32(1e-5):
            continue
        if radius >= 0:
            dx, dz = points[u, 0] - cx, points[u, 2] - cz
            distance = np.sqrt(dx * dx + dz * dz)
            if distance > radius * (one + tolerance):
                continue
            # On the circle within rounding: accept it only if its edges cross no other edge.
            if distance >= radius * (one - tolerance) and (
                _crosses_any(points, edges, num_edges, s, u) or _crosses_any(points, edges, num_edges, t, u)
            ):
                continue
        best = u
        cx, cz, radius = _circle(points, s, t, u)
    return best


@lean_function
def _circle(points, a, b, c):
    """Centre (x, z) and radius of the circle through three points; radius 0 at a if they are collinear."""
    ax, az = points[a, 0], points[a, 2]
    bx, bz, cx, cz = points[b, 0] - ax, points[b, 2] - az, points[c, 0] - ax, points[c, 2] - az
    cross = bx * cz - bz * cx
    if abs(cross) <= np.float32(1e-6):
        return ax, az, np.float32(0.0)
    b_square, c_square = bx * bx + bz * bz, cx * cx + cz * cz
    twice = np.float32(2.0) * cross
    x = (b_square * cz - c_square * bz) / twice
    z = (c_square * bx - b_square * cx) / twice
    return x + ax, z + az, np.sqrt(x * x + z * z)


@lean_function
def _crosses_any(points, edges, num_edges, a, b):
    """True if the line from a to b crosses an edge that shares no end with it."""
    for e in range(num_edges):
        c, d = edges[e, 0], edges[e, 1]
        if c == a or c == b or d == a or d == b:
            continue
        side_b = turn(points, c, d, b)
        side_a = turn(points, c, d, a)
        if side_b * side_a < 0:
            side_c = turn(points, a, b, c)
            if side_c * (side_c + side_a - side_b) < 0:
                return True
    return False
