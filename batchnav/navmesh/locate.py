"""Which polygon a point belongs to, and the height of its floor: Detour's findNearestPoly and getPolyHeight."""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO, closest_on_segment, edge_crosses, height_on_triangle, mix
from batchnav.navmesh.data import as_int
from batchnav.runtime.intrinsics import load4
from batchnav.runtime.kernels import inline_function, lean_function

FAR = np.float32(3.0e38)
"""More than any squared distance."""
_NAN = np.float32(np.nan)
_REACH, _REACH_Y = np.float32(2.0), np.float32(4.0)
"""Half the search box, metres (habitat-sim)."""
_LIMIT = np.float32(1e9)
_TOUCH = np.float32(1e-8)
_SLACK_Y = np.float32(1.0)
_TWO = np.float32(2.0)
_OUTLINE, _EACH_ONCE = 0, 3


@lean_function
def nearest_polygon(nav, scene, x, y, z):
    """The polygon nearest to a point within the search box, and the point on it: (polygon, x, y, z); -1 and NaN: none.

    Directly over a polygon, a height difference up to the climb counts as none; the first in BV order wins ties.
    """
    if not (abs(x) < _LIMIT and abs(y) < _LIMIT and abs(z) < _LIMIT):
        return np.int32(-1), _NAN, _NAN, _NAN
    polygon, height = polygon_at_height(nav, scene, x, y, z)
    if polygon >= 0:
        return polygon, x, height, z
    return nearest_within(nav, scene, x, y, z, FAR)


@inline_function
def polygon_at_height(nav, scene, x, y, z):
    """The polygon that `nearest_polygon` gives if its distance is 0, else -1; and the height of its floor there.

    Only polygons whose box holds the point can be at distance 0, so this looks at a few of those in the search box.
    """
    first_tile, num_tiles, _, _ = load4(nav.scenes, scene, 4)
    for tile in range(as_int(first_tile), as_int(first_tile) + as_int(num_tiles)):
        if not _tile_in_reach(nav, scene, tile, x, z):
            continue
        low_x, low_y, low_z, quant = load4(nav.tiles, tile, 0)
        high_x, high_y, high_z, climb = load4(nav.tiles, tile, 4)
        first_node, num_nodes, first_polygon, _ = load4(nav.tiles, tile, 8)
        reach_y = climb + _SLACK_Y
        x0, x1 = _quantise(x, x, low_x, high_x, quant)
        y0, y1 = _quantise(y - reach_y, y + reach_y, low_y, high_y, quant)
        z0, z1 = _quantise(z, z, low_z, high_z, quant)
        node = as_int(first_node)
        end = node + as_int(num_nodes)
        while node < end:
            a, b, c, index = load4(nav.nodes, node, 0)
            if _box_overlaps(a, b, c, x0, x1, y0, y1, z0, z1):
                node += 1
                if index >= 0:
                    polygon = np.int32(as_int(first_polygon) + index)
                    found, height = _at_height(nav, polygon, x, y, z, climb)
                    if found:
                        return polygon, height
            else:
                node += 1 if index >= 0 else -index
    return np.int32(-1), ZERO


