"""`make_building`: a corridor floor, as in a hospital, a school, offices or a hotel: rooms on both sides of corridors.

Features that houses and open-plan rooms lack: paths of 10 to 30 m and more with many turns, long corridors of similar
appearance, dead ends, closed doors, and rooms behind rooms: the shortest path often begins away from the goal.
"""

from __future__ import annotations

import numpy as np

from batchnav.procedural.assemble import assemble
from batchnav.procedural.plans.floor import NARROWEST, REACH, USES, Floor, cropped_layout, sample_plan
from batchnav.procedural.plans.layout import CELL, MARGIN, OUTSIDE, Layout, Rect, carve_some, view
from batchnav.procedural.plans.openings import Opening
from batchnav.procedural.random_stream import RandomStream
from batchnav.types import TriangleMesh

_Line = tuple[tuple[float, float], tuple[float, float]]
_SKELETONS: tuple[tuple[_Line, ...], ...] = (
    (((0, 0), (1, 0)),),
    (((0, 0), (1, 0)), ((1, 0), (1, 1))),
    (((0, 0), (1, 0)), ((0.5, 0), (0.5, 1))),
    (((0, 0.5), (1, 0.5)), ((0.4, 0.5), (0.4, 0)), ((0.6, 0.5), (0.6, 1))),
    (((0, 0), (1, 0)), ((0, 0), (0, 1)), ((1, 0), (1, 1))),
    (((0, 0), (0, 1)), ((1, 0), (1, 1)), ((0, 0.5), (1, 0.5))),
    (((0, 0), (0.5, 0)), ((0.5, 0), (0.5, 1)), ((0.5, 1), (1, 1))),
    (((0, 0), (1, 0)), ((0, 0), (0, 1)), ((1, 0), (1, 1)), ((0, 1), (1, 1))),
    (((0, 0), (1, 0)), ((0.25, 0), (0.25, 1)), ((0.75, 0), (0.75, 1)), ((0, 1), (1, 1))),
    (((0, 0), (1, 0)), ((0.1, 0), (0.1, 1)), ((0.5, 0), (0.5, 1)), ((0.9, 0), (0.9, 1))),
)
"""Centre lines of corridors in a square of 1 x 1: straight, L, T, a cross with shifted arms, U, H, Z, ring, a ring with
dead ends, comb. Ends lie on earlier lines or are free; lines do not cross."""
_CANVAS = 900
"""Cells along each side of the plan before it is cropped."""
_FEWEST, _MOST = 15, 60
"""Range of the number of rooms, bathrooms and corridors included."""


