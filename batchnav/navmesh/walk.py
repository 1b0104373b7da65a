"""Walking: Habitat's `PathFinder::tryStep` around Detour's moveAlongSurface.

Without sliding this follows habitat-sim up to 0.3.3 (its fork of Detour stops at the first wall inside the search), not
0.3.4, which stops somewhere on the slid path.
"""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO, closest_on_segment, intersect_segments, mix
from batchnav.navmesh.data import SEVERAL, WALL, as_float, as_int, slots
from batchnav.navmesh.locate import (
    FAR,
    contains,
    distance_to_polygon,
    floor_height,
    nearest_polygon,
    nearest_within,
    polygon_at_height,
)
from batchnav.runtime.intrinsics import load4
from batchnav.runtime.kernels import inline_function, lean_function

_HALF, _TWO = np.float32(0.5), np.float32(2.0)
_CLEAR = np.float32(1e-3)
_SEARCH_SLACK = np.float32(1e-3)
_NUDGE = np.float32(1e-4)
_LIMIT = np.float32(1e9)
_POOL, _STACK = 64, 48
"""Polygons that a step may touch, and that may wait to be looked at (Detour's tiny node pool and its stack)."""
_MAX_LINKS = 8


@lean_function
def try_step(nav, scene, sx, sy, sz, ex, ey, ez, sliding, scratch, row):
    """Where an agent at s gets that walks towards e: (x, y, z). s itself where an end is off the mesh or its island."""
    start, px, py, pz = nearest_polygon(nav, scene, sx, sy, sz)
    if start < 0 or not (abs(ex) < _LIMIT and abs(ey) < _LIMIT and abs(ez) < _LIMIT):
        return sx, sy, sz
    _, climb, _, _ = load4(nav.scenes, scene, 8)
    _, _, _, isolation = load4(nav.polygons, start, 0)
    over, height = floor_height(nav, start, ex, ez)
    if over and abs(ey - height) <= climb and isolation > _CLEAR:
        return ex, height, ez  # e is on the start's polygon, and no other island can be meant
    island = nav.polygon_island[start]
    if not _on_island(nav, scene, ex, ey, ez, start, island, climb):
        return sx, sy, sz
    last, x, y, z = move_along_surface(nav, start, px, py, pz, ex, ey, ez, sliding, scratch, row)
    if last < 0:
        return sx, sy, sz
    over, height = floor_height(nav, last, x, z)
    if over:
        y = height
        _, _, _, isolation = load4(nav.polygons, last, 0)
        if isolation > _CLEAR:
            return x, y, z
    if not _on_island(nav, scene, x, y, z, last, island, climb):
        # The end lies on an infinitely thin wall between two islands: back into the polygon it was reached through.
        cx, cy, cz, _ = load4(nav.polygons, last, 4)
        dx, dy, dz = cx - x, cy - y, cz - z
        scale = _NUDGE / math.sqrt(dx * dx + dy * dy + dz * dz)
        x, y, z = x + scale * dx, y + scale * dy, z + scale * dz
    return x, y, z


@lean_function
def _on_island(nav, scene, x, y, z, hint, island, climb):
    """Whether the polygon nearest to a point is on an island. `hint` is a polygon of that island, likely near."""
    bound, _, _, _ = distance_to_polygon(nav, hint, x, y, z, climb)
    _, _, _, isolation = load4(nav.polygons, hint, 0)
    if _TWO * math.sqrt(bound) + _CLEAR < isolation:
        return True
    polygon, _ = polygon_at_height(nav, scene, x, y, z)
    if polygon < 0:
        polygon, _, _, _ = nearest_within(nav, scene, x, y, z, bound)
        if polygon < 0:
            polygon, _, _, _ = nearest_within(nav, scene, x, y, z, FAR)
    return polygon >= 0 and nav.polygon_island[polygon] == island


@inline_function
def move_along_surface(nav, start, sx, sy, sz, ex, ey, ez, sliding, scratch, row):
    """Detour's moveAlongSurface from s, on polygon `start`, towards e: (polygon, x, y, z); -1 where nothing is reached.

    Breadth first over the polygons near the step. The result is e where it is reached, else the point of the walls
    met that is nearest to e; without sliding, the nearest of the points where the walls cross the line from s to e.
    """
    last, x, y, z, examined = np.int32(-1), sx, sy, sz, _POOL
    counting = False
    while examined >= _POOL:  # Detour's pool of nodes may have run out: again, and count them
        last, x, y, z, examined = _move(nav, start, sx, sy, sz, ex, ey, ez, sliding, counting, scratch, row)
        if counting:
            break
        counting = True
    return last, x, y, z


