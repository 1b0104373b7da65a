"""Construction of the kernel rows of a navmesh from its file.

Links are in Detour's order of iteration, which decides between equally long paths: first links to other tiles, the
latest connection first, then the polygon's edges in order. Polygons that Detour's filter excludes (without the walkable
flag, or without area, which Habitat disables) have no links and no island, and their neighbours have a wall.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from batchnav.errors import NavMeshError
from batchnav.navmesh.data import (
    MAX_VERTICES,
    MIDDLE_ROW,
    POLYGON_ROW,
    PORTAL_ROW,
    SCENE_ROW,
    SEVERAL,
    TILE_ROW,
    TRIANGLE_ROW,
    WALKABLE,
    WALL,
    NavMeshData,
    Tile,
    areas,
)
from batchnav.navmesh.file import EXTERNAL, NavMeshFile
from batchnav.navmesh.heap import NODE_POOL
from batchnav.runtime.kernels.decorators import cpu_function, device_function

# Links between adjacent polygons, within a tile and across tiles, in Detour's order of iteration

_SLAB, _MAX_CONNECTIONS = np.float32(0.01), 4
"""Distance within which border edges touch, metres, and largest number of links of a border edge to one tile (Detour).
"""
_STEPS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
"""Column and row step to the adjacent tile on each of the eight sides."""
_ANY_SIDE = -1
_MOST_COMPARED = 2**28
"""Largest number of compared pairs of border edges, about one second; real navmeshes have less than a hundredth."""
_TWO_TILES = 256
"""Fixed cost of comparing two tiles, in pairs of edges."""
_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
_STEP, _STEPS_OF_EDGE, _HALF = np.float32(1.0 / 255.0), np.float32(255.0), np.float32(0.5)


class Links(NamedTuple):
    """L links between polygons, grouped by the polygon that they leave, in Detour's order."""

    polygon: np.ndarray
    """i64 [L]: polygon that the link leaves; ids count over the tiles in file order."""
    target: np.ndarray
    """i64 [L]: polygon that the link enters."""
    edge: np.ndarray
    """i64 [L]: edge that the link crosses."""
    side: np.ndarray
    """i64 [L]: 0 within a tile, else half the side (0, 2, 4, 6) of the border that the link crosses."""
    left: np.ndarray
    """f32 [L, 3]: start of the portal in the order of the polygon's vertices; `right` is its end."""
    right: np.ndarray


class _Borders(NamedTuple):
    """B edges on tiles' borders; those of tile t are rows first[t] to first[t + 1] - 1."""

    first: np.ndarray
    """i64 [T + 1]."""
    polygon: np.ndarray
    """i64 [B]: polygon of the edge."""
    edge: np.ndarray
    """i64 [B]: number of the edge in its polygon."""
    side: np.ndarray
    """i64 [B]: side of the tile: 0, 2, 4 or 6."""
    start: np.ndarray
    """f32 [B, 3], metres."""
    end: np.ndarray
    """f32 [B, 3], metres."""


def connect_tiles(tiles: list[Tile], walkable: np.ndarray) -> Links:
    """Links between walkable polygons, within tiles and across their borders; `walkable` is bool [P].

    NavMeshError where tiles have too many border edges to compare within seconds.
    """
    base = np.cumsum([0] + [len(tile.polygons) for tile in tiles])
    borders = _borders(tiles, base)
    pairs = _neighbouring(tiles, np.diff(borders.first).tolist())
    climb = np.array([tile.walkable_climb for tile in tiles], np.float32)
    crossing, portals = np.empty((0, 4), np.int64), np.empty((0, 6), np.float32)
    if len(pairs):  # a single tile has no pairs and needs no compilation
        number = _cross(pairs, climb, borders, crossing, portals)
        crossing, portals = np.empty((number, 4), np.int64), np.empty((number, 6), np.float32)
        _cross(pairs, climb, borders, crossing, portals)
    inside = [_inside(tile, int(first)) for tile, first in zip(tiles, base, strict=False)]
    # Detour iterates over links across borders first, in reverse order, then over those within the tile.
    rows = np.concatenate([crossing[::-1], *(part[0] for part in inside)])
    ends = np.concatenate([portals[::-1], *(part[1] for part in inside)])
    order = np.argsort(rows[:, 0], kind="stable")
    order = order[walkable[rows[order, 0]] & walkable[rows[order, 1]]]
    polygon, target, edge, side = rows[order].T.copy()
    return Links(polygon, target, edge, side, ends[order, :3].copy(), ends[order, 3:].copy())


