"""`make_house`: a furnished house from a seed."""

from __future__ import annotations

from batchnav.procedural.assemble import assemble
from batchnav.procedural.plans.layout import Layout, make_layout
from batchnav.procedural.plans.openings import Opening, Plan, make_openings
from batchnav.procedural.random_stream import RandomStream, seeded_stream
from batchnav.types import TriangleMesh

BENCHMARK_HOUSE = 121_980
"""Seed of the house for benchmarks: 24 rooms on 277 m2, densely furnished, 151,716 triangles; in no split.

Of the houses of the finest level of detail with seeds 120,000 to 122,926, three have 150,000 triangles within 2%; this
one has the most rooms.
"""
MIN_TRIANGLES, MAX_TRIANGLES = 5_000, 200_000
"""Range of a house's number of triangles."""


def make_house(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished, closed house of a seed: 30 to 300 m2, 5 thousand to 200 thousand triangles.

    The same seed gives the same house, bit for bit, on every machine. The floor is at y = 0. Walls, floors and ceilings
    face the rooms.

    Args:
        seed: an integer >= 0.
        surface: True to add a surface: colours, textures, objects and categories. The triangles are the same.

    Raises ArgumentError for any other seed.
    """
    rng, plan = _plan(seed)
    return assemble(int(seed), rng, plan, surface)


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
