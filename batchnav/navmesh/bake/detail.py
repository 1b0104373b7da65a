"""Detail mesh: triangles per polygon that approximate the floor height within a tolerance.

Points are added along edges where the floor deviates from the straight line, equally for both polygons of an edge, then
inside on a sample grid, in order of decreasing deviation.
"""

from typing import NamedTuple

import numpy as np

from batchnav.navmesh.bake.growing import copy_row, first_rows, with_capacity
from batchnav.navmesh.bake.plane import distance_square, segment_distance_square, turn
from batchnav.runtime.kernels.decorators import cpu_function, device_function, lean_function

# Floor heights under a polygon, from a patch of the compact field around it

UNSET = 0xFFFF
_INFINITE = np.float32(3.4e38)


class Patch(NamedTuple):
    """Floor heights of the cells around one polygon."""

    floor: np.ndarray
    """i32 [>= width * depth]: floor in cell heights, UNSET where unknown."""
    x: int
    """Column of the patch's first cell in the grid."""
    z: int
    """Row of the patch's first cell in the grid."""
    width: int
    """Cells along x."""
    depth: int
    """Cells along z."""
    inverse_cell: np.float32
    """Cells per metre."""
    cell_height: np.float32
    """Metres."""
    radius: int
    """Search radius around a cell without a floor, cells."""


@lean_function
def fill_patch(field, region, grid_width, ring, own_region, queue, patch_out):
    """Fill a patch with floors of the polygon's region, then with floors reachable from its rim.

    `ring` are the polygon's vertices, i32 [n, 3]; `queue` i32 [>= patch size + 1, 3] is scratch.
    """
    _clear(UNSET, patch_out)
    count = 0
    empty = True
    for z in range(patch_out.z, patch_out.z + patch_out.depth):
        for x in range(patch_out.x, patch_out.x + patch_out.width):
            column = x + z * grid_width
            for i in range(field.first[column], field.first[column + 1]):
                if region[i] == own_region:
                    patch_out.floor[x - patch_out.x + (z - patch_out.z) * patch_out.width] = field.floor[i]
                    empty = False
                    for direction in range(4):
                        k = field.neighbours[i, direction]
                        if k >= 0 and region[k] != own_region:
                            queue[count, 0], queue[count, 1], queue[count, 2] = x, z, i
                            count += 1
                            break
                    break
    if empty:
        _seed_at_centre(field, grid_width, ring, queue, patch_out)
        count = 1
    head = 0
    while head < count:
        x, z, i = queue[head, 0], queue[head, 1], queue[head, 2]
        head += 1
        for direction in range(4):
            k = field.neighbours[i, direction]
            nx = x + (direction == 2) - (direction == 0)
            nz = z + (direction == 1) - (direction == 3)
            at = _cell_of(patch_out, nx, nz)
            if k >= 0 and at >= 0 and patch_out.floor[at] == UNSET:
                patch_out.floor[at] = field.floor[k]
                queue[count, 0], queue[count, 1], queue[count, 2] = nx, nz, k
                count += 1


@lean_function
def _clear(value, patch_out):
    for k in range(patch_out.width * patch_out.depth):
        patch_out.floor[k] = value


@lean_function
def _cell_of(patch, x, z):
    """Index of a cell in the patch, -1 outside."""
    x -= patch.x
    z -= patch.z
    if x < 0 or z < 0 or x >= patch.width or z >= patch.depth:
        return -1
    return x + z * patch.width


