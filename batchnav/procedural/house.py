"""`make_house`: a furnished house from a seed; `assemble`: the furnished mesh of a floor plan."""

from __future__ import annotations

import numpy as np

from batchnav.procedural.furniture.furnish import furnish
from batchnav.procedural.furniture.kinds import MoreKinds
from batchnav.procedural.furniture.models import Furniture
from batchnav.procedural.furniture.placement import Arranger
from batchnav.procedural.materials.surface import house_surface
from batchnav.procedural.plans import Layout, Opening, Plan, make_layout, make_openings
from batchnav.procedural.random_stream import RandomStream, seeded_stream
from batchnav.procedural.solids import Solids
from batchnav.procedural.walls import build_shell, wall_faces
from batchnav.types import TriangleMesh

_STEP = 2.0**-13
"""Grid of vertex coordinates, metres (0.12 mm): float32 holds its points exactly."""


def assemble(
    seed: int,
    rng: RandomStream,
    plan: Plan,
    surface: bool,
    reach: int = 0,
    furniture: Furniture | None = None,
    more_kinds: bool = False,
) -> TriangleMesh:
    """The furnished mesh of a floor plan.

    Args:
        seed: seed of the scene; the surface has its own random stream.
        rng: random stream for the furniture.
        plan: rooms, doors, windows and level of detail.
        surface: True to add colours, textures, objects and categories.
        reach: distance around new furniture within which paths are checked, see `Arranger`.
        furniture: models that take places of our own pieces; None for none.
        more_kinds: True to choose among several constructions of the other pieces.
    """
    solids = Solids(plan.detail)
    solids.things = () if furniture is None else furniture.things
    faces = wall_faces(plan.layout)
    build_shell(solids, plan.layout, faces, plan.openings)
    replacements = MoreKinds(furniture) if more_kinds else furniture
    furnish(rng, Arranger(solids, plan.layout, faces, plan.openings, reach, replacements))
    return finish(seed, solids, surface, furniture)


def finish(seed: int, solids: Solids, surface: bool, furniture: Furniture | None = None) -> TriangleMesh:
    """The mesh of solids, with a surface where `surface` is True; `furniture` has the models among them.

    Vertices are rounded to a grid that float32 represents exactly; triangles that become degenerate are removed.
    """
    vertices, faces = solids.arrays()
    rounded, kept = _rounded(vertices, faces)
    look = house_surface(seed, solids.record, (vertices, faces, kept), furniture) if surface else None
    return TriangleMesh(rounded, np.ascontiguousarray(faces[kept], dtype=np.int32), surface=look)


def _rounded(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f32 [V, 3] on the grid, and bool [F]: True where a triangle keeps an area after rounding."""
    vertices = (np.round(vertices / _STEP) * _STEP).astype(np.float32)
    a, b, c = (vertices[faces[:, i]].astype(np.float64) for i in range(3))
    u, v = b - a, c - a
    x, y, z = (u[:, i] * v[:, j] != u[:, j] * v[:, i] for i, j in ((1, 2), (2, 0), (0, 1)))  # components of the normal
    return vertices, x | y | z


BENCHMARK_HOUSE = 121_980
"""Seed of the house for benchmarks: 24 rooms on 277 m2, densely furnished, 151,716 triangles; in no split.

Of the houses of the finest level of detail with seeds 120,000 to 122,926, three have 150,000 triangles within 2%; this
one has the most rooms.
"""
MIN_TRIANGLES, MAX_TRIANGLES = 5_000, 200_000
"""Range of a house's number of triangles."""


def make_house(
    seed: int, surface: bool = False, furniture: Furniture | None = None, more_kinds: bool = False
) -> TriangleMesh:
    """The furnished, closed house of a seed: 30 to 300 m2, 5 thousand to 200 thousand triangles.

    The same seed gives the same house, bit for bit, on every machine. The floor is at y = 0. Walls, floors and ceilings
    face the rooms.

    Args:
        seed: an integer from 0 to 2^64 - 1.
        surface: True to add a surface: colours, textures, objects and categories. The triangles are the same.
        furniture: models that take places of our own pieces; the floor plan is the same. Their triangles add to the
            house's.
        more_kinds: True to choose among several constructions of furniture, see `furniture/kinds.py`; the floor plan
            is the same.

    Raises ArgumentError for any other seed.
    """
    rng, plan = _plan(seed)
    return assemble(int(seed), rng, plan, surface, furniture=furniture, more_kinds=more_kinds)


def make_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """Floor plan of `make_house(seed)`, and its doors and windows."""
    return _plan(seed)[1][:2]


def _plan(seed: int) -> tuple[RandomStream, Plan]:
    """The floor plan of a seed, and its random stream after sampling. Plans with unconnected rooms are rejected."""
    rng = seeded_stream(seed)
    while True:
        layout = make_layout(rng)
        openings = make_openings(rng, layout)
        if openings is not None:
            return rng, Plan(layout, openings, rng.pick((1, 2, 2, 3)))