def _inside(tile: Tile, base: int) -> tuple[np.ndarray, np.ndarray]:
    """Links within a tile, edge 0 first: rows i64 [L, 4] (polygon, target, edge, 0), and the portals' ends."""
    count = tile.polygons["num_vertices"].astype(np.int64)
    neighbours = tile.polygons["neighbours"].astype(np.int64)
    polygon, edge = np.nonzero(
        (np.arange(MAX_VERTICES) < count[:, None]) & (neighbours & EXTERNAL == 0) & (neighbours != 0)
    )
    target = neighbours[polygon, edge] - 1 + base
    rows = np.stack([polygon + base, target, edge, np.zeros_like(edge)], axis=1)
    return rows, np.concatenate(_edge_ends(tile, count, polygon, edge), axis=1)


def _borders(tiles: list[Tile], base: np.ndarray) -> _Borders:
    parts = []
    for tile, first in zip(tiles, base, strict=False):
        count = tile.polygons["num_vertices"].astype(np.int64)
        neighbours = tile.polygons["neighbours"]
        polygon, edge = np.nonzero((np.arange(MAX_VERTICES) < count[:, None]) & (neighbours & EXTERNAL != 0))
        side = neighbours[polygon, edge].astype(np.int64) & 0xFF
        parts.append((polygon + first, edge, side, *_edge_ends(tile, count, polygon, edge)))
    first = np.cumsum([0] + [len(part[0]) for part in parts])
    return _Borders(first, *map(np.concatenate, zip(*parts, strict=True)))


def _edge_ends(tile: Tile, count, polygon, edge) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of edges of a tile's polygons, f32 [E, 3] each."""
    after = np.where(edge + 1 < count[polygon], edge + 1, 0)
    vertices = tile.polygons["vertices"].astype(np.int64)
    points = tile.vertices.astype(np.float32)
    return points[vertices[polygon, edge]], points[vertices[polygon, after]]


def _neighbouring(tiles: list[Tile], num_edges: list[int]) -> np.ndarray:
    """i64 [Q, 3]: (tile, adjacent tile, side of the first) in Detour's order of adding tiles."""
    pairs, compared = [], 0
    added: dict[tuple[int, int], list[int]] = {}
    for index, tile in enumerate(tiles):
        if not num_edges[index]:
            continue
        here = added.setdefault((tile.x, tile.y), [])
        adjacent = [(other, _ANY_SIDE, _ANY_SIDE) for other in here]
        for side, (column, row) in enumerate(_STEPS):
            adjacent += [(other, side, (side + 4) % 8) for other in added.get((tile.x + column, tile.y + row), ())]
        for other, there, back in adjacent:
            pairs += [(index, other, there), (other, index, back)]
            compared += 2 * (_TWO_TILES + num_edges[index] * num_edges[other])
        if compared > _MOST_COMPARED:
            raise NavMeshError(
                f"navmesh: found {compared} pairs of edges on the borders of its first {index + 1} tiles, expected at "
                f"most {_MOST_COMPARED}"
            )
        here.insert(0, index)
    return np.array(pairs, np.int64).reshape(-1, 3)


