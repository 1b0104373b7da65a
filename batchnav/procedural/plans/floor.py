"""Shared parts of corridor floors and room-block floors: room kinds, ceiling heights, doors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from batchnav.procedural.plans.layout import CELL, MARGIN, OUTSIDE, Layout, Piece, Rect, Room, borders
from batchnav.procedural.plans.openings import LEAF_CLEARANCE, Opening, Plan, join_rooms, make_windows, place_door
from batchnav.procedural.random_stream import RandomStream, seeded_stream

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

    `second_door` is as in `make_openings`. ArgumentError for a seed that is not an integer >= 0.
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
