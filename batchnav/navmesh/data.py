"""A navmesh as the rows that kernels read, K navmeshes in one set of arrays, and the memory that a search works in.

What a row holds is said here alone: as a dtype (for NumPy, by `records`) and as the functions by which kernels read it.
Rows are multiples of 16 bytes, one line of a dtype each, read with `intrinsics.load4`. Integers inside float rows are
kept as their bits (`as_int`, `as_float`). Polygon, link, triangle, node and island ids are global over all packed
scenes.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.tile import BV_NODE, MAX_VERTICES
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import load4
from batchnav.types import Column

WALL, SEVERAL = -1, -2
"""Neighbour of a polygon's edge: none, or more than one (borders between tiles; see the links)."""
NODE_POOL = 2048
"""Polygons that a path search may touch before it gives up (habitat-sim's dtNavMeshQuery)."""
MAX_VISITS = 16 * NODE_POOL
"""Polygons that a path search may leave, reopened ones again: so that it ends on any mesh, however twisted."""
MAX_PATH = 256
"""Polygons, and corners, that a path may have (habitat-sim's buffers)."""

SCENE_ROW = np.dtype([
    ("origin_x", "f4"), ("origin_z", "f4"), ("tile_width", "f4"), ("tile_depth", "f4"),
    ("first_tile", "i4"), ("tiles", "i4"), ("first_polygon", "i4"), ("side_shift", "i4"),
    ("polygons", "i4"), ("climb", "f4"), ("pad", "f4", 2),
])  # fmt: skip
"""A polygon has 1 << side_shift search nodes."""
TILE_ROW = np.dtype([
    ("low", "f4", 3), ("quant", "f4"),
    ("high", "f4", 3), ("climb", "f4"),
    ("first_node", "i4"), ("nodes", "i4"), ("first_polygon", "i4"), ("pad", "i4"),
    ("column", "f4"), ("row", "f4"), ("pad_too", "f4", 2),
])  # fmt: skip
"""A tile's box, the cells per metre of its tree, its nodes and polygons, its place in the grid of tiles."""
POLYGON_ROW = np.dtype([
    ("vertices", "i4"), ("first_triangle", "i4"), ("triangles", "i4"), ("isolation", "f4"),
    ("centre", "f4", 3), ("island", "i4"),
    ("edges", [("start", "f4", 3), ("neighbour", "i4")], MAX_VERTICES),
])  # fmt: skip
"""Edge k goes from vertex k to the next; its neighbour is a polygon, WALL or SEVERAL. Isolation: a point whose distance
to this polygon is below half of it, in metres, is nearest to this island."""
TRIANGLE_ROW = np.dtype([("corners", [("point", "f4", 3), ("extra", "i4")], 3)])
"""A detail triangle abc. The first corner's `extra` is a mask: bit e: edge e (0 is ab) is on the outline; bit 3 + e:
edge e counts when all edges are looked at, each once."""
MIDDLE_ROW = np.dtype([
    ("middle", "f4", 3), ("target", "i4"),
    ("branch", "i4", 2), ("pad", "f4", 2),
])  # fmt: skip
"""The middle of a link's portal, the polygon that the link leads to, and its branch (`navmesh/branches.py`)."""
PORTAL_ROW = np.dtype([("left", "f4", 3), ("edge_and_side", "i4"), ("right", "f4", 3), ("source", "i4")])
"""A link's portal, edge + 8 * side (0..3, of the tile's border), and the polygon that the link leaves."""


class NavMeshData(NamedTuple, Generic[Column]):
    """K navmeshes. NumPy arrays on the host, torch tensors on a device, or what `device.view` makes of them."""

    scenes: Column
    """f32 [K, 12]: SCENE_ROW."""
    tiles: Column
    """f32 [T, 16]: TILE_ROW."""
    nodes: Column
    """i32 [B, 4]: BV_NODE, nodes of the tiles' trees as in the file."""
    polygons: Column
    """f32 [P, 32]: POLYGON_ROW."""
    triangles: Column
    """f32 [R, 12]: TRIANGLE_ROW."""
    link_start: Column
    """i32 [P + 1]: links of polygon p are link_start[p] to link_start[p + 1]."""
    link_middle: Column
    """f32 [L, 8]: MIDDLE_ROW."""
    link_portal: Column
    """f32 [L, 8]: PORTAL_ROW."""
    polygon_number: Column
    """i32 [P]: by which branches are told (`navmesh/branches.py`)."""
    polygon_island: Column
    """i32 [P]: connected component, -1 where no agent may stand."""
    island_radius: Column
    """f32 [I]: distance in metres from an island's mean vertex to its farthest one."""
    cumulative_area: Column
    """f32 [P]: share of its scene's walkable area (seen from above) up to and including polygon p, 0..1."""


