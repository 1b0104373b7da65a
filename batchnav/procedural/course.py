"""`make_course`: an obstacle course, a small scene with what a flat map of 0.2 m cells describes badly.

The seed modulo four is the kind of a course:

    gate       pens among counters or walls, each entered through a gate of 0.32 to 0.42 m
    wall       walls without thickness that leave a passage at one end
    ramp       two storeys with the same floor plan, joined by a ramp in an open well
    platform   platforms of 0.3 to 0.39 m with a step in front of one side or around them
"""

from __future__ import annotations

import numpy as np

from batchnav.procedural.house import finish
from batchnav.procedural.random_stream import RandomStream, seeded_stream
from batchnav.procedural.solids import Solids
from batchnav.types import TriangleMesh

COURSE_KINDS = ("gate", "wall", "ramp", "platform")
"""Kinds of courses; seed modulo four is the index."""
_WALL = 0.15
"""Thickness of outer walls, metres."""
_GRID = 0.05
"""Grid of gates, metres: voxels of the default navmesh. A gate's sides lie `_MARGIN` outside the grid, so a gate of six
voxels is open to a body of 0.1 m however its coordinates are rounded."""
_MARGIN = 0.01
Rect = tuple[float, float, float, float]
"""Low x, low z, high x, high z, metres."""


def make_course(seed: int, surface: bool = False) -> TriangleMesh:
    """The obstacle course of a seed: 20 to 110 m2 a storey; floor at y = 0, centre at x = z = 0.

    The same seed gives the same course, bit for bit, on every machine. `surface` is as in `make_house`. ArgumentError
    for a seed that is not an integer from 0 to 2^64 - 1.
    """
    rng, solids = seeded_stream(seed), Solids(1)
    (_gates, _thin_walls, _ramp, _platforms)[seed % len(COURSE_KINDS)](rng, solids)
    return finish(int(seed), solids, surface)


def course_kind(seed: int) -> str:
    """The kind of the course of a seed, one of `COURSE_KINDS`."""
    return COURSE_KINDS[seed % len(COURSE_KINDS)]


def _box(solids: Solids, category: str, material: str, rect: Rect, bottom: float, top: float) -> None:
    """Add a box as an object of its own."""
    x0, z0, x1, z1 = rect
    with solids.object(category):
        solids.material = material
        solids.box((x0, bottom, z0), (x1, top, z1))


def _shell(solids: Solids, width: float, depth: float, height: float) -> None:
    """Add the floor and four outer walls; no ceiling."""
    x, z = width / 2, depth / 2
    _box(solids, "floor", "floor", (-x, -z, x, z), -0.1, 0.0)
    for rect in (
        (-x - _WALL, -z - _WALL, x + _WALL, -z), (-x - _WALL, z, x + _WALL, z + _WALL),
        (-x - _WALL, -z, -x, z), (x, -z, x + _WALL, z),
    ):  # fmt: skip
        _box(solids, "wall", "wall", rect, 0.0, height)


def _on_grid(value: float) -> float:
    """The nearest multiple of `_GRID`."""
    return round(value / _GRID) * _GRID


# Gates.


def _gates(rng: RandomStream, solids: Solids) -> None:
    """One or two pens in a room, with aisles around them."""
    width, depth = _on_grid(rng.uniform(6.0, 9.0)), _on_grid(rng.uniform(5.0, 7.0))
    _shell(solids, width, depth, 2.6)
    aisle, number = _on_grid(rng.uniform(0.8, 1.1)), rng.integer(1, 2)
    each = _on_grid((width - (number + 1) * aisle) / number)
    for k in range(number):
        x = -width / 2 + aisle + k * (each + aisle)
        _pen(rng, solids, (x, -depth / 2 + aisle, x + each, depth / 2 - aisle))


def _pen(rng: RandomStream, solids: Solids, rect: Rect) -> None:
    """A pen of four counters or walls, with a gate in one of them."""
    is_counter = rng.chance(0.5)
    thickness = _on_grid(rng.uniform(0.1, 0.25)) if is_counter else 0.1
    height = rng.uniform(0.9, 1.1) if is_counter else 2.6
    look = ("counter", "front") if is_counter else ("wall", "wall")
    x0, z0, x1, z1 = rect
    sides = [
        (x0, z0, x1, z0 + thickness), (x0, z1 - thickness, x1, z1),
        (x0, z0 + thickness, x0 + thickness, z1 - thickness), (x1 - thickness, z0 + thickness, x1, z1 - thickness),
    ]  # fmt: skip
    opened = rng.integer(0, 3)
    for side, (a, b, c, d) in enumerate(sides):
        if side != opened:
            _box(solids, *look, (a, b, c, d), 0.0, height)
            continue
        along_x, gate = side < 2, rng.integer(6, 8) * _GRID + _MARGIN
        low, high = (a, c) if along_x else (b, d)
        start = _on_grid(rng.uniform(low + thickness + 0.3, high - thickness - gate - 0.3))
        for from_, to in ((low, start - _MARGIN), (start + gate, high)):
            _box(solids, *look, (from_, b, to, d) if along_x else (a, from_, c, to), 0.0, height)


