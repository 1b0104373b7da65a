"""Links between adjacent polygons, within a tile and across tiles, in Detour's order of iteration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.file import EXTERNAL
from batchnav.navmesh.tile import MAX_VERTICES, Tile
from batchnav.runtime.kernels.decorators import cpu_function, device_function

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