@cpu_function
def _cross(pairs, climb, borders, links_out, portals_out):
    """Links across borders as in dtNavMesh::connectExtLinks; returns their number, even if outputs are too small."""
    number = 0
    targets = np.empty(_MAX_CONNECTIONS, np.int64)
    for row in range(len(pairs)):
        index, other, side = pairs[row, 0], pairs[row, 1], pairs[row, 2]
        for k in range(borders.first[index], borders.first[index + 1]):
            direction = borders.side[k]
            if side != _ANY_SIDE and direction != side:
                continue
            along, found = 2 if direction == 0 or direction == 4 else 0, 0
            for m in range(borders.first[other], borders.first[other + 1]):
                if found == _MAX_CONNECTIONS:
                    break
                if borders.side[m] != (direction + 4) % 8 or not _meet(borders, k, m, along, climb[other]):
                    continue
                known = False
                for i in range(found):
                    known = known or targets[i] == borders.polygon[m]
                if known:
                    continue
                targets[found] = borders.polygon[m]
                found += 1
                if number < len(links_out):
                    links_out[number, 0], links_out[number, 1] = borders.polygon[k], borders.polygon[m]
                    links_out[number, 2], links_out[number, 3] = borders.edge[k], direction // 2
                    _portal(borders, k, m, along, number, portals_out)
                number += 1
    return number


@device_function
def _ordered_ends(borders, k, along):
    """Ends of an edge, the lower one along an axis first."""
    if borders.start[k, along] < borders.end[k, along]:
        return borders.start[k], borders.end[k]
    return borders.end[k], borders.start[k]


@device_function
def _meet(borders, k, m, along, climb):
    """True if two border edges overlap where their heights differ by at most twice the climb."""
    if abs(borders.start[k, 2 - along] - borders.start[m, 2 - along]) > _SLAB:
        return False
    a_low, a_high = _ordered_ends(borders, k, along)
    b_low, b_high = _ordered_ends(borders, m, along)
    low = max(a_low[along] + _SLAB, b_low[along] + _SLAB)
    high = min(a_high[along] - _SLAB, b_high[along] - _SLAB)
    if low > high:
        return False
    a_slope = (a_high[1] - a_low[1]) / (a_high[along] - a_low[along])
    b_slope = (b_high[1] - b_low[1]) / (b_high[along] - b_low[along])
    a_base, b_base = a_low[1] - a_slope * a_low[along], b_low[1] - b_slope * b_low[along]
    first = (b_slope * low + b_base) - (a_slope * low + a_base)
    last = (b_slope * high + b_base) - (a_slope * high + a_base)
    reach = (climb * _TWO) * (climb * _TWO)
    return first * last < _ZERO or first * first <= reach or last * last <= reach


@device_function
def _portal(borders, k, m, along, row, portals_out):
    """Write the overlap of border edges k and m, on edge k, quantised to 1/255 of its length as in Detour."""
    start, end = borders.start[k], borders.end[k]
    a_low, a_high = _ordered_ends(borders, k, along)
    b_low, b_high = _ordered_ends(borders, m, along)
    length = end[along] - start[along]
    one = (max(a_low[along], b_low[along]) - start[along]) / length
    other = (min(a_high[along], b_high[along]) - start[along]) / length
    first = np.floor(min(max(min(one, other), _ZERO), _ONE) * _STEPS_OF_EDGE + _HALF)
    last = np.floor(min(max(max(one, other), _ZERO), _ONE) * _STEPS_OF_EDGE + _HALF)
    whole = first == _ZERO and last == _STEPS_OF_EDGE
    for axis in range(3):
        across = end[axis] - start[axis]
        portals_out[row, axis] = start[axis] if whole else start[axis] + across * (first * _STEP)
        portals_out[row, 3 + axis] = end[axis] if whole else start[axis] + across * (last * _STEP)


# Branches of links, which let a path search skip dead ends


