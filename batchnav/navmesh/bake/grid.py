"""Voxel grid of a bake: settings in cells, bounding box, and checks of the input before memory is allocated."""

from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.types import FAR

MAX_COLUMNS = 2**25
"""Largest number of grid columns (cells seen from above); 290 x 290 m at Habitat's cell size."""
MAX_SIDE = 0xFFFE
"""Largest number of cells per side of the grid, since polygon corners have 16 bits."""


class Grid(NamedTuple):
    """Settings in cells, rounded in float32 as in Habitat's PathFinder::build, and the grid's box."""

    low: np.ndarray
    """f32 [3], the mesh's lower corner."""
    high: np.ndarray
    """f32 [3], the mesh's upper corner."""
    cell_size: np.float32
    """Metres."""
    cell_height: np.float32
    """Metres."""
    width: int
    """Cells along x."""
    depth: int
    """Cells along z."""
    walkable_height: int
    """Cell heights."""
    walkable_climb: int
    """Cell heights."""
    walkable_radius: int
    """Cells."""
    walkable_cosine: np.float32
    """A triangle is walkable if the y component of its normal is greater."""
    min_region_area: int
    """Cells."""
    merge_region_area: int
    """Cells."""
    max_edge_length: int
    """Cells; 0: no limit."""
    max_edge_error: np.float32
    """Cells."""
    vertices_per_polygon: int
    sample_distance: np.float32
    """Distance between height samples, metres; 0 for no samples."""
    sample_max_error: np.float32
    """Metres."""


def make_grid(vertices: np.ndarray, faces: np.ndarray, settings: NavMeshSettings) -> Grid:
    """Grid around the vertices that the faces use. NavMeshError where they are invalid or too large."""
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise NavMeshError(f"mesh: found vertices {vertices.shape} and faces {faces.shape}, expected [V, 3] and [F, 3]")
    if len(faces) == 0:
        raise NavMeshError("mesh: found no triangles, expected a mesh with a floor")
    bad, low, high = _bounds(vertices, faces)
    if bad >= 0:
        face = faces[bad]
        if face.min() < 0 or face.max() >= len(vertices):
            raise NavMeshError(f"mesh: face {bad} is {face.tolist()}, expected vertices 0 to {len(vertices) - 1}")
        raise NavMeshError(f"mesh: face {bad} has a vertex that is not finite: {vertices[face].tolist()}")

    f32 = np.float32
    cell, height = f32(settings.cell_size), f32(settings.cell_height)
    with np.errstate(over="ignore"):
        extent = (high - low)[[0, 2]]
        sides = extent / cell + f32(0.5)
    if not (sides <= MAX_SIDE + 1).all() or float(sides[0]) * float(sides[1]) > MAX_COLUMNS:
        raise NavMeshError(
            f"mesh: found {extent[0]:.6g} x {extent[1]:.6g} m, which is {sides[0]:.0f} x {sides[1]:.0f} "
            f"cells of {cell:g} m; expected at most {MAX_SIDE} a side and {MAX_COLUMNS} in all: "
            "check the units or use a larger cell_size"
        )
    if min(int(sides[0]), int(sides[1])) < 1:
        raise NavMeshError(
            f"mesh: found {extent[0]:.6g} x {extent[1]:.6g} m seen from above, "
            f"expected at least one cell of {cell:g} m each way: check the units and the up axis"
        )
    farthest = float(np.abs([low, high]).max())
    if farthest > FAR:
        raise NavMeshError(
            f"mesh: found coordinates up to {farthest:.9g} m, which float32 stores in steps of "
            f"{np.spacing(f32(farthest)):.2g} m, expected up to {FAR:g} m: move the mesh to the origin "
            "(`load_mesh` and `load_scene` do that)"
        )
    return Grid(
        low=low,
        high=high,
        cell_size=cell,
        cell_height=height,
        width=int(sides[0]),
        depth=int(sides[1]),
        walkable_height=int(np.ceil(f32(settings.agent_height) / height)),
        walkable_climb=int(np.floor(f32(settings.agent_max_climb) / height)),
        walkable_radius=int(np.ceil(f32(settings.agent_radius) / cell)),
        walkable_cosine=np.cos(f32(settings.agent_max_slope) / f32(180.0) * f32(np.pi)),
        min_region_area=int(f32(settings.region_min_size) ** 2),
        merge_region_area=int(f32(settings.region_merge_size) ** 2),
        max_edge_length=int(f32(settings.edge_max_len) / cell),
        max_edge_error=f32(settings.edge_max_error),
        vertices_per_polygon=int(settings.verts_per_poly),
        sample_distance=f32(0.0) if settings.detail_sample_dist < 0.9 else cell * f32(settings.detail_sample_dist),
        sample_max_error=height * f32(settings.detail_sample_max_error),
    )


@cpu_function
def _bounds(vertices, faces):
    """Box of the used vertices, and the first face with an invalid index or coordinate, or -1."""
    low = np.full(3, np.inf, np.float32)
    high = np.full(3, -np.inf, np.float32)
    for f in range(len(faces)):
        for k in range(3):
            v = faces[f, k]
            if v < 0 or v >= len(vertices):
                return f, low, high
            for a in range(3):
                value = vertices[v, a]
                if not np.isfinite(value):
                    return f, low, high
                low[a] = min(low[a], value)
                high[a] = max(high[a], value)
    return -1, low, high
