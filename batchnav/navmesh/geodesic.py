"""Geodesic distance as Habitat reports it: Detour's polygon search (findPath), then its funnel (findStraightPath).

These are lengths of the corridor that the search picks, string-pulled: 0 to 2% above the shortest path on average.
A node is a polygon, placed at the middle of the portal by which it was first reached and never moved; it is reopened
if reached more cheaply; the heuristic is 0.999 times the distance.
"""

import math

import numpy as np

from batchnav.geometry.polygon import ZERO, closest_on_segment, edge_crosses, mix, same_point, twice_area
from batchnav.navmesh.data import MAX_PATH, MAX_VISITS, NODE_POOL, as_float, as_int, slots
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
from batchnav.navmesh.locate import FAR, nearest_polygon
from batchnav.runtime.intrinsics import load4
from batchnav.runtime.kernels import inline_function, lean_function

NO_PATH = np.float32(np.inf)
_NAN = np.float32(np.nan)
_H_SCALE = np.float32(0.999)
_EQUAL = np.float32(1e-5)
_AT_PORTAL = np.float32(0.001 * 0.001)


@lean_function
def geodesic_distance(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row):
    """Length in metres of the path from s to g; inf where there is none."""
    distance, _, _, _, _ = find_path(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row)
    return distance


@lean_function
def next_corner(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row):
    """(length of the path from s to g, its first corner after s: x, y, z); (inf, NaN, NaN, NaN) where there is none."""
    distance, _, x, y, z = find_path(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row)
    return distance, x, y, z


@lean_function
def find_path(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row):
    """(length, corners with both ends, first corner after s); the corners go to `scratch.corners` if it has room."""
    start, px, py, pz = nearest_polygon(nav, scene, sx, sy, sz)
    if start < 0:
        return NO_PATH, 0, _NAN, _NAN, _NAN
    goal, qx, qy, qz = nearest_polygon(nav, scene, gx, gy, gz)
    if goal < 0:
        return NO_PATH, 0, _NAN, _NAN, _NAN
    if _nearly_equal(px, qx) and _nearly_equal(py, qy) and _nearly_equal(pz, qz):
        _keep_corner(scratch, row, 0, px, py, pz)
        _keep_corner(scratch, row, 1, qx, qy, qz)
        return ZERO, 2, qx, qy, qz
    if nav.polygon_island[start] != nav.polygon_island[goal]:
        return NO_PATH, 0, _NAN, _NAN, _NAN
    portals = search_corridor(nav, scene, start, px, py, pz, goal, qx, qy, qz, scratch, row)
    if portals < 0:
        return NO_PATH, 0, _NAN, _NAN, _NAN
    sx, sy, sz = _closest_on_outline(nav, start, sx, sy, sz)
    gx, gy, gz = _closest_on_outline(nav, goal, gx, gy, gz)
    return pull_string(nav, sx, sy, sz, gx, gy, gz, portals, scratch, row)


@inline_function
def search_corridor(nav, scene, start, sx, sy, sz, goal, gx, gy, gz, scratch, row):
    """A* over polygons. The number of links from start to goal, listed in scratch last first; -1: none."""
    if start == goal:
        return 0
    _, _, first_polygon, side_shift = load4(nav.scenes, scene, 4)
    offset, shift = as_int(first_polygon), as_int(side_shift)
    base = slots(scratch, row)
    heap = base + scratch.heap
    stamp = begin_search(scratch, base, scratch.heap - 1)
    node = (start - offset) << shift
    write_node(scratch, base, node, ZERO, -1, -1, stamp + OPEN)
    heap_push(scratch, heap, 0, _distance(sx, sy, sz, gx, gy, gz) * _H_SCALE, node)
    size, seen, visits = 1, 1, 0
    while size > 0 and visits < MAX_VISITS:
        _, node = heap_pop(scratch, heap, size)
        size, visits = size - 1, visits + 1
        cost, first, via, _ = read_node(scratch, base, node, stamp)
        scratch.data[base + 1 + node, 3] = as_float(stamp + CLOSED)
        polygon = offset + (node >> shift)
        if polygon == goal:
            return _list_links(nav, scratch, base, node, via, offset, shift, stamp)
        x, y, z, parent = sx, sy, sz, np.int32(-1)
        if first >= 0:
            x, y, z, _ = load4(nav.link_middle, first, 0)
            parent = as_int(nav.link_portal[via >> 2, 7])
        side = node & ((1 << shift) - 1)
        for link in range(nav.link_start[polygon], nav.link_start[polygon + 1]):
            mx, my, mz, to = load4(nav.link_middle, link, 0)
            target = as_int(to)
            if target == parent:
                continue
            neighbour = target - offset
            if shift > 0:
                neighbour = (neighbour << shift) + (as_int(nav.link_portal[link, 3]) >> 3)
            old_cost, old_first, _, state = read_node(scratch, base, neighbour, stamp)
            if state == 0:
                seen += 1
                if seen > NODE_POOL:
                    return -1
                old_first = np.int32(link)
            elif old_first < 0:
                continue  # the start: nothing is cheaper
            elif old_first != link:
                mx, my, mz, _ = load4(nav.link_middle, old_first, 0)
            to_goal = _distance(mx, my, mz, gx, gy, gz)
            new_cost = cost + _distance(x, y, z, mx, my, mz)
            heuristic = to_goal * _H_SCALE
            if target == goal:
                new_cost, heuristic = new_cost + to_goal, ZERO
            total = new_cost + heuristic
            if state != 0 and total >= old_cost + heuristic:
                continue
            write_node(scratch, base, neighbour, new_cost, old_first, (link << 2) + side, stamp + OPEN)
            if state == OPEN:
                heap_decrease(scratch, heap, size, total, neighbour)
            else:
                heap_push(scratch, heap, size, total, neighbour)
                size += 1
    return -1


