"""Construction of the kernel rows of a navmesh from its file.

Links are in Detour's order of iteration, which decides between equally long paths: first links to other tiles, the
latest connection first, then the polygon's edges in order. Polygons that Detour's filter excludes (without the walkable
flag, or without area, which Habitat disables) have no links and no island, and their neighbours have a wall.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from batchnav.errors import NavMeshError
from batchnav.navmesh.branches import branches
from batchnav.navmesh.connect import Links, connect_tiles
from batchnav.navmesh.data import (
    MIDDLE_ROW,
    POLYGON_ROW,
    PORTAL_ROW,
    SCENE_ROW,
    SEVERAL,
    TILE_ROW,
    TRIANGLE_ROW,
    WALL,
    NavMeshData,
    areas,
)
from batchnav.navmesh.file import NavMeshFile
from batchnav.navmesh.scratch import NODE_POOL
from batchnav.navmesh.tile import MAX_VERTICES, WALKABLE, Tile
from batchnav.runtime.kernels.decorators import cpu_function

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
