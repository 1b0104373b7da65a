"""Kernels of batched queries, for one point each. A CPU chunk or a CUDA thread owns one row of scratch."""

import numpy as np

from batchnav.geometry.pose import point_at, store_point
from batchnav.navmesh.clearance import distance_to_wall
from batchnav.navmesh.geodesic import find_path
from batchnav.navmesh.locate import nearest_polygon
from batchnav.navmesh.sample import random_point
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4

_INF = np.float32(np.inf)
_SCENE = np.int32(0)


@kernel()
@inline_function
def locate(i, nav, points, polygon_out, point_out):
    """Nearest polygon i32 [N] (-1: none) and nearest point on it f32 [N, 3] (NaN: none) of points f32 [N, 3]."""
    polygon, closest = nearest_polygon(nav, _SCENE, point_at(i, points))
    polygon_out[i] = polygon
    store_point(i, closest, point_out)


@kernel(strided=True)
@inline_function
def step(i, nav, starts, ends, sliding, scratch, row, point_out):
    """Position f32 [N, 3] after a step from starts f32 [N, 3] towards ends f32 [N, 3]."""
    store_point(i, try_step(nav, _SCENE, point_at(i, starts), point_at(i, ends), sliding, scratch, row), point_out)


@kernel(strided=True)
@inline_function
def path(i, nav, starts, goals, scratch, row, distance_out, corners_out):
    """Distance to the nearest of goals f32 [N, G, 3] f32 [N], and number of corners of its path i32 [N]."""
    best, corners = _INF, 0
    for g in range(goals.shape[1]):
        goal = goals[i, g, 0], goals[i, g, 1], goals[i, g, 2]
        distance, number, _ = find_path(nav, _SCENE, point_at(i, starts), goal, scratch, row)
        if distance < best:
            best, corners = distance, number
    distance_out[i] = best
    corners_out[i] = corners


@kernel(strided=True)
@inline_function
def clearance(i, nav, points, max_distance, scratch, row, distance_out):
    """Distance to the nearest wall f32 [N] of points f32 [N, 3]."""
    distance_out[i] = distance_to_wall(nav, _SCENE, point_at(i, points), max_distance, scratch, row)


@kernel()
@inline_function
def sample(i, nav, seed, point_out):
    """Random points f32 [N, 3]."""
    u0, u1, u2, _ = uniform4(seed, i, 0, 0)
    _, point = random_point(nav, _SCENE, (u0, u1, u2))
    store_point(i, point, point_out)
