"""Final tile in Detour's file format: vertices in metres, polygons, detail meshes and BV tree."""

import numpy as np

from batchnav.navmesh.bake.growing import sort_keys
from batchnav.navmesh.data import BV_NODE, DETAIL, POLYGON, WALKABLE, Tile
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.kernels.decorators import cpu_function, device_function, lean_function

GROUND_AREA = 0
NO_LINK = 0xFFFFFFFF
DISABLED = 0x4
"""Flag of a polygon without area."""
_LEAST_AREA = 1e-5  # m2


def make_tile(mesh, detail, grid, settings: NavMeshSettings) -> Tile:
    """Tile of a PolygonMesh and its DetailMesh."""
    f32 = np.float32
    scale = np.array([grid.cell_size, grid.cell_height, grid.cell_size], f32)
    quant = f32(1.0) / grid.cell_size
    high = grid.high.copy()
    high[1] += f32(grid.walkable_height) * grid.cell_height
    vertices = (grid.low + mesh.vertices.astype(f32) * scale).astype(f32)
    num_polygons, size = mesh.corners.shape
    polygons = np.zeros(num_polygons, POLYGON)
    polygons["vertices"][:, :size] = np.maximum(mesh.corners, 0)
    polygons["neighbours"][:, :size] = mesh.neighbours + 1
    polygons["num_vertices"] = mesh.count
    polygons["area_and_type"] = GROUND_AREA
    links = (mesh.neighbours >= 0).sum(axis=1)
    polygons["first_link"] = np.where(links > 0, np.cumsum(links) - 1, NO_LINK)

    first_point, num_points, first_triangle, num_triangles = detail.table.T
    extra = num_points - mesh.count
    details = np.zeros(num_polygons, DETAIL)
    details["vertex_base"] = np.cumsum(extra) - extra
    details["triangle_base"] = first_triangle
    details["num_vertices"] = extra
    details["num_triangles"] = num_triangles
    own = np.arange(len(detail.points)) - np.repeat(first_point, num_points) < np.repeat(mesh.count, num_points)
    boxes, areas = _measure(
        detail.points, detail.triangles, detail.table, mesh.vertices, mesh.corners, mesh.count, grid
    )
    polygons["flags"] = np.where(areas < _LEAST_AREA, DISABLED, WALKABLE)
    nodes = np.zeros(2 * num_polygons, BV_NODE)
    low_out, high_out, index_out = _build_tree(boxes)
    nodes["low"], nodes["high"], nodes["index"] = low_out, high_out, index_out
    return Tile(
        vertices=vertices,
        polygons=polygons,
        details=details,
        detail_vertices=detail.points[~own],
        detail_triangles=detail.triangles,
        bv_nodes=nodes,
        low=grid.low,
        high=high,
        walkable_height=float(f32(settings.agent_height)),
        walkable_radius=float(f32(settings.agent_radius)),
        walkable_climb=float(f32(settings.agent_max_climb)),
        bv_quant=float(quant),
        max_links=int(mesh.count.sum()),
    )


@cpu_function
def _measure(points, triangles, table, vertices, corners, count, grid):
    """Box i32 [P, 2, 3] of each polygon's points, in cells, and its area f32 [P] over its triangles, square metres."""
    boxes = np.empty((len(table), 2, 3), np.int32)
    areas = np.zeros(len(table), np.float32)
    inverse = np.float32(1.0) / grid.cell_size
    scale = np.array([grid.cell_size, grid.cell_height, grid.cell_size], np.float32)
    triangle = np.empty((3, 3), np.float32)
    for p in range(len(table)):
        first, num_points, first_triangle, num_triangles = table[p, 0], table[p, 1], table[p, 2], table[p, 3]
        for a in range(3):
            low = high = points[first, a]
            for k in range(1, num_points):
                low, high = min(low, points[first + k, a]), max(high, points[first + k, a])
            boxes[p, 0, a] = min(max(np.int64((low - grid.low[a]) * inverse), 0), 0xFFFF)
            boxes[p, 1, a] = min(max(np.int64((high - grid.low[a]) * inverse), 0), 0xFFFF)
        for t in range(first_triangle, first_triangle + num_triangles):
            for k in range(3):
                i = triangles[t, k]
                for a in range(3):
                    if i < count[p]:
                        triangle[k, a] = grid.low[a] + np.float32(vertices[corners[p, i], a]) * scale[a]
                    else:
                        triangle[k, a] = points[first + i, a]
            areas[p] += _triangle_area(triangle[0], triangle[1], triangle[2])
    return boxes, areas


@lean_function
def _triangle_area(a, b, c):
    ux, uy, uz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    vx, vy, vz = c[0] - b[0], c[1] - b[1], c[2] - b[2]
    nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    return np.float32(0.5) * np.sqrt(nx * nx + ny * ny + nz * nz)


@cpu_function
def _build_tree(boxes):
    """BV nodes in depth-first order: low i32 [2 P, 3], high, index. The last node is zero, as in Detour.

    Each node's boxes are sorted along its longest side and split in the middle. A subtree of n leaves has 2 n - 1
    nodes.
    """
    n = len(boxes)
    low, high = np.zeros((2 * n, 3), np.int32), np.zeros((2 * n, 3), np.int32)
    index = np.zeros(2 * n, np.int32)
    order = np.arange(n)
    stack, size = np.empty((64, 3), np.int64), 1
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, n
    while size > 0:
        size -= 1
        node, first, last = stack[size, 0], stack[size, 1], stack[size, 2]
        for a in range(3):
            low[node, a], high[node, a] = boxes[order[first], 0, a], boxes[order[first], 1, a]
            for i in range(first + 1, last):
                low[node, a] = min(low[node, a], boxes[order[i], 0, a])
                high[node, a] = max(high[node, a], boxes[order[i], 1, a])
        if last - first == 1:
            index[node] = order[first]
            continue
        axis = np.int64(0)
        for a in range(1, 3):
            if high[node, a] - low[node, a] > high[node, axis] - low[node, axis]:
                axis = a
        _sort_along(boxes, first, last, axis, order)
        middle = first + (last - first) // 2
        index[node] = -(2 * (last - first) - 1)
        stack[size, 0], stack[size, 1], stack[size, 2] = node + 2 * (middle - first), middle, last
        stack[size + 1, 0], stack[size + 1, 1], stack[size + 1, 2] = node + 1, first, middle
        size += 2
    return low, high, index


@device_function
def _sort_along(boxes, first, last, axis, order_out):
    """Sort order_out[first:last] by the boxes' lower bounds; stable."""
    keys, before = np.empty(last - first, np.int64), np.empty(last - first, np.int64)
    for i in range(last - first):
        before[i] = order_out[first + i]
        keys[i] = (np.int64(boxes[before[i], 0, axis]) << 32) | i
    sort_keys(last - first, keys)
    for i in range(last - first):
        order_out[first + i] = before[keys[i] & 0xFFFFFFFF]
