"""Straight lines on the navmesh: does the segment between two points stay on the surface?"""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO
from batchnav.navmesh.data import (
    SEVERAL,
    link_edge,
    link_portal,
    link_target,
    polygon_centre,
    polygon_edge,
    polygon_links,
    polygon_size,
)
from batchnav.navmesh.locate import distance_to_polygon
from batchnav.runtime.kernels.decorators import inline_function, lean_function

_SLACK = np.float32(1e-3)
"""Metres by which a line may pass outside of a polygon: points on walls are on the surface."""
_SAME_FLOOR = np.float32(0.3)
"""Largest difference of height between a line's end and the polygon that the line reaches, metres."""
_MAX_POLYGONS = 256


@lean_function
def in_line_of_sight(nav, polygon, start, target, end):
    """True if the straight line from `start`, on `polygon`, to `end`, on `target`, crosses no wall, seen from above."""
    reached = polygon
    for _ in range(_MAX_POLYGONS):
        edge, along = _exit(nav, reached, start, end)
        if edge < 0:
            if reached == target:
                return True
            _, closest = distance_to_polygon(nav, reached, end, ZERO)
            return abs(closest[1] - end[1]) < _SAME_FLOOR
        _, neighbour = polygon_edge(nav, reached, edge)
        if neighbour == SEVERAL:
            crossing = start[0] + (end[0] - start[0]) * along, start[2] + (end[2] - start[2]) * along
            neighbour = _across(nav, reached, edge, crossing)
        if neighbour < 0 or nav.polygon_island[neighbour] < 0:
            return False
        reached = neighbour
    return False


@inline_function
def _exit(nav, polygon, start, end):
    """(edge, parameter) where the line from start to end leaves a convex polygon; edge -1: it ends inside."""
    count, centre = polygon_size(nav, polygon), polygon_centre(nav, polygon)
    found, first = -1, np.float32(2.0)
    a, _ = polygon_edge(nav, polygon, count - 1)
    edge = count - 1
    for k in range(count):
        b, _ = polygon_edge(nav, polygon, k)
        ex, ez = b[0] - a[0], b[2] - a[2]
        length = np.float32(math.sqrt(ex * ex + ez * ez))
        if length > ZERO:
            side = ONE if ex * (centre[2] - a[2]) - ez * (centre[0] - a[0]) > ZERO else -ONE
            before = side * (ex * (start[2] - a[2]) - ez * (start[0] - a[0])) / length + _SLACK
            after = side * (ex * (end[2] - a[2]) - ez * (end[0] - a[0])) / length + _SLACK
            if after < ZERO and after < before:
                along = max(before / (before - after), ZERO)
                if along < first:
                    found, first = edge, along
        a, edge = b, k
    return found, first


@inline_function
def _across(nav, polygon, edge, crossing):
    """Polygon across an edge with several neighbours, at a point (x, z); -1 for none."""
    first, end = polygon_links(nav, polygon)
    for link in range(first, end):
        if link_edge(nav, link) == edge:
            left, right = link_portal(nav, link)
            ex, ez = right[0] - left[0], right[2] - left[2]
            length = np.float32(math.sqrt(ex * ex + ez * ez))
            along = (crossing[0] - left[0]) * ex + (crossing[1] - left[2]) * ez
            if -_SLACK * length <= along <= (length + _SLACK) * length:
                return link_target(nav, link)
    return np.int32(-1)
