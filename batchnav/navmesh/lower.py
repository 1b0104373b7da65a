"""Points in the air that are lowered until they are near a navmesh, as Habitat's generators of view points do."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from batchnav.navmesh.data import scene_tiles, tile_box, tile_nodes, tree_node
from batchnav.navmesh.locate import distance_to_polygon, nearest_polygon
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.kernels.background import releases_lock
from batchnav.runtime.kernels.decorators import cpu_kernel, inline_function

_SCENE = np.int32(0)
_ON = np.float32(1e-2)
"""Horizontal distance up to which a point is on the mesh, metres; see `NavMesh.is_navigable`."""
_NEAR = np.float32(2e-2)
_TWO = np.float32(2.0)
"""Cells by which boxes are extended, against rounding."""


def lowered(
    navmesh: NavMesh, points: np.ndarray, first: float, other: float, step: float, times: int
) -> tuple[np.ndarray, np.ndarray]:
    """Points that are navigable, at the first height at which they are: their rows, and the points f64 [m, 3].

    Args:
        navmesh: a navmesh on the host.
        points: f64 [n, 3], metres.
        first: `max_y_delta` of `NavMesh.is_navigable` at the point itself, metres.
        other: `max_y_delta` at lower heights, metres.
        step: metres by which a point is lowered each time.
        times: how often it is lowered at most.
    """
    points, height = np.array(points, np.float64), np.empty(len(points))
    if len(points):
        _lower(navmesh.data, points, np.float32(first), np.float32(other), float(step), times, height)
    rows = np.flatnonzero(np.isfinite(height))
    points[:, 1] = height
    return rows, points[rows]


@releases_lock
@cpu_kernel
def _lower(nav, points, first, other, step, times, height_out):
    """Height f64 [N] at which each point is navigable; NaN: none. Heights are float64, as in `points`."""
    for k in prange(len(points)):
        i = np.int64(k)
        x, y, z = np.float32(points[i, 0]), points[i, 1], np.float32(points[i, 2])
        height_out[i] = np.nan
        if _is_above(nav, (x, np.float32(y), z)):
            for turn in range(times + 1):
                if turn > 0:
                    y -= step
                if _is_navigable(nav, (x, np.float32(y), z), first if turn == 0 else other):
                    height_out[i] = y
                    break


@inline_function
def _is_navigable(nav, point, max_y_delta):
    """`NavMesh.is_navigable` of one point."""
    polygon, closest = nearest_polygon(nav, _SCENE, point)
    dx, dz = closest[0] - point[0], closest[2] - point[2]
    on_mesh = polygon >= 0 and np.float32(math.sqrt(dx * dx + dz * dz)) <= _ON
    return on_mesh and abs(closest[1] - point[1]) <= max_y_delta


@inline_function
def _is_above(nav, point):
    """False where no polygon lies below, above or beside a point within 0.02 m: it is navigable at no height."""
    first_tile, end_tile = scene_tiles(nav, _SCENE)
    for tile in range(first_tile, end_tile):
        origin, _, quant, climb = tile_box(nav, tile)
        x, z = (point[0] - origin[0]) * quant, (point[2] - origin[2]) * quant
        node, end, first_polygon = tile_nodes(nav, tile)
        while node < end:
            low, high, index = tree_node(nav, node)
            meets = (
                x >= np.float32(low[0]) - _TWO and x <= np.float32(high[0]) + _TWO
                and z >= np.float32(low[2]) - _TWO and z <= np.float32(high[2]) + _TWO
            )  # fmt: skip
            if meets and index >= 0:
                polygon = np.int32(first_polygon + index)
                if nav.polygon_island[polygon] >= 0:
                    _, closest = distance_to_polygon(nav, polygon, point, climb)
                    if abs(closest[0] - point[0]) <= _NEAR and abs(closest[2] - point[2]) <= _NEAR:
                        return True
            node += 1 if meets or index >= 0 else -index
    return False