@lean_function
def _seed_at_centre(field, grid_width, ring, queue, patch_out):
    """Seed a patch without cells of the polygon's region, at a cell near the polygon's centre.

    A depth-first search leads from a cell at a vertex to the centre and prefers straight steps. It writes the seed to
    the patch and to row 0 of `queue`.
    """
    x, z, i = _cell_near_vertex(field, grid_width, ring, patch_out)
    goal_x = goal_z = 0
    for k in range(len(ring)):
        goal_x += ring[k, 0]
        goal_z += ring[k, 2]
    goal_x //= len(ring)
    goal_z //= len(ring)
    _clear(0, patch_out)
    queue[0, 0], queue[0, 1], queue[0, 2] = x, z, i
    size = 1
    while size > 0:
        size -= 1
        x, z, i = queue[size, 0], queue[size, 1], queue[size, 2]
        if x == goal_x and z == goal_z:
            break
        if x == goal_x:
            straight = 1 if goal_z > z else 3
        else:
            straight = 2 if goal_x > x else 0
        for way in range(4):  # push the straight direction (3) last, so that it is popped first
            direction = straight if way == 3 else (3 if way == straight else way)
            k = field.neighbours[i, direction]
            nx = x + (direction == 2) - (direction == 0)
            nz = z + (direction == 1) - (direction == 3)
            at = _cell_of(patch_out, nx, nz)
            if k >= 0 and at >= 0 and patch_out.floor[at] == 0:
                patch_out.floor[at] = 1
                queue[size, 0], queue[size, 1], queue[size, 2] = nx, nz, k
                size += 1
    _clear(UNSET, patch_out)
    queue[0, 0], queue[0, 1], queue[0, 2] = x, z, i
    at = _cell_of(patch_out, x, z)
    if at >= 0:
        patch_out.floor[at] = field.floor[i]


@lean_function
def _cell_near_vertex(field, grid_width, ring, patch):
    """Cell at or around a vertex of the polygon with the nearest floor height: (x, z, cell)."""
    best_x, best_z, best, nearest = 0, 0, 0, UNSET
    for j in range(len(ring)):
        for step in range(9):
            dx, dz = _around(step)
            x, z = ring[j, 0] + dx, ring[j, 2] + dz
            if _cell_of(patch, x, z) < 0:
                continue
            column = x + z * grid_width
            for i in range(field.first[column], field.first[column + 1]):
                distance = abs(ring[j, 1] - field.floor[i])
                if distance < nearest:
                    best_x, best_z, best, nearest = x, z, i, distance
                if nearest == 0:
                    return best_x, best_z, best
    return best_x, best_z, best


@lean_function
def _around(step):
    """Offset number `step`: the cell itself, then the cells around it, starting at (-1, -1)."""
    if step == 0:
        return 0, 0
    if step <= 3:
        return step - 2, -1
    if step == 4:
        return 1, 0
    if step <= 7:
        return 6 - step, 1
    return -1, 0


@lean_function
def floor_at(patch, x, y, z):
    """Floor at a point, in cell heights. If unknown: the floor nearest to y (metres) in the nearest ring of cells.

    Rings reach up to the patch's radius.
    """
    ix = np.int64(np.floor(x * patch.inverse_cell + np.float32(0.01))) - patch.x
    iz = np.int64(np.floor(z * patch.inverse_cell + np.float32(0.01))) - patch.z
    ix = min(max(ix, 0), patch.width - 1)
    iz = min(max(iz, 0), patch.depth - 1)
    floor = patch.floor[ix + iz * patch.width]
    ring = np.int64(1)
    while floor == UNSET and ring <= patch.radius:
        floor = _nearest_in_ring(patch, ix, iz, ring, y)
        ring += 1
    return floor


@lean_function
def _nearest_in_ring(patch, ix, iz, ring, y):
    """Floor nearest to height y among the cells at distance `ring`, UNSET if none is known.

    The order of a spiral decides between equal distances.
    """
    best, nearest = np.int32(UNSET), _INFINITE
    dx, dz = ring, 1 - ring
    for k in range(8 * ring):
        x, z = ix + dx, iz + dz
        if x >= 0 and z >= 0 and x < patch.width and z < patch.depth:
            floor = patch.floor[x + z * patch.width]
            distance = abs(np.float32(floor) * patch.cell_height - y)
            if floor != UNSET and distance < nearest:
                best, nearest = floor, distance
        if k < 2 * ring - 1:
            dz += 1
        elif k < 4 * ring - 1:
            dx -= 1
        elif k < 6 * ring - 1:
            dz -= 1
        else:
            dx += 1
    return best


# Triangulation of a detail mesh: of the rim only, or Delaunay with interior points

_OPEN, _RIM = np.int32(-1), np.int32(-2)  # side of an edge without a face yet; side on the rim


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


MAX_POINTS = 127
"""Largest number of points in a polygon's detail mesh."""
MAX_TRIANGLES = 255
_MAX_EDGE_POINTS = 32
_FAR = np.float32(3.4e38)
_ON_EDGE = np.float32(0.001 * 0.001)


