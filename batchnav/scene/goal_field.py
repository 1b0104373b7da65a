"""Geodesic distance fields of goals: from every node of a grid to the nearest view point of a category.

Method: any-angle shortest paths from several sources at once (Theta*: Nash et al., AAAI 2007, without a heuristic). A
node keeps the last turning point of its path, its anchor, and the path length from there, so that the distance of any
point next to the node is `length + |point - anchor|`, exact in sight of the anchor. The anchor is a view point, or a
node near a corner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from batchnav.geometry.polygon import ZERO
from batchnav.geometry.pose import distance, point_at
from batchnav.navmesh.data import POLYGON_ROW, records
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import search_scratch, search_size
from batchnav.navmesh.line_of_sight import in_line_of_sight
from batchnav.navmesh.locate import distance_to_polygon, nearest_polygon
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.runtime.parallel import in_threads

# Grid over a navmesh on which distance fields are computed: columns of 0.1 m, with a node per floor in each

CELL = 0.1
"""Side of a column, metres."""
SAME_FLOOR = np.float32(0.4)
"""Largest difference of height of points of one floor within a column, metres."""
LONGEST_EDGE = np.float32(0.5)
"""Longest path around a corner between neighbours, metres."""
_GRID_CELL, _HALF_CELL = np.float32(CELL), np.float32(0.5)
_REACH = np.float32(CELL * math.sqrt(0.5) * 1.001)
"""Largest distance of a node from its column's centre: half a diagonal."""


class GoalGrid(NamedTuple):
    """Columns and nodes of one navmesh."""

    origin: np.ndarray
    """f32 [2]: x and z of the centre of the first column, metres."""
    shape: np.ndarray
    """i32 [2]: number of columns along x and along z."""
    columns: np.ndarray
    """i32 [rows * columns + 1]: nodes of column c are columns[c] to columns[c + 1] - 1, from low to high."""
    points: np.ndarray
    """f32 [M, 3]: positions of the nodes, metres."""
    polygons: np.ndarray
    """i32 [M]: polygon of each node."""
    neighbours: np.ndarray
    """i32 [M, 8]: a neighbour in each direction of `_AROUND`; -1: none."""
    lengths: np.ndarray
    """f32 [M, 8]: length of the path to each neighbour, metres; 0: a straight line."""


_AROUND = np.array([(1, 0), (0, 1), (1, 1), (-1, 1), (-1, 0), (0, -1), (-1, -1), (1, -1)], np.int32)
"""Directions of adjacent columns, in x and z; direction k + 4 is opposite to k."""


def make_grid(navmesh: NavMesh) -> GoalGrid:
    """The grid of a navmesh on the host."""
    data = navmesh.data
    polygon = records(data.polygons, POLYGON_ROW)
    walkable = np.flatnonzero(data.polygon_island >= 0).astype(np.int32)
    if not len(walkable):
        return GoalGrid(
            np.zeros(2, np.float32), np.ones(2, np.int32), np.zeros(2, np.int32), np.zeros((0, 3), np.float32),
            np.zeros(0, np.int32), np.zeros((0, 8), np.int32), np.zeros((0, 8), np.float32),
        )  # fmt: skip
    corner = polygon["edges"]["start"][walkable][:, :, [0, 2]]
    used = np.arange(corner.shape[1]) < polygon["vertices"][walkable, None]
    low = np.where(used[..., None], corner, np.inf).min(1)
    high = np.where(used[..., None], corner, -np.inf).max(1)
    origin = low.min(0).astype(np.float32)
    first = np.floor((low - origin) / CELL).astype(np.int32)
    last = np.ceil((high - origin) / CELL).astype(np.int32)
    width, depth = (int(n) + 1 for n in last.max(0))
    most = int(np.prod(last.astype(np.int64) - first + 1, axis=1).sum())
    found = _found_nodes(data, walkable, first, last, origin, width, most)
    column, point, owner, gap = (part[: found[-1]] for part in found[:-1])
    order = np.lexsort((point[:, 1], column))
    kept = order[_one_per_floor(order, column, point, gap, data.polygon_island[owner])]
    column, point, owner = column[kept], np.ascontiguousarray(point[kept]), owner[kept]
    columns = np.searchsorted(column, np.arange(width * depth + 1)).astype(np.int32)
    scratch = view(search_scratch(search_size(data), 1, torch.device("cpu")))
    neighbours, lengths = _linked(data, columns, column, point, owner, width, depth, scratch)
    shape = np.array([width, depth], np.int32)
    return GoalGrid(origin, shape, columns, point, owner, neighbours, lengths)


