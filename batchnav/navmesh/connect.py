"""Which polygons are neighbours, within a tile and across tiles, in the order in which Detour walks their links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batchnav.navmesh.file import EXTERNAL
from batchnav.navmesh.tile import MAX_VERTICES, Tile

_SLAB, _MAX_CONNECTIONS = np.float32(0.01), 4
_STEPS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
"""Column and row step to the neighbouring tile on each of the eight sides."""


class Link(NamedTuple):
    """One way out of a polygon."""

    target: int
    edge: int
    left: np.ndarray
    """f32 [3]: where the portal begins, walking round the polygon; `right` is where it ends."""
    right: np.ndarray
    side: int
    """0 within a tile, else half the side (0, 2, 4, 6) of the border it crosses."""


class _Border(NamedTuple):
    """The edges of a tile that lie on its borders: polygon, edge, ends and side of each."""

    polygon: np.ndarray
    edge: np.ndarray
    start: np.ndarray
    end: np.ndarray
    side: np.ndarray


def connect_tiles(tiles: list[Tile], walkable: np.ndarray) -> list[list[Link]]:
    """Links of every polygon (ids run over the tiles in file order), to walkable polygons, from walkable polygons."""
    first = np.cumsum([0] + [len(tile.polygons) for tile in tiles])
    borders = [_border(tile) for tile in tiles]
    outer: list[list[Link]] = [[] for _ in range(first[-1])]  # in the order of connecting; Detour walks it backwards
    added: dict[tuple[int, int], list[int]] = {}
    for index, tile in enumerate(tiles):
        here = added.setdefault((tile.x, tile.y), [])
        for other in here:
            _connect(tiles, borders, first, index, other, -1, outer)
            _connect(tiles, borders, first, other, index, -1, outer)
        for side, (column, row) in enumerate(_STEPS):
            for other in added.get((tile.x + column, tile.y + row), []):
                _connect(tiles, borders, first, index, other, side, outer)
                _connect(tiles, borders, first, other, index, (side + 4) % 8, outer)
        here.insert(0, index)
    links = [outer[p][::-1] for p in range(first[-1])]
    for index, tile in enumerate(tiles):
        _connect_inside(tile, int(first[index]), links)
    return [[x for x in row if walkable[x.target]] if walkable[p] else [] for p, row in enumerate(links)]


def _connect_inside(tile: Tile, base: int, links: list[list[Link]]) -> None:
    """Links over the edges within a tile: edge 0 first."""
    for polygon, row in enumerate(tile.polygons):
        count = int(row["num_vertices"])
        for edge in range(count):
            neighbour = int(row["neighbours"][edge])
            if neighbour and not neighbour & EXTERNAL:
                left, right = tile.vertices[row["vertices"][[edge, (edge + 1) % count]]]
                links[base + polygon].append(Link(base + neighbour - 1, edge, left, right, 0))


def _border(tile: Tile) -> _Border:
    count = tile.polygons["num_vertices"].astype(np.int64)
    neighbours = tile.polygons["neighbours"]
    polygon, edge = np.nonzero((np.arange(MAX_VERTICES) < count[:, None]) & (neighbours & EXTERNAL != 0))
    after = np.where(edge + 1 < count[polygon], edge + 1, 0)
    vertices = tile.polygons["vertices"].astype(np.int64)
    start, end = tile.vertices[vertices[polygon, edge]], tile.vertices[vertices[polygon, after]]
    return _Border(polygon, edge, start, end, neighbours[polygon, edge].astype(np.int64) & 0xFF)


def _connect(tiles, borders, first, index, other, side, outer) -> None:
    """Links from tile `index` over its border `side` (-1: any) into tile `other`, as dtNavMesh::connectExtLinks."""
    ours, theirs = borders[index], borders[other]
    for k in np.flatnonzero((ours.side == side) | (side == -1)):
        direction = int(ours.side[k])
        along = 2 if direction in (0, 4) else 0
        start, end = ours.start[k], ours.end[k]
        low, high = (start, end) if start[along] < end[along] else (end, start)
        found: set[int] = set()
        for m in np.flatnonzero(theirs.side == (direction + 4) % 8):
            target = int(theirs.polygon[m])
            if target in found or len(found) == _MAX_CONNECTIONS:
                continue
            their_low, their_high = theirs.start[m], theirs.end[m]
            if not their_low[along] < their_high[along]:
                their_low, their_high = their_high, their_low
            if abs(start[2 - along] - theirs.start[m][2 - along]) > _SLAB:
                continue
            if not _slabs_overlap(low, high, their_low, their_high, along, np.float32(tiles[other].walkable_climb)):
                continue
            found.add(target)
            shared = max(low[along], their_low[along]), min(high[along], their_high[along])
            left, right = _clamp_portal(start, end, along, shared)
            link = Link(int(first[other]) + target, int(ours.edge[k]), left, right, direction // 2)
            outer[int(first[index] + ours.polygon[k])].append(link)


def _slabs_overlap(a_low, a_high, b_low, b_high, along, climb) -> bool:
    """Whether two border edges share a stretch on which their heights differ by at most twice the climb."""
    low = max(a_low[along] + _SLAB, b_low[along] + _SLAB)
    high = min(a_high[along] - _SLAB, b_high[along] - _SLAB)
    if low > high:
        return False
    with np.errstate(divide="ignore", invalid="ignore"):
        a_slope = (a_high[1] - a_low[1]) / (a_high[along] - a_low[along])
        b_slope = (b_high[1] - b_low[1]) / (b_high[along] - b_low[along])
        a_base, b_base = a_low[1] - a_slope * a_low[along], b_low[1] - b_slope * b_low[along]
        first = (b_slope * low + b_base) - (a_slope * low + a_base)
        last = (b_slope * high + b_base) - (a_slope * high + a_base)
        reach = (climb * np.float32(2)) ** 2
        return bool(first * last < 0 or first * first <= reach or last * last <= reach)


def _clamp_portal(start, end, along, shared) -> tuple[np.ndarray, np.ndarray]:
    """The shared stretch of an edge, to 1/255 of its length as Detour stores it."""
    low, high = sorted(np.float32(s - start[along]) / np.float32(end[along] - start[along]) for s in shared)
    low, high = (int(np.floor(np.clip(t, 0, 1) * np.float32(255) + np.float32(0.5))) for t in (low, high))
    if low == 0 and high == 255:
        return start, end
    scale = np.float32(1.0 / 255.0)
    return start + (end - start) * (np.float32(low) * scale), start + (end - start) * (np.float32(high) * scale)
