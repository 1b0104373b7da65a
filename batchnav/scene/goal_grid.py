"""Grid over a navmesh on which distance fields are computed: columns of 0.1 m, with a node per floor in each.

The node of a column is the point of the floor that is nearest to the column's centre. Every point of the navmesh is in
a column with a node on its floor. Two nodes of adjacent columns are neighbours if the straight line between them stays
on the navmesh, or if there is a short path around a corner.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.geometry.point import distance, point_at
from batchnav.geometry.polygon import ZERO
from batchnav.navmesh.data import POLYGON_ROW, records
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.line_of_sight import in_line_of_sight
from batchnav.navmesh.locate import distance_to_polygon
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.scratch import search_scratch, search_size
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_function

CELL = 0.1
"""Side of a column, metres."""
SAME_FLOOR = np.float32(0.4)
"""Largest difference of height of points of one floor within a column, metres."""
LONGEST_EDGE = np.float32(0.5)
"""Longest path around a corner between neighbours, metres."""
_CELL, _HALF = np.float32(CELL), np.float32(0.5)
_REACH = np.float32(CELL * math.sqrt(0.5) * 1.001)
"""Largest distance of a node from its column's centre: half a diagonal."""
_INF = np.float32(np.inf)


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
                centre_x, centre_z = origin[0] + np.float32(x) * _CELL, origin[1] + np.float32(z) * _CELL
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
