"""Distance to the nearest wall: Detour's findDistanceToWall, as in Habitat's `distance_to_closest_obstacle`."""

import math

import numpy as np

from batchnav.geometry.polygon import ZERO, closest_on_segment
from batchnav.geometry.pose import distance
from batchnav.navmesh.data import (
    WALL,
    link_edge,
    link_middle,
    link_source,
    polygon_edge,
    polygon_links,
    polygon_size,
    polygon_vertex,
    scene_nodes,
)
from batchnav.navmesh.heap import (
    CLOSED,
    NODE_POOL,
    OPEN,
    begin_search,
    heap_decrease,
    heap_pop,
    heap_push,
    read_node,
    write_node,
    write_state,
)
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.kernels.decorators import inline_function, lean_function

_OFF_THE_MESH = np.float32(np.inf)


@lean_function
def distance_to_wall(nav, scene, point, max_distance, scratch, row):
    """Horizontal distance in metres to the nearest wall, at most `max_distance`; inf off the mesh.

    A wall counts only if portals within that distance connect it to the point: no wall of another storey, or behind
    another wall.
    """
    start, centre = nearest_polygon(nav, scene, point)
    if start < 0:
        return _OFF_THE_MESH
    offset, shift = scene_nodes(nav, scene)
    stamp = begin_search(scratch, row)
    node = (start - offset) << shift
    write_node(node, ZERO, -1, -1, stamp + OPEN, scratch, row)
    heap_push(0, ZERO, node, scratch, row)
    size, seen, nearest = 1, 1, max_distance * max_distance
    while size > 0:
        _, node = heap_pop(size, scratch, row)
        size -= 1
        cost, entry, via, _ = read_node(node, stamp, scratch, row)
        write_state(node, stamp + CLOSED, scratch, row)
        polygon = offset + (node >> shift)
        nearest = _nearest_wall(nav, polygon, centre, nearest)
        here, parent = centre, np.int32(-1)
        if entry >= 0:
            here, _ = link_middle(nav, entry)
            parent = link_source(nav, via >> 2)
        first_link, end_link = polygon_links(nav, polygon)
        for link in range(first_link, end_link):
            middle, target = link_middle(nav, link)
            if target == parent or _distance_to_edge(nav, polygon, link_edge(nav, link), centre) > nearest:
                continue
            neighbour = (target - offset) << shift
            old_cost, old_entry, _, state = read_node(neighbour, stamp, scratch, row)
            if state == CLOSED:
                continue
            if state == 0:
                if seen == NODE_POOL:
                    continue
                seen += 1
                old_entry = np.int32(link)
            elif old_entry != link:
                middle, _ = link_middle(nav, old_entry)
            total = cost + distance(here, middle)
            if state == OPEN and total >= old_cost:
                continue
            write_node(neighbour, total, old_entry, link << 2, stamp + OPEN, scratch, row)
            if state == OPEN:
                heap_decrease(size, total, neighbour, scratch, row)
            else:
                heap_push(size, total, neighbour, scratch, row)
                size += 1
    return math.sqrt(nearest)


@inline_function
def _nearest_wall(nav, polygon, point, nearest):
    """Minimum of `nearest` and the squared distance to a polygon's walls."""
    count = polygon_size(nav, polygon)
    a, neighbour = polygon_edge(nav, polygon, count - 1)
    for i in range(count):
        b, after = polygon_edge(nav, polygon, i)
        if neighbour == WALL:
            _, d = closest_on_segment(point, a, b)
            nearest = min(nearest, d)
        a, neighbour = b, after
    return nearest


@inline_function
def _distance_to_edge(nav, polygon, edge, point):
    """Squared horizontal distance to a polygon's edge."""
    after = edge + 1 if edge + 1 < polygon_size(nav, polygon) else 0
    _, d = closest_on_segment(point, polygon_vertex(nav, polygon, edge), polygon_vertex(nav, polygon, after))
    return d
