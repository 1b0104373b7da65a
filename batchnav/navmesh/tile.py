"""One tile of a Detour navmesh as its file stores it: what the baker makes and queries are built from."""

from typing import NamedTuple

import numpy as np

MAX_VERTICES = 6
"""Of a polygon (DT_VERTS_PER_POLYGON)."""

POLYGON = np.dtype([
    ("first_link", "<u4"), ("vertices", "<u2", MAX_VERTICES), ("neighbours", "<u2", MAX_VERTICES), ("flags", "<u2"),
    ("num_vertices", "u1"), ("area_and_type", "u1"),
])  # fmt: skip
"""dtPoly, 32 bytes. neighbours: 0 wall, k + 1 polygon k, 0x8000 | side a link into the next tile."""

DETAIL = np.dtype([
    ("vertex_base", "<u4"), ("triangle_base", "<u4"), ("num_vertices", "u1"), ("num_triangles", "u1"), ("pad", "u1", 2),
])  # fmt: skip
"""dtPolyDetail, 12 bytes."""

BV_NODE = np.dtype([("low", "<u2", 3), ("high", "<u2", 3), ("index", "<i4")])
"""dtBVNode, 16 bytes. index >= 0: leaf of that polygon; < 0: skip -index nodes to leave this subtree."""

WALKABLE = 0x1
"""Polygon flag: an agent may stand here (Habitat's WALK)."""


class Tile(NamedTuple):
    """A dtMeshTile. Arrays as in the file; heights lie on the detail triangles, a wall is an edge with no neighbour."""

    vertices: np.ndarray
    """f32 [V, 3]."""
    polygons: np.ndarray
    """POLYGON [P]."""
    details: np.ndarray
    """DETAIL [P]."""
    detail_vertices: np.ndarray
    """f32 [D, 3]."""
    detail_triangles: np.ndarray
    """u8 [R, 4]: three vertices (< num_vertices: the polygon's own, else detail vertex), edge flags."""
    bv_nodes: np.ndarray
    """BV_NODE [B], boxes quantised by `bv_quant` from `low`."""
    low: np.ndarray
    """f32 [3]."""
    high: np.ndarray
    """f32 [3]."""
    walkable_height: float
    walkable_radius: float
    walkable_climb: float
    bv_quant: float
    max_links: int
    x: int = 0
    y: int = 0
    layer: int = 0
    user_id: int = 0
    links: np.ndarray | None = None
    """u8 [max_links, 12] as the file had them (None: zeros). Detour rebuilds them when it loads a tile."""
