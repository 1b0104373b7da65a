"""Random points, uniform over a scene's walkable area as seen from above (Habitat's weighting)."""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO, mix, twice_area
from batchnav.navmesh.data import as_int
from batchnav.navmesh.locate import distance_to_polygon
from batchnav.runtime.intrinsics import load4
from batchnav.runtime.kernels import inline_function, lean_function


@lean_function
def random_point(nav, scene, u0, u1, u2):
    """Three uniform numbers in [0, 1) -> (polygon, x, y, z) on the floor of one of the scene's walkable polygons."""
    _, _, first_polygon, _ = load4(nav.scenes, scene, 4)
    number, climb, _, _ = load4(nav.scenes, scene, 8)
    low = as_int(first_polygon)
    high = low + as_int(number) - 1
    while low < high:  # the first polygon whose cumulative share exceeds u0
        middle = (low + high) >> 1
        if nav.cumulative_area[middle] > u0:
            high = middle
        else:
            low = middle + 1
    polygon = np.int32(low)
    x, y, z = _point_in(nav, polygon, u1, u2)
    _, x, y, z = distance_to_polygon(nav, polygon, x, y, z, climb)
    return polygon, x, y, z


@inline_function
def _point_in(nav, polygon, u, v):
    """Uniform point of a convex polygon: a triangle of its fan by area, then a point of the triangle."""
    count = as_int(nav.polygons[polygon, 0])
    ax, ay, az, _ = load4(nav.polygons, polygon, 8)
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
    bx, by, bz, _ = load4(nav.polygons, polygon, 4 + 4 * chosen)
    cx, cy, cz, _ = load4(nav.polygons, polygon, 8 + 4 * chosen)
    root = math.sqrt(v)
    part = min(max(part, ZERO), ONE)
    return (
        mix(ax, mix(bx, cx, part), root),
        mix(ay, mix(by, cy, part), root),
        mix(az, mix(bz, cz, part), root),
    )


@inline_function
def _fan_area(nav, polygon, i):
    ax, _, az, _ = load4(nav.polygons, polygon, 8)
    bx, _, bz, _ = load4(nav.polygons, polygon, 4 + 4 * i)
    cx, _, cz, _ = load4(nav.polygons, polygon, 8 + 4 * i)
    return abs(twice_area(ax, az, bx, bz, cx, cz))