class DetailMesh(NamedTuple):
    """Detail meshes of P polygons; the vertices of a polygon are the first of its points."""

    points: np.ndarray
    """f32 [D, 3], metres in the world."""
    triangles: np.ndarray
    """u8 [R, 4]: three points, relative to the polygon's first; two bits per edge, 1 on the polygon's rim."""
    table: np.ndarray
    """i32 [P, 4]: first point, number of points, first triangle, number of triangles."""


class _Scratch(NamedTuple):
    """Scratch memory for one polygon."""

    points: np.ndarray
    """f32 [MAX_POINTS + 1, 3]: points of the detail mesh."""
    edge: np.ndarray
    """f32 [_MAX_EDGE_POINTS + 1, 3]: samples along an edge."""
    kept: np.ndarray
    """i64 [_MAX_EDGE_POINTS + 1]: samples of `edge` that become points."""
    hull: np.ndarray
    """i32 [MAX_POINTS + 1]: points on the rim, in order."""
    triangles: np.ndarray
    """i32 [20 * MAX_POINTS, 3]."""
    edges: np.ndarray
    """i32 [10 * MAX_POINTS, 4]: see `retriangulate`."""


def build_detail(field, region: np.ndarray, mesh, grid) -> DetailMesh:
    """Detail mesh of a PolygonMesh with the floor heights of a CompactField."""
    return DetailMesh(*_build(field, region, mesh, grid))


@cpu_function
def _build(field, region, mesh, grid):
    """Arrays of a DetailMesh."""
    boxes, cells = _patch_boxes(mesh, grid)
    floor, queue = np.empty(cells, np.int32), np.empty((cells + 1, 3), np.int32)
    samples = np.empty((_max_samples(boxes, grid), 4), np.int32)
    scratch = _Scratch(
        np.empty((MAX_POINTS + 1, 3), np.float32),
        np.empty((_MAX_EDGE_POINTS + 1, 3), np.float32),
        np.empty(_MAX_EDGE_POINTS + 1, np.int64),
        np.empty(MAX_POINTS + 1, np.int32),
        np.empty((20 * MAX_POINTS, 3), np.int32),
        np.empty((10 * MAX_POINTS, 4), np.int32),
    )
    ring = np.empty((mesh.corners.shape[1], 3), np.int32)
    outline = np.empty((mesh.corners.shape[1], 3), np.float32)
    table = np.empty((len(mesh.corners), 4), np.int32)
    points, num_points = np.empty((1024, 3), np.float32), np.int64(0)
    triangles, num_triangles = np.empty((1024, 4), np.uint8), np.int64(0)
    inverse_cell = np.float32(1.0) / grid.cell_size
    search = max(1, np.int64(np.ceil(grid.max_edge_error)))
    for p in range(len(mesh.corners)):
        n = mesh.count[p]
        for k in range(n):
            for a in range(3):
                ring[k, a] = mesh.vertices[mesh.corners[p, k], a]
                outline[k, a] = np.float32(ring[k, a]) * (grid.cell_height if a == 1 else grid.cell_size)
        x, z, width, depth = boxes[p, 0], boxes[p, 1], boxes[p, 2], boxes[p, 3]
        radius = min(search, max(width, depth))
        patch = Patch(floor, x, z, width, depth, inverse_cell, grid.cell_height, radius)
        fill_patch(field, region, grid.width, ring[:n], mesh.region[p], queue, patch)
        used_points, used_triangles = _polygon_detail(outline[:n], patch, grid, scratch, samples)
        for k in range(used_points):
            for a in range(3):
                lift = grid.low[a] + (grid.cell_height if a == 1 else np.float32(0.0))
                scratch.points[k, a] += lift
        for k in range(n):
            for a in range(3):
                outline[k, a] += grid.low[a]
        table[p, 0], table[p, 1], table[p, 2], table[p, 3] = num_points, used_points, num_triangles, used_triangles
        points = with_capacity(points, num_points, used_points)
        triangles = with_capacity(triangles, num_triangles, used_triangles)
        for k in range(used_points):
            copy_row(scratch.points, k, num_points + k, points)
        for t in range(used_triangles):
            for a in range(3):
                triangles[num_triangles + t, a] = scratch.triangles[t, a]
            triangles[num_triangles + t, 3] = _rim_flags(scratch.points, scratch.triangles, t, outline[:n])
        num_points += used_points
        num_triangles += used_triangles
    return first_rows(points, num_points), first_rows(triangles, num_triangles), table