_FLOAT, _INT = torch.float32, torch.int32
NAVMESH_COLUMNS = NavMeshData(
    scenes=(SCENE_ROW.itemsize // 4, _FLOAT), tiles=(TILE_ROW.itemsize // 4, _FLOAT),
    nodes=(BV_NODE.itemsize // 4, _INT), polygons=(POLYGON_ROW.itemsize // 4, _FLOAT),
    triangles=(TRIANGLE_ROW.itemsize // 4, _FLOAT), link_start=(None, _INT),
    link_middle=(MIDDLE_ROW.itemsize // 4, _FLOAT), link_portal=(PORTAL_ROW.itemsize // 4, _FLOAT),
    polygon_number=(None, _INT), polygon_island=(None, _INT), island_radius=(None, _FLOAT),
    cumulative_area=(None, _FLOAT),
)  # fmt: skip
"""Columns (None: one dimension) and type of each array."""


def records(rows: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Packed rows [N, W] by the names of `kind`, [N]: a view."""
    return rows.view(kind)[:, 0]


class SearchScratch(NamedTuple, Generic[Column]):
    """Working memory of searches: one row per CPU chunk or CUDA thread. Made by `search_scratch`, cleared by nobody.

    Row-major on both devices: searches of neighbouring threads diverge at once, so what counts is that one node is one
    16-byte access and a search's heap stays in few cache lines. `navmesh/heap.py` alone knows what is where.
    """

    data: Column
    """f32 [rows * row_size, 4]. A row: search counter | nodes (cost, first link, link, state) | heap | list."""
    corners: Column
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


def _column(row: np.dtype, field: str) -> int:
    """Where a field of a row begins, in words of four bytes."""
    fields: Any = row.fields
    return fields[field][1] // 4


_GRID, _TILES, _SIZE = (_column(SCENE_ROW, field) for field in ("origin_x", "first_tile", "polygons"))


@inline_function
def scene_grid(nav, scene):
    """Where a scene's tiles begin, and their size: (origin x, z, width, depth)."""
    return load4(nav.scenes, scene, _GRID)


@inline_function
def scene_tiles(nav, scene):
    """A scene's first tile, and the one after its last."""
    first, number, _, _ = load4(nav.scenes, scene, _TILES)
    return as_int(first), as_int(first) + as_int(number)


@inline_function
def scene_nodes(nav, scene):
    """(first polygon f, shift s): the search nodes of a scene's polygon p are numbered from (p - f) << s on."""
    _, _, first, shift = load4(nav.scenes, scene, _TILES)
    return as_int(first), as_int(shift)


@inline_function
def scene_polygons(nav, scene):
    """(first polygon, number of polygons)."""
    _, _, first, _ = load4(nav.scenes, scene, _TILES)
    number, _, _, _ = load4(nav.scenes, scene, _SIZE)
    return as_int(first), as_int(number)


@inline_function
def scene_climb(nav, scene):
    """The height difference that an agent climbs."""
    _, climb, _, _ = load4(nav.scenes, scene, _SIZE)
    return climb


_LOW, _HIGH, _NODES, _PLACE = (_column(TILE_ROW, field) for field in ("low", "high", "first_node", "column"))


@inline_function
def tile_box(nav, tile):
    """A tile's box, and what its tree needs: (low, high, cells per metre, climb)."""
    low_x, low_y, low_z, quant = load4(nav.tiles, tile, _LOW)
    high_x, high_y, high_z, climb = load4(nav.tiles, tile, _HIGH)
    return (low_x, low_y, low_z), (high_x, high_y, high_z), quant, climb


@inline_function
def tile_nodes(nav, tile):
    """(first node, the one after the last, first polygon)."""
    first, number, polygon, _ = load4(nav.tiles, tile, _NODES)
    return as_int(first), as_int(first) + as_int(number), as_int(polygon)


@inline_function
def tile_place(nav, tile):
    """(column, row) in the grid of tiles, as float32."""
    column, row, _, _ = load4(nav.tiles, tile, _PLACE)
    return column, row


@inline_function
def tree_node(nav, node):
    """A node of a tile's tree: its box in cells, (low, high), and its index as the file has it."""
    a, b, c, index = load4(nav.nodes, node, 0)
    low = a & 0xFFFF, (a >> 16) & 0xFFFF, b & 0xFFFF
    high = (b >> 16) & 0xFFFF, c & 0xFFFF, (c >> 16) & 0xFFFF
    return low, high, index


_HEAD, _CENTRE, _EDGES = (_column(POLYGON_ROW, field) for field in ("vertices", "centre", "edges"))


@inline_function
def polygon_size(nav, polygon):
    """Number of vertices, and of edges."""
    return as_int(load4(nav.polygons, polygon, _HEAD)[0])


@inline_function
def polygon_triangles(nav, polygon):
    """A polygon's first detail triangle, and the one after its last."""
    _, first, number, _ = load4(nav.polygons, polygon, _HEAD)
    return as_int(first), as_int(first) + as_int(number)


@inline_function
def polygon_isolation(nav, polygon):
    """Metres to the nearest other island."""
    _, _, _, isolation = load4(nav.polygons, polygon, _HEAD)
    return isolation


@inline_function
def polygon_centre(nav, polygon):
    """The mean of the vertices."""
    x, y, z, _ = load4(nav.polygons, polygon, _CENTRE)
    return x, y, z


@inline_function
def polygon_vertex(nav, polygon, k):
    """Vertex k, which edge k begins at."""
    x, y, z, _ = load4(nav.polygons, polygon, _EDGES + 4 * k)
    return x, y, z


@inline_function
def polygon_edge(nav, polygon, k):
    """Vertex k, and the neighbour across edge k: a polygon, WALL or SEVERAL."""
    x, y, z, neighbour = load4(nav.polygons, polygon, _EDGES + 4 * k)
    return (x, y, z), as_int(neighbour)


@inline_function
def triangle_corners(nav, triangle):
    """(a, b, c)."""
    ax, ay, az, _ = load4(nav.triangles, triangle, 0)
    bx, by, bz, _ = load4(nav.triangles, triangle, 4)
    cx, cy, cz, _ = load4(nav.triangles, triangle, 8)
    return (ax, ay, az), (bx, by, bz), (cx, cy, cz)


@inline_function
def triangle_edges(nav, triangle):
    """The mask of a triangle's edges."""
    _, _, _, edges = load4(nav.triangles, triangle, 0)
    return as_int(edges)


_BRANCH = _column(MIDDLE_ROW, "branch")
_LEFT, _EDGE, _RIGHT, _SOURCE = (_column(PORTAL_ROW, field) for field in ("left", "edge_and_side", "right", "source"))


@inline_function
def polygon_links(nav, polygon):
    """A polygon's first link, and the one after its last."""
    place = np.uint32(polygon)  # of a signed index it would be asked whether it counts from the end
    return nav.link_start[place], nav.link_start[place + np.uint32(1)]


@inline_function
def link_middle(nav, link):
    """The middle of a link's portal, and the polygon it leads to."""
    x, y, z, target = load4(nav.link_middle, link, 0)
    return (x, y, z), as_int(target)


@inline_function
def link_reaches(nav, link, number):
    """Whether the polygon of that number is in a link's branch."""
    first, end, _, _ = load4(nav.link_middle, link, _BRANCH)
    if as_int(first) < as_int(end):
        return as_int(first) <= number and number < as_int(end)
    return number < as_int(end) or as_int(first) <= number


@inline_function
def link_target(nav, link):
    """The polygon a link leads to."""
    return as_int(load4(nav.link_middle, link, 0)[3])


@inline_function
def link_portal(nav, link):
    """A link's portal: (left, right)."""
    lx, ly, lz, _ = load4(nav.link_portal, link, _LEFT)
    rx, ry, rz, _ = load4(nav.link_portal, link, _RIGHT)
    return (lx, ly, lz), (rx, ry, rz)


@inline_function
def link_edge(nav, link):
    """The edge that a link leaves its polygon through."""
    return as_int(load4(nav.link_portal, link, _LEFT)[3]) & 7


@inline_function
def link_side(nav, link):
    """The side of the tile that a link crosses: 0..3."""
    return as_int(load4(nav.link_portal, link, _LEFT)[3]) >> 3


@inline_function
def link_source(nav, link):
    """The polygon a link leaves."""
    return as_int(load4(nav.link_portal, link, _RIGHT)[3])


def search_scratch(nodes: int, rows: int, device: torch.device, max_corners: int = 0) -> SearchScratch[torch.Tensor]:
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


def pack(navmeshes: list[NavMeshData[np.ndarray]]) -> NavMeshData[np.ndarray]:
    """Several navmeshes as one; scene k is navmeshes[k]. NumPy arrays; move them with `device.to_device`."""
    if not navmeshes:
        raise ArgumentError("navmeshes: found an empty list, expected at least one")
    moved_parts, first = [], NavMeshData(*[0] * len(NavMeshData._fields))
    for part in navmeshes:
        moved_parts.append(moved(part, first))
        counts = NavMeshData(*map(len, part))
        counts = counts._replace(link_start=counts.link_start - 1)  # its last row is the next one's first
        first = NavMeshData(*(a + b for a, b in zip(first, counts, strict=True)))
    ends = [part.link_start[-1:] for part in moved_parts]
    columns = NavMeshData(*zip(*moved_parts, strict=True))
    starts = [*(column[:-1] for column in columns.link_start), ends[-1]]
    return NavMeshData(*(np.ascontiguousarray(np.concatenate(c)) for c in columns._replace(link_start=starts)))


def moved(part: NavMeshData[np.ndarray], first: NavMeshData[int]) -> NavMeshData[np.ndarray]:
    """A navmesh as its rows read where they begin at rows `first` of larger arrays."""
    rows = NavMeshData(*map(np.int32, first))
    part = NavMeshData(*(array.copy() for array in part))
    scene, tile = records(part.scenes, SCENE_ROW), records(part.tiles, TILE_ROW)
    scene["first_tile"] += rows.tiles
    scene["first_polygon"] += rows.polygons
    tile["first_node"] += rows.nodes
    tile["first_polygon"] += rows.polygons
    polygon = records(part.polygons, POLYGON_ROW)
    polygon["first_triangle"] += rows.triangles
    neighbours, islands = polygon["edges"]["neighbour"], (polygon["island"], part.polygon_island)
    for ids, start in ((neighbours, rows.polygons), *((island, rows.island_radius) for island in islands)):
        ids[ids >= 0] += start
    records(part.link_middle, MIDDLE_ROW)["target"] += rows.polygons
    records(part.link_portal, PORTAL_ROW)["source"] += rows.polygons
    part.link_start[:] += rows.link_middle
    return part


def search_size(data: NavMeshData) -> int:
    """Nodes that a path search may meet in the largest of the scenes, for `search_scratch`."""
    scenes = data.scenes.cpu().numpy() if isinstance(data.scenes, torch.Tensor) else np.asarray(data.scenes)
    scenes = records(scenes, SCENE_ROW)
    return int((scenes["polygons"] << scenes["side_shift"]).max(initial=1))


def surface(data: NavMeshData) -> tuple[np.ndarray, np.ndarray]:
    """The detail triangles: corners f32 [R, 3, 3], and the polygon i64 [R] that each belongs to."""
    owner = np.repeat(np.arange(len(data.polygons)), records(data.polygons, POLYGON_ROW)["triangles"])
    return records(data.triangles, TRIANGLE_ROW)["corners"]["point"], owner


def triangle_areas(data: NavMeshData) -> np.ndarray:
    """f64 [P]: area of each polygon's detail triangles, in square metres."""
    corners, owner = surface(data)
    return np.bincount(owner, areas(corners), len(data.polygons))


def areas(corners: np.ndarray) -> np.ndarray:
    """Areas f64 [R] of triangles [R, 3, 3]."""
    a, b, c = corners.astype(np.float64).swapaxes(0, 1)
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)
