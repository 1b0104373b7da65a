"""Nearest polygon of a point and floor height: Detour's findNearestPoly and getPolyHeight."""

import math

import numpy as np

from batchnav.geometry.polygon import ONE, ZERO, closest_on_segment, edge_crosses, height_on_triangle
from batchnav.geometry.pose import mix, squared_distance, within
from batchnav.navmesh.data import (
    polygon_size,
    polygon_triangles,
    polygon_vertex,
    scene_grid,
    scene_tiles,
    tile_box,
    tile_nodes,
    tile_place,
    tree_node,
    triangle_corners,
    triangle_edges,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function, separate_function

FAR = np.float32(3.0e38)
"""Greater than any squared distance."""
LIMIT = np.float32(1e9)
"""Points with larger coordinates are off every mesh."""
_NAN = np.float32(np.nan)
NOWHERE = (_NAN, _NAN, _NAN)
_FAR_AWAY = (FAR, FAR, FAR)
_REACH, _REACH_Y = np.float32(2.0), np.float32(4.0)
"""Half sizes of the search box, metres (habitat-sim)."""
_TOUCH = np.float32(1e-8)
"""Squared distance from an edge within which a point may be on the outline, square metres."""
_SLACK_Y = np.float32(1.0)
"""Height beyond the climb in which `polygon_at_height` searches, metres."""
_TWO = np.float32(2.0)
_OUTLINE, _EACH_ONCE = 0, 3
"""First bits of the two masks in a triangle's edge flags (`data.TRIANGLE_ROW`)."""


@lean_function
def nearest_polygon(nav, scene, point):
    """Nearest polygon within the search box, and the closest point on it; -1 and NOWHERE if there is none.

    For a point directly above or below a polygon, a height difference up to the climb counts as 0. The first polygon in
    BV order wins ties.
    """
    if not within(point, LIMIT):
        return np.int32(-1), NOWHERE
    polygon, height = polygon_at_height(nav, scene, point)
    if polygon >= 0:
        return polygon, (point[0], height, point[2])
    return nearest_within(nav, scene, point, FAR)


@inline_function
def polygon_at_height(nav, scene, point):
    """Result of `nearest_polygon` if its distance is 0, else -1; and the floor height.

    Faster than `nearest_polygon`: only polygons whose box contains the point can have distance 0.
    """
    first_tile, end_tile = scene_tiles(nav, scene)
    for tile in range(first_tile, end_tile):
        if not _tile_in_reach(nav, scene, tile, point):
            continue
        _, _, _, climb = tile_box(nav, tile)
        cells = _cells_around(nav, tile, point, ZERO, climb + _SLACK_Y)
        node, end, first_polygon = tile_nodes(nav, tile)
        while node < end:
            low, high, index = tree_node(nav, node)
            if _boxes_meet(low, high, cells):
                node += 1
                if index >= 0:
                    polygon = np.int32(first_polygon + index)
                    found, height = _at_height(nav, polygon, point, climb)
                    if found:
                        return polygon, height
            else:
                node += 1 if index >= 0 else -index
    return np.int32(-1), ZERO


@separate_function
def nearest_within(nav, scene, point, bound):
    """Result of `nearest_polygon` among polygons with a squared distance of at most `bound`."""
    best, found, closest = bound, np.int32(-1), NOWHERE
    first_tile, end_tile = scene_tiles(nav, scene)
    for tile in range(first_tile, end_tile):
        if not _tile_in_reach(nav, scene, tile, point):
            continue
        origin, _, quant, climb = tile_box(nav, tile)
        cells = _cells_around(nav, tile, point, _REACH, _REACH_Y)
        cell_x, cell_z, cell = (point[0] - origin[0]) * quant, (point[2] - origin[2]) * quant, ONE / quant
        node, end, first_polygon = tile_nodes(nav, tile)
        while node < end:
            low, high, index = tree_node(nav, node)
            near = _boxes_meet(low, high, cells)
            if near:
                # A box beyond the best distance (horizontal, minus two cells of rounding) has no nearer polygon.
                dx, dz = _gap(low[0], high[0], cell_x), _gap(low[2], high[2], cell_z)
                near = (dx * dx + dz * dz) * (cell * cell) <= best
            if near and index >= 0:
                polygon = np.int32(first_polygon + index)
                if nav.polygon_island[polygon] >= 0:
                    d, candidate = distance_to_polygon(nav, polygon, point, climb)
                    if d < best or (found < 0 and d <= best):
                        best, found, closest = d, polygon, candidate
            node += 1 if near or index >= 0 else -index
    return found, closest


@inline_function
def distance_to_polygon(nav, polygon, point, climb):
    """Squared distance by which `nearest_polygon` compares polygons, square metres, and the closest point."""
    if contains(nav, polygon, point):
        height = _height_inside(nav, polygon, point)
        d = abs(point[1] - height) - climb
        return (d * d if d > ZERO else ZERO), (point[0], height, point[2])
    closest = _closest_on_detail_edges(nav, polygon, point, _OUTLINE)
    return squared_distance(closest, point), closest


@inline_function
def floor_height(nav, polygon, point):
    """Pair: True if a point is above or below a polygon, and the floor height there."""
    if contains(nav, polygon, point):
        return True, _height_inside(nav, polygon, point)
    return False, ZERO


@inline_function
def contains(nav, polygon, point):
    """True if a point is above or below a polygon."""
    count = polygon_size(nav, polygon)
    inside = False
    b = polygon_vertex(nav, polygon, count - 1)
    for i in range(count):
        a = polygon_vertex(nav, polygon, i)
        if edge_crosses(point, a, b):
            inside = not inside
        b = a
    return inside


@inline_function
def _at_height(nav, polygon, point, climb):
    """Pair: True if the distance of a point to a polygon is 0, and the floor height."""
    if nav.polygon_island[polygon] < 0:
        return False, ZERO
    count = polygon_size(nav, polygon)
    inside, touching = False, False
    b = polygon_vertex(nav, polygon, count - 1)
    for i in range(count):
        a = polygon_vertex(nav, polygon, i)
        if edge_crosses(point, a, b):
            inside = not inside
        ex, ez = b[0] - a[0], b[2] - a[2]
        cross = ex * (point[2] - a[2]) - ez * (point[0] - a[0])
        touching = touching or cross * cross <= _TOUCH * (ex * ex + ez * ez)
        b = a
    if inside:
        height = _height_inside(nav, polygon, point)
        return abs(point[1] - height) <= climb, height
    if touching:  # outside due to rounding, but possibly on the outline
        closest = _closest_on_detail_edges(nav, polygon, point, _OUTLINE)
        same = closest[0] == point[0] and closest[1] == point[1] and closest[2] == point[2]
        return same, closest[1]
    return False, ZERO


@inline_function
def _height_inside(nav, polygon, point):
    """Height of the detail triangle at a point inside the polygon, or else of the nearest detail edge."""
    first, end = polygon_triangles(nav, polygon)
    for triangle in range(first, end):
        a, b, c = triangle_corners(nav, triangle)
        found, height = height_on_triangle(point, a, b, c)
        if found:
            return height
    return _closest_on_detail_edges(nav, polygon, point, _EACH_ONCE)[1]


@lean_function
def _closest_on_detail_edges(nav, polygon, point, kind):
    """Horizontally closest point on edges of the detail triangles: those on the outline, or each edge once."""
    best, closest = FAR, _FAR_AWAY
    first, end = polygon_triangles(nav, polygon)
    for triangle in range(first, end):
        edges = triangle_edges(nav, triangle) >> kind
        if edges & 7 == 0:
            continue
        a, b, c = triangle_corners(nav, triangle)
        if edges & 4:
            t, d = closest_on_segment(point, c, a)
            if d < best:
                best, closest = d, mix(c, a, t)
        if edges & 1:
            t, d = closest_on_segment(point, a, b)
            if d < best:
                best, closest = d, mix(a, b, t)
        if edges & 2:
            t, d = closest_on_segment(point, b, c)
            if d < best:
                best, closest = d, mix(b, c, t)
    return closest


@inline_function
def _tile_in_reach(nav, scene, tile, point):
    """True if the search box touches the tile."""
    origin_x, origin_z, width, depth = scene_grid(nav, scene)
    column, row = tile_place(nav, tile)
    x, z = point[0], point[2]
    across = _cell(x - _REACH - origin_x, width) <= column <= _cell(x + _REACH - origin_x, width)
    return across and _cell(z - _REACH - origin_z, depth) <= row <= _cell(z + _REACH - origin_z, depth)


@inline_function
def _cell(offset, size):
    return np.float32(math.floor(offset / size))


@inline_function
def _cells_around(nav, tile, point, reach, reach_y):
    """Cells of a tile's BV tree within `reach` (x and z) and `reach_y` of a point: (low, high)."""
    low, high, quant, _ = tile_box(nav, tile)
    x0, x1 = _quantise(point[0] - reach, point[0] + reach, low[0], high[0], quant)
    y0, y1 = _quantise(point[1] - reach_y, point[1] + reach_y, low[1], high[1], quant)
    z0, z1 = _quantise(point[2] - reach, point[2] + reach, low[2], high[2], quant)
    return (x0, y0, z0), (x1, y1, z1)


@inline_function
def _quantise(start, stop, low, high, quant):
    """An interval in BV cells, clamped to the tile and rounded outwards to an even and an odd number."""
    first = np.int32(quant * (min(max(start, low), high) - low))
    last = np.int32(quant * (min(max(stop, low), high) - low) + ONE)
    return first & 0xFFFE, (last & 0xFFFF) | 1


@inline_function
def _boxes_meet(low, high, cells):
    """True if a node's box overlaps a box of cells (low, high)."""
    first, last = cells
    return (
        first[0] <= high[0] and last[0] >= low[0]
        and first[1] <= high[1] and last[1] >= low[1]
        and first[2] <= high[2] and last[2] >= low[2]
    )  # fmt: skip


@inline_function
def _gap(low, high, cell):
    """Distance in cells along an axis from a point to a node's box, minus two cells, at least 0."""
    return max(max(np.float32(low) - cell, cell - np.float32(high)) - _TWO, ZERO)
