"""Steps on the navmesh: Habitat's `PathFinder::tryStep` based on Detour's moveAlongSurface.

Without sliding it follows habitat-sim up to 0.3.3, whose fork of Detour stops at the first wall within the search;
habitat-sim 0.3.4 stops at a point of the sliding path instead.
"""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO, closest_on_segment, intersect_segments
from batchnav.geometry.pose import distance, mix, within
from batchnav.navmesh.data import (
    SEVERAL,
    WALL,
    link_edge,
    link_target,
    polygon_centre,
    polygon_edge,
    polygon_isolation,
    polygon_links,
    polygon_size,
    scene_climb,
)
from batchnav.navmesh.heap import list_read, list_write
from batchnav.navmesh.locate import (
    FAR,
    LIMIT,
    contains,
    distance_to_polygon,
    floor_height,
    nearest_polygon,
    nearest_within,
    polygon_at_height,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function, separate_function
from batchnav.runtime.kernels.intrinsics import fma

_HALF, _TWO = np.float32(0.5), np.float32(2.0)
_CLEAR = np.float32(1e-3)
"""Isolation above which no other island can be nearest, metres; a margin for rounding."""
_SEARCH_SLACK = np.float32(1e-3)
"""Distance added to the radius of the search for walls, metres (Detour)."""
_NUDGE = np.float32(1e-4)
"""Distance by which an end on a border between islands moves into its polygon, metres."""
_POOL, _STACK = 64, 48
"""Limits of a step: polygons touched and polygons queued (Detour's tiny node pool and its stack)."""
_MAX_LINKS = 8
"""Largest number of links of one edge that a step follows (Detour)."""


@lean_function
def try_step(nav, scene, start, end, sliding, scratch, row):
    """Position that an agent reaches from `start` towards `end`; `start` if they are not on one island of the mesh."""
    first, on_first = nearest_polygon(nav, scene, start)
    if first < 0 or not within(end, LIMIT):
        return start
    climb = scene_climb(nav, scene)
    over, height = floor_height(nav, first, end)
    if over and abs(end[1] - height) <= climb and polygon_isolation(nav, first) > _CLEAR:
        return end[0], height, end[2]  # the end is on the start's polygon, and no other island is near
    island = nav.polygon_island[first]
    if not _on_island(nav, scene, end, first, island, climb):
        return start
    last, reached = move_along_surface(nav, first, on_first, end, sliding, scratch, row)
    if last < 0:
        return start
    over, height = floor_height(nav, last, reached)
    if over:
        reached = reached[0], height, reached[2]
        if polygon_isolation(nav, last) > _CLEAR:
            return reached
    if not _on_island(nav, scene, reached, last, island, climb):
        # The end is on an infinitely thin wall between two islands: move it into the last polygon.
        x, y, z = reached
        cx, cy, cz = polygon_centre(nav, last)
        scale = _NUDGE / distance(reached, (cx, cy, cz))
        reached = x + scale * (cx - x), y + scale * (cy - y), z + scale * (cz - z)
    return reached


@lean_function
def _on_island(nav, scene, point, hint, island, climb):
    """True if the polygon nearest to a point is on `island`. `hint`: a polygon of that island, probably near."""
    bound, _ = distance_to_polygon(nav, hint, point, climb)
    if _TWO * math.sqrt(bound) + _CLEAR < polygon_isolation(nav, hint):
        return True
    return _nearest_is_on_island(nav, scene, point, bound, island)


@separate_function
def _nearest_is_on_island(nav, scene, point, bound, island):
    """`_on_island` by a search. `bound`: squared distance of a polygon of the mesh."""
    polygon, _ = polygon_at_height(nav, scene, point)
    if polygon < 0:
        polygon, _ = nearest_within(nav, scene, point, bound)
        if polygon < 0:
            polygon, _ = nearest_within(nav, scene, point, FAR)
    return polygon >= 0 and nav.polygon_island[polygon] == island


@inline_function
def move_along_surface(nav, first, start, end, sliding, scratch, row):
    """Detour's moveAlongSurface from `start`, on polygon `first`, towards `end`: (polygon, point); polygon -1: failed.

    Breadth-first search over the polygons near the step. The result is the end if it is reached. Else it is the point
    on the encountered walls that is nearest to the end; without sliding, the nearest intersection of the walls with the
    line from start to end.
    """
    last, point, examined = np.int32(-1), start, _POOL
    counting = False
    while examined >= _POOL:  # Detour's node pool may be exhausted: repeat with counting
        last, point, examined = _move(nav, first, start, end, counting, sliding, scratch, row)
        if counting:
            break
        counting = True
    return last, point


@inline_function
def _move(nav, first, start, end, counting, sliding, scratch, row):
    """One pass of `move_along_surface`; also returns the number of examined links."""
    middle, radius = mix(start, end, _HALF), distance(start, end) * _HALF + _SEARCH_SLACK
    best, last, point = FAR, np.int32(-1), start
    list_write(0, first, scratch, row)
    head, tail, examined, touched = 0, 1, 0, 1
    while head < tail:
        polygon = list_read(head, scratch, row)
        head += 1
        if contains(nav, polygon, end):
            return polygon, end, examined
        count = polygon_size(nav, polygon)
        edge = count - 1
        a, neighbour = polygon_edge(nav, polygon, edge)
        for i in range(count):
            b, after = polygon_edge(nav, polygon, i)
            if neighbour == WALL:
                d, t = _stop_at_wall(start, end, a, b, sliding)
                if d < best:
                    best, last, point = d, polygon, mix(a, b, t)
            else:
                if sliding:
                    _, d = closest_on_segment(middle, a, b)
                    passes = d <= radius * radius
                else:
                    passes, _ = _crossing(start, end, a, b)
                link, stop, taken = 0, 1, 0
                if neighbour == SEVERAL:
                    link, stop = polygon_links(nav, polygon)
                while link < stop and taken < _MAX_LINKS:
                    target = _target(nav, neighbour, link, edge)
                    link += 1
                    if target < 0:
                        continue
                    taken += 1
                    examined += 1
                    fits = True
                    if counting:
                        fits, touched = _touch(target, touched, scratch, row)
                    fits = fits and passes and tail - head < _STACK and tail < _POOL
                    if fits and not _queued(target, tail, scratch, row):
                        list_write(tail, target, scratch, row)
                        tail += 1
            a, neighbour, edge = b, after, i
    return last, point, examined


@inline_function
def _stop_at_wall(start, end, a, b, sliding):
    """Stopping point of a step at wall ab: (squared distance to the step's end, parameter on ab)."""
    if sliding:
        t, d = closest_on_segment(end, a, b)
        return d, t
    met, t = _crossing(start, end, a, b)
    x, _, z = mix(a, b, t)
    dx, dz = end[0] - x, end[2] - z
    return (fma(dx, dx, dz * dz) if met else FAR), t


@inline_function
def _crossing(start, end, a, b):
    """Pair: True if the line from start to end crosses edge ab, and the parameter on ab."""
    met, along, t = intersect_segments(start, end, a, b)
    return met and along >= ZERO and along <= ONE and t >= ZERO and t <= ONE, t


@inline_function
def _target(nav, neighbour, link, edge):
    """Polygon across an edge; -1 if `link` (of an edge with several) leaves through another edge."""
    if neighbour != SEVERAL:
        return neighbour
    if link_edge(nav, link) == edge:
        return link_target(nav, link)
    return np.int32(-1)


@inline_function
def _queued(polygon, tail, scratch, row):
    """True if a polygon is or was in the queue."""
    k = 0
    while k < tail and list_read(k, scratch, row) != polygon:
        k += 1
    return k < tail


@inline_function
def _touch(polygon, touched, scratch, row):
    """Add a polygon to those touched: (True if it fits in Detour's node pool, the new count)."""
    if list_read(0, scratch, row) == polygon:
        return True, touched
    for k in range(touched - 1):
        if list_read(_POOL + k, scratch, row) == polygon:
            return True, touched
    if touched >= _POOL:
        return False, touched
    list_write(_POOL + touched - 1, polygon, scratch, row)
    return True, touched + 1
