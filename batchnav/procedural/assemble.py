"""From a floor plan to a furnished mesh: shell, furniture, rounding, surface."""

from __future__ import annotations

import numpy as np

from batchnav.procedural.furniture.furnish import furnish
from batchnav.procedural.furniture.placement import Arranger
from batchnav.procedural.materials.surface import house_surface
from batchnav.procedural.plans.openings import Plan
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.shell.walls import build_shell, wall_faces
from batchnav.procedural.solids import Solids
from batchnav.types import TriangleMesh

_STEP = 2.0**-13
"""Grid of vertex coordinates, metres (0.12 mm): float32 holds its points exactly."""


def assemble(seed: int, rng: RandomStream, plan: Plan, surface: bool, reach: int = 0) -> TriangleMesh:
    """The furnished mesh of a floor plan.

    Args:
        seed: seed of the scene; the surface has its own random stream.
        rng: random stream for the furniture.
        plan: rooms, doors, windows and level of detail.
        surface: True to add colours, textures, objects and categories.
        reach: distance around new furniture within which paths are checked, see `Arranger`.
    """
    solids = Solids(plan.detail)
    faces = wall_faces(plan.layout)
    build_shell(solids, plan.layout, faces, plan.openings)
    furnish(rng, Arranger(solids, plan.layout, faces, plan.openings, reach))
    return finish(seed, solids, surface)


def finish(seed: int, solids: Solids, surface: bool) -> TriangleMesh:
    """The mesh of solids, with a surface where `surface` is True.

    Vertices are rounded to a grid that float32 represents exactly; triangles that become degenerate are removed.
    """
    vertices, faces = solids.arrays()
    rounded, kept = _rounded(vertices, faces)
    look = house_surface(seed, solids.record, (vertices, faces, kept)) if surface else None
    return TriangleMesh(rounded, np.ascontiguousarray(faces[kept], dtype=np.int32), surface=look)


def _rounded(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f32 [V, 3] on the grid, and bool [F]: True where a triangle keeps an area after rounding."""
    vertices = (np.round(vertices / _STEP) * _STEP).astype(np.float32)
    a, b, c = (vertices[faces[:, i]].astype(np.float64) for i in range(3))
    u, v = b - a, c - a
    x, y, z = (u[:, i] * v[:, j] != u[:, j] * v[:, i] for i, j in ((1, 2), (2, 0), (0, 1)))  # components of the normal
    return vertices, x | y | z
