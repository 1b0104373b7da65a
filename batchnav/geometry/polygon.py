"""Points, segments and convex polygons in the horizontal plane (x and z), with Detour's order of operations.

Points are tuples (x, y, z) of float32. The order of operations is fixed, since rounding decides ties between polygons
and thereby which corridor a search finds.
"""

import numpy as np

from batchnav.geometry.pose import squared_distance
from batchnav.runtime.kernels.decorators import inline_function

ZERO, ONE = np.float32(0.0), np.float32(1.0)
_PARALLEL = np.float32(1e-6)
_SAME_POINT = np.float32((1.0 / 16384.0) ** 2)


@inline_function
def edge_crosses(p, a, b):
    """True if the ray from p along +x crosses edge ab; a point is inside if it crosses an odd number of edges.

    Even-odd rule with Detour's rounding; `a` is the later vertex of the edge and `b` the earlier one.
    """
    (px, _, pz), (ax, _, az), (bx, _, bz) = p, a, b
    return ((az > pz) != (bz > pz)) and (px < (bx - ax) * (pz - az) / (bz - az) + ax)


@inline_function
def closest_on_segment(p, a, b):
    """Parameter t in [0, 1] of the point of segment ab that is closest to p, and its squared distance to p."""
    (px, _, pz), (ax, _, az), (bx, _, bz) = p, a, b
    ex, ez = bx - ax, bz - az
    dx, dz = px - ax, pz - az
    length2 = ex * ex + ez * ez
    t = ex * dx + ez * dz
    if length2 > ZERO:
        t = t / length2
    t = min(max(t, ZERO), ONE)
    dx, dz = ax + t * ex - px, az + t * ez - pz
    return t, dx * dx + dz * dz


@inline_function
def intersect_segments(a, b, c, d):
    """Intersection of the lines through ab and cd: (not parallel, parameter on ab, parameter on cd)."""
    ux, uz = b[0] - a[0], b[2] - a[2]
    vx, vz = d[0] - c[0], d[2] - c[2]
    wx, wz = a[0] - c[0], a[2] - c[2]
    cross = uz * vx - ux * vz
    if abs(cross) < _PARALLEL:
        return False, ZERO, ZERO
    return True, (vz * wx - vx * wz) / cross, (uz * wx - ux * wz) / cross


@inline_function
def twice_area(a, b, c):
    """Twice the signed area of triangle abc in the horizontal plane; positive if c is to the right of ab."""
    return (c[0] - a[0]) * (b[2] - a[2]) - (b[0] - a[0]) * (c[2] - a[2])


@inline_function
def height_on_triangle(p, a, b, c):
    """Pair: True if p is above or below triangle abc, and the height (y) of the triangle there."""
    v0x, v0y, v0z = c[0] - a[0], c[1] - a[1], c[2] - a[2]
    v1x, v1y, v1z = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    v2x, v2z = p[0] - a[0], p[2] - a[2]
    scale = v0x * v1z - v0z * v1x
    if abs(scale) < _PARALLEL:
        return False, ZERO
    u = v1z * v2x - v1x * v2z
    v = v0x * v2z - v0z * v2x
    if scale < ZERO:
        scale, u, v = -scale, -u, -v
    if u >= ZERO and v >= ZERO and (u + v) <= scale:
        return True, a[1] + (v0y * u + v1y * v) / scale
    return False, ZERO


@inline_function
def same_point(a, b):
    """True if two points are within 1/16384 m; such corners of a path are merged."""
    return squared_distance(a, b) < _SAME_POINT