@lean_function
def nearest_within(nav, scene, x, y, z, bound):
    """As `nearest_polygon`, among polygons whose squared distance is at most `bound`."""
    best, found, bx, by, bz = bound, np.int32(-1), _NAN, _NAN, _NAN
    first_tile, num_tiles, _, _ = load4(nav.scenes, scene, 4)
    for tile in range(as_int(first_tile), as_int(first_tile) + as_int(num_tiles)):
        if not _tile_in_reach(nav, scene, tile, x, z):
            continue
        low_x, low_y, low_z, quant = load4(nav.tiles, tile, 0)
        high_x, high_y, high_z, climb = load4(nav.tiles, tile, 4)
        first_node, num_nodes, first_polygon, _ = load4(nav.tiles, tile, 8)
        x0, x1 = _quantise(x - _REACH, x + _REACH, low_x, high_x, quant)
        y0, y1 = _quantise(y - _REACH_Y, y + _REACH_Y, low_y, high_y, quant)
        z0, z1 = _quantise(z - _REACH, z + _REACH, low_z, high_z, quant)
        cell_x, cell_z, cell = (x - low_x) * quant, (z - low_z) * quant, ONE / quant
        node = as_int(first_node)
        end = node + as_int(num_nodes)
        while node < end:
            a, b, c, index = load4(nav.nodes, node, 0)
            near = _box_overlaps(a, b, c, x0, x1, y0, y1, z0, z1)
            if near:
                # A box farther away than the best (from above, less two cells of rounding) cannot hold the nearest.
                dx, dz = _box_distance(a, b, c, cell_x, cell_z)
                near = (dx * dx + dz * dz) * (cell * cell) <= best
            if near and index >= 0:
                polygon = np.int32(as_int(first_polygon) + index)
                if nav.polygon_island[polygon] >= 0:
                    d, cx, cy, cz = distance_to_polygon(nav, polygon, x, y, z, climb)
                    if d < best or (found < 0 and d <= best):
                        best, found, bx, by, bz = d, polygon, cx, cy, cz
            node += 1 if near or index >= 0 else -index
    return found, bx, by, bz


@inline_function
def distance_to_polygon(nav, polygon, x, y, z, climb):
    """Squared distance that decides which polygon is nearest, and the closest point: (d, x, y, z)."""
    if contains(nav, polygon, x, z):
        height = _height_inside(nav, polygon, x, z)
        d = abs(y - height) - climb
        return (d * d if d > ZERO else ZERO), x, height, z
    cx, cy, cz = _closest_on_detail_edges(nav, polygon, x, z, _OUTLINE)
    dx, dy, dz = x - cx, y - cy, z - cz
    return dx * dx + dy * dy + dz * dz, cx, cy, cz


@inline_function
def floor_height(nav, polygon, x, z):
    """Whether a point lies over a polygon, and the floor's height there."""
    if contains(nav, polygon, x, z):
        return True, _height_inside(nav, polygon, x, z)
    return False, ZERO


@inline_function
def contains(nav, polygon, x, z):
    """Whether a point lies over a polygon, seen from above."""
    count = as_int(nav.polygons[polygon, 0])
    inside = False
    bx, _, bz, _ = load4(nav.polygons, polygon, 4 + 4 * count)
    for i in range(count):
        ax, _, az, _ = load4(nav.polygons, polygon, 8 + 4 * i)
        if edge_crosses(x, z, ax, az, bx, bz):
            inside = not inside
        bx, bz = ax, az
    return inside


@inline_function
def _at_height(nav, polygon, x, y, z, climb):
    """Whether a point's distance to a polygon is 0, and the floor's height."""
    if nav.polygon_island[polygon] < 0:
        return False, ZERO
    count = as_int(nav.polygons[polygon, 0])
    inside, touching = False, False
    bx, _, bz, _ = load4(nav.polygons, polygon, 4 + 4 * count)
    for i in range(count):
        ax, _, az, _ = load4(nav.polygons, polygon, 8 + 4 * i)
        if edge_crosses(x, z, ax, az, bx, bz):
            inside = not inside
        ex, ez = bx - ax, bz - az
        cross = ex * (z - az) - ez * (x - ax)
        touching = touching or cross * cross <= _TOUCH * (ex * ex + ez * ez)
        bx, bz = ax, az
    if inside:
        height = _height_inside(nav, polygon, x, z)
        return abs(y - height) <= climb, height
    if touching:  # outside by rounding, but perhaps exactly on the outline
        cx, cy, cz = _closest_on_detail_edges(nav, polygon, x, z, _OUTLINE)
        return cx == x and cy == y and cz == z, cy
    return False, ZERO


