"""A navmesh as the rows that kernels read, K navmeshes in one set of arrays, and the memory that a search works in.

Rows are multiples of 16 bytes, read with `intrinsics.load4`. Integers inside float rows are kept as their bits
(`as_int`, `as_float`). Polygon, link, triangle, node and island ids are global over all packed scenes.

Links follow Detour's own order of iteration, which decides between equally long paths: borders to other tiles first,
the latest connected first, then the polygon's edges in turn. What Detour's filter would leave out (polygons without
the walkable flag, or of no area, as Habitat disables them) is left out here once and for all: such a polygon has no
links, no island, and its neighbours have a wall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from batchnav.errors import ArgumentError, NavMeshError
from batchnav.navmesh.connect import Links, connect_tiles
from batchnav.navmesh.file import NavMeshFile
from batchnav.navmesh.tile import WALKABLE, Tile
from batchnav.runtime.kernels import cpu_function, inline_function

if TYPE_CHECKING:
    from batchnav.navmesh.navmesh import NavMesh

WALL, SEVERAL = -1, -2
"""Neighbour of a polygon's edge: none, or more than one (borders between tiles; see the links)."""
NODE_POOL = 2048
"""Polygons that a path search may touch before it gives up (habitat-sim's dtNavMeshQuery)."""
MAX_VISITS = 16 * NODE_POOL
"""Polygons that a path search may leave, reopened ones again: so that it ends on any mesh, however twisted."""
MAX_PATH = 256
"""Polygons, and corners, that a path may have (habitat-sim's buffers)."""
_MIN_AREA = 1e-5
_MAX_ISOLATION = 2.0
_PAIRS_PER_POLYGON = 10_000
"""Pairs of polygons near each other that are looked at for isolation, per polygon: some 10 microseconds each."""


class NavMeshData(NamedTuple):
    """K navmeshes. NumPy arrays on the host, torch tensors on a device, or what `device.view` makes of them."""

    scenes: np.ndarray
    """f32 [K, 12]: origin x, z, tile width, depth | first tile, tiles, first polygon, side shift |
    polygons, climb, -, -."""
    tiles: np.ndarray
    """f32 [T, 16]: low x, y, z, quant | high x, y, z, climb | first node, nodes, first polygon, - |
    column, row, -, -."""
    nodes: np.ndarray
    """i32 [B, 4]: BV nodes as in the file: six uint16 (low x, y, z, high x, y, z), then polygon or -(nodes to skip)."""
    polygons: np.ndarray
    """f32 [P, 32]: vertices, first triangle, triangles, isolation | centre x, y, z, island | 6 x (x, y, z, neighbour).

    Isolation: a point whose distance to this polygon is below half of it, in metres, is nearest to this island."""
    triangles: np.ndarray
    """f32 [R, 12]: a, edge mask | b, - | c, -. Mask bit e: edge e (0 is ab) is on the outline; bit 3 + e: edge e counts
    when all edges are looked at, each once."""
    link_start: np.ndarray
    """i32 [P + 1]: links of polygon p are link_start[p] to link_start[p + 1]."""
    link_middle: np.ndarray
    """f32 [L, 4]: middle of the portal x, y, z, target polygon."""
    link_portal: np.ndarray
    """f32 [L, 8]: left x, y, z, edge + 8 * side | right x, y, z, source polygon. Side: 0..3, of the tile's border."""
    polygon_island: np.ndarray
    """i32 [P]: connected component, -1 where no agent may stand."""
    island_radius: np.ndarray
    """f32 [I]: distance in metres from an island's mean vertex to its farthest one."""
    cumulative_area: np.ndarray
    """f32 [P]: share of its scene's walkable area (seen from above) up to and including polygon p, 0..1."""