@device_function
def _patch_boxes(mesh, grid):
    """Cells of each polygon plus a margin of one cell: i32 [P, 4] (x, z, width, depth); and the largest cell count."""
    boxes = np.empty((len(mesh.corners), 4), np.int32)
    cells = 1
    for p in range(len(mesh.corners)):
        x0, x1, z0, z1 = grid.width, 0, grid.depth, 0
        for k in range(mesh.count[p]):
            v = mesh.corners[p, k]
            x0, x1 = min(x0, mesh.vertices[v, 0]), max(x1, mesh.vertices[v, 0])
            z0, z1 = min(z0, mesh.vertices[v, 2]), max(z1, mesh.vertices[v, 2])
        x0, x1 = max(0, x0 - 1), min(grid.width, x1 + 1)
        z0, z1 = max(0, z0 - 1), min(grid.depth, z1 + 1)
        boxes[p, 0], boxes[p, 1], boxes[p, 2], boxes[p, 3] = x0, z0, x1 - x0, z1 - z0
        cells = max(cells, (x1 - x0) * (z1 - z0))
    return boxes, cells


@lean_function
def _max_samples(boxes, grid):
    """Largest number of samples of a polygon."""
    most = 1
    if grid.sample_distance > 0:
        for p in range(len(boxes)):
            nx = np.int64(np.float32(boxes[p, 2]) * grid.cell_size / grid.sample_distance) + 3
            nz = np.int64(np.float32(boxes[p, 3]) * grid.cell_size / grid.sample_distance) + 3
            most = max(most, nx * nz)
    return most


@lean_function
def _polygon_detail(outline, patch, grid, scratch, samples_out):
    """Write points (relative to the grid's corner) and triangles of one polygon to `scratch`; returns their numbers."""
    n = len(outline)
    points = scratch.points
    for k in range(n):
        for a in range(3):
            points[k, a] = outline[k, a]
    extent = _least_extent(outline)
    count, num_hull = n, np.int64(0)
    j = n - 1
    for i in range(n):
        if grid.sample_distance > 0:
            count, num_hull = _split_edge(j, i, outline, patch, grid, count, num_hull, scratch)
        else:
            scratch.hull[i] = i
            num_hull += 1
        j = i
    num_triangles = hull_triangles(points, scratch.hull, num_hull, n, scratch.triangles)
    if grid.sample_distance > 0 and extent >= grid.sample_distance * np.float32(2.0):
        num_samples = _lay_samples(outline, patch, grid, samples_out)
        for _ in range(num_samples):
            if count >= MAX_POINTS:
                break
            worst = _worst_sample(samples_out, num_samples, points, scratch.triangles, num_triangles, grid)
            if worst < 0:
                break
            samples_out[worst, 3] = 1
            points[count, 0], points[count, 1], points[count, 2] = _sample_point(samples_out, worst, grid)
            count += 1
            num_triangles = retriangulate(points, count, scratch.hull, num_hull, scratch.edges, scratch.triangles)
    return count, min(num_triangles, MAX_TRIANGLES)


@lean_function
def _rim_distance_square(x, z, outline, j, i):
    """Squared horizontal distance of a point from the polygon's edge between corners j and i."""
    return segment_distance_square(x, z, outline[j, 0], outline[j, 2], outline[i, 0], outline[i, 2])


@lean_function
def _bend_square(edge, p, a, b):
    """Squared distance of point p from the segment from a to b, in 3-D."""
    ax, ay, az = edge[a, 0], edge[a, 1], edge[a, 2]
    abx, aby, abz = edge[b, 0] - ax, edge[b, 1] - ay, edge[b, 2] - az
    square = abx * abx + aby * aby + abz * abz
    t = abx * (edge[p, 0] - ax) + aby * (edge[p, 1] - ay) + abz * (edge[p, 2] - az)
    if square > 0:
        t /= square
    t = min(max(t, np.float32(0.0)), np.float32(1.0))
    dx, dy, dz = ax + t * abx - edge[p, 0], ay + t * aby - edge[p, 1], az + t * abz - edge[p, 2]
    return dx * dx + dy * dy + dz * dz


