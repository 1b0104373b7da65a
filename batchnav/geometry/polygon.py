"""Points, segments and convex polygons seen from above (x and z), in the order of operations that Detour uses.

Ties between polygons, and so which corridor a search picks, depend on rounding: these are float32, without reordering.
"""

import numpy as np

from batchnav.runtime.kernels import inline_function

ZERO, ONE = np.float32(0.0), np.float32(1.0)
_PARALLEL = np.float32(1e-6)
_SAME_POINT = np.float32((1.0 / 16384.0) ** 2)


@inline_function
def edge_crosses(px, pz, ax, az, bx, bz):
    """Whether the ray from p along +x crosses edge ab; a point is inside where an odd number of edges are crossed.

    `a` is the edge's later vertex, `b` the earlier one: the even-odd rule with Detour's rounding.
    """
    return ((az > pz) != (bz > pz)) and (px < (bx - ax) * (pz - az) / (bz - az) + ax)


@inline_function
def closest_on_segment(px, pz, ax, az, bx, bz):
    """Parameter t in 0..1 of the point of segment ab nearest to p, and its squared distance."""
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
def intersect_segments(ax, az, bx, bz, cx, cz, dx, dz):
    """Where the lines through ab and cd meet: (not parallel, parameter on ab, parameter on cd)."""
    ux, uz = bx - ax, bz - az
    vx, vz = dx - cx, dz - cz
    wx, wz = ax - cx, az - cz
    d = uz * vx - ux * vz
    if abs(d) < _PARALLEL:
        return False, ZERO, ZERO
    return True, (vz * wx - vx * wz) / d, (uz * wx - ux * wz) / d


@inline_function
def twice_area(ax, az, bx, bz, cx, cz):
    """Twice the signed area of triangle abc seen from above; positive where c lies to the right of ab."""
    return (cx - ax) * (bz - az) - (bx - ax) * (cz - az)


@inline_function
def height_on_triangle(px, pz, ax, ay, az, bx, by, bz, cx, cy, cz):
    """Whether p lies over triangle abc, and the triangle's height there."""
    v0x, v0y, v0z = cx - ax, cy - ay, cz - az
    v1x, v1y, v1z = bx - ax, by - ay, bz - az
    v2x, v2z = px - ax, pz - az
    scale = v0x * v1z - v0z * v1x
    if abs(scale) < _PARALLEL:
        return False, ZERO
    u = v1z * v2x - v1x * v2z
    v = v0x * v2z - v0z * v2x
    if scale < ZERO:
        scale, u, v = -scale, -u, -v
    if u >= ZERO and v >= ZERO and (u + v) <= scale:
        return True, ay + (v0y * u + v1y * v) / scale
    return False, ZERO


@inline_function
def same_point(ax, ay, az, bx, by, bz):
    """Whether two points are within 1/16384 m, which a path's corners count as one."""
    dx, dy, dz = bx - ax, by - ay, bz - az
    return dx * dx + dy * dy + dz * dz < _SAME_POINT


@inline_function
def mix(a, b, t):
    """a + (b - a) t."""
    return a + (b - a) * t
