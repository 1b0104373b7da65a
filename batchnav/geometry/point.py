"""Points and vectors as tuples (x, y, z) of float32: how kernels hand them on."""

import math

from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import fma


@inline_function
def point_at(i, points):
    """Row i of an array f32 [N, 3]."""
    return points[i, 0], points[i, 1], points[i, 2]


@inline_function
def keep_point(i, point, points_out):
    """Write row i of an array f32 [N, 3]."""
    points_out[i, 0], points_out[i, 1], points_out[i, 2] = point


@inline_function
def mix(a, b, t):
    """a + (b - a) t."""
    return a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t


@inline_function
def squared_distance(a, b):
    """Squared distance of two points; rounded as said here, since what a compiler fuses depends on the code around."""
    dx, dy, dz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    return fma(dz, dz, fma(dx, dx, dy * dy))


@inline_function
def distance(a, b):
    """Distance of two points."""
    return math.sqrt(squared_distance(a, b))


@inline_function
def within(point, limit):
    """Whether all coordinates are below `limit` in size; not where one is NaN."""
    return abs(point[0]) < limit and abs(point[1]) < limit and abs(point[2]) < limit
