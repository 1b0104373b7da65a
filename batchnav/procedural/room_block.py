"""`make_block`: a room-block floor, a deep floor where blocks of rooms stand among wide passages that form loops.

Features that corridor floors lack: passages of 1.6 to 4.5 m around every block, so that several paths lead to each
place, rooms with doors on two sides, and open areas.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import ndimage

from batchnav.procedural.assemble import assemble
from batchnav.procedural.plans.floor import NARROWEST, REACH, USES, Floor, cropped_layout, sample_plan
from batchnav.procedural.plans.layout import MARGIN, OUTSIDE, Layout, Rect, area_of, carve_some, view
from batchnav.procedural.plans.openings import Opening
from batchnav.procedural.random_stream import RandomStream
from batchnav.types import TriangleMesh

_PASSAGES = 0
"""Label of all passages."""
_PASSAGE = (16, 45)
"""Range of the width of passages, cells."""
_THINNEST = 26
"""Shortest side of a block, cells."""
_INSIDE = 120
"""Smallest inner side, for blocks and passages between rooms along outer walls, cells."""
_FEWEST, _MOST = 8, 60
"""Range of the number of rooms; all passages together count as one."""
_SECOND_DOOR = 0.3
"""Probability of a door on each further side of a room towards the passages."""


def make_block(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished room-block floor of a seed: 350 to 1,500 m2, 22 to 50 m long; floor at y = 0.

    The same seed gives the same floor, bit for bit, on every machine. `surface` is as in `make_house`. ArgumentError
    for a seed that is not an integer >= 0.
    """
    rng, plan = sample_plan(seed, _make_layout, _SECOND_DOOR)
    return assemble(int(seed), rng, plan, surface, REACH)


def make_block_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """The floor plan of `make_block(seed)` and its doors and windows."""
    return sample_plan(seed, _make_layout, _SECOND_DOOR)[1][:2]


def _make_layout(rng: RandomStream) -> Layout | None:
    """Sample a floor plan; None for one without a block, with too few or many rooms, or with unconnected passages."""
    sides = rng.shuffled([rng.integer(160, 300), rng.integer(220, 500)])
    whole = (MARGIN, MARGIN, MARGIN + sides[0], MARGIN + sides[1])
    outer, inside = _along_walls(rng, whole)
    inner = _in_blocks(rng, inside)
    rooms = outer + inner
    use = rng.pick(tuple(USES))
    labels = np.full((whole[3] + MARGIN, whole[2] + MARGIN), OUTSIDE, np.int16)
    view(labels, whole)[...] = _PASSAGES
    for label, rect in enumerate(rooms, 1):
        view(labels, rect)[...] = label
    if not inner or ndimage.label(labels == _PASSAGES)[1] > 1:
        return None
    passages = [(rect, _PASSAGES) for rect in _rectangles(labels == _PASSAGES)]
    covered = passages + [(rect, label) for label, rect in enumerate(rooms, 1)]
    plan = Floor(labels, [whole, *rooms], [True] + [False] * len(rooms), covered)
    if use in ("hospital", "hotel"):
        carve_some(rng, plan.labels, plan.rects, plan.is_corridor)
    return cropped_layout(rng, plan, use) if _FEWEST <= len(plan.rects) <= _MOST else None


def _along_walls(rng: RandomStream, whole: Rect) -> tuple[list[Rect], Rect]:
    """Rooms along some outer walls, and the rectangle that they leave."""
    rooms: list[Rect] = []
    left = list(whole)
    for side in rng.shuffled(range(4)):
        axis, is_far = side % 2, side >= 2
        depth = rng.integer(30, 75)
        if left[axis + 2] - left[axis] - depth < _INSIDE or rng.chance(0.35):
            continue
        cut = left[axis + 2] - depth if is_far else left[axis] + depth
        low, high = (cut, left[axis + 2]) if is_far else (left[axis], cut)
        module, at, stop = rng.pick((26, 32, 40, 48, 70)), left[1 - axis], left[3 - axis]
        while stop - at >= NARROWEST:
            width = min(max(round(module * rng.uniform(0.8, 1.25)), NARROWEST), stop - at)
            if stop - at - width < NARROWEST:
                width = stop - at
            room = (low, at, high, at + width) if axis == 0 else (at, low, at + width, high)
            if not rng.chance(0.07):
                rooms.append(room)
            at += width
        left[axis + 2 if is_far else axis] = cut
    return rooms, (left[0], left[1], left[2], left[3])


def _in_blocks(rng: RandomStream, inside: Rect) -> list[Rect]:
    """Rooms in blocks with passages around each block; some places stay open."""
    rooms: list[Rect] = []
    x0, z0, x1, z1 = inside
    is_grid, rows = rng.chance(0.5), _between_passages(rng, z0, z1)
    for low_x, high_x in _between_passages(rng, x0, x1):
        for low_z, high_z in rows if is_grid else _between_passages(rng, z0, z1):
            if not rng.chance(0.12):
                rooms += _split(rng, (low_x, low_z, high_x, high_z), rng.uniform(7.0, 30.0))
    return rooms


def _between_passages(rng: RandomStream, start: int, stop: int) -> list[tuple[int, int]]:
    """Start and stop of blocks along one axis, with passages before, between and after them."""
    found, at = [], start + rng.integer(*_PASSAGE)
    while stop - _PASSAGE[0] - at >= _THINNEST:
        end = min(at + rng.integer(_THINNEST, 120), stop - rng.integer(*_PASSAGE))
        if end - at >= _THINNEST:
            found.append((at, end))
        at = max(end, at) + rng.integer(*_PASSAGE)
    return found


def _split(rng: RandomStream, rect: Rect, largest: float) -> list[Rect]:
    """A block split into rooms across its longer side, until rooms have at most about `largest` square metres."""
    axis = 0 if rect[2] - rect[0] >= rect[3] - rect[1] else 1
    length = rect[axis + 2] - rect[axis]
    if length < 2 * NARROWEST or area_of(rect) < largest * rng.uniform(0.8, 1.6):
        return [rect]
    share = 0.5 if rng.chance(0.5) else rng.uniform(0.3, 0.7)
    cut = rect[axis] + min(max(round(length * share), NARROWEST), length - NARROWEST)
    near = (rect[0], rect[1], cut, rect[3]) if axis == 0 else (rect[0], rect[1], rect[2], cut)
    far = (cut, rect[1], rect[2], rect[3]) if axis == 0 else (rect[0], cut, rect[2], rect[3])
    return _split(rng, near, largest) + _split(rng, far, largest)


def _rectangles(mask: np.ndarray) -> list[Rect]:
    """Disjoint rectangles that cover the True cells of bool [Z, X], from runs of equal rows."""
    cuts = [0, *(np.flatnonzero((mask[1:] != mask[:-1]).any(1)) + 1).tolist(), len(mask)]
    found: list[Rect] = []
    for z0, z1 in pairwise(cuts):
        edges = np.flatnonzero(np.diff(mask[z0].astype(np.int8), prepend=0, append=0)).tolist()
        found += [(x0, z0, x1, z1) for x0, x1 in zip(edges[::2], edges[1::2], strict=True)]
    return found
