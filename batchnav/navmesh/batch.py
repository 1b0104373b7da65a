"""Batched queries: the `prange` loop and the CUDA grid of each query.

A CPU chunk or a CUDA thread owns one row of scratch and processes its share of the points. The index of `prange` is
unsigned; a cast to int64 avoids a second compilation of every function.
"""

import numpy as np
from numba import prange

from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.clearance import distance_to_wall
from batchnav.navmesh.geodesic import find_path
from batchnav.navmesh.locate import nearest_polygon
from batchnav.navmesh.sample import random_point
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, inline_function
from batchnav.runtime.kernels.rng import uniform4

_INF = np.float32(np.inf)
_SCENE = np.int32(0)


@inline_function
def _locate(i, nav, points, polygon_out, point_out):
    polygon, closest = nearest_polygon(nav, _SCENE, point_at(i, points))
    polygon_out[i] = polygon
    keep_point(i, closest, point_out)


@inline_function
def _step(i, nav, starts, ends, sliding, scratch, row, point_out):
    keep_point(i, try_step(nav, _SCENE, point_at(i, starts), point_at(i, ends), sliding, scratch, row), point_out)


@inline_function
def _path(i, nav, starts, goals, scratch, row, distance_out, corners_out):
    """Distance to the nearest goal of start i; goals f32 [N, G, 3]."""
    best, corners = _INF, 0
    for g in range(goals.shape[1]):
        goal = goals[i, g, 0], goals[i, g, 1], goals[i, g, 2]
        distance, number, _ = find_path(nav, _SCENE, point_at(i, starts), goal, scratch, row)
        if distance < best:
            best, corners = distance, number
    distance_out[i] = best
    corners_out[i] = corners


@inline_function
def _clearance(i, nav, points, max_distance, scratch, row, distance_out):
    distance_out[i] = distance_to_wall(nav, _SCENE, point_at(i, points), max_distance, scratch, row)


@inline_function
def _sample(i, nav, seed, point_out):
    u0, u1, u2, _ = uniform4(seed, i, 0, 0)
    _, point = random_point(nav, _SCENE, (u0, u1, u2))
    keep_point(i, point, point_out)


@cpu_kernel
def locate_cpu(nav, points, polygon_out, point_out):
    """Points f32 [N, 3] -> nearest polygon i32 [N] (-1: none) and nearest point on it f32 [N, 3] (NaN: none)."""
    for i in prange(len(points)):
        _locate(np.int64(i), nav, points, polygon_out, point_out)


@cpu_kernel
def step_cpu(nav, starts, ends, sliding, chunks, scratch, point_out):
    """Steps from starts f32 [N, 3] towards ends f32 [N, 3] -> positions f32 [N, 3]."""
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * len(starts) // chunks, (row + 1) * len(starts) // chunks):
            _step(i, nav, starts, ends, sliding, scratch, row, point_out)


@cpu_kernel
def path_cpu(nav, starts, goals, chunks, scratch, distance_out, corners_out):
    """Starts f32 [N, 3], goals f32 [N, G, 3] -> distance to the nearest goal f32 [N], corners of its path i32 [N]."""
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * len(starts) // chunks, (row + 1) * len(starts) // chunks):
            _path(i, nav, starts, goals, scratch, row, distance_out, corners_out)


@cpu_kernel
def clearance_cpu(nav, points, max_distance, chunks, scratch, distance_out):
    """Points f32 [N, 3] -> distance to the nearest wall f32 [N]."""
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * len(points) // chunks, (row + 1) * len(points) // chunks):
            _clearance(i, nav, points, max_distance, scratch, row, distance_out)


@cpu_kernel
def sample_cpu(nav, seed, point_out):
    """Random points f32 [N, 3]."""
    for i in prange(len(point_out)):
        _sample(np.int64(i), nav, seed, point_out)


@exact_cuda_kernel
def locate_cuda(nav, points, polygon_out, point_out):
    """CUDA form of `locate_cpu`."""
    i = cuda.grid(1)
    if i < len(points):
        _locate(i, nav, points, polygon_out, point_out)


@exact_cuda_kernel
def step_cuda(nav, starts, ends, sliding, threads, scratch, point_out):
    """CUDA form of `step_cpu`."""
    row = cuda.grid(1)
    if row < threads:
        for i in range(row, len(starts), threads):
            _step(i, nav, starts, ends, sliding, scratch, row, point_out)


@exact_cuda_kernel
def path_cuda(nav, starts, goals, threads, scratch, distance_out, corners_out):
    """CUDA form of `path_cpu`."""
    row = cuda.grid(1)
    if row < threads:
        for i in range(row, len(starts), threads):
            _path(i, nav, starts, goals, scratch, row, distance_out, corners_out)


@exact_cuda_kernel
def clearance_cuda(nav, points, max_distance, threads, scratch, distance_out):
    """CUDA form of `clearance_cpu`."""
    row = cuda.grid(1)
    if row < threads:
        for i in range(row, len(points), threads):
            _clearance(i, nav, points, max_distance, scratch, row, distance_out)


@exact_cuda_kernel
def sample_cuda(nav, seed, point_out):
    """CUDA form of `sample_cpu`."""
    i = cuda.grid(1)
    if i < len(point_out):
        _sample(i, nav, seed, point_out)