@cpu_function
def _found_nodes(nav, walkable, first, last, origin, width, most):
    """Points of the walkable polygons near centres of columns: column, point, polygon, gap, and their number."""
    column, polygon = np.empty(most, np.int32), np.empty(most, np.int32)
    point, gap = np.empty((most, 3), np.float32), np.empty(most, np.float32)
    count = 0
    for k in range(len(walkable)):
        for z in range(first[k, 1], last[k, 1] + 1):
            for x in range(first[k, 0], last[k, 0] + 1):
                centre_x, centre_z = origin[0] + np.float32(x) * _GRID_CELL, origin[1] + np.float32(z) * _GRID_CELL
                height = nav.polygons[walkable[k], 5]
                _, closest = distance_to_polygon(nav, walkable[k], (centre_x, height, centre_z), ZERO)
                dx, dz = closest[0] - centre_x, closest[2] - centre_z
                off = np.float32(math.sqrt(dx * dx + dz * dz))
                if off <= _REACH:
                    column[count], polygon[count], gap[count] = z * width + x, walkable[k], off
                    point[count, 0], point[count, 1], point[count, 2] = closest
                    count += 1
    return column, point, polygon, gap, count


@cpu_function
def _one_per_floor(order, column, point, gap, island):
    """Places in `order` (by column, then height) of the point nearest to the centre on each floor of each column."""
    kept, count = np.empty(len(order), np.int64), 0
    for k in range(len(order)):
        i = order[k]
        merges = False
        if count > 0:
            j = order[kept[count - 1]]
            near = column[i] == column[j] and island[i] == island[j] and point[i, 1] - point[j, 1] <= SAME_FLOOR
            if near:
                merges = True
                if gap[i] < gap[j]:
                    kept[count - 1] = k
        if not merges:
            kept[count] = k
            count += 1
    return kept[:count]


@cpu_function
def _linked(nav, columns, column, points, polygons, width, depth, scratch):
    """`GoalGrid.neighbours` and `GoalGrid.lengths`."""
    neighbours = np.full((len(points), 8), -1, np.int32)
    lengths = np.zeros((len(points), 8), np.float32)
    for n in range(len(points)):
        x, z = column[n] % width, column[n] // width
        for side in range(4):
            across, deep = x + _AROUND[side, 0], z + _AROUND[side, 1]
            if across < 0 or across >= width or deep >= depth:
                continue
            c = deep * width + across
            best = LONGEST_EDGE
            for m in range(columns[c], columns[c + 1]):
                if abs(points[m, 1] - points[n, 1]) > LONGEST_EDGE:
                    continue
                if nav.polygon_island[polygons[m]] != nav.polygon_island[polygons[n]]:
                    continue
                a, b = point_at(n, points), point_at(m, points)
                path = distance(a, b)
                straight = in_line_of_sight(nav, polygons[n], a, polygons[m], b)
                if not straight:
                    path = geodesic_distance(nav, 0, a, b, scratch, 0)
                if path <= best:
                    best = path
                    kept = np.float32(0.0) if straight else path
                    neighbours[n, side], lengths[n, side] = m, kept
            if neighbours[n, side] >= 0:
                m = neighbours[n, side]
                neighbours[m, side + 4], lengths[m, side + 4] = n, lengths[n, side]
    return neighbours, lengths


_CELL, _HALF, _ZERO = np.float32(CELL), np.float32(0.5), np.float32(0.0)
_INF = np.float32(np.inf)
_GAIN = np.float32(1e-5)
"""Smallest improvement of a node's distance, metres."""


