"""Geodesic distance as in Habitat: Detour's polygon search (findPath) and funnel algorithm (findStraightPath).

The result is the length of the shortest path within the corridor that the search finds: 0 to 2% above the shortest path
on average. The search is A* over polygons. The position of a node is the midpoint of the portal through which the
search first reached it; a node is reopened if it is reached at a lower cost. The heuristic is 0.999 times the distance.
"""

import math

import numpy as np

from batchnav.geometry.polygon import ZERO, closest_on_segment, edge_crosses, same_point, twice_area
from batchnav.geometry.pose import distance, mix
from batchnav.navmesh.data import (
    link_middle,
    link_portal,
    link_reaches,
    link_side,
    link_source,
    polygon_links,
    polygon_size,
    polygon_vertex,
    scene_nodes,
)
from batchnav.navmesh.heap import (
    CLOSED,
    MAX_PATH,
    MAX_VISITS,
    NODE_POOL,
    OPEN,
    begin_search,
    heap_decrease,
    heap_least,
    heap_pop,
    heap_push,
    list_read,
    list_write,
    read_node,
    write_node,
    write_state,
)
from batchnav.navmesh.locate import FAR, NOWHERE, nearest_polygon
from batchnav.runtime.kernels.decorators import inline_function, lean_function, separate_function
from batchnav.runtime.kernels.intrinsics import fma

NO_PATH = np.float32(np.inf)
_H_SCALE = np.float32(0.999)
"""Factor of the heuristic (Detour's H_SCALE)."""
_EQUAL = np.float32(1e-5)
"""Tolerance of `_nearly_same` (Magnum)."""
_AT_PORTAL = np.float32(0.001 * 0.001)
"""Squared distance within which the start lies on the first portal, square metres."""


@lean_function
def geodesic_distance(nav, scene, start, goal, scratch, row):
    """Length in metres of the path from start to goal; inf where there is no path."""
    length, _, _ = find_path(nav, scene, start, goal, scratch, row)
    return length


@separate_function
def find_path(nav, scene, start, goal, scratch, row):
    """(length in metres, number of corners including both ends, corner after the start).

    Writes the corners to `scratch.corners`, at most `scratch.max_corners` of them.
    """
    first, on_first = nearest_polygon(nav, scene, start)
    if first < 0:
        return NO_PATH, 0, NOWHERE
    last, on_last = nearest_polygon(nav, scene, goal)
    if last < 0:
        return NO_PATH, 0, NOWHERE
    if _nearly_equal(on_first, on_last):
        _keep_corner(0, on_first, scratch, row)
        _keep_corner(1, on_last, scratch, row)
        return ZERO, 2, on_last
    if nav.polygon_island[first] != nav.polygon_island[last]:
        return NO_PATH, 0, NOWHERE
    portals = search_corridor(nav, scene, first, on_first, last, on_last, scratch, row)
    if portals < 0:
        return NO_PATH, 0, NOWHERE
    start, goal = _closest_on_outline(nav, first, start), _closest_on_outline(nav, last, goal)
    return pull_string(nav, start, goal, portals, scratch, row)


@inline_function
def search_corridor(nav, scene, first, start, last, goal, scratch, row):
    """A* over polygons, from `start` on polygon `first` to `goal` on polygon `last`.

    Returns the number of links of the corridor, which scratch lists in reverse order; -1: there is no path.
    """
    if first == last:
        return 0
    portals, tied = 0, True
    everywhere = nav.polygon_number[first] == nav.polygon_number[last]  # without numbers no branch can be skipped
    while tied:  # skipped branches change only the order of equal totals in the queue: then repeat with all branches
        portals, tied = _search(nav, scene, first, start, last, goal, everywhere, scratch, row)
        tied, everywhere = tied and not everywhere, True
    return portals


@inline_function
def _search(nav, scene, first, start, last, goal, everywhere, scratch, row):
    """(links, tied): one pass of `search_corridor`, which skips branches without start or goal unless `everywhere`."""
    from_number, to_number = nav.polygon_number[first], nav.polygon_number[last]
    tied = False
    offset, shift = scene_nodes(nav, scene)
    stamp = begin_search(scratch, row)
    node = (first - offset) << shift
    write_node(node, ZERO, -1, -1, stamp + OPEN, scratch, row)
    heap_push(0, distance(start, goal) * _H_SCALE, node, scratch, row)
    size, seen, visits = 1, 1, 0
    while size > 0 and visits < MAX_VISITS:
        total, node = heap_pop(size, scratch, row)
        size, visits = size - 1, visits + 1
        tied = tied or (size > 0 and heap_least(scratch, row) == total)
        cost, entry, via, _ = read_node(node, stamp, scratch, row)
        write_state(node, stamp + CLOSED, scratch, row)
        polygon = offset + (node >> shift)
        if polygon == last:
            return _list_links(nav, scene, node, via, stamp, scratch, row), tied
        here, parent = start, np.int32(-1)
        if entry >= 0:
            here, _ = link_middle(nav, entry)
            parent = link_source(nav, via >> 2)
        side = node & ((1 << shift) - 1)
        first_link, end_link = polygon_links(nav, polygon)
        for link in range(first_link, end_link):
            middle, target = link_middle(nav, link)
            if target == parent:
                continue
            leads = link_reaches(nav, link, to_number) or (entry >= 0 and link_reaches(nav, link, from_number))
            if not (leads or everywhere):
                continue
            neighbour = target - offset
            if shift > 0:
                neighbour = (neighbour << shift) + link_side(nav, link)
            old_cost, old_entry, _, state = read_node(neighbour, stamp, scratch, row)
            if state == 0:
                seen += 1
                if seen > NODE_POOL:
                    return -1, False
                old_entry = np.int32(link)
            elif old_entry < 0:
                continue  # the start has the lowest cost
            elif old_entry != link:
                middle, _ = link_middle(nav, old_entry)
            to_goal = distance(middle, goal)
            new_cost = cost + distance(here, middle)
            heuristic = to_goal * _H_SCALE
            if target == last:
                new_cost, heuristic = new_cost + to_goal, ZERO
            total = new_cost + heuristic
            if state != 0 and total >= old_cost + heuristic:
                continue
            write_node(neighbour, new_cost, old_entry, (link << 2) + side, stamp + OPEN, scratch, row)
            if state == OPEN:
                heap_decrease(size, total, neighbour, scratch, row)
            else:
                heap_push(size, total, neighbour, scratch, row)
                size += 1
    return -1, False