@inline_function
def _move(nav, start, sx, sy, sz, ex, ey, ez, sliding, counting, scratch, row):
    """`move_along_surface`, and how many ways out of polygons were looked at."""
    mx, mz = mix(sx, ex, _HALF), mix(sz, ez, _HALF)
    dx, dy, dz = ex - sx, ey - sy, ez - sz
    radius = math.sqrt(dx * dx + dy * dy + dz * dz) * _HALF + _SEARCH_SLACK
    best, last, x, y, z = FAR, np.int32(-1), sx, sy, sz
    memory = slots(scratch, row) + scratch.list
    _put(scratch, memory, 0, start)
    head, tail, examined, touched = 0, 1, 0, 1
    while head < tail:
        polygon = _get(scratch, memory, head)
        head += 1
        if contains(nav, polygon, ex, ez):
            return polygon, ex, ey, ez, examined
        count = as_int(nav.polygons[polygon, 0])
        ax, ay, az, neighbour = load4(nav.polygons, polygon, 4 + 4 * count)
        edge = count - 1
        for i in range(count):
            bx, by, bz, after = load4(nav.polygons, polygon, 8 + 4 * i)
            if as_int(neighbour) == WALL:
                d, t = _stop_at_wall(sx, sz, ex, ez, ax, az, bx, bz, sliding)
                if d < best:
                    best, last, x, y, z = d, polygon, mix(ax, bx, t), mix(ay, by, t), mix(az, bz, t)
            else:
                if sliding:
                    _, d = closest_on_segment(mx, mz, ax, az, bx, bz)
                    passes = d <= radius * radius
                else:
                    passes, _ = _crossing(sx, sz, ex, ez, ax, az, bx, bz)
                link, stop, taken = 0, 1, 0
                if as_int(neighbour) == SEVERAL:
                    link, stop = nav.link_start[polygon], nav.link_start[polygon + 1]
                while link < stop and taken < _MAX_LINKS:
                    target = _target(nav, as_int(neighbour), link, edge)
                    link += 1
                    if target < 0:
                        continue
                    taken += 1
                    examined += 1
                    fits = True
                    if counting:
                        fits, touched = _touch(scratch, memory, target, touched)
                    fits = fits and passes and tail - head < _STACK and tail < _POOL
                    if fits and not _queued(scratch, memory, target, tail):
                        _put(scratch, memory, tail, target)
                        tail += 1
            ax, ay, az, neighbour, edge = bx, by, bz, after, i
    return last, x, y, z, examined


@inline_function
def _stop_at_wall(sx, sz, ex, ez, ax, az, bx, bz, sliding):
    """Where wall ab would stop a step from s to e: (squared distance from there to e, parameter on ab)."""
    if sliding:
        t, d = closest_on_segment(ex, ez, ax, az, bx, bz)
        return d, t
    met, t = _crossing(sx, sz, ex, ez, ax, az, bx, bz)
    dx, dz = ex - mix(ax, bx, t), ez - mix(az, bz, t)
    return (dx * dx + dz * dz if met else FAR), t


@inline_function
def _crossing(sx, sz, ex, ez, ax, az, bx, bz):
    """Whether the way from s to e crosses edge ab, and where on ab."""
    met, along, t = intersect_segments(sx, sz, ex, ez, ax, az, bx, bz)
    return met and along >= ZERO and along <= ONE and t >= ZERO and t <= ONE, t


@inline_function
def _target(nav, neighbour, link, edge):
    """The polygon across an edge; -1 where `link` (one of several) leaves through another edge."""
    if neighbour != SEVERAL:
        return neighbour
    if as_int(nav.link_portal[link, 3]) & 7 == edge:
        return as_int(nav.link_middle[link, 3])
    return np.int32(-1)


@inline_function
def _queued(scratch, memory, polygon, tail):
    """Whether a polygon is, or was, in the queue."""
    k = 0
    while k < tail and _get(scratch, memory, k) != polygon:
        k += 1
    return k < tail


@inline_function
def _touch(scratch, memory, polygon, touched):
    """Count a polygon among those touched: (whether Detour's pool of nodes has room for it, the new count)."""
    if _get(scratch, memory, 0) == polygon:
        return True, touched
    for k in range(touched - 1):
        if _get(scratch, memory, _POOL + k) == polygon:
            return True, touched
    if touched >= _POOL:
        return False, touched
    _put(scratch, memory, _POOL + touched - 1, polygon)
    return True, touched + 1


@inline_function
def _get(scratch, memory, index):
    return as_int(scratch.data[memory + (index >> 2), index & 3])


@inline_function
def _put(scratch, memory, index, value):
    scratch.data[memory + (index >> 2), index & 3] = as_float(value)
