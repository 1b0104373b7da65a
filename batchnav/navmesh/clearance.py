"""How far the nearest wall is: Detour's findDistanceToWall, as Habitat's `distance_to_closest_obstacle` calls it."""

import math

import numpy as np

from batchnav.geometry.polygon import ZERO, closest_on_segment
from batchnav.navmesh.data import NODE_POOL, WALL, as_float, as_int, slots
from batchnav.navmesh.heap import (
    CLOSED,
    OPEN,
    begin_search,
    heap_decrease,
    heap_pop,
    heap_push,
    read_node,
    write_node,
)
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.intrinsics import load4
from batchnav.runtime.kernels import inline_function, lean_function

_NOWHERE = np.float32(np.inf)


@lean_function
def distance_to_wall(nav, scene, x, y, z, max_distance, scratch, row):
    """Distance in metres, seen from above, to the nearest wall; `max_distance` where none is nearer; inf off the mesh.

    Only walls that can be reached through portals within that distance count: not those of another floor or room.
    """
    start, x, y, z = nearest_polygon(nav, scene, x, y, z)
    if start < 0:
        return _NOWHERE
    _, _, first_polygon, side_shift = load4(nav.scenes, scene, 4)
    offset, shift = as_int(first_polygon), as_int(side_shift)
    base = slots(scratch, row)
    heap = base + scratch.heap
    stamp = begin_search(scratch, base, scratch.heap - 1)
    node = (start - offset) << shift
    write_node(scratch, base, node, ZERO, -1, -1, stamp + OPEN)
    heap_push(scratch, heap, 0, ZERO, node)
    size, seen, nearest = 1, 1, max_distance * max_distance
    while size > 0:
        _, node = heap_pop(scratch, heap, size)
        size -= 1
        cost, first, via, _ = read_node(scratch, base, node, stamp)
        scratch.data[base + 1 + node, 3] = as_float(stamp + CLOSED)
        polygon = offset + (node >> shift)
        nearest = _nearest_wall(nav, polygon, x, z, nearest)
        px, py, pz, parent = x, y, z, np.int32(-1)
        if first >= 0:
            px, py, pz, _ = load4(nav.link_middle, first, 0)
            parent = as_int(nav.link_portal[via >> 2, 7])
        for link in range(nav.link_start[polygon], nav.link_start[polygon + 1]):
            mx, my, mz, to = load4(nav.link_middle, link, 0)
            target, edge = as_int(to), as_int(nav.link_portal[link, 3]) & 7
            if target == parent or _distance_to_edge(nav, polygon, edge, x, z) > nearest:
                continue
            neighbour = (target - offset) << shift
            old_cost, old_first, _, state = read_node(scratch, base, neighbour, stamp)
            if state == CLOSED:
                continue
            if state == 0:
                if seen == NODE_POOL:
                    continue
                seen += 1
                old_first = np.int32(link)
            elif old_first != link:
                mx, my, mz, _ = load4(nav.link_middle, old_first, 0)
            dx, dy, dz = mx - px, my - py, mz - pz
            total = cost + math.sqrt(dx * dx + dy * dy + dz * dz)
            if state == OPEN and total >= old_cost:
                continue
            write_node(scratch, base, neighbour, total, old_first, link << 2, stamp + OPEN)
            if state == OPEN:
                heap_decrease(scratch, heap, size, total, neighbour)
            else:
                heap_push(scratch, heap, size, total, neighbour)
                size += 1
    return math.sqrt(nearest)


@inline_function
def _nearest_wall(nav, polygon, x, z, nearest):
    """The smaller of `nearest` and the squared distance to a polygon's walls."""
    count = as_int(nav.polygons[polygon, 0])
    ax, _, az, neighbour = load4(nav.polygons, polygon, 4 + 4 * count)
    for i in range(count):
        bx, _, bz, after = load4(nav.polygons, polygon, 8 + 4 * i)
        if as_int(neighbour) == WALL:
            _, d = closest_on_segment(x, z, ax, az, bx, bz)
            nearest = min(nearest, d)
        ax, az, neighbour = bx, bz, after
    return nearest


@inline_function
def _distance_to_edge(nav, polygon, edge, x, z):
    """Squared distance, seen from above, to a polygon's edge."""
    after = edge + 1 if edge + 1 < as_int(nav.polygons[polygon, 0]) else 0
    ax, _, az, _ = load4(nav.polygons, polygon, 8 + 4 * edge)
    bx, _, bz, _ = load4(nav.polygons, polygon, 8 + 4 * after)
    _, d = closest_on_segment(x, z, ax, az, bx, bz)
    return d
