"""`make_house`: a furnished house from a seed."""

from __future__ import annotations

import numpy as np

from batchnav.procedural.furniture.furnish import furnish
from batchnav.procedural.furniture.placement import Arranger
from batchnav.procedural.materials.surface import house_surface
from batchnav.procedural.plans.layout import Layout, make_layout
from batchnav.procedural.plans.openings import Opening, make_openings
from batchnav.procedural.random_draws import Draw, draw_of
from batchnav.procedural.shell.solids import Solids
from batchnav.procedural.shell.walls import build_shell, wall_faces
from batchnav.types import TriangleMesh

BENCHMARK_HOUSE = 121_980
"""Seed of the house that is measured in: large and furnished densely, with 24 rooms on 277 m2 and 151,716 triangles.

In no split. Of the houses of finest detail from seed 120,000 to 122,926, those within 2% of 150,000 triangles are
three, and this one has the most rooms.
"""
MIN_TRIANGLES, MAX_TRIANGLES = 5_000, 200_000

Plan = tuple[Layout, list[Opening], int]
"""Rooms, doors and windows, and how finely round things are divided."""
_STEP = 2.0**-13
"""Vertices lie on this grid, in metres (0.12 mm): float32 then holds them exactly."""


def make_house(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished, closed house of a seed: 30 to 300 m2, 5 thousand to 200 thousand triangles.

    The same seed gives the same house, bit for bit, on every machine. The floor is at y = 0, and the agent's world is
    inside: walls, floors and ceilings face the rooms. With `surface` its mesh has one (colours, things, categories);
    the triangles are the same. ArgumentError for a seed that is not an integer >= 0.
    """
    draw, plan = _plan(seed)
    return assemble(int(seed), draw, plan, surface)


def assemble(seed: int, draw: Draw, plan: Plan, surface: bool, reach: int = 0) -> TriangleMesh:
    """The furnished mesh of a plan; `reach` is as in `Arranger`."""
    layout, openings, detail = plan
    solids = Solids(detail)
    faces = wall_faces(layout)
    build_shell(solids, layout, faces, openings)
    furnish(draw, Arranger(solids, layout, faces, openings, reach))
    return finish(seed, solids, surface)


def make_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """The floor plan of `make_house(seed)` and its doors and windows."""
    return _plan(seed)[1][:2]


def _plan(seed: int) -> tuple[Draw, Plan]:
    draw = draw_of(seed)
    while True:
        layout = make_layout(draw)
        openings = make_openings(draw, layout)
        if openings is not None:
            return draw, (layout, openings, draw.pick((1, 2, 2, 3)))


def finish(seed: int, solids: Solids, surface: bool) -> TriangleMesh:
    """The mesh of solids, with its surface where that is wanted.

    Vertices are rounded to float32 on the grid, and triangles that the rounding made degenerate are left out.
    """
    vertices, faces = solids.arrays()
    rounded, kept = _rounded(vertices, faces)
    look = house_surface(seed, solids.record, (vertices, faces, kept)) if surface else None
    return TriangleMesh(rounded, np.ascontiguousarray(faces[kept], dtype=np.int32), surface=look)


def _rounded(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f32 [V, 3] on the grid, and bool [F]: which triangles the rounding did not make degenerate."""
    vertices = (np.round(vertices / _STEP) * _STEP).astype(np.float32)
    a, b, c = (vertices[faces[:, i]].astype(np.float64) for i in range(3))
    u, v = b - a, c - a
    x, y, z = (u[:, i] * v[:, j] != u[:, j] * v[:, i] for i, j in ((1, 2), (2, 0), (0, 1)))  # of the normal
    return vertices, x | y | z
