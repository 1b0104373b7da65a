"""Compile the second half of the kernels that build a scene: python -m batchnav.scene.precompile

`runtime/kernels/precompile.py` starts it before a navmesh is baked, which compiles the first half of the kernels. The
program bakes a square floor, starting at its outline, and builds its BVH.
"""

from __future__ import annotations

import numpy as np

from batchnav.navmesh.bake.contours import Contours
from batchnav.navmesh.bake.detail import build_detail
from batchnav.navmesh.bake.heightfield import make_grid
from batchnav.navmesh.bake.polygons import build_polygons
from batchnav.navmesh.bake.regions import CompactField
from batchnav.navmesh.bake.tile import make_tile
from batchnav.navmesh.file import single_tile_file
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.bvh import build_bvh
from batchnav.scene.checks import check_scene_arrays
from batchnav.types import TriangleMesh

SIDE = 2.0
"""Side of the floor, metres."""


def main() -> None:
    """Build a scene with one floor."""
    settings = NavMeshSettings()
    corners = np.array([(0, 0, 0), (0, 0, SIDE), (SIDE, 0, SIDE), (SIDE, 0, 0)], np.float32)
    mesh = TriangleMesh(corners, np.array([(0, 1, 2), (0, 2, 3)], np.int32))
    # The last step of building a scene compiles first. A row of floors, since the columns of a tree with a single node
    # are contiguous, for which numba would compile other kernels than for a scene.
    places = SIDE * np.arange(4, dtype=np.float32)[:, None, None] * np.array([1, 0, 0], np.float32)
    steps = np.array(4 * np.arange(4), np.int32)[:, None, None]
    row = TriangleMesh((corners + places).reshape(-1, 3), (mesh.faces + steps).reshape(-1, 3))
    check_scene_arrays(row, build_bvh(row), "floors")
    grid = make_grid(mesh.vertices, mesh.faces, settings)
    field, region, outline = _whole_floor(grid.width)
    polygons = build_polygons(outline, grid.vertices_per_polygon)
    tile = make_tile(polygons, build_detail(field, region, polygons, grid), grid, settings)
    NavMesh(single_tile_file(tile, settings))


def _whole_floor(side: int) -> tuple[CompactField, np.ndarray, Contours]:
    """A square of `side` x `side` cells: its compact field, one region, and its outline."""
    cell = np.arange(side * side, dtype=np.int32)
    z, x = np.divmod(cell, np.int32(side))
    adjacent = (cell - 1, cell + side, cell + 1, cell - side)
    inside = (x > 0, z < side - 1, x < side - 1, z > 0)
    neighbours = np.stack([np.where(*both, -1) for both in zip(inside, adjacent, strict=True)], 1).astype(np.int32)
    first, floor = np.arange(side * side + 1, dtype=np.int32), np.zeros(side * side, np.int32)
    ring = np.array([(0, 0, 0), (0, 0, side), (side, 0, side), (side, 0, 0)], np.int32)
    one = np.ones(1, np.int32)
    outline = Contours(ring, np.zeros(1, np.int32), 4 * one, one)
    return CompactField(first, cell, floor, neighbours, np.ones(side * side, np.uint8)), floor + 1, outline


if __name__ == "__main__":
    main()