def branches(links: Links, num_polygons: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers i32 [P] of polygons, and branches (first, end) i32 [L, 2] of links.

    A branch contains the numbers from `first` to `end` - 1. If `end` <= `first`, it contains the numbers from `first`
    on and those below `end`. Whether it contains the polygon that the link leaves is undefined.
    """
    neighbours: list[list[int]] = [[] for _ in range(num_polygons)]
    # In both directions, which is conservative.
    for polygon, target in zip(links.polygon.tolist(), links.target.tolist(), strict=True):
        neighbours[polygon].append(target)
        neighbours[target].append(polygon)
    order, parent, apart = _depth_first(neighbours)
    size, near = [1] * num_polygons, [1] * num_polygons  # sizes of subtrees: all polygons, and those not apart
    for polygon in reversed(order):
        above = parent[polygon]
        if above >= 0:
            size[above] += size[polygon]
            near[above] += 0 if apart[polygon] else size[polygon]
    number, next_near, next_apart = ([0] * num_polygons for _ in range(3))
    parts: list[list[int]] = [[] for _ in range(num_polygons)]  # first numbers of the parts that are apart
    begun = 0
    for polygon in order:
        above = parent[polygon]
        if above < 0:
            number[polygon] = begun
            begun += size[polygon]
        elif apart[polygon]:
            number[polygon] = next_apart[above]
            next_apart[above] += size[polygon]
            parts[above].append(number[polygon])
        else:
            number[polygon] = next_near[above]
            next_near[above] += size[polygon]
        next_near[polygon], next_apart[polygon] = number[polygon] + 1, number[polygon] + near[polygon]
    found = []
    for polygon, target in zip(links.polygon.tolist(), links.target.tolist(), strict=True):
        first_apart, end = number[polygon] + near[polygon], number[polygon] + size[polygon]
        if first_apart <= number[target] < end:
            part = bisect_right(parts[polygon], number[target]) - 1
            found.append((parts[polygon][part], [*parts[polygon], end][part + 1]))
        else:
            found.append((end, first_apart))
    return np.array(number, np.int32), np.array(found, np.int32).reshape(-1, 2)


def _depth_first(neighbours: list[list[int]]) -> tuple[list[int], list[int], list[bool]]:
    """Depth-first traversal: order, parent of each polygon (-1: root), and flags of polygons that are apart.

    A polygon is apart if its subtree has no connection to polygons above its parent.
    """
    number = len(neighbours)
    place, lowest, parent, apart = [-1] * number, [0] * number, [-1] * number, [False] * number
    order: list[int] = []
    for root in range(number):
        waiting = [] if place[root] >= 0 else [root]
        rest: list[Iterator[int]] = []  # neighbours left to visit, for each waiting polygon
        while waiting:
            polygon = waiting[-1]
            if place[polygon] < 0:
                place[polygon] = lowest[polygon] = len(order)
                order.append(polygon)
                rest.append(iter(neighbours[polygon]))
            for other in rest[-1]:
                if place[other] < 0:
                    parent[other] = polygon
                    waiting.append(other)
                    break
                lowest[polygon] = min(lowest[polygon], place[other])
            else:
                waiting.pop()
                rest.pop()
                above = parent[polygon]
                if above >= 0:
                    apart[polygon] = lowest[polygon] >= place[above]
                    lowest[above] = min(lowest[above], lowest[polygon])
    return order, parent, apart


_MIN_AREA = 1e-5
"""Smallest area of a polygon that is not excluded, square metres."""
_MAX_ISOLATION = 2.0
"""Largest isolation that is stored, metres."""
_PAIRS_PER_POLYGON = 10_000
"""Largest number of pairs of nearby polygons, per polygon, that `_isolation` compares: about 10 us each polygon."""


def build(file: NavMeshFile) -> NavMeshData[np.ndarray]:
    """Rows of one navmesh file (K = 1). NavMeshError where it has no polygon."""
    first = np.cumsum([0] + [len(tile.polygons) for tile in file.tiles])
    if first[-1] == 0:
        raise NavMeshError("navmesh: found no polygon, expected at least one")
    triangles = np.concatenate([_triangle_rows(tile) for tile in file.tiles])
    num_triangles = np.concatenate([tile.details["num_triangles"] for tile in file.tiles]).astype(np.int32)
    corners, owner = triangles["corners"]["point"], np.repeat(np.arange(first[-1]), num_triangles)
    flags = np.concatenate([tile.polygons["flags"] for tile in file.tiles])
    walkable = (flags & WALKABLE != 0) & (np.bincount(owner, areas(corners), first[-1]) >= _MIN_AREA)
    links = connect_tiles(file.tiles, walkable)
    link_start = np.searchsorted(links.polygon, np.arange(first[-1] + 1)).astype(np.int32)
    island = _islands(links, walkable)
    polygons = _polygon_rows(file, links)
    polygons["first_triangle"], polygons["triangles"] = np.cumsum(num_triangles) - num_triangles, num_triangles
    polygons["island"] = island
    polygons["isolation"] = _isolation(corners, owner, island, max(tile.walkable_climb for tile in file.tiles))
    middle, portal = _link_rows(links)
    number = np.zeros(len(walkable), np.int32)
    if len(file.tiles) == 1 and len(walkable) <= NODE_POOL:
        # Otherwise every branch is (0, 0): all polygons. With several tiles a polygon has several nodes. With more than
        # NODE_POOL polygons a search may fail, and skipped branches would change when.
        number, middle["branch"] = branches(links, len(walkable))
    nodes = np.concatenate([tile.bv_nodes for tile in file.tiles])
    return NavMeshData(
        _packed(_scene_row(file, int(first[-1]))), _packed(_tile_rows(file, first)), _packed(nodes, np.int32),
        _packed(polygons), _packed(triangles), link_start, _packed(middle), _packed(portal), number, island,
        _island_radii(polygons, island), _cumulative_area(polygons, walkable),
    )  # fmt: skip


def _packed(rows: np.ndarray, word: type = np.float32) -> np.ndarray:
    """Records as rows of words, the inverse of `records`."""
    return np.ascontiguousarray(rows).view(word).reshape(len(rows), rows.itemsize // 4)


def _triangle_rows(tile: Tile) -> np.ndarray:
    """Detail triangles of a tile, polygon by polygon: TRIANGLE_ROW [R]."""
    number = tile.details["num_triangles"].astype(np.int64)
    owner = np.repeat(np.arange(len(number)), number)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
    corner = tile.detail_triangles[tile.details["triangle_base"].astype(np.int64)[owner] + offset]
    rows = np.zeros(len(owner), TRIANGLE_ROW)
    own = tile.polygons["num_vertices"].astype(np.int64)[owner]
    pool = np.concatenate([tile.vertices, tile.detail_vertices]).astype(np.float32)
    mask = np.zeros(len(owner), np.int32)
    for k in range(3):
        index = corner[:, k].astype(np.int64)
        of_polygon = tile.polygons["vertices"][owner, np.minimum(index, MAX_VERTICES - 1)].astype(np.int64)
        of_detail = len(tile.vertices) + tile.details["vertex_base"].astype(np.int64)[owner] + index - own
        rows["corners"]["point"][:, k] = pool[np.where(index < own, of_polygon, of_detail)]
        outline = (corner[:, 3] >> (2 * k)) & 1
        once = outline | (corner[:, k] >= corner[:, (k + 1) % 3])
        mask |= (outline.astype(np.int32) << k) | (once.astype(np.int32) << (3 + k))
    rows["corners"]["extra"][:, 0] = mask
    return rows


def _polygon_rows(file: NavMeshFile, links: Links) -> np.ndarray:
    """POLYGON_ROW [P] with vertices, centres and neighbours; the caller sets the other fields."""
    count = np.concatenate([tile.polygons["num_vertices"] for tile in file.tiles]).astype(np.int32)
    rows = np.zeros(len(count), POLYGON_ROW)
    rows["vertices"] = count
    parts = [tile.vertices[np.minimum(tile.polygons["vertices"], len(tile.vertices) - 1)] for tile in file.tiles]
    corners = np.concatenate(parts).astype(np.float32)
    total = np.zeros((len(count), 3), np.float32)
    for k in range(MAX_VERTICES):
        used = k < count
        rows["edges"]["start"][used, k] = corners[used, k]
        total[used] += corners[used, k]
    rows["centre"] = total / count[:, None].astype(np.float32)
    neighbour = rows["edges"]["neighbour"]
    neighbour[:] = WALL
    neighbour[links.polygon, links.edge] = links.target
    edges, counts = np.unique(links.polygon * MAX_VERTICES + links.edge, return_counts=True)
    neighbour[edges[counts > 1] // MAX_VERTICES, edges[counts > 1] % MAX_VERTICES] = SEVERAL
    return rows


def _link_rows(links: Links) -> tuple[np.ndarray, np.ndarray]:
    """MIDDLE_ROW [L] and PORTAL_ROW [L]. All links between two polygons have the first link's portal, as in Detour."""
    number = len(links.polygon)
    middle, portal = np.zeros(number, MIDDLE_ROW), np.zeros(number, PORTAL_ROW)
    between = links.polygon << 32 | links.target
    _, first, which = np.unique(between, return_index=True, return_inverse=True)
    left, right = links.left[first[which]], links.right[first[which]]
    middle["middle"], middle["target"] = (left + right) * np.float32(0.5), links.target
    portal["left"], portal["right"] = left, right
    portal["edge_and_side"], portal["source"] = links.edge + 8 * links.side, links.polygon
    return middle, portal


def _islands(links: Links, walkable: np.ndarray) -> np.ndarray:
    """Island of each polygon, numbered in order of their first polygons; -1: not walkable."""
    ends = links.polygon, links.target
    graph = coo_array((np.ones(len(links.polygon), np.int8), ends), (len(walkable), len(walkable)))
    label = connected_components(graph, directed=False)[1]
    _, where, label = np.unique(label[walkable], return_index=True, return_inverse=True)
    island = np.full(len(walkable), -1, np.int32)
    island[walkable] = np.argsort(np.argsort(where))[label]
    return island


def _island_radii(polygons: np.ndarray, island: np.ndarray) -> np.ndarray:
    """f32 [I]: distance from the mean to the farthest vertex of each island, metres.

    A vertex counts once per polygon, as in Habitat.
    """
    number = int(island.max(initial=-1)) + 1
    used = np.arange(MAX_VERTICES) < polygons["vertices"][:, None]
    polygon, corner = np.nonzero(used & (island >= 0)[:, None])
    points, owner = polygons["edges"]["start"][polygon, corner].astype(np.float64), island[polygon]
    count = np.maximum(np.bincount(owner, minlength=number), 1)
    middle = np.stack([np.bincount(owner, points[:, axis], number) / count for axis in range(3)], axis=1)
    radii = np.zeros(number)
    np.maximum.at(radii, owner, np.linalg.norm(points - middle[owner], axis=1))
    return radii.astype(np.float32)


def _isolation(corners: np.ndarray, owner: np.ndarray, island: np.ndarray, climb: float) -> np.ndarray:
    """Distance f32 [P] in metres, at most 2, between the box of a polygon and the nearest box of another island.

    `corners` [R, 3, 3] of detail triangles with polygons `owner` [R] define the boxes. Both boxes are extended by the
    climb, since smaller height differences count as 0. By the triangle inequality, a point at distance d from a polygon
    is at least isolation - d away from every other island.
    """
    if island.max(initial=-1) < 1:
        return np.full(len(island), _MAX_ISOLATION, np.float32)
    low, high = np.full((len(island), 3), np.inf), np.full((len(island), 3), -np.inf)
    for corner in corners.swapaxes(0, 1):
        np.minimum.at(low, owner, corner)
        np.maximum.at(high, owner, corner)
    low[:, 1] -= climb
    high[:, 1] += climb
    order = np.argsort(low[:, 0], kind="stable")
    isolation = np.full(len(island), _MAX_ISOLATION, np.float32)
    if not _sweep(low[order], high[order], island[order], isolation):
        return np.zeros(len(island), np.float32)  # a valid bound for any polygon, but steps take longer
    isolation[order] = isolation.copy()
    return isolation


@cpu_function
def _sweep(low, high, island, isolation_out):
    """Isolation of boxes f64 [P, 3] sorted by `low` x. False if it would take more than linear time."""
    left = _PAIRS_PER_POLYGON * len(island)
    for i in range(len(island)):
        for j in range(i + 1, len(island)):
            if low[j, 0] > high[i, 0] + _MAX_ISOLATION:
                break
            left -= 1
            if island[i] < 0 or island[j] < 0 or island[i] == island[j]:
                continue
            square = 0.0
            for axis in range(3):
                gap = max(max(low[j, axis] - high[i, axis], low[i, axis] - high[j, axis]), 0.0)
                square += gap * gap
            gap = np.float32(np.sqrt(square))
            isolation_out[i], isolation_out[j] = min(isolation_out[i], gap), min(isolation_out[j], gap)
        if left < 0:
            return False
    return True


def _cumulative_area(polygons: np.ndarray, walkable: np.ndarray) -> np.ndarray:
    """f32 [P]: cumulative fraction of the walkable area, seen from above (sum over each polygon's triangle fan)."""
    area = np.zeros(len(polygons))
    x, _, z = np.moveaxis(polygons["edges"]["start"].astype(np.float64), 2, 0)
    for k in range(2, MAX_VERTICES):
        fan = (x[:, k] - x[:, 0]) * (z[:, k - 1] - z[:, 0]) - (x[:, k - 1] - x[:, 0]) * (z[:, k] - z[:, 0])
        area += np.where(k < polygons["vertices"], fan, 0.0)
    total = np.cumsum(np.where(walkable, np.abs(area), 0.0))
    return (total / max(total[-1], 1e-30)).astype(np.float32)


def _scene_row(file: NavMeshFile, num_polygons: int) -> np.ndarray:
    """SCENE_ROW [1]."""
    row = np.zeros(1, SCENE_ROW)
    row["origin_x"], row["origin_z"] = file.origin[0], file.origin[2]
    row["tile_width"], row["tile_depth"] = file.tile_width, file.tile_depth
    row["tiles"], row["polygons"] = len(file.tiles), num_polygons
    # Across tile borders Detour keeps up to four search nodes per polygon, one per side it was entered from.
    row["side_shift"] = 0 if len(file.tiles) == 1 else 2
    row["climb"] = min(tile.walkable_climb for tile in file.tiles)
    return row


def _tile_rows(file: NavMeshFile, first_polygon: np.ndarray) -> np.ndarray:
    """TILE_ROW [T] in the order of Detour's box queries: row, column, then layer in reverse order of addition."""
    order = sorted(range(len(file.tiles)), key=lambda i: (file.tiles[i].y, file.tiles[i].x, -i))
    first_node = np.cumsum([0] + [len(tile.bv_nodes) for tile in file.tiles])
    rows = np.zeros(len(order), TILE_ROW)
    for row, index in zip(rows, order, strict=True):
        tile = file.tiles[index]
        row["low"], row["quant"], row["high"], row["climb"] = tile.low, tile.bv_quant, tile.high, tile.walkable_climb
        row["first_node"], row["nodes"], row["first_polygon"] = (
            first_node[index],
            len(tile.bv_nodes),
            first_polygon[index],
        )
        row["column"], row["row"] = tile.x, tile.y
    return rows