@inline_function
def _list_links(nav, scene, node, via, stamp, scratch, row):
    """List the links back to the start; returns their number, or -1 if they exceed Habitat's buffer."""
    offset, shift = scene_nodes(nav, scene)
    count = 0
    while via >= 0:
        if count == MAX_PATH - 1:
            return -1
        list_write(count, via >> 2, scratch, row)
        count += 1
        node = ((link_source(nav, via >> 2) - offset) << shift) + (via & ((1 << shift) - 1))
        _, _, via, _ = read_node(node, stamp, scratch, row)
    return count


@inline_function
def pull_string(nav, start, goal, portals, scratch, row):
    """Funnel algorithm: shortest path from start to goal through the listed portals. Returns as `find_path`."""
    _keep_corner(0, start, scratch, row)
    length, corners = ZERO, 1
    apex = latest = start  # `latest` is the first of several coinciding corners
    first = goal
    left, left_portal, right, right_portal = start, 0, start, 0
    i = 0
    while i <= portals and portals > 0:
        if i < portals:
            next_left, next_right = link_portal(nav, list_read(portals - 1 - i, scratch, row))
            if i == 0:
                _, d = closest_on_segment(apex, next_left, next_right)
                if d < _AT_PORTAL:
                    i += 1
                    continue
        else:
            next_left, next_right = goal, goal
        turn = 0
        if twice_area(apex, right, next_right) <= ZERO:
            if same_point(apex, right) or twice_area(apex, left, next_right) > ZERO:
                right, right_portal = next_right, i
            else:
                turn = 1
        if turn == 0 and twice_area(apex, left, next_left) >= ZERO:
            if same_point(apex, left) or twice_area(apex, right, next_left) < ZERO:
                left, left_portal = next_left, i
            else:
                turn = 2
        if turn != 0:
            if turn == 1:
                apex, i = left, left_portal
            else:
                apex, i = right, right_portal
            if not same_point(latest, apex):
                length += distance(latest, apex)
                _keep_corner(corners, apex, scratch, row)
                if corners == 1:
                    first = apex
                corners += 1
                latest = apex
                if corners >= MAX_PATH:
                    return NO_PATH, 0, NOWHERE
            left, left_portal, right, right_portal = apex, i, apex, i
        i += 1
    if not same_point(latest, goal):
        length += _last_leg(latest, goal)
        _keep_corner(corners, goal, scratch, row)
        corners += 1
    return length, corners, first


@inline_function
def _last_leg(a, b):
    """`distance` with another order of summation, kept because seeded runs depend on the last bit."""
    dx, dy, dz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    return math.sqrt(fma(dz, dz, fma(dy, dy, dx * dx)))


@inline_function
def _closest_on_outline(nav, polygon, point):
    """The point itself if it is inside the polygon, else the horizontally nearest point of the outline."""
    count = polygon_size(nav, polygon)
    inside, best, closest = False, FAR, point
    d_last, closest_last = FAR, point
    a = polygon_vertex(nav, polygon, count - 1)
    for i in range(count):
        b = polygon_vertex(nav, polygon, i)
        if edge_crosses(point, b, a):
            inside = not inside
        t, d = closest_on_segment(point, a, b)
        if i == 0:  # the last edge, which Detour compares last
            d_last, closest_last = d, mix(a, b, t)
        elif d < best:
            best, closest = d, mix(a, b, t)
        a = b
    if inside:
        return point
    if d_last < best:
        return closest_last
    return closest


@inline_function
def _keep_corner(corner, point, scratch, row):
    if corner < scratch.max_corners:
        at = row * scratch.max_corners + corner
        scratch.corners[at, 0], scratch.corners[at, 1], scratch.corners[at, 2] = point


@inline_function
def _nearly_equal(a, b):
    """True if all coordinates are equal by Magnum's fuzzy comparison."""
    return _nearly_same(a[0], b[0]) and _nearly_same(a[1], b[1]) and _nearly_same(a[2], b[2])


@inline_function
def _nearly_same(a, b):
    """True if a and b differ by less than 1e-5, or 1e-5 of |a| + |b|."""
    difference = abs(a - b)
    if a == ZERO or b == ZERO or difference < _EQUAL:
        return difference < _EQUAL
    return difference < _EQUAL * (abs(a) + abs(b))
