"""Points and vectors as tuples (x, y, z) of float32, the form that kernels pass."""

import math

from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import fma


@inline_function
def point_at(i, points):
    """Row i of an f32 [N, 3] array as a point."""
    return points[i, 0], points[i, 1], points[i, 2]


@inline_function
def keep_point(i, point, points_out):
    """Write a point to row i of an f32 [N, 3] array."""
    points_out[i, 0], points_out[i, 1], points_out[i, 2] = point


@inline_function
def mix(a, b, t):
    """Linear interpolation a + (b - a) t."""
    return a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t


@inline_function
def squared_distance(a, b):
    """Squared distance of two points, with explicit fused multiply-adds: bit-equal in every context."""
    dx, dy, dz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    return fma(dz, dz, fma(dx, dx, dy * dy))


@inline_function
def distance(a, b):
    """Euclidean distance of two points."""
    return math.sqrt(squared_distance(a, b))


@inline_function
def within(point, limit):
    """True if the absolute values of all coordinates are below `limit`; False for NaN."""
    return abs(point[0]) < limit and abs(point[1]) < limit and abs(point[2]) < limit