@inline_function
def _list_links(nav, scratch, base, node, via, offset, shift, stamp):
    """Follow the links back to the start; their number, or -1 where they are more than Habitat's buffer holds."""
    count = 0
    while via >= 0:
        if count == MAX_PATH - 1:
            return -1
        scratch.data[base + scratch.list + (count >> 2), count & 3] = as_float(via >> 2)
        count += 1
        node = ((as_int(nav.link_portal[via >> 2, 7]) - offset) << shift) + (via & ((1 << shift) - 1))
        _, _, via, _ = read_node(scratch, base, node, stamp)
    return count


@inline_function
def pull_string(nav, sx, sy, sz, gx, gy, gz, portals, scratch, row):
    """The funnel: shortest path from s to g through the listed portals. (length, corners, first corner after s)."""
    links = slots(scratch, row) + scratch.list
    _keep_corner(scratch, row, 0, sx, sy, sz)
    length, corners = ZERO, 1
    ax, ay, az = sx, sy, sz  # apex; also the latest corner
    fx, fy, fz = gx, gy, gz  # first corner after s
    px, py, pz = sx, sy, sz  # latest corner kept
    lx, ly, lz, left = sx, sy, sz, 0
    rx, ry, rz, right = sx, sy, sz, 0
    i = 0
    while i <= portals and portals > 0:
        if i < portals:
            back = portals - 1 - i
            link = as_int(scratch.data[links + (back >> 2), back & 3])
            nlx, nly, nlz, _ = load4(nav.link_portal, link, 0)
            nrx, nry, nrz, _ = load4(nav.link_portal, link, 4)
            if i == 0:
                _, d = closest_on_segment(ax, az, nlx, nlz, nrx, nrz)
                if d < _AT_PORTAL:
                    i += 1
                    continue
        else:
            nlx, nly, nlz, nrx, nry, nrz = gx, gy, gz, gx, gy, gz
        turn = 0
        if twice_area(ax, az, rx, rz, nrx, nrz) <= ZERO:
            if same_point(ax, ay, az, rx, ry, rz) or twice_area(ax, az, lx, lz, nrx, nrz) > ZERO:
                rx, ry, rz, right = nrx, nry, nrz, i
            else:
                turn = 1
        if turn == 0 and twice_area(ax, az, lx, lz, nlx, nlz) >= ZERO:
            if same_point(ax, ay, az, lx, ly, lz) or twice_area(ax, az, rx, rz, nlx, nlz) < ZERO:
                lx, ly, lz, left = nlx, nly, nlz, i
            else:
                turn = 2
        if turn != 0:
            if turn == 1:
                ax, ay, az, i = lx, ly, lz, left
            else:
                ax, ay, az, i = rx, ry, rz, right
            if not same_point(px, py, pz, ax, ay, az):
                length += _distance(px, py, pz, ax, ay, az)
                _keep_corner(scratch, row, corners, ax, ay, az)
                if corners == 1:
                    fx, fy, fz = ax, ay, az
                corners += 1
                px, py, pz = ax, ay, az
                if corners >= MAX_PATH:
                    return NO_PATH, 0, _NAN, _NAN, _NAN
            lx, ly, lz, left = ax, ay, az, i
            rx, ry, rz, right = ax, ay, az, i
        i += 1
    if not same_point(px, py, pz, gx, gy, gz):
        length += _distance(px, py, pz, gx, gy, gz)
        _keep_corner(scratch, row, corners, gx, gy, gz)
        corners += 1
    return length, corners, fx, fy, fz


@inline_function
def _closest_on_outline(nav, polygon, x, y, z):
    """The point itself where it lies over the polygon, else the nearest point of the polygon's outline (from above)."""
    count = as_int(nav.polygons[polygon, 0])
    inside, best = False, FAR
    cx, cy, cz = x, y, z
    ax, ay, az, _ = load4(nav.polygons, polygon, 4 + 4 * count)
    d_last, lx, ly, lz = FAR, x, y, z
    for i in range(count):
        bx, by, bz, _ = load4(nav.polygons, polygon, 8 + 4 * i)
        if edge_crosses(x, z, bx, bz, ax, az):
            inside = not inside
        t, d = closest_on_segment(x, z, ax, az, bx, bz)
        if i == 0:  # the last edge: Detour compares it last
            d_last, lx, ly, lz = d, mix(ax, bx, t), mix(ay, by, t), mix(az, bz, t)
        elif d < best:
            best, cx, cy, cz = d, mix(ax, bx, t), mix(ay, by, t), mix(az, bz, t)
        ax, ay, az = bx, by, bz
    if inside:
        return x, y, z
    if d_last < best:
        return lx, ly, lz
    return cx, cy, cz


@inline_function
def _keep_corner(scratch, row, corner, x, y, z):
    if corner < scratch.max_corners:
        slot = row * scratch.max_corners + corner
        scratch.corners[slot, 0] = x
        scratch.corners[slot, 1] = y
        scratch.corners[slot, 2] = z


@inline_function
def _distance(ax, ay, az, bx, by, bz):
    dx, dy, dz = bx - ax, by - ay, bz - az
    return math.sqrt(dx * dx + dy * dy + dz * dz)


@inline_function
def _nearly_equal(a, b):
    """Magnum's fuzzy comparison: within 1e-5, relative to |a| + |b| where both are larger."""
    difference = abs(a - b)
    if a == ZERO or b == ZERO or difference < _EQUAL:
        return difference < _EQUAL
    return difference < _EQUAL * (abs(a) + abs(b))