def distance_fields(navmesh: NavMesh, grid: GoalGrid, sources: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Distance fields of several sets of sources.

    Args:
        navmesh: the navmesh of the grid.
        grid: nodes at which distances are computed.
        sources: S sets of points f32 [n, 3], metres, on the navmesh.

    Returns:
        Anchor and path length from there f32 [S, M, 4], metres (inf where no source can be reached), and i32 [S, M],
        the number of the nearest source in its set, -1 for none.
    """
    first = np.cumsum([0, *map(len, sources)]).astype(np.int32)
    points = np.concatenate([np.zeros((0, 3), np.float32), *sources]).astype(np.float32)
    values = np.full((len(sources), len(grid.points), 4), np.inf, np.float32)
    nearest = np.full((len(sources), len(grid.points)), -1, np.int32)
    if values.size and len(points):
        scratch = view(search_scratch(search_size(navmesh.data), len(sources), torch.device("cpu")))

        def spread(s: int) -> None:
            own = points[first[s] : first[s + 1]]
            _spread(navmesh.data, grid, own, scratch, np.int64(s), values[s], nearest[s])

        in_threads(spread, range(len(sources)))
    return values, nearest


@cpu_function
def _spread(nav, grid, sources, scratch, row, values_out, nearest_out):
    """The field of one set of sources, by Dijkstra's algorithm with line-of-sight shortcuts to anchors."""
    count = len(grid.points)
    total, anchor_polygon = np.full(count, _INF, np.float32), np.full(count, -1, np.int32)
    heap, place, size = np.empty(count, np.int32), np.full(count, -1, np.int32), 0
    for s in range(len(sources)):
        polygon, source = nearest_polygon(nav, np.int32(0), point_at(s, sources))
        if polygon < 0:
            continue
        x, z = _column_of(source, grid)
        for dz in range(-1, 2):
            for dx in range(-1, 2):
                c = (z + dz) * grid.shape[0] + x + dx
                if x + dx < 0 or x + dx >= grid.shape[0] or z + dz < 0 or z + dz >= grid.shape[1]:
                    continue
                for n in range(grid.columns[c], grid.columns[c + 1]):
                    node = point_at(n, grid.points)
                    length = distance(source, node)
                    if length > LONGEST_EDGE or length >= total[n]:
                        continue
                    anchor, before, of_anchor = source, _ZERO, polygon
                    if not in_line_of_sight(nav, polygon, source, grid.polygons[n], node):
                        length = geodesic_distance(nav, np.int32(0), source, node, scratch, row)
                        anchor, before, of_anchor = node, length, grid.polygons[n]
                    if length <= LONGEST_EDGE and length < total[n] - _GAIN:
                        _keep(n, anchor, before, values_out)
                        total[n], nearest_out[n], anchor_polygon[n] = length, s, of_anchor
                        size = _raise(n, size, total, heap, place)
    while size > 0:
        n = heap[0]
        size = _pop(size, total, heap, place)
        here, anchor = point_at(n, grid.points), point_at(n, values_out)
        before = values_out[n, 3]
        for side in range(8):
            m = grid.neighbours[n, side]
            if m < 0:
                continue
            there, bent = point_at(m, grid.points), grid.lengths[n, side]
            if bent > _ZERO:
                if total[n] + bent < total[m] - _GAIN:
                    _keep(m, there, total[n] + bent, values_out)
                    total[m], nearest_out[m], anchor_polygon[m] = total[n] + bent, nearest_out[n], grid.polygons[m]
                    size = _raise(m, size, total, heap, place)
                continue
            length = before + distance(anchor, there)
            if length >= total[m] - _GAIN:
                continue
            if in_line_of_sight(nav, anchor_polygon[n], anchor, grid.polygons[m], there):
                _keep(m, anchor, before, values_out)
                total[m], nearest_out[m], anchor_polygon[m] = length, nearest_out[n], anchor_polygon[n]
                size = _raise(m, size, total, heap, place)
                continue
            length = total[n] + distance(here, there)
            if length < total[m] - _GAIN:
                _keep(m, here, total[n], values_out)
                total[m], nearest_out[m], anchor_polygon[m] = length, nearest_out[n], grid.polygons[n]
                size = _raise(m, size, total, heap, place)


@cpu_function
def _keep(n, anchor, length, values_out):
    """Write a node's anchor and the path length from there."""
    values_out[n, 0], values_out[n, 1], values_out[n, 2] = anchor
    values_out[n, 3] = length


@cpu_function
def _column_of(point, grid):
    """Column of a point, along x and z."""
    x = int(np.floor((point[0] - grid.origin[0]) / _CELL + _HALF))
    return x, int(np.floor((point[2] - grid.origin[1]) / _CELL + _HALF))


@cpu_function
def _raise(n, size, total, heap_out, place_out):
    """Insert a node into the heap, or move it up after its total fell; returns the size of the heap."""
    k = place_out[n]
    if k < 0:
        k, size = size, size + 1
    while k > 0:
        parent = (k - 1) // 2
        if total[heap_out[parent]] <= total[n]:
            break
        heap_out[k] = heap_out[parent]
        place_out[heap_out[k]] = k
        k = parent
    heap_out[k], place_out[n] = n, k
    return size


@cpu_function
def _pop(size, total, heap_out, place_out):
    """Remove the first node of the heap; returns the size of the heap."""
    place_out[heap_out[0]] = -1
    size -= 1
    if size == 0:
        return size
    n, k = heap_out[size], 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and total[heap_out[child + 1]] < total[heap_out[child]]:
            child += 1
        if total[heap_out[child]] >= total[n]:
            break
        heap_out[k] = heap_out[child]
        place_out[heap_out[k]] = k
        k = child
    heap_out[k], place_out[n] = n, k
    return size
