"""Navmeshes as rows that kernels read; one set of arrays holds K navmeshes.

This module defines the contents of rows, both as dtypes (for NumPy, see `records`) and as functions that kernels call.
Rows are multiples of 16 bytes, which `intrinsics.load4` reads; each line of a dtype below is 16 bytes. Integers in
float rows are stored as bits (`as_int`, `as_float`). Ids of polygons, links, triangles, nodes and islands are global
over all packed scenes.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import load4
from batchnav.types import Column

# A tile of a Detour navmesh as stored in files: output of the baker, input of `build`

MAX_VERTICES = 6
"""Largest number of vertices of a polygon (DT_VERTS_PER_POLYGON)."""

POLYGON = np.dtype([
    ("first_link", "<u4"), ("vertices", "<u2", MAX_VERTICES), ("neighbours", "<u2", MAX_VERTICES), ("flags", "<u2"),
    ("num_vertices", "u1"), ("area_and_type", "u1"),
])  # fmt: skip
"""dtPoly, 32 bytes. neighbours: 0 is a wall, k + 1 polygon k, 0x8000 | side the border to an adjacent tile."""

DETAIL = np.dtype([
    ("vertex_base", "<u4"), ("triangle_base", "<u4"), ("num_vertices", "u1"), ("num_triangles", "u1"), ("pad", "u1", 2),
])  # fmt: skip
"""dtPolyDetail, 12 bytes."""

BV_NODE = np.dtype([("low", "<u2", 3), ("high", "<u2", 3), ("index", "<i4")])
"""dtBVNode, 16 bytes. index >= 0: leaf with that polygon; < 0: skip -index nodes to pass this subtree."""

WALKABLE = 0x1
"""Polygon flag of walkable polygons (Habitat's WALK)."""


class Tile(NamedTuple):
    """A dtMeshTile with arrays as in the file. Detail triangles give heights; a wall is an edge without neighbour."""

    vertices: np.ndarray
    """f32 [V, 3]."""
    polygons: np.ndarray
    """POLYGON [P]."""
    details: np.ndarray
    """DETAIL [P]."""
    detail_vertices: np.ndarray
    """f32 [D, 3]."""
    detail_triangles: np.ndarray
    """u8 [R, 4]: three vertices, and edge flags. Vertex k is the polygon's if k < n, its number of vertices, else its
    detail vertex k - n."""
    bv_nodes: np.ndarray
    """BV_NODE [B]: boxes relative to `low`, in cells of 1 / `bv_quant` metres."""
    low: np.ndarray
    """f32 [3]."""
    high: np.ndarray
    """f32 [3]."""
    walkable_height: float
    """Agent height, metres."""
    walkable_radius: float
    """Agent radius, metres."""
    walkable_climb: float
    """Height of a step that an agent can climb, metres."""
    bv_quant: float
    """Cells of the BV tree per metre."""
    max_links: int
    x: int = 0
    y: int = 0
    layer: int = 0
    user_id: int = 0
    links: np.ndarray | None = None
    """u8 [max_links, 12] as in the file (None: zeros). Detour rebuilds links when it loads a tile."""


WALL, SEVERAL = -1, -2
"""Neighbour of a polygon's edge: none, or several (on borders between tiles; see the links)."""
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
"""A tile's box, cells per metre of its BV tree, nodes, polygons, and column and row in the grid of tiles."""
POLYGON_ROW = np.dtype([
    ("vertices", "i4"), ("first_triangle", "i4"), ("triangles", "i4"), ("isolation", "f4"),
    ("centre", "f4", 3), ("island", "i4"),
    ("edges", [("start", "f4", 3), ("neighbour", "i4")], MAX_VERTICES),
])  # fmt: skip
"""Edge k goes from vertex k to the next; its neighbour is a polygon, WALL or SEVERAL. Isolation is a lower bound on the
distance to the nearest other island, metres: if a point is nearer to this polygon than half of it, no other island is
nearer."""
TRIANGLE_ROW = np.dtype([("corners", [("point", "f4", 3), ("extra", "i4")], 3)])
"""A detail triangle abc. `extra` of the first corner is a mask. Bit e: edge e (0 is ab) is on the outline. Bit 3 + e:
edge e belongs to this triangle in loops over all edges."""
MIDDLE_ROW = np.dtype([
    ("middle", "f4", 3), ("target", "i4"),
    ("branch", "i4", 2), ("pad", "f4", 2),
])  # fmt: skip
"""Midpoint of a link's portal, the polygon that the link leads to, and its branch (`navmesh/build.py`)."""
PORTAL_ROW = np.dtype([("left", "f4", 3), ("edge_and_side", "i4"), ("right", "f4", 3), ("source", "i4")])
"""A link's portal, edge + 8 * side (0 to 3, of the tile's border), and the polygon that the link leaves."""


class NavMeshData(NamedTuple, Generic[Column]):
    """K navmeshes: NumPy arrays on the host, torch tensors on a device, or the kernel arguments from `view`."""

    scenes: Column
    """f32 [K, 12]: SCENE_ROW."""
    tiles: Column
    """f32 [T, 16]: TILE_ROW."""
    nodes: Column
    """i32 [B, 4]: BV_NODE, nodes of the tiles' BV trees as in the file."""
    polygons: Column
    """f32 [P, 32]: POLYGON_ROW."""
    triangles: Column
    """f32 [R, 12]: TRIANGLE_ROW."""
    link_start: Column
    """i32 [P + 1]: links of polygon p are link_start[p] to link_start[p + 1] - 1."""
    link_middle: Column
    """f32 [L, 8]: MIDDLE_ROW."""
    link_portal: Column
    """f32 [L, 8]: PORTAL_ROW."""
    polygon_number: Column
    """i32 [P]: numbers that branches refer to (`navmesh/build.py`)."""
    polygon_island: Column
    """i32 [P]: island (connected component), -1 for polygons that are not walkable."""
    island_radius: Column
    """f32 [I]: distance in metres from an island's mean vertex to its farthest vertex."""
    cumulative_area: Column
    """f32 [P]: fraction of the scene's walkable area (seen from above) up to and including polygon p, 0 to 1."""


_FLOAT, _INT = torch.float32, torch.int32
NAVMESH_COLUMNS = NavMeshData(
    scenes=(SCENE_ROW.itemsize // 4, _FLOAT), tiles=(TILE_ROW.itemsize // 4, _FLOAT),
    nodes=(BV_NODE.itemsize // 4, _INT), polygons=(POLYGON_ROW.itemsize // 4, _FLOAT),
    triangles=(TRIANGLE_ROW.itemsize // 4, _FLOAT), link_start=(None, _INT),
    link_middle=(MIDDLE_ROW.itemsize // 4, _FLOAT), link_portal=(PORTAL_ROW.itemsize // 4, _FLOAT),
    polygon_number=(None, _INT), polygon_island=(None, _INT), island_radius=(None, _FLOAT),
    cumulative_area=(None, _FLOAT),
)  # fmt: skip
"""Number of columns (None: one-dimensional) and dtype of each array."""


def records(rows: np.ndarray, kind: np.dtype) -> np.ndarray:
    """View of packed rows [N, W] as records [N] of a row dtype."""
    return rows.view(kind)[:, 0]


@inline_function
def as_int(value):
    """The bits of a float32 as an int32."""
    return np.float32(value).view(np.int32)


@inline_function
def as_float(value):
    """The bits of an int32 as a float32."""
    return np.int32(value).view(np.float32)


def _column(row: np.dtype, field: str) -> int:
    """First column of a field, in words of four bytes."""
    fields: Any = row.fields
    return fields[field][1] // 4


_GRID, _TILES, _SIZE = (_column(SCENE_ROW, field) for field in ("origin_x", "first_tile", "polygons"))


@inline_function
def scene_grid(nav, scene):
    """(origin x, origin z, tile width, tile depth) of a scene's grid of tiles, metres."""
    return load4(nav.scenes, scene, _GRID)


@inline_function
def scene_tiles(nav, scene):
    """(first tile, tile after the last) of a scene."""
    first, number, _, _ = load4(nav.scenes, scene, _TILES)
    return as_int(first), as_int(first) + as_int(number)


@inline_function
def scene_nodes(nav, scene):
    """(first polygon f, shift s): the search nodes of polygon p of a scene begin at (p - f) << s."""
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
    """Height in metres that an agent can climb."""
    _, climb, _, _ = load4(nav.scenes, scene, _SIZE)
    return climb


_LOW, _HIGH, _NODES, _PLACE = (_column(TILE_ROW, field) for field in ("low", "high", "first_node", "column"))


@inline_function
def tile_box(nav, tile):
    """(low, high, cells per metre of the BV tree, climb) of a tile."""
    low_x, low_y, low_z, quant = load4(nav.tiles, tile, _LOW)
    high_x, high_y, high_z, climb = load4(nav.tiles, tile, _HIGH)
    return (low_x, low_y, low_z), (high_x, high_y, high_z), quant, climb


@inline_function
def tile_nodes(nav, tile):
    """(first node, node after the last, first polygon) of a tile."""
    first, number, polygon, _ = load4(nav.tiles, tile, _NODES)
    return as_int(first), as_int(first) + as_int(number), as_int(polygon)


@inline_function
def tile_place(nav, tile):
    """(column, row) in the grid of tiles, as float32."""
    column, row, _, _ = load4(nav.tiles, tile, _PLACE)
    return column, row


@inline_function
def tree_node(nav, node):
    """(low, high, index) of a BV node: its box in cells, and its index as in the file."""
    a, b, c, index = load4(nav.nodes, node, 0)
    low = a & 0xFFFF, (a >> 16) & 0xFFFF, b & 0xFFFF
    high = (b >> 16) & 0xFFFF, c & 0xFFFF, (c >> 16) & 0xFFFF
    return low, high, index


_HEAD, _CENTRE, _EDGES = (_column(POLYGON_ROW, field) for field in ("vertices", "centre", "edges"))


@inline_function
def polygon_size(nav, polygon):
    """Number of vertices of a polygon."""
    return as_int(load4(nav.polygons, polygon, _HEAD)[0])


@inline_function
def polygon_triangles(nav, polygon):
    """(first detail triangle, triangle after the last) of a polygon."""
    _, first, number, _ = load4(nav.polygons, polygon, _HEAD)
    return as_int(first), as_int(first) + as_int(number)


@inline_function
def polygon_isolation(nav, polygon):
    """Isolation of a polygon, metres (see POLYGON_ROW)."""
    _, _, _, isolation = load4(nav.polygons, polygon, _HEAD)
    return isolation


@inline_function
def polygon_centre(nav, polygon):
    """Mean of a polygon's vertices."""
    x, y, z, _ = load4(nav.polygons, polygon, _CENTRE)
    return x, y, z


@inline_function
def polygon_vertex(nav, polygon, k):
    """Vertex k of a polygon, the start of edge k."""
    x, y, z, _ = load4(nav.polygons, polygon, _EDGES + 4 * k)
    return x, y, z


@inline_function
def polygon_edge(nav, polygon, k):
    """Vertex k of a polygon, and the neighbour across edge k: a polygon, WALL or SEVERAL."""
    x, y, z, neighbour = load4(nav.polygons, polygon, _EDGES + 4 * k)
    return (x, y, z), as_int(neighbour)


@inline_function
def triangle_corners(nav, triangle):
    """Corners (a, b, c) of a detail triangle."""
    ax, ay, az, _ = load4(nav.triangles, triangle, 0)
    bx, by, bz, _ = load4(nav.triangles, triangle, 4)
    cx, cy, cz, _ = load4(nav.triangles, triangle, 8)
    return (ax, ay, az), (bx, by, bz), (cx, cy, cz)


@inline_function
def triangle_edges(nav, triangle):
    """Edge mask of a detail triangle (see TRIANGLE_ROW)."""
    _, _, _, edges = load4(nav.triangles, triangle, 0)
    return as_int(edges)


_BRANCH = _column(MIDDLE_ROW, "branch")
_LEFT, _EDGE, _RIGHT, _SOURCE = (_column(PORTAL_ROW, field) for field in ("left", "edge_and_side", "right", "source"))


@inline_function
def polygon_links(nav, polygon):
    """(first link, link after the last) of a polygon."""
    place = np.uint32(polygon)  # unsigned, so that numba does not check for a negative index
    return nav.link_start[place], nav.link_start[place + np.uint32(1)]


@inline_function
def link_middle(nav, link):
    """Midpoint of a link's portal, and the polygon that the link leads to."""
    x, y, z, target = load4(nav.link_middle, link, 0)
    return (x, y, z), as_int(target)


@inline_function
def link_reaches(nav, link, number):
    """True if the polygon with this number is in the link's branch."""
    first, end, _, _ = load4(nav.link_middle, link, _BRANCH)
    if as_int(first) < as_int(end):
        return as_int(first) <= number and number < as_int(end)
    return number < as_int(end) or as_int(first) <= number


@inline_function
def link_target(nav, link):
    """Polygon that a link leads to."""
    return as_int(load4(nav.link_middle, link, 0)[3])


@inline_function
def link_portal(nav, link):
    """Portal of a link: (left, right)."""
    lx, ly, lz, _ = load4(nav.link_portal, link, _LEFT)
    rx, ry, rz, _ = load4(nav.link_portal, link, _RIGHT)
    return (lx, ly, lz), (rx, ry, rz)


@inline_function
def link_edge(nav, link):
    """Edge through which a link leaves its polygon."""
    return as_int(load4(nav.link_portal, link, _LEFT)[3]) & 7


@inline_function
def link_side(nav, link):
    """Side of the tile that a link crosses, 0 to 3."""
    return as_int(load4(nav.link_portal, link, _LEFT)[3]) >> 3


@inline_function
def link_source(nav, link):
    """Polygon that a link leaves."""
    return as_int(load4(nav.link_portal, link, _RIGHT)[3])


def pack(navmeshes: list[NavMeshData[np.ndarray]]) -> NavMeshData[np.ndarray]:
    """Concatenate navmeshes; scene k is navmeshes[k]. NumPy arrays, which `to_device` moves."""
    if not navmeshes:
        raise ArgumentError("navmeshes: found an empty list, expected at least one")
    moved_parts, first = [], NavMeshData(*[0] * len(NavMeshData._fields))
    for part in navmeshes:
        moved_parts.append(moved(part, first))
        counts = NavMeshData(*map(len, part))
        counts = counts._replace(link_start=counts.link_start - 1)  # its last row is the first row of the next navmesh
        first = NavMeshData(*(a + b for a, b in zip(first, counts, strict=True)))
    ends = [part.link_start[-1:] for part in moved_parts]
    columns = NavMeshData(*zip(*moved_parts, strict=True))
    starts = [*(column[:-1] for column in columns.link_start), ends[-1]]
    return NavMeshData(*(np.ascontiguousarray(np.concatenate(c)) for c in columns._replace(link_start=starts)))


def moved(part: NavMeshData[np.ndarray], first: NavMeshData[int]) -> NavMeshData[np.ndarray]:
    """A copy of a navmesh for concatenated arrays, where the rows of each of its arrays begin at `first`."""
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


def surface(data: NavMeshData) -> tuple[np.ndarray, np.ndarray]:
    """Detail triangles: corners f32 [R, 3, 3], and polygon i64 [R] of each triangle."""
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