@lean_function
def _least_extent(outline):
    """Smallest width of a polygon perpendicular to an edge, metres."""
    n = len(outline)
    least = _FAR
    for i in range(n):
        following = (i + 1) % n
        farthest = np.float32(0.0)
        for j in range(n):
            if j != i and j != following:
                farthest = max(farthest, _rim_distance_square(outline[j, 0], outline[j, 2], outline, i, following))
        least = min(least, farthest)
    return np.sqrt(least)


@lean_function
def _split_edge(j, i, outline, patch, grid, count, num_hull, scratch):
    """Append the edge from corner j to i to the hull, with points where the floor deviates; returns the new counts."""
    # Both polygons of an edge process its points in the same order, so that there is no gap.
    axis = 2 if abs(outline[j, 0] - outline[i, 0]) < np.float32(1e-6) else 0
    swapped = outline[j, axis] > outline[i, axis]
    a, b = (i, j) if swapped else (j, i)
    x, y, z = outline[a, 0], outline[a, 1], outline[a, 2]
    dx, dy, dz = outline[b, 0] - x, outline[b, 1] - y, outline[b, 2] - z
    steps = 1 + np.int64(np.floor(np.sqrt(dx * dx + dz * dz) / grid.sample_distance))
    steps = min(steps, _MAX_EDGE_POINTS - 1)
    if count + steps >= MAX_POINTS:
        steps = MAX_POINTS - 1 - count
    edge, kept = scratch.edge, scratch.kept
    for k in range(steps + 1):
        u = np.float32(k) / np.float32(steps)
        edge[k, 0], edge[k, 2] = x + dx * u, z + dz * u
        edge[k, 1] = np.float32(floor_at(patch, edge[k, 0], y + dy * u, edge[k, 2])) * grid.cell_height
    num_kept = _keep_bends(edge, steps, grid.sample_max_error * grid.sample_max_error, kept)
    scratch.hull[num_hull] = j
    num_hull += 1
    for k in range(1, num_kept - 1):
        source = kept[num_kept - 1 - k] if swapped else kept[k]
        copy_row(edge, source, count, scratch.points)
        scratch.hull[num_hull] = count
        num_hull += 1
        count += 1
    return count, num_hull


@lean_function
def _keep_bends(edge, steps, max_square, kept_out):
    """Indices along an edge: its ends, and points that deviate too much from a straight line. Returns their number."""
    kept_out[0], kept_out[1] = 0, steps
    count, k = 2, 0
    while k < count - 1:
        a, b = kept_out[k], kept_out[k + 1]
        farthest, largest = -1, np.float32(0.0)
        for m in range(a + 1, b):
            square = _bend_square(edge, m, a, b)
            if square > largest:
                farthest, largest = m, square
        if farthest >= 0 and largest > max_square:
            for m in range(count, k + 1, -1):
                kept_out[m] = kept_out[m - 1]
            kept_out[k + 1] = farthest
            count += 1
        else:
            k += 1
    return count


@lean_function
def _lay_samples(outline, patch, grid, samples_out):
    """Grid points inside the polygon with a margin: rows (x, floor in cell heights, z, used). Returns their number."""
    spacing = grid.sample_distance
    low_x, high_x, low_z, high_z = outline[0, 0], outline[0, 0], outline[0, 2], outline[0, 2]
    low_y = high_y = outline[0, 1]
    for k in range(1, len(outline)):
        low_x, high_x = min(low_x, outline[k, 0]), max(high_x, outline[k, 0])
        low_y, high_y = min(low_y, outline[k, 1]), max(high_y, outline[k, 1])
        low_z, high_z = min(low_z, outline[k, 2]), max(high_z, outline[k, 2])
    y = (high_y + low_y) * np.float32(0.5)
    x0, x1 = np.int64(np.floor(low_x / spacing)), np.int64(np.ceil(high_x / spacing))
    z0, z1 = np.int64(np.floor(low_z / spacing)), np.int64(np.ceil(high_z / spacing))
    count = 0
    for iz in range(z0, z1):
        for ix in range(x0, x1):
            x, z = np.float32(ix) * spacing, np.float32(iz) * spacing
            if _signed_distance_square(outline, x, z) <= -spacing / np.float32(2.0) and count < len(samples_out):
                samples_out[count, 0], samples_out[count, 2], samples_out[count, 3] = ix, iz, 0
                samples_out[count, 1] = floor_at(patch, x, y, z)
                count += 1
    return count


