"""Navmesh baking: from a triangle mesh to a tile of convex walkable polygons.

The method and results are those of Mikko Mononen's Recast 1.6.0 with the settings and order of Habitat's
PathFinder::build. Stages, one file each: voxelisation, filters, erosion by the agent's radius, watershed regions
(Haumont, Debunne, Sillion: "Volumetric cell-and-portal generation", 2003), contours, convex polygons, heights.
"""

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.bake import regions
from batchnav.navmesh.bake.contours import build_contours
from batchnav.navmesh.bake.detail import build_detail
from batchnav.navmesh.bake.heightfield import make_grid, voxelise
from batchnav.navmesh.bake.polygons import build_polygons
from batchnav.navmesh.bake.regions import CompactField, build_compact, build_regions, erode
from batchnav.navmesh.bake.tile import make_tile
from batchnav.navmesh.data import Tile
from batchnav.navmesh.settings import NavMeshSettings

__all__ = ["bake_tile"]


def bake_tile(vertices: np.ndarray, faces: np.ndarray, settings: NavMeshSettings) -> Tile:
    """Bake the walkable surface of a mesh (f32 [V, 3] metres, +Y up; i32 [F, 3]) into one tile.

    Raises:
        NavMeshError: nothing is walkable, the mesh is too large for the grid, or it holds bad coordinates or indices.
        ConfigError: a setting is out of range.
    """
    settings.validate()
    vertices, faces = np.ascontiguousarray(vertices, np.float32), np.ascontiguousarray(faces, np.int32)
    grid = make_grid(vertices, faces, settings)

    solid = voxelise(vertices, faces, grid)
    _expect(solid.area.any(), f"{len(faces)} triangles, none of them flatter than {settings.agent_max_slope:g} degrees")
    if settings.filter_low_hanging_obstacles:
        regions.allow_low_obstacles(grid.walkable_climb, solid)
    if settings.filter_ledge_spans:
        regions.drop_ledges(grid.width, grid.depth, grid.walkable_height, grid.walkable_climb, solid)
    if settings.filter_walkable_low_height_spans:
        regions.drop_low_ceilings(grid.walkable_height, solid)

    field = CompactField(*build_compact(solid, grid.width, grid.depth, grid.walkable_height, grid.walkable_climb))
    erode(grid.walkable_radius, field)
    _expect(field.area.any(), "no floor that is wide and high enough for the agent")

    region = build_regions(field, grid.min_region_area, grid.merge_region_area)
    smallest = f"{grid.min_region_area} cells (the square of region_min_size, {settings.region_min_size:g})"
    _expect(region.any(), f"no floor of {smallest} or more")
    contours = build_contours(field, region, grid.width, grid.max_edge_error, grid.max_edge_length)
    mesh = build_polygons(contours, grid.vertices_per_polygon)
    _expect(len(mesh.corners), f"no outline that is wider than edge_max_error, {settings.edge_max_error:g} cells")
    return make_tile(mesh, build_detail(field, region, mesh, grid), grid, settings)


def _expect(found, otherwise: str) -> None:
    """NavMeshError that says what was found `otherwise`, if `found` is False."""
    if not found:
        raise NavMeshError(f"mesh: found {otherwise}; expected a surface that an agent can walk on")
