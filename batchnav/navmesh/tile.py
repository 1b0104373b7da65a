"""A tile of a Detour navmesh as stored in files: output of the baker, input of `build`."""

from typing import NamedTuple

import numpy as np

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
