"""Walking: Habitat's `PathFinder::tryStep` around Detour's moveAlongSurface.

Without sliding this follows habitat-sim up to 0.3.3 (its fork of Detour stops at the first wall inside the search), not
0.3.4, which stops somewhere on the slid path.
"""

import math

import numpy as np

from batchnav.device import device_function, load4
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

_HALF = np.float32(0.5)
_SEARCH_SLACK = np.float32(1e-3)
_NUDGE = np.float32(1e-4)
_LIMIT = np.float32(1e9)
_QUEUE, _POOL, _STACK = 64, 64, 48
"""Polygons that a step may touch, and that may wait to be looked at (Detour's tiny node pool and its stack)."""
_MAX_LINKS = 8


@device_function
def try_step(nav, scene, sx, sy, sz, ex, ey, ez, sliding, scratch, row):
    """Where an agent at s gets that walks towards e: (x, y, z). s itself where an end is off the mesh or out of reach."""
    start, px, py, pz = nearest_polygon(nav, scene, sx, sy, sz)
    if start < 0 or not (abs(ex) < _LIMIT and abs(ey) < _LIMIT and abs(ez) < _LIMIT):
        return sx, sy, sz
    island = nav.polygon_island[start]
    if not _on_island(nav, scene, ex, ey, ez, start, island):
        return sx, sy, sz
    last, x, y, z = move_along_surface(nav, start, px, py, pz, ex, ey, ez, sliding, scratch, row)
    if last < 0:
        return sx, sy, sz
    over, height = floor_height(nav, last, x, z)
    if over:
        y = height
    if not _on_island(nav, scene, x, y, z, last, island):
        # The end lies on an infinitely thin wall between two islands: back into the polygon it was reached through.
        cx, cy, cz, _ = load4(nav.polygons, last, 4)
        dx, dy, dz = cx - x, cy - y, cz - z
        scale = _NUDGE / math.sqrt(dx * dx + dy * dy + dz * dz)
        x, y, z = x + scale * dx, y + scale * dy, z + scale * dz
    return x, y, z


@device_function
def _on_island(nav, scene, x, y, z, hint, island):
    """Whether the polygon nearest to a point is on an island. `hint` is a polygon of that island, likely near."""
    _, climb, _, _ = load4(nav.scenes, scene, 8)
    _, _, _, secluded = load4(nav.polygons, hint, 0)
    if as_int(secluded) != 0:
        over, height = floor_height(nav, hint, x, z)
        if over and abs(y - height) <= climb:
            return True
    polygon, _ = polygon_at_height(nav, scene, x, y, z)
    if polygon < 0:
        bound, _, _, _ = distance_to_polygon(nav, hint, x, y, z, climb)
        polygon, _, _, _ = nearest_within(nav, scene, x, y, z, bound)
        if polygon < 0:
            polygon, _, _, _ = nearest_within(nav, scene, x, y, z, FAR)
    return polygon >= 0 and nav.polygon_island[polygon] == island


@device_function
def move_along_surface(nav, start, sx, sy, sz, ex, ey, ez, sliding, scratch, row):
    """Detour's moveAlongSurface from s, on polygon `start`, towards e: (polygon, x, y, z); -1 where nothing was reached.

    Breadth first over the polygons near the step. The result is e where it is reached, else the point of the walls
    met that is nearest to e; without sliding, the nearest of the points where the walls cross the line from s to e.
    """
    last, x, y, z, examined = _move(nav, start, sx, sy, sz, ex, ey, ez, sliding, False, scratch, row)
    if examined >= _POOL:  # Detour's pool of nodes may have run out: again, and count them
        last, x, y, z, _ = _move(nav, start, sx, sy, sz, ex, ey, ez, sliding, True, scratch, row)
    return last, x, y, z


@device_function
def _move(nav, start, sx, sy, sz, ex, ey, ez, sliding, counting, scratch, row):
    """`move_along_surface`, and how many ways out of polygons were looked at."""
    mx, mz = mix(sx, ex, _HALF), mix(sz, ez, _HALF)
    dx, dy, dz = ex - sx, ey - sy, ez - sz
    radius = math.sqrt(dx * dx + dy * dy + dz * dz) * _HALF + _SEARCH_SLACK
    radius2 = radius * radius
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
                if sliding:
                    t, d = closest_on_segment(ex, ez, ax, az, bx, bz)
                    if d < best:
                        best, last, x, y, z = d, polygon, mix(ax, bx, t), mix(ay, by, t), mix(az, bz, t)
                else:
                    met, along, t = intersect_segments(sx, sz, ex, ez, ax, az, bx, bz)
                    if met and along >= ZERO and along <= ONE and t >= ZERO and t <= ONE:
                        hx, hy, hz = mix(ax, bx, t), mix(ay, by, t), mix(az, bz, t)
                        d = (ex - hx) * (ex - hx) + (ez - hz) * (ez - hz)
                        if d < best:
                            best, last, x, y, z = d, polygon, hx, hy, hz
            else:
                near = True
                if sliding:
                    _, d = closest_on_segment(mx, mz, ax, az, bx, bz)
                    near = d <= radius2
                else:
                    met, along, t = intersect_segments(sx, sz, ex, ez, ax, az, bx, bz)
                    near = met and along >= ZERO and along <= ONE and t >= ZERO and t <= ONE
                link, stop = 0, 1
                if as_int(neighbour) == SEVERAL:
                    link, stop = nav.link_start[polygon], nav.link_start[polygon + 1]
                taken = 0
                while link < stop and taken < _MAX_LINKS:
                    target = as_int(neighbour)
                    if target == SEVERAL:
                        target = np.int32(-1)
                        if as_int(nav.link_portal[link, 3]) & 7 == edge:
                            target = as_int(nav.link_middle[link, 3])
                    link += 1
                    if target < 0:
                        continue
                    taken += 1
                    examined += 1
                    if counting:
                        touched = _touch(scratch, memory, target, touched)
                        if touched < 0:
                            touched = -touched
                            continue
                    if near and tail - head < _STACK and tail < _QUEUE and not _queued(scratch, memory, target, tail):
                        _put(scratch, memory, tail, target)
                        tail += 1
            ax, ay, az, neighbour = bx, by, bz, after
            edge = i
    return last, x, y, z, examined


@device_function
def _queued(scratch, memory, polygon, tail):
    for k in range(tail):
        if _get(scratch, memory, k) == polygon:
            return True
    return False


@device_function
def _touch(scratch, memory, polygon, touched):
    """Count a polygon among those touched; the new count, or minus the old one where the pool is used up."""
    if _get(scratch, memory, 0) == polygon:
        return touched
    for k in range(touched - 1):
        if _get(scratch, memory, _QUEUE + k) == polygon:
            return touched
    if touched >= _POOL:
        return -touched
    _put(scratch, memory, _QUEUE + touched - 1, polygon)
    return touched + 1


@device_function
def _get(scratch, memory, index):
    return as_int(scratch.data[memory + (index >> 2), index & 3])


@device_function
def _put(scratch, memory, index, value):
    scratch.data[memory + (index >> 2), index & 3] = as_float(value)