# Thin walls.


def _thin_walls(rng: RandomStream, solids: Solids) -> None:
    """Parallel walls without thickness, each with a passage at one of its ends."""
    width, depth, height = rng.uniform(4.0, 6.0), rng.uniform(5.0, 7.0), 2.6
    _shell(solids, width, depth, height)
    number = round(depth / rng.uniform(0.65, 1.3)) - 1
    gap, is_left = depth / (number + 1), rng.chance(0.5)
    for k in range(1, number + 1):
        z, passage = -depth / 2 + (k + rng.uniform(-0.15, 0.15)) * gap, rng.uniform(0.8, 1.3)
        low, high = (-width / 2 + passage, width / 2) if is_left else (-width / 2, width / 2 - passage)
        corners = np.array([(low, 0.0, z), (high, 0.0, z), (high, height, z), (low, height, z)])
        with solids.object("wall"):
            solids.material = "wall"
            solids.add(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32))
        is_left = is_left != rng.chance(0.7)


# Ramps.


def _ramp(rng: RandomStream, solids: Solids) -> None:
    """Two storeys; the upper floor has a well with a ramp from the lower floor to one of the well's ends."""
    storey, length, across = rng.uniform(2.3, 2.6), rng.uniform(4.6, 5.6), rng.uniform(1.2, 1.8)
    width, depth = length + rng.uniform(3.6, 5.6), across + rng.uniform(3.6, 6.0)
    _shell(solids, width, depth, storey + 2.4)
    x0 = rng.uniform(-width / 2 + 1.5, width / 2 - 1.5 - length)
    z0 = rng.uniform(-depth / 2 + 1.4, depth / 2 - 1.4 - across)
    x1, z1 = x0 + length, z0 + across
    x, z, thickness = width / 2, depth / 2, 0.15
    for rect in ((-x, -z, x, z0), (-x, z1, x, z), (-x, z0, x0, z1), (x1, z0, x, z1)):
        _box(solids, "floor", "floor", rect, storey - thickness, storey)
    rises = rng.chance(0.5)  # towards +X
    low, high = (x0, x1) if rises else (x1, x0)
    vertices = np.array([(at, y, side) for side in (z0, z1) for at, y in ((low, 0.0), (high, storey), (high, 0.0))])
    faces = np.array([[0, 1, 2], [3, 5, 4], [0, 3, 4], [0, 4, 1], [1, 4, 5], [1, 5, 2], [0, 2, 5], [0, 5, 3]], np.int32)
    with solids.object("stairs"):
        solids.material = "wood"
        solids.add(vertices, faces if rises else faces[:, ::-1])
    if rng.chance(0.5):  # rails beside the ramp; otherwise the floor ends without one
        for side in (z0 - 0.05, z1):
            _box(solids, "wall", "metal", (x0, side, x1, side + 0.05), storey, storey + 0.9)


# Platforms.


def _platforms(rng: RandomStream, solids: Solids) -> None:
    """One or two platforms in a room, each as high as two steps."""
    width, depth = rng.uniform(6.0, 9.0), rng.uniform(5.0, 7.0)
    _shell(solids, width, depth, 2.6)
    number = rng.integer(1, 2)
    for k in range(number):
        middle = ((k + 0.5) / number - 0.5) * width
        half_x, half_z = rng.uniform(0.5, 0.62) * width / number / 2, rng.uniform(0.4, 0.6) * depth / 2
        x0, z0, x1, z1 = middle - half_x, -half_z, middle + half_x, half_z
        _box(solids, "bed", "fabric", (x0, z0, x1, z1), 0.0, rng.uniform(0.3, 0.39))
        rise, tread = rng.uniform(0.15, 0.19), rng.uniform(0.3, 0.45)
        around = (
            (x0 - tread, z0, x0, z1),
            (x1, z0, x1 + tread, z1),
            (x0, z0 - tread, x1, z0),
            (x0, z1, x1, z1 + tread),
        )
        one = rng.integer(0, 3)
        for side in range(4) if rng.chance(0.5) else (one,):
            _box(solids, "stairs", "wood", around[side], 0.0, rise)
