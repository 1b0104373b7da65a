"""Exact geometry of integer points in the plane: a point is a row (x, y, z) of which x and z count.

After O'Rourke, "Computational Geometry in C", chapter 1. "Left" is as seen with z pointing down the page.
"""

from batchnav.device import device_function


@device_function
def turn(a, b, c):
    """Twice the signed area of triangle a, b, c; negative where c is left of the line from a to b."""
    return (b[0] - a[0]) * (c[2] - a[2]) - (c[0] - a[0]) * (b[2] - a[2])


@device_function
def same_place(a, b):
    """Whether two points coincide."""
    return a[0] == b[0] and a[2] == b[2]


@device_function
def crosses(a, b, c, d):
    """Whether segments ab and cd share a point that is inside both."""
    abc, abd, cda, cdb = turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b)
    if abc == 0 or abd == 0 or cda == 0 or cdb == 0:
        return False
    return (abc < 0) != (abd < 0) and (cda < 0) != (cdb < 0)


@device_function
def on_segment(a, b, c):
    """Whether point c lies on the closed segment ab."""
    if turn(a, b, c) != 0:
        return False
    axis = 0 if a[0] != b[0] else 2
    return min(a[axis], b[axis]) <= c[axis] <= max(a[axis], b[axis])


@device_function
def touches(a, b, c, d):
    """Whether segments ab and cd share any point."""
    return crosses(a, b, c, d) or on_segment(a, b, c) or on_segment(a, b, d) or on_segment(c, d, a) or on_segment(c, d, b)


@device_function
def sees(before, corner, after, point, strict):
    """Whether `point` lies in the cone that a polygon's corner opens inwards; `strict` leaves the cone's rim out."""
    if turn(before, corner, after) <= 0:  # convex
        left, right = turn(corner, point, before), turn(point, corner, after)
        if strict:
            return left < 0 and right < 0
        return left <= 0 and right <= 0
    return not (turn(corner, point, after) <= 0 and turn(point, corner, before) <= 0)
