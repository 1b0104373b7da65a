"""Geodesic distance fields of goals: from every node of a grid to the nearest view point of a category.

Method: any-angle shortest paths from several sources at once (Theta*: Nash et al., AAAI 2007, without a heuristic). A
node keeps the last turning point of its path, its anchor, and the path length from there, so that the distance of any
point next to the node is `length + |point - anchor|`, exact in sight of the anchor. The anchor is a view point, or a
node near a corner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numba import prange

from batchnav.geometry.point import distance, point_at
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.line_of_sight import in_line_of_sight
from batchnav.navmesh.locate import nearest_polygon
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.scratch import search_scratch, search_size
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_function, cpu_kernel
from batchnav.scene.goal_grid import CELL, LONGEST_EDGE, GoalGrid

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
        _spread_all(navmesh.data, grid, points, first, scratch, values, nearest)
    return values, nearest


@cpu_kernel
def _spread_all(nav, grid, points, first, scratch, values_out, nearest_out):
    """`_spread` of every set."""
    for k in prange(len(first) - 1):
        s = np.int64(k)
        _spread(nav, grid, points[first[s] : first[s + 1]], scratch, s, values_out[s], nearest_out[s])


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
