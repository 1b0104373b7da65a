"""Floors of large buildings: corridor floors (`make_building`) and room-block floors (`make_block`).

A corridor floor, as in a hospital, a school, offices or a hotel, has rooms on both sides of corridors. Features that
houses and open-plan rooms lack: paths of 10 to 30 m and more with many turns, long corridors of similar appearance,
dead ends, closed doors, and rooms behind rooms: the shortest path often begins away from the goal.

A room-block floor is deep; blocks of rooms stand among wide passages that form loops. Features that corridor floors
lack: passages of 1.6 to 4.5 m around every block, so that several paths lead to each place, rooms with doors on two
sides, and open areas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from scipy import ndimage

from batchnav.procedural.house import assemble
from batchnav.procedural.plans import (
    CELL,
    LEAF_CLEARANCE,
    MARGIN,
    OUTSIDE,
    Layout,
    Opening,
    Piece,
    Plan,
    Rect,
    Room,
    area_of,
    borders,
    carve_some,
    join_rooms,
    make_windows,
    place_door,
    view,
)
from batchnav.procedural.random_stream import RandomStream, seeded_stream
from batchnav.types import TriangleMesh

# Room kinds, ceiling heights and doors of both

USES = {
    "hospital": (("bath", "storage", "office", "bedroom"), ("ward", "ward", "office", "bedroom", "waiting"),
                 ("ward", "ward", "waiting", "canteen")),
    "school": (("bath", "storage", "office"), ("classroom", "classroom", "office", "living"),
               ("classroom", "classroom", "canteen", "bureau")),
    "offices": (("office", "office", "storage", "bath", "kitchen"), ("bureau", "office", "office", "dining", "waiting"),
                ("bureau", "bureau", "canteen", "waiting")),
    "hotel": (("bedroom", "bedroom", "bath", "storage"), ("bedroom", "bedroom", "bedroom", "living"),
              ("canteen", "waiting", "living")),
}  # fmt: skip
"""Room kinds by use of the building: for rooms below `_MIDDLE`, for rooms below `_LARGE`, and for larger ones."""
_MIDDLE, _LARGE = 13.0, 32.0
"""Upper limits of the area of small and of middle-sized rooms, square metres."""
NARROWEST = 20
"""Shortest side of a room at a corridor, cells."""
REACH = 40
"""Distance around new furniture within which paths must stay open, grid cells (2 m)."""


@dataclass
class Floor:
    """A floor plan in progress."""

    labels: np.ndarray
    """i16 [Z, X]: room number of each cell; -1 outside."""
    rects: list[Rect] = field(default_factory=list)
    """Rectangles of rooms, by label."""
    is_corridor: list[bool] = field(default_factory=list)
    """True for corridors, by label."""
    covered: list[tuple[Rect, int]] = field(default_factory=list)
    """Disjoint rectangles that cover all rooms, with their labels."""


def sample_plan(
    seed: int, make_layout: Callable[[RandomStream], Layout | None], second_door: float = 0.0
) -> tuple[RandomStream, Plan]:
    """The plan of a seed, and its random stream after sampling; plans whose rooms cannot be connected are rejected.

    `second_door` is as in `make_openings`. ArgumentError for a seed that is not an integer from 0 to 2^64 - 1.
    """
    rng = seeded_stream(seed)
    while True:
        layout = make_layout(rng)
        openings = layout and make_openings(rng, layout, second_door)
        if layout and openings:
            return rng, Plan(layout, openings, rng.pick((1, 1, 2)))


def cropped_layout(rng: RandomStream, plan: Floor, use: str) -> Layout:
    """Layout of a plan, cropped to its rooms; samples kinds and ceiling heights of rooms. `use`: a key of USES."""
    z, x = np.nonzero(plan.labels != OUTSIDE)
    x0, z0 = int(x.min()) - MARGIN, int(z.min()) - MARGIN
    labels = plan.labels[z0 : int(z.max()) + 1 + MARGIN, x0 : int(x.max()) + 1 + MARGIN].copy()

    def moved(rect: Rect) -> Rect:
        return rect[0] - x0, rect[1] - z0, rect[2] - x0, rect[3] - z0

    heights = [round(rng.pick((rng.uniform(2.4, 2.8), rng.uniform(2.6, 3.8))), 2) for _ in range(3)]
    counts = np.bincount(labels[labels != OUTSIDE].astype(np.int64), minlength=len(plan.rects))
    height_of = {label: rng.pick(heights) for label in range(len(plan.rects))}
    rooms, built = [], {label for _, label in plan.covered}
    for label, rect in enumerate(plan.rects):
        area = float(counts[label]) * CELL * CELL
        size = 0 if area < _MIDDLE else 1 if area < _LARGE else 2
        kind = "corridor" if plan.is_corridor[label] else rng.pick(USES[use][size])
        if area < 6.0:
            kind = rng.pick(("bath", "storage"))
        around = label  # for a room cut out of another room: the outer room
        if label not in built:
            around = next(of for (a, b, c, d), of in plan.covered if a <= rect[0] < c and b <= rect[1] < d)
        rooms.append(Room(label, kind, moved(rect), area, height_of[around]))
    covered = [(moved(rect), rooms[label].height) for rect, label in plan.covered]
    thickness = rng.pick((0.12, 0.15, 0.2))
    return Layout(labels, rooms, [rect for rect, _ in covered], [height for _, height in covered], thickness)


def _cost(a: str, b: str) -> float:
    """Cost of a door between two kinds of room; unusual doors cost more."""
    if "corridor" in (a, b):
        return 0.5
    return 4.0 if "bath" in (a, b) or "storage" in (a, b) else 3.0


def _make_door(rng: RandomStream, layout: Layout, piece: Piece) -> Opening:
    kinds = [layout.rooms[room].kind for room in piece[4:]]
    top = rng.integer(200, 215) / 100
    if set(kinds) <= {"corridor", "waiting", "canteen"} and rng.chance(0.7):
        return place_door(rng, piece, rng.integer(140, 280) / 100, top)
    width = (rng.integer(110, 140) if "ward" in kinds else rng.integer(80, 105)) / 100
    if rng.chance(0.25):
        return place_door(rng, piece, width, top)
    swing = rng.integer(20, 32) if rng.chance(0.4) else 60
    door = place_door(rng, piece, min(width, 1.05), top, _leaf(rng, layout, piece), swing)
    return door if swing == 60 else _with_clearance(layout, piece, door)


def _with_clearance(layout: Layout, piece: Piece, door: Opening) -> Opening:
    """A half-open door, hinged at the nearer end of its wall so that bodies can pass; fully open in short walls."""
    before, behind = door.start - piece[2] * CELL, piece[3] * CELL - door.stop
    hinge = 1 if before <= behind else 2
    clearance = max(before, behind) - layout.thickness / 2
    return replace(
        door, leaf=hinge if door.leaf > 0 else -hinge, swing=door.swing if clearance >= LEAF_CLEARANCE else 60
    )


def _leaf(rng: RandomStream, layout: Layout, piece: Piece) -> int:
    """Side and hinge of a door leaf; leaves open out of corridors."""
    low, high = (room == OUTSIDE or layout.rooms[room].kind == "corridor" for room in piece[4:])
    side = rng.pick((-1, 1)) if low == high else 1 if low else -1
    return rng.pick((1, 2)) * side


def make_openings(rng: RandomStream, layout: Layout, second_door: float = 0.0) -> list[Opening] | None:
    """Doors that connect all rooms, further closed doors, and windows; None where rooms cannot be connected.

    `second_door` is the probability of a door on each further side of a room towards a corridor.
    """
    pieces = borders(layout.labels)
    inner = [p for p in pieces if min(p[4:]) >= 0 and (p[3] - p[2]) * CELL >= 1.25]
    doors = join_rooms(rng, layout, inner, _cost, _make_door)
    if doors is None:
        return None
    taken = {(door.axis, door.line, door.sides) for door in doors}
    if second_door:  # at 0 no random number is used, so corridor floors do not depend on it
        for piece in inner:
            place = (piece[0], piece[1] * CELL, piece[4:])
            to_corridor = any(layout.rooms[room].kind == "corridor" for room in piece[4:])
            if to_corridor and place not in taken and rng.chance(second_door):
                doors.append(_make_door(rng, layout, piece))
                taken.add(place)
    outer, closed = [], []
    for piece in pieces:
        axis, line, start, stop, a, b = piece
        is_outer, has_corridor = min(a, b) < 0, "corridor" in [layout.rooms[r].kind for r in (a, b) if r >= 0]
        is_bare = (axis, line * CELL, (a, b)) not in taken and (stop - start) * CELL >= 1.25
        if is_bare and rng.chance(0.3 if is_outer and has_corridor else 0.04 if is_outer else 0.12):
            leaf = rng.pick((1, 2)) * (1 if is_outer and b >= 0 else -1)
            closed.append(place_door(rng, piece, rng.integer(80, 105) / 100, 2.05, leaf, 0))
        elif is_outer:
            outer.append(piece)
    return doors + closed + make_windows(rng, layout, outer)


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
_CORRIDOR_FLOOR_ROOMS = 15, 60
"""Range of the number of rooms, bathrooms and corridors included."""


def make_building(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished floor of a large building: 350 to 1,200 m2, mostly 30 to 60 m long; floor at y = 0.

    The same seed gives the same floor, bit for bit, on every machine. `surface` is as in `make_house`. ArgumentError
    for a seed that is not an integer from 0 to 2^64 - 1.
    """
    rng, plan = sample_plan(seed, _corridor_layout)
    return assemble(int(seed), rng, plan, surface, REACH)


