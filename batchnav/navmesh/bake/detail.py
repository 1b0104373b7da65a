"""Detail mesh: triangles per polygon that approximate the floor height within a tolerance.

Points are added along edges where the floor deviates from the straight line, equally for both polygons of an edge, then
inside on a sample grid, in order of decreasing deviation.
"""

from typing import NamedTuple

import numpy as np

from batchnav.navmesh.bake.delaunay import hull_triangles, retriangulate
from batchnav.navmesh.bake.growing import copy_row, first_rows, with_capacity
from batchnav.navmesh.bake.heights import Patch, fill_patch, floor_at
from batchnav.navmesh.bake.plane import segment_distance_square
from batchnav.runtime.kernels.decorators import cpu_function, device_function, lean_function

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
    return np.float32((i * factor) & 0xFFFF) / np.float32(65535.0) * np.float32(2.0) - np.float32(1.0)


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
