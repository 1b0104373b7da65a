"""The places that are farthest from a point, by path: candidates from one flood over the polygons.

Exact would be the farthest point of a polygonal domain, which takes a map of all shortest paths. Here a flood gives
every polygon the length of a path through the middles of portals, and the vertices for which that is largest are the
candidates; whoever asks takes the one with the longest true path. In rooms without obstacles that is exact, since the
farthest point of a domain without holes is one of its vertices; behind an obstacle that can be passed on both sides the
true farthest point may lie between vertices, a little farther.
"""

import numpy as np

from batchnav.geometry.point import distance
from batchnav.geometry.polygon import ZERO, same_point
from batchnav.navmesh.data import (
    MAX_VISITS,
    NODE_POOL,
    link_middle,
    link_side,
    polygon_links,
    polygon_size,
    polygon_vertex,
    scene_nodes,
)
from batchnav.navmesh.heap import (
    CLOSED,
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
"""Vertices whose paths are worth measuring."""
_NONE = np.float32(-1.0)


@lean_function
def far_vertices(i, nav, scene, start, scratch, row, candidates_out):
    """Write the CANDIDATES vertices that a flood from `start` finds farthest into row i of f32 [N, CANDIDATES, 4].

    Each as x, y, z and the length of its path through the middles of portals; -1 where there are fewer vertices.
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
    """Keep a vertex among the farthest: once, with its shortest length, in the place of the nearest of them."""
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