def make_building_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """The floor plan of `make_building(seed)` and its doors and windows."""
    return sample_plan(seed, _corridor_layout)[1][:2]


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


def _corridor_layout(rng: RandomStream) -> Layout | None:
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
    if not _CORRIDOR_FLOOR_ROOMS[0] <= len(plan.rects) <= _CORRIDOR_FLOOR_ROOMS[1]:
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


# Room-block floors
#
# Features that corridor floors lack: passages of 1.6 to 4.5 m around every block, so that several paths lead to each
# place, rooms with doors on two sides, and open areas.

_PASSAGES = 0
"""Label of all passages."""
_PASSAGE = (16, 45)
"""Range of the width of passages, cells."""
_THINNEST = 26
"""Shortest side of a block, cells."""
_INSIDE = 120
"""Smallest inner side, for blocks and passages between rooms along outer walls, cells."""
_BLOCK_FLOOR_ROOMS = 8, 60
"""Range of the number of rooms; all passages together count as one."""
_SECOND_DOOR = 0.3
"""Probability of a door on each further side of a room towards the passages."""


def make_block(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished room-block floor of a seed: 350 to 1,500 m2, 22 to 50 m long; floor at y = 0.

    The same seed gives the same floor, bit for bit, on every machine. `surface` is as in `make_house`. ArgumentError
    for a seed that is not an integer from 0 to 2^64 - 1.
    """
    rng, plan = sample_plan(seed, _block_layout, _SECOND_DOOR)
    return assemble(int(seed), rng, plan, surface, REACH)


def make_block_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """The floor plan of `make_block(seed)` and its doors and windows."""
    return sample_plan(seed, _block_layout, _SECOND_DOOR)[1][:2]


def _block_layout(rng: RandomStream) -> Layout | None:
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
    return cropped_layout(rng, plan, use) if _BLOCK_FLOOR_ROOMS[0] <= len(plan.rects) <= _BLOCK_FLOOR_ROOMS[1] else None


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