def make_building(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished floor of a large building: 350 to 1,200 m2, mostly 30 to 60 m long; floor at y = 0.

    The same seed gives the same floor, bit for bit, on every machine. `surface` is as in `make_house`. ArgumentError
    for a seed that is not an integer >= 0.
    """
    rng, plan = sample_plan(seed, _make_layout)
    return assemble(int(seed), rng, plan, surface, REACH)


def make_building_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """The floor plan of `make_building(seed)` and its doors and windows."""
    return sample_plan(seed, _make_layout)[1][:2]


class _CorridorPlan(Floor):
    """A plan in progress: corridors first, then the rooms along them. Later rooms only take empty cells."""

    def __init__(self, rng: RandomStream) -> None:
        super().__init__(np.full((_CANVAS, _CANVAS), OUTSIDE, np.int16))
        self.rng = rng

    def add(self, rect: Rect, is_corridor: bool = False) -> None:
        """Add a room or a corridor."""
        self.rects.append(rect)
        self.is_corridor.append(is_corridor)
        self.cover(rect, len(self.rects) - 1)

    def cover(self, rect: Rect, label: int) -> None:
        """Make a rectangle part of a room; other rectangles lose the end that it covers."""
        view(self.labels, rect)[...] = label
        self.covered = [*((_without_end(other, rect), of) for other, of in self.covered), (rect, label)]

    def add_corridor(self, rect: Rect) -> Rect | None:
        """Add a corridor on empty cells: as part of a corridor that it meets, or as its own, with a door between."""
        z, x = np.nonzero(view(self.labels, rect) == OUTSIDE)
        if not len(x):
            return None
        x0, z0, x1, z1 = (int(v) for v in (x.min(), z.min(), x.max() + 1, z.max() + 1))
        rect = (rect[0] + x0, rect[1] + z0, rect[0] + x1, rect[1] + z1)
        around = view(self.labels, (rect[0] - 1, rect[1] - 1, rect[2] + 1, rect[3] + 1))
        met = np.unique(around[around != OUTSIDE])
        if len(met) and self.rng.chance(0.6):
            self.cover(rect, self.rng.pick(met.tolist()))
        else:
            self.add(rect, is_corridor=True)
        return rect

    def is_free(self, rect: Rect) -> bool:
        """True where a rectangle lies on the canvas and covers empty cells only."""
        inside = min(rect) >= MARGIN and max(rect) <= _CANVAS - MARGIN
        return inside and bool((view(self.labels, rect) == OUTSIDE).all())

    def line_with_rooms(self, rect: Rect, axis: int, side: int) -> None:
        """Add rooms along one side of a corridor, `side` -1 or +1; some places stay empty, like locked rooms."""
        rng = self.rng
        start, stop = (rect[0], rect[2]) if axis == 0 else (rect[1], rect[3])
        edge = rect[(3 if side > 0 else 1) if axis == 0 else (2 if side > 0 else 0)]
        module, depth, at = rng.pick((26, 32, 40, 48, 70)), rng.integer(30, 80), start
        while stop - at >= NARROWEST:
            width = round(module * rng.uniform(0.8, 1.25)) * (2 if rng.chance(0.12) else 1)
            if stop - at - width < NARROWEST:
                width = max(stop - at, module if rng.chance(0.5) else 0)
            if rng.chance(0.07):
                at += width
                continue
            for deep in (depth, round(0.75 * depth), round(0.5 * depth)):
                low, high = sorted((edge, edge + side * deep))
                room = (at, low, at + width, high) if axis == 0 else (low, at, high, at + width)
                if deep >= NARROWEST and self.is_free(room):
                    self.add_rooms(room, axis, side)
                    break
            else:
                width = 10
            at += width

    def add_rooms(self, rect: Rect, axis: int, side: int) -> None:
        """Add a room; a deep one is often split into a room behind another."""
        x0, z0, x1, z1 = rect
        low, high = (z0, z1) if axis == 0 else (x0, x1)
        if high - low < 56 or not self.rng.chance(0.6):
            self.add(rect)
            return
        cut = low + round((high - low) * self.rng.uniform(0.42, 0.58))
        near, far = ((x0, z0, x1, cut), (x0, cut, x1, z1)) if axis == 0 else ((x0, z0, cut, z1), (cut, z0, x1, z1))
        for part in (near, far) if side > 0 else (far, near):
            self.add(part)

    def add_caps(self, rect: Rect, axis: int) -> None:
        """Add a room at each end of a corridor with probability 0.5, where there is space."""
        rng = self.rng
        middle = (rect[1] + rect[3]) // 2 if axis == 0 else (rect[0] + rect[2]) // 2
        for end, side in ((rect[axis], -1), (rect[axis + 2], 1)):
            if rng.chance(0.5):
                continue
            across, deep = rng.integer(32, 90), rng.integer(35, 75)
            start = middle - round(across * rng.uniform(0.3, 0.7))
            low, high = sorted((end, end + side * deep))
            room = (low, start, high, start + across) if axis == 0 else (start, low, start + across, high)
            if self.is_free(room):
                self.add(room)


def _without_end(rect: Rect, taken: Rect) -> Rect:
    """A rectangle without the end that `taken` covers; unchanged where `taken` covers no end."""
    x0, z0, x1, z1 = rect
    low_x, low_z, high_x, high_z = taken
    if high_x <= x0 or x1 <= low_x or high_z <= z0 or z1 <= low_z:
        return rect
    if low_x <= x0 and x1 <= high_x:
        return (x0, high_z, x1, z1) if low_z <= z0 else (x0, z0, x1, low_z)
    return (high_x, z0, x1, z1) if low_x <= x0 else (x0, z0, low_x, z1)


def _make_layout(rng: RandomStream) -> Layout | None:
    """Sample a floor plan; None where it has too few rooms or too many."""
    plan = _CorridorPlan(rng)
    corridors = [(plan.add_corridor(rect), axis) for rect, axis in _corridors(rng)]
    sides = [(rect, axis, side) for rect, axis in corridors if rect for side in (-1, 1)]
    for rect, axis in corridors:
        if rect:
            plan.add_caps(rect, axis)
    for rect, axis, side in rng.shuffled(sides):
        plan.line_with_rooms(rect, axis, side)
    use = rng.pick(tuple(USES))
    if use in ("hospital", "hotel"):
        carve_some(rng, plan.labels, plan.rects, plan.is_corridor)
    if not _FEWEST <= len(plan.rects) <= _MOST:
        return None
    return cropped_layout(rng, plan, use)


def _corridors(rng: RandomStream) -> list[tuple[Rect, int]]:
    """Corridors 1.6 to 3 m wide along the lines of a skeleton, each with the axis that it runs along."""
    lines, turned = np.array(rng.pick(_SKELETONS), float), rng.chance(0.5)
    for axis in (0, 1):
        if rng.chance(0.5):
            lines[:, :, axis] = 1.0 - lines[:, :, axis]
    lengths = np.abs(lines[:, 1] - lines[:, 0]).sum(0)
    total, ratio = rng.uniform(38.0, 90.0), rng.uniform(0.4, 0.9)
    length = min(max(total / (lengths[0] + ratio * lengths[1]), 18.0), 46.0)
    extent = np.array([length, min(max(ratio * length, 12.0), 32.0)])
    points = np.round(lines * extent / CELL).astype(int)
    if turned:
        points = points[:, :, ::-1]
    points += (_CANVAS - points.max((0, 1)) - points.min((0, 1))) // 2
    half, rects = rng.integer(8, 15), []  # one width for all: an end then lies in the corridor that it meets
    for start, stop in points:
        x0, z0 = (int(v) - half for v in np.minimum(start, stop))
        x1, z1 = (int(v) + half for v in np.maximum(start, stop))
        rects.append(((x0, z0, x1, z1), 0 if start[1] == stop[1] else 1))
    return rects
