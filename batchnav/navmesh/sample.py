"""Random points, uniformly distributed over a scene's walkable area as seen from above, as in Habitat."""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO, twice_area
from batchnav.geometry.pose import mix
from batchnav.navmesh.data import polygon_size, polygon_vertex, scene_climb, scene_polygons
from batchnav.navmesh.locate import distance_to_polygon
from batchnav.runtime.kernels.decorators import inline_function, lean_function


@lean_function
def random_point(nav, scene, uniforms):
    """Three uniform numbers in [0, 1) -> (polygon, point) on the walkable surface of a scene."""
    low, number = scene_polygons(nav, scene)
    high = low + number - 1
    while low < high:  # binary search: first polygon whose cumulative area exceeds the first number
        middle = (low + high) >> 1
        if nav.cumulative_area[middle] > uniforms[0]:
            high = middle
        else:
            low = middle + 1
    polygon = np.int32(low)
    inside = _point_in(nav, polygon, uniforms[1], uniforms[2])
    _, point = distance_to_polygon(nav, polygon, inside, scene_climb(nav, scene))
    return polygon, point


@inline_function
def _point_in(nav, polygon, u, v):
    """Uniform point in a convex polygon: a triangle of its fan by area, then a point in the triangle."""
    count = polygon_size(nav, polygon)
    whole = ZERO
    for i in range(2, count):
        whole += _fan_area(nav, polygon, i)
    goal, reached, chosen, part = u * whole, ZERO, count - 1, ZERO
    for i in range(2, count):
        area = _fan_area(nav, polygon, i)
        if goal < reached + area:
            chosen, part = i, (goal - reached) / area
            break
        reached += area
    far_edge = polygon_vertex(nav, polygon, chosen - 1), polygon_vertex(nav, polygon, chosen)
    across = mix(far_edge[0], far_edge[1], min(max(part, ZERO), ONE))
    return mix(polygon_vertex(nav, polygon, 0), across, math.sqrt(v))


@inline_function
def _fan_area(nav, polygon, i):
    a, b, c = polygon_vertex(nav, polygon, 0), polygon_vertex(nav, polygon, i - 1), polygon_vertex(nav, polygon, i)
    return abs(twice_area(a, b, c))