class SearchScratch(NamedTuple):
    """Working memory of searches: one row per CPU chunk or CUDA thread. Made by `search_scratch`, cleared by nobody.

    Row-major on both devices: searches of neighbouring threads diverge at once, so what counts is that one node is one
    16-byte access and a search's heap stays in few cache lines. `slots` is the only place that knows the layout.
    """

    data: np.ndarray
    """f32 [rows * row_size, 4]. A row: search counter | nodes (cost, first link, link, state) | heap | list."""
    corners: np.ndarray
    """f32 [rows * max_corners (at least 1), 4]: corners of the latest path, x, y, z, -."""
    row_size: int
    heap: int
    """Where a row's heap begins: pairs (total, node)."""
    list: int
    """Where a row's list begins: the path's links, last first; or the polygons a step has reached."""
    max_corners: int


@inline_function
def as_int(value):
    """The bits of a float32 as an int32."""
    return np.float32(value).view(np.int32)


@inline_function
def as_float(value):
    """The bits of an int32 as a float32."""
    return np.int32(value).view(np.float32)


@inline_function
def slots(scratch, row):
    """Where a row's memory begins."""
    return row * scratch.row_size


def search_scratch(nodes: int, rows: int, device: torch.device, max_corners: int = 0) -> SearchScratch:
    """Memory for `rows` searches at a time over `nodes`, zeroed. ArgumentError where it would be out of reach."""
    heap, listed, row_size = _search_row(nodes)
    if rows * row_size >= 2**31:
        raise ArgumentError(f"rows: found {rows}, expected at most {2**31 // row_size} for {nodes} polygons per scene")
    memory = torch.zeros((rows * row_size, 4), dtype=torch.float32, device=device)
    corners = torch.zeros((max(rows * max_corners, 1), 4), dtype=torch.float32, device=device)
    return SearchScratch(memory, corners, row_size, heap, listed, max_corners)


def search_bytes(nodes: int) -> int:
    """Memory that one row of `search_scratch` takes, without corners."""
    return _search_row(nodes)[2] * 16


