"""Candidates for the point with the largest geodesic distance from a start, by one Dijkstra search over polygons.

The exact farthest point needs the shortest-path map of the polygonal domain. Here a search computes, for every polygon,
the length of a path through the midpoints of portals. The vertices with the largest lengths are the candidates; the
caller takes the one with the longest exact path. This is exact in rooms without obstacles, since the farthest point of
a domain without holes is a vertex. Behind an obstacle with paths on both sides, the farthest point may be between
vertices, slightly farther.
"""

import numpy as np

from batchnav.geometry.polygon import ZERO, same_point
from batchnav.geometry.pose import distance
from batchnav.navmesh.data import link_middle, link_side, polygon_links, polygon_size, polygon_vertex, scene_nodes
from batchnav.navmesh.heap import (
    CLOSED,
    MAX_VISITS,
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

CANDIDATES = 8
"""Number of candidate vertices."""
_NONE = np.float32(-1.0)


@lean_function
def far_vertices(i, nav, scene, start, scratch, row, candidates_out):
    """Write the CANDIDATES vertices that are farthest from `start` to row i of f32 [N, CANDIDATES, 4].

    Columns are x, y, z and the length of the path through the midpoints of portals; -1 if there are fewer vertices.
    """
    for k in range(CANDIDATES):
        candidates_out[i, k, 3] = _NONE
    first, here = nearest_polygon(nav, scene, start)
    if first < 0:
        return
    offset, shift = scene_nodes(nav, scene)
    stamp = begin_search(scratch, row)
    node = (first - offset) << shift
    write_node(node, ZERO, -1, -1, stamp + OPEN, scratch, row)
    heap_push(0, ZERO, node, scratch, row)
    size, seen, visits = 1, 1, 0
    while size > 0 and visits < MAX_VISITS:
        cost, node = heap_pop(size, scratch, row)
        size, visits = size - 1, visits + 1
        _, entry, _, _ = read_node(node, stamp, scratch, row)
        write_state(node, stamp + CLOSED, scratch, row)
        polygon, place = offset + (node >> shift), here
        if entry >= 0:
            place, _ = link_middle(nav, entry)
        for k in range(polygon_size(nav, polygon)):
            vertex = polygon_vertex(nav, polygon, k)
            _keep_far(i, vertex, cost + distance(place, vertex), candidates_out)
        first_link, end_link = polygon_links(nav, polygon)
        for link in range(first_link, end_link):
            middle, target = link_middle(nav, link)
            neighbour = target - offset
            if shift > 0:
                neighbour = (neighbour << shift) + link_side(nav, link)
            old_cost, _, _, state = read_node(neighbour, stamp, scratch, row)
            new_cost = cost + distance(place, middle)
            if state == CLOSED or (state == OPEN and new_cost >= old_cost) or (state == 0 and seen == NODE_POOL):
                continue
            write_node(neighbour, new_cost, np.int32(link), -1, stamp + OPEN, scratch, row)
            if state == OPEN:
                heap_decrease(size, new_cost, neighbour, scratch, row)
            else:
                heap_push(size, new_cost, neighbour, scratch, row)
                size, seen = size + 1, seen + 1


@inline_function
def _keep_far(i, vertex, length, candidates_out):
    """Insert a vertex into the candidates in place of the nearest; a vertex occurs once, with its shortest length."""
    least, place = length, -1
    for k in range(CANDIDATES):
        kept = candidates_out[i, k, 3]
        known = candidates_out[i, k, 0], candidates_out[i, k, 1], candidates_out[i, k, 2]
        if kept >= ZERO and same_point(known, vertex):
            candidates_out[i, k, 3] = min(kept, length)
            return
        if kept < least:
            least, place = kept, k
    if place >= 0:
        candidates_out[i, place, 0], candidates_out[i, place, 1], candidates_out[i, place, 2] = vertex
        candidates_out[i, place, 3] = length
