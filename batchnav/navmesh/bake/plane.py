"""Geometry in the horizontal plane (x and z). Points are rows (x, y, z) of an array and are given by index.

Tests are exact for integer points. Source: O'Rourke, "Computational Geometry in C", chapter 1. "Left" assumes that z
points down the page.
"""

import numpy as np

from batchnav.runtime.kernels.decorators import lean_function


@lean_function
def turn(points, a, b, c):
    """Twice the signed area of triangle a, b, c; negative if c is left of the line from a to b."""
    x, z = points[a, 0], points[a, 2]
    return (points[b, 0] - x) * (points[c, 2] - z) - (points[c, 0] - x) * (points[b, 2] - z)


@lean_function
def same_place(points, a, b):
    """True if two points coincide."""
    return points[a, 0] == points[b, 0] and points[a, 2] == points[b, 2]


@lean_function
def distance_square(points, a, b):
    """Squared distance of two points."""
    dx, dz = points[b, 0] - points[a, 0], points[b, 2] - points[a, 2]
    return dx * dx + dz * dz


@lean_function
def _on_segment(points, a, b, c):
    """True if point c, which is collinear with a and b, is on the closed segment ab."""
    axis = 0 if points[a, 0] != points[b, 0] else 2
    p, q, r = points[a, axis], points[b, axis], points[c, axis]
    return min(p, q) <= r <= max(p, q)


@lean_function
def meets(points, a, b, c, d, strict):
    """True if segments ab and cd share a point: any point if `strict`, else an interior point of both.

    The result is False for segments with a common end.
    """
    if same_place(points, a, c) or same_place(points, b, c) or same_place(points, a, d) or same_place(points, b, d):
        return False
    abc, abd, cda, cdb = turn(points, a, b, c), turn(points, a, b, d), turn(points, c, d, a), turn(points, c, d, b)
    if abc != 0 and abd != 0 and cda != 0 and cdb != 0:
        return (abc < 0) != (abd < 0) and (cda < 0) != (cdb < 0)
    return strict and (
        (abc == 0 and _on_segment(points, a, b, c))
        or (abd == 0 and _on_segment(points, a, b, d))
        or (cda == 0 and _on_segment(points, c, d, a))
        or (cdb == 0 and _on_segment(points, c, d, b))
    )


@lean_function
def sees(points, before, corner, after, point, strict):
    """True if `point` is in the inner cone of a polygon's corner; `strict` excludes the rim of the cone."""
    if turn(points, before, corner, after) <= 0:  # convex
        left, right = turn(points, corner, point, before), turn(points, point, corner, after)
        return (left < 0 and right < 0) or (not strict and left <= 0 and right <= 0)
    return turn(points, corner, point, after) > 0 or turn(points, point, corner, before) > 0


@lean_function
def segment_distance_square(x, z, ax, az, bx, bz):
    """Squared distance of a point from a segment, all float32."""
    abx, abz = bx - ax, bz - az
    square = abx * abx + abz * abz
    t = abx * (x - ax) + abz * (z - az)
    if square > 0:
        t /= square
    t = min(max(t, np.float32(0.0)), np.float32(1.0))
    dx, dz = ax + t * abx - x, az + t * abz - z
    return dx * dx + dz * dz