def _search_row(nodes: int) -> tuple[int, int, int]:
    """Where a row's heap and its list begin, and where it ends, in quadruples of floats."""
    heap = 1 + nodes
    listed = heap + min(nodes, NODE_POOL) // 2 + 1
    return heap, listed, -(-(listed + MAX_PATH // 4) // 8) * 8


def pack(navmeshes: list[NavMesh]) -> NavMeshData:
    """Several navmeshes as one; scene k is navmeshes[k]. NumPy arrays; move them with `device.to_device`."""
    if not navmeshes:
        raise ArgumentError("navmeshes: found an empty list, expected at least one")
    parts, moved_parts, first = [navmesh.data for navmesh in navmeshes], [], NavMeshData(*[0] * 11)
    for part in parts:
        moved_parts.append(moved(part, first))
        counts = NavMeshData(*map(len, part))
        counts = counts._replace(link_start=counts.link_start - 1)  # its last row is the next one's first
        first = NavMeshData(*(a + b for a, b in zip(first, counts, strict=True)))
    ends = [part.link_start[-1:] for part in moved_parts]
    columns = NavMeshData(*zip(*moved_parts, strict=True))
    starts = [*(column[:-1] for column in columns.link_start), ends[-1]]
    return NavMeshData(*(np.ascontiguousarray(np.concatenate(c)) for c in columns._replace(link_start=starts)))


def moved(part: NavMeshData, first: NavMeshData) -> NavMeshData:
    """A navmesh as its rows read where they begin at rows `first` (an int for each array) of larger arrays."""
    scene, tile = part.scenes.copy(), part.tiles.copy()
    polygon, middle, portal = part.polygons.copy(), part.link_middle.copy(), part.link_portal.copy()
    _bits(scene)[:, [4, 6]] += np.array([first.tiles, first.polygons], np.int32)
    _bits(tile)[:, [8, 10]] += np.array([first.nodes, first.polygons], np.int32)
    _bits(polygon)[:, 1] += np.int32(first.triangles)
    for column in (7, *range(11, 32, 4)):
        values = _bits(polygon)[:, column]
        values[values >= 0] += np.int32(first.island_radius if column == 7 else first.polygons)
    _bits(middle)[:, 3] += np.int32(first.polygons)
    _bits(portal)[:, 7] += np.int32(first.polygons)
    island = np.where(part.polygon_island < 0, -1, part.polygon_island + np.int32(first.island_radius))
    return part._replace(
        scenes=scene, tiles=tile, polygons=polygon, link_start=part.link_start + np.int32(first.link_middle),
        link_middle=middle, link_portal=portal, polygon_island=island.astype(np.int32),
    )  # fmt: skip


def search_size(data: NavMeshData) -> int:
    """Nodes that a path search may meet in the largest of the scenes, for `search_scratch`."""
    scenes = data.scenes.cpu().numpy() if isinstance(data.scenes, torch.Tensor) else np.asarray(data.scenes)
    shape = scenes.view(np.int32)
    return int((shape[:, 8] << shape[:, 7]).max(initial=1))


def build(file: NavMeshFile) -> NavMeshData:
    """The rows of one navmesh file: K = 1."""
    first = np.cumsum([0] + [len(tile.polygons) for tile in file.tiles])
    if first[-1] == 0:
        raise NavMeshError("navmesh: found no polygon, expected at least one")
    triangles = np.concatenate([_triangles(tile) for tile in file.tiles])
    num_triangles = np.concatenate([tile.details["num_triangles"] for tile in file.tiles]).astype(np.int32)
    first_triangle = (np.cumsum(num_triangles) - num_triangles).astype(np.int32)
    area = np.bincount(np.repeat(np.arange(first[-1]), num_triangles), _areas(triangles), first[-1])
    flags = np.concatenate([tile.polygons["flags"] for tile in file.tiles])
    walkable = (flags & WALKABLE != 0) & (area >= _MIN_AREA)
    links = connect_tiles(file.tiles, walkable)
    link_start = np.searchsorted(links.polygon, np.arange(first[-1] + 1)).astype(np.int32)
    island = _islands(links, walkable)
    polygons = _polygon_rows(file, links)
    _bits(polygons)[:, 1], _bits(polygons)[:, 2] = first_triangle, num_triangles
    _bits(polygons)[:, 7] = island
    climb = max(tile.walkable_climb for tile in file.tiles)
    polygons[:, 3] = _isolation(triangles, num_triangles, island, climb)
    middle, portal = _link_rows(links)
    return NavMeshData(
        _scene_row(file, int(first[-1])), _tile_rows(file, first),
        np.concatenate([np.ascontiguousarray(tile.bv_nodes).view(np.int32).reshape(-1, 4) for tile in file.tiles]),
        polygons, triangles, link_start, middle, portal, island, _island_radii(polygons, island),
        _cumulative_area(polygons, walkable),
    )  # fmt: skip


def triangle_areas(data: NavMeshData) -> np.ndarray:
    """f64 [P]: area of each polygon's detail triangles, in square metres."""
    count = _bits(data.polygons)[:, 2]
    return np.bincount(np.repeat(np.arange(len(count)), count), _areas(data.triangles), len(count))


def _bits(rows: np.ndarray) -> np.ndarray:
    return rows.view(np.int32)


def _areas(triangles: np.ndarray) -> np.ndarray:
    a, b, c = (triangles[:, k : k + 3].astype(np.float64) for k in (0, 4, 8))
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)


def _triangles(tile: Tile) -> np.ndarray:
    """Rows of a tile's detail triangles, polygon by polygon."""
    number = tile.details["num_triangles"].astype(np.int64)
    owner = np.repeat(np.arange(len(number)), number)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
    corner = tile.detail_triangles[tile.details["triangle_base"].astype(np.int64)[owner] + offset]
    rows = np.zeros((len(owner), 12), np.float32)
    own = tile.polygons["num_vertices"].astype(np.int64)[owner]
    pool = np.concatenate([tile.vertices, tile.detail_vertices]).astype(np.float32)
    for k in range(3):
        index = corner[:, k].astype(np.int64)
        of_polygon = tile.polygons["vertices"][owner, np.minimum(index, 5)].astype(np.int64)
        of_detail = len(tile.vertices) + tile.details["vertex_base"].astype(np.int64)[owner] + index - own
        rows[:, 4 * k : 4 * k + 3] = pool[np.where(index < own, of_polygon, of_detail)]
    mask = np.zeros(len(owner), np.int32)
    for edge in range(3):
        outline = (corner[:, 3] >> (2 * edge)) & 1
        once = outline | (corner[:, edge] >= corner[:, (edge + 1) % 3])
        mask |= (outline.astype(np.int32) << edge) | (once.astype(np.int32) << (3 + edge))
    _bits(rows)[:, 3] = mask
    return rows


def _polygon_rows(file: NavMeshFile, links: Links) -> np.ndarray:
    """Vertices, centres and neighbours; the other columns are the caller's."""
    count = np.concatenate([tile.polygons["num_vertices"] for tile in file.tiles]).astype(np.int32)
    rows = np.zeros((len(count), 32), np.float32)
    _bits(rows)[:, 0] = count
    corners = [tile.vertices[np.minimum(tile.polygons["vertices"], len(tile.vertices) - 1)] for tile in file.tiles]
    corners = np.concatenate(corners).astype(np.float32)
    total = np.zeros((len(count), 3), np.float32)
    for k in range(6):
        used = k < count
        rows[used, 8 + 4 * k : 11 + 4 * k] = corners[used, k]
        total[used] += corners[used, k]
        _bits(rows)[:, 11 + 4 * k] = WALL
    rows[:, 4:7] = total / count[:, None].astype(np.float32)
    neighbour = _bits(rows)[:, 11::4]
    neighbour[links.polygon, links.edge] = links.target
    ways, times = np.unique(links.polygon * 6 + links.edge, return_counts=True)
    neighbour[ways[times > 1] // 6, ways[times > 1] % 6] = SEVERAL
    return rows


def _link_rows(links: Links) -> tuple[np.ndarray, np.ndarray]:
    """Portals and their middles. Between two polygons the first link's portal stands for all, as in Detour."""
    number = len(links.polygon)
    middle, portal = np.zeros((number, 4), np.float32), np.zeros((number, 8), np.float32)
    between = links.polygon << 32 | links.target
    _, first, which = np.unique(between, return_index=True, return_inverse=True)
    left, right = links.left[first[which]], links.right[first[which]]
    middle[:, :3] = (left + right) * np.float32(0.5)
    portal[:, :3], portal[:, 4:7] = left, right
    _bits(middle)[:, 3] = links.target
    _bits(portal)[:, 3], _bits(portal)[:, 7] = links.edge + 8 * links.side, links.polygon
    return middle, portal


def _islands(links: Links, walkable: np.ndarray) -> np.ndarray:
    """Connected components, numbered by their first polygon."""
    ends = links.polygon, links.target
    graph = coo_array((np.ones(len(links.polygon), np.int8), ends), (len(walkable), len(walkable)))
    label = connected_components(graph, directed=False)[1]
    _, where, label = np.unique(label[walkable], return_index=True, return_inverse=True)
    island = np.full(len(walkable), -1, np.int32)
    island[walkable] = np.argsort(np.argsort(where))[label]
    return island


def _island_radii(polygons: np.ndarray, island: np.ndarray) -> np.ndarray:
    """Farthest vertex from the mean of all polygons' vertices (a vertex counts once per polygon, as in Habitat)."""
    number = int(island.max(initial=-1)) + 1
    polygon, corner = np.nonzero((np.arange(6) < _bits(polygons)[:, 0, None]) & (island >= 0)[:, None])
    points = polygons[:, 8:].reshape(-1, 6, 4)[polygon, corner, :3].astype(np.float64)
    owner = island[polygon]
    count = np.maximum(np.bincount(owner, minlength=number), 1)
    middle = np.stack([np.bincount(owner, points[:, axis], number) / count for axis in range(3)], axis=1)
    radii = np.zeros(number)
    np.maximum.at(radii, owner, np.linalg.norm(points - middle[owner], axis=1))
    return radii.astype(np.float32)


def _isolation(triangles, num_triangles, island, climb) -> np.ndarray:
    """Metres between the boxes of a polygon and of the nearest one of another island, at most 2; f32 [P].

    A height difference up to the climb counts as no distance, so both boxes are extended by it. A point at distance d
    from a polygon is, by the triangle inequality, at least isolation - d away from every other island.
    """
    low, high = np.full((len(island), 3), np.inf), np.full((len(island), 3), -np.inf)
    owner = np.repeat(np.arange(len(island)), num_triangles)
    for corner in (triangles[:, 0:3], triangles[:, 4:7], triangles[:, 8:11]):
        np.minimum.at(low, owner, corner)
        np.maximum.at(high, owner, corner)
    low[:, 1] -= climb
    high[:, 1] += climb
    order = np.argsort(low[:, 0], kind="stable")
    isolation = np.full(len(island), _MAX_ISOLATION, np.float32)
    if not _sweep(low[order], high[order], island[order], isolation):
        return np.zeros(len(island), np.float32)  # which is true of any polygon, and costs time where agents walk
    isolation[order] = isolation.copy()
    return isolation


@cpu_function
def _sweep(low, high, island, isolation_out):
    """Isolation of boxes sorted by `low` x, f64 [P, 3]; False where it would take more than linear time."""
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
    """Running share of the walkable area seen from above (the sum of a polygon's fan of triangles)."""
    area = np.zeros(len(polygons))
    x, z = polygons[:, 8::4].astype(np.float64), polygons[:, 10::4].astype(np.float64)
    for k in range(2, 6):
        fan = (x[:, k] - x[:, 0]) * (z[:, k - 1] - z[:, 0]) - (x[:, k - 1] - x[:, 0]) * (z[:, k] - z[:, 0])
        area += np.where(k < _bits(polygons)[:, 0], fan, 0.0)
    total = np.cumsum(np.where(walkable, np.abs(area), 0.0))
    return (total / max(total[-1], 1e-30)).astype(np.float32)


def _scene_row(file: NavMeshFile, num_polygons: int) -> np.ndarray:
    row = np.zeros((1, 12), np.float32)
    row[0, :4] = file.origin[0], file.origin[2], file.tile_width, file.tile_depth
    # Across tile borders Detour keeps up to four search nodes per polygon, one per side it was entered from.
    _bits(row)[0, 4:9] = 0, len(file.tiles), 0, 0 if len(file.tiles) == 1 else 2, num_polygons
    row[0, 9] = min(tile.walkable_climb for tile in file.tiles)
    return row


def _tile_rows(file: NavMeshFile, first_polygon: np.ndarray) -> np.ndarray:
    """Tiles in the order in which Detour's box queries meet them: row, column, then the latest added layer."""
    order = sorted(range(len(file.tiles)), key=lambda i: (file.tiles[i].y, file.tiles[i].x, -i))
    first_node = np.cumsum([0] + [len(tile.bv_nodes) for tile in file.tiles])
    rows = np.zeros((len(order), 16), np.float32)
    for row, index in zip(rows, order, strict=True):
        tile = file.tiles[index]
        row[:8] = *tile.low, tile.bv_quant, *tile.high, tile.walkable_climb
        row[8:11].view(np.int32)[:] = first_node[index], len(tile.bv_nodes), first_polygon[index]
        row[12:14] = tile.x, tile.y
    return rows