@inline_function
def _height_inside(nav, polygon, x, z):
    """Height of the detail triangle under a point that lies over the polygon; else of the nearest detail edge."""
    _, first, number, _ = load4(nav.polygons, polygon, 0)
    for triangle in range(as_int(first), as_int(first) + as_int(number)):
        ax, ay, az, _ = load4(nav.triangles, triangle, 0)
        bx, by, bz, _ = load4(nav.triangles, triangle, 4)
        cx, cy, cz, _ = load4(nav.triangles, triangle, 8)
        found, height = height_on_triangle(x, z, ax, ay, az, bx, by, bz, cx, cy, cz)
        if found:
            return height
    _, height, _ = _closest_on_detail_edges(nav, polygon, x, z, _EACH_ONCE)
    return height


@lean_function
def _closest_on_detail_edges(nav, polygon, x, z, kind):
    """Closest point, seen from above, on the detail triangles' edges: those on the outline, or each edge once."""
    best, bx, by, bz = FAR, FAR, FAR, FAR
    _, first, number, _ = load4(nav.polygons, polygon, 0)
    for triangle in range(as_int(first), as_int(first) + as_int(number)):
        x0, y0, z0, mask = load4(nav.triangles, triangle, 0)
        edges = as_int(mask) >> kind
        if edges & 7 == 0:
            continue
        x1, y1, z1, _ = load4(nav.triangles, triangle, 4)
        x2, y2, z2, _ = load4(nav.triangles, triangle, 8)
        if edges & 4:
            t, d = closest_on_segment(x, z, x2, z2, x0, z0)
            if d < best:
                best, bx, by, bz = d, mix(x2, x0, t), mix(y2, y0, t), mix(z2, z0, t)
        if edges & 1:
            t, d = closest_on_segment(x, z, x0, z0, x1, z1)
            if d < best:
                best, bx, by, bz = d, mix(x0, x1, t), mix(y0, y1, t), mix(z0, z1, t)
        if edges & 2:
            t, d = closest_on_segment(x, z, x1, z1, x2, z2)
            if d < best:
                best, bx, by, bz = d, mix(x1, x2, t), mix(y1, y2, t), mix(z1, z2, t)
    return bx, by, bz


@inline_function
def _tile_in_reach(nav, scene, tile, x, z):
    """Whether the tile is among those that the search box touches."""
    origin_x, origin_z, width, depth = load4(nav.scenes, scene, 0)
    column, row, _, _ = load4(nav.tiles, tile, 12)
    across = _cell(x - _REACH - origin_x, width) <= column <= _cell(x + _REACH - origin_x, width)
    return across and _cell(z - _REACH - origin_z, depth) <= row <= _cell(z + _REACH - origin_z, depth)


@inline_function
def _cell(offset, size):
    return np.float32(math.floor(offset / size))


@inline_function
def _quantise(start, stop, low, high, quant):
    """An interval in BV cells, clamped to the tile and rounded outwards to even and odd."""
    first = np.int32(quant * (min(max(start, low), high) - low))
    last = np.int32(quant * (min(max(stop, low), high) - low) + ONE)
    return first & 0xFFFE, (last & 0xFFFF) | 1


@inline_function
def _box_overlaps(a, b, c, x0, x1, y0, y1, z0, z1):
    """Whether a BV node's box meets a box of cells."""
    return (
        x0 <= (b >> 16) & 0xFFFF and x1 >= a & 0xFFFF
        and y0 <= c & 0xFFFF and y1 >= (a >> 16) & 0xFFFF
        and z0 <= (c >> 16) & 0xFFFF and z1 >= b & 0xFFFF
    )  # fmt: skip


@inline_function
def _box_distance(a, b, c, cell_x, cell_z):
    """Distance along x and z from a point to a BV node's box, in cells, two cells short."""
    low_x, high_x = np.float32(a & 0xFFFF), np.float32((b >> 16) & 0xFFFF)
    low_z, high_z = np.float32(b & 0xFFFF), np.float32((c >> 16) & 0xFFFF)
    dx = max(max(low_x - cell_x, cell_x - high_x) - _TWO, ZERO)
    dz = max(max(low_z - cell_z, cell_z - high_z) - _TWO, ZERO)
    return dx, dz