@lean_function
def _signed_distance_square(outline, x, z):
    """Squared distance from a polygon's rim, negative inside. (Recast compares it with a length, unsquared.)"""
    nearest, inside = _FAR, False
    j = len(outline) - 1
    for i in range(len(outline)):
        ax, az, bx, bz = outline[i, 0], outline[i, 2], outline[j, 0], outline[j, 2]
        if (az > z) != (bz > z) and x < (bx - ax) * (z - az) / (bz - az) + ax:
            inside = not inside
        nearest = min(nearest, _rim_distance_square(x, z, outline, j, i))
        j = i
    return -nearest if inside else nearest


@lean_function
def _sample_point(samples, i, grid):
    """Point of a sample, shifted by up to a tenth of a cell, since a regular grid gives degenerate triangles."""
    tenth = np.float32(0.1)
    x = np.float32(samples[i, 0]) * grid.sample_distance + _jitter(i, 0x8DA6B343) * grid.cell_size * tenth
    z = np.float32(samples[i, 2]) * grid.sample_distance + _jitter(i, 0xD8163841) * grid.cell_size * tenth
    return x, np.float32(samples[i, 1]) * grid.cell_height, z


@lean_function
def _jitter(i, factor):
    """Hash of i as a number in -1..1."""
    number = (np.int64(i) * np.int64(factor)) & 0xFFFF
    return np.float32(number) / np.float32(65535.0) * np.float32(2.0) - np.float32(1.0)


@lean_function
def _worst_sample(samples, num_samples, points, triangles, num_triangles, grid):
    """Sample with the largest vertical distance from the triangles, -1 if all are within tolerance."""
    worst, largest = -1, np.float32(0.0)
    for i in range(num_samples):
        if samples[i, 3] == 0:
            x, y, z = _sample_point(samples, i, grid)
            error = _height_error(x, y, z, points, triangles, num_triangles)
            if error > largest:
                worst, largest = i, error
    return worst if largest > grid.sample_max_error else -1


@lean_function
def _height_error(x, y, z, points, triangles, num_triangles):
    """Smallest vertical distance of a point from the triangles above and below it, -1 if there is none."""
    least = _FAR
    for t in range(num_triangles):
        a, b, c = triangles[t, 0], triangles[t, 1], triangles[t, 2]
        ax, ay, az = points[a, 0], points[a, 1], points[a, 2]
        v0x, v0y, v0z = points[c, 0] - ax, points[c, 1] - ay, points[c, 2] - az
        v1x, v1y, v1z = points[b, 0] - ax, points[b, 1] - ay, points[b, 2] - az
        v2x, v2z = x - ax, z - az
        dot00, dot01, dot02 = v0x * v0x + v0z * v0z, v0x * v1x + v0z * v1z, v0x * v2x + v0z * v2z
        dot11, dot12 = v1x * v1x + v1z * v1z, v1x * v2x + v1z * v2z
        inverse = np.float32(1.0) / (dot00 * dot11 - dot01 * dot01)
        u = (dot11 * dot02 - dot01 * dot12) * inverse
        v = (dot00 * dot12 - dot01 * dot02) * inverse
        rim = np.float32(1e-4)
        if u >= -rim and v >= -rim and u + v <= np.float32(1.0) + rim:
            least = min(least, abs(ay + v0y * u + v1y * v - y))
    return least if least < _FAR else np.float32(-1.0)


@lean_function
def _rim_flags(points, triangles, t, outline):
    """Two bits per edge of a triangle: 1 on the polygon's rim."""
    flags = 0
    for k in range(3):
        a, b = triangles[t, k], triangles[t, (k + 1) % 3]
        j = len(outline) - 1
        for i in range(len(outline)):
            if (
                _rim_distance_square(points[a, 0], points[a, 2], outline, j, i) < _ON_EDGE
                and _rim_distance_square(points[b, 0], points[b, 2], outline, j, i) < _ON_EDGE
            ):
                flags |= 1 << (2 * k)
                break
            j = i
    return flags
