"""`make_building`: a floor of a hospital, a school, offices or a hotel: corridors, and rooms on both sides of them.

What houses and halls lack: ways of 10 to 30 m and more with many turns, long corridors that look alike, dead ends,
closed doors, and rooms behind rooms, so that the way is often not where the goal is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchnav.houses.draw import Draw, draw_of
from batchnav.houses.house import Plan, assemble
from batchnav.houses.layout import CELL, MARGIN, OUTSIDE, Layout, Piece, Rect, Room, borders, carve_some, view
from batchnav.houses.openings import BESIDE_LEAF, Opening, join_rooms, make_windows, place_door
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
dead ends, comb. Each begins and ends on earlier ones or freely; none crosses another."""
_USES = {
    "hospital": (("bath", "storage", "office", "bedroom"), ("ward", "ward", "office", "bedroom", "waiting"),
                 ("ward", "ward", "waiting", "canteen")),
    "school": (("bath", "storage", "office"), ("classroom", "classroom", "office", "living"),
               ("classroom", "classroom", "canteen", "bureau")),
    "offices": (("office", "office", "storage", "bath", "kitchen"), ("bureau", "office", "office", "dining", "waiting"),
                ("bureau", "bureau", "canteen", "waiting")),
    "hotel": (("bedroom", "bedroom", "bath", "storage"), ("bedroom", "bedroom", "bedroom", "living"),
              ("canteen", "waiting", "living")),
}  # fmt: skip
"""What rooms are for, by what the building is for: those below `_MIDDLE` m2, below `_LARGE`, and larger ones."""
_MIDDLE, _LARGE = 13.0, 32.0
_NARROWEST = 20
"""Cells: the shortest side of a room beside a corridor."""
_CANVAS = 900
"""Cells along each side of the plan before it is cut to what is built."""
_FEWEST, _MOST = 15, 60
"""Rooms, bathrooms and corridors counted."""
_REACH = 40
"""Grid cells, 2 m, around new furniture in which ways have to stay open."""


def make_building(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished floor of a large building: 350 to 1,200 m2, mostly 30 to 60 m long; floor at y = 0.

    The same seed gives the same building, bit for bit, on every machine; `surface` is as in `make_house`. ArgumentError
    for a seed that is not an integer >= 0.
    """
    draw, plan = _plan(seed)
    return assemble(int(seed), draw, plan, surface, _REACH)


def make_building_plan(seed: int) -> tuple[Layout, list[Opening]]:
    """The floor plan of `make_building(seed)` and its doors and windows."""
    return _plan(seed)[1][:2]


def _plan(seed: int) -> tuple[Draw, Plan]:
    draw = draw_of(seed)
    while True:
        layout = _make_layout(draw)
        openings = layout and _make_openings(draw, layout)
        if layout and openings:
            return draw, (layout, openings, draw.pick((1, 1, 2)))


class _Floor:
    """A plan while corridors and rooms are put on it, earlier ones first."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.labels: np.ndarray = np.full((_CANVAS, _CANVAS), OUTSIDE, np.int16)
        self.rects: list[Rect] = []
        """By label; a corridor's first."""
        self.is_corridor: list[bool] = []
        self.covered: list[tuple[Rect, int]] = []
        """Disjoint rectangles with their labels, which cover all rooms."""

    def add(self, rect: Rect, is_corridor: bool = False) -> None:
        self.rects.append(rect)
        self.is_corridor.append(is_corridor)
        self.cover(rect, len(self.rects) - 1)

    def cover(self, rect: Rect, label: int) -> None:
        """Make a rectangle part of a room; others lose the end that it takes, as arms do of a ring that it closes."""
        view(self.labels, rect)[...] = label
        self.covered = [*((_without_end(other, rect), of) for other, of in self.covered), (rect, label)]

    def add_corridor(self, rect: Rect) -> Rect | None:
        """A corridor where nothing is yet: a part of one that it meets, or one of its own, with a door between."""
        z, x = np.nonzero(view(self.labels, rect) == OUTSIDE)
        if not len(x):
            return None
        x0, z0, x1, z1 = (int(v) for v in (x.min(), z.min(), x.max() + 1, z.max() + 1))
        rect = (rect[0] + x0, rect[1] + z0, rect[0] + x1, rect[1] + z1)
        around = view(self.labels, (rect[0] - 1, rect[1] - 1, rect[2] + 1, rect[3] + 1))
        met = np.unique(around[around != OUTSIDE])
        if len(met) and self.draw.chance(0.6):
            self.cover(rect, self.draw.pick(met.tolist()))
        else:
            self.add(rect, is_corridor=True)
        return rect

    def is_free(self, rect: Rect) -> bool:
        inside = min(rect) >= MARGIN and max(rect) <= _CANVAS - MARGIN
        return inside and bool((view(self.labels, rect) == OUTSIDE).all())

    def line_with_rooms(self, rect: Rect, axis: int, side: int) -> None:
        """Rooms along one side of a corridor; some places stay empty, as what is behind locked doors."""
        draw = self.draw
        start, stop = (rect[0], rect[2]) if axis == 0 else (rect[1], rect[3])
        edge = rect[(3 if side > 0 else 1) if axis == 0 else (2 if side > 0 else 0)]
        module, depth, at = draw.pick((26, 32, 40, 48, 70)), draw.integer(30, 80), start
        while stop - at >= _NARROWEST:
            width = round(module * draw.uniform(0.8, 1.25)) * (2 if draw.chance(0.12) else 1)
            if stop - at - width < _NARROWEST:
                width = max(stop - at, module if draw.chance(0.5) else 0)
            if draw.chance(0.07):
                at += width
                continue
            for deep in (depth, round(0.75 * depth), round(0.5 * depth)):
                low, high = sorted((edge, edge + side * deep))
                room = (at, low, at + width, high) if axis == 0 else (low, at, high, at + width)
                if deep >= _NARROWEST and self.is_free(room):
                    self.add_rooms(room, axis, side)
                    break
            else:
                width = 10
            at += width

    def add_rooms(self, rect: Rect, axis: int, side: int) -> None:
        """A room, or where it is deep often one behind another."""
        x0, z0, x1, z1 = rect
        low, high = (z0, z1) if axis == 0 else (x0, x1)
        if high - low < 56 or not self.draw.chance(0.6):
            self.add(rect)
            return
        cut = low + round((high - low) * self.draw.uniform(0.42, 0.58))
        near, far = ((x0, z0, x1, cut), (x0, cut, x1, z1)) if axis == 0 else ((x0, z0, cut, z1), (cut, z0, x1, z1))
        for part in (near, far) if side > 0 else (far, near):
            self.add(part)

    def add_caps(self, rect: Rect, axis: int) -> None:
        """Often a room at the end of a corridor."""
        draw = self.draw
        middle = (rect[1] + rect[3]) // 2 if axis == 0 else (rect[0] + rect[2]) // 2
        for end, side in ((rect[axis], -1), (rect[axis + 2], 1)):
            if draw.chance(0.5):
                continue
            across, deep = draw.integer(32, 90), draw.integer(35, 75)
            start = middle - round(across * draw.uniform(0.3, 0.7))
            low, high = sorted((end, end + side * deep))
            room = (low, start, high, start + across) if axis == 0 else (start, low, start + across, high)
            if self.is_free(room):
                self.add(room)


def _without_end(rect: Rect, taken: Rect) -> Rect:
    """What is left of a rectangle where another takes one end of it, or nothing."""
    x0, z0, x1, z1 = rect
    low_x, low_z, high_x, high_z = taken
    if high_x <= x0 or x1 <= low_x or high_z <= z0 or z1 <= low_z:
        return rect
    if low_x <= x0 and x1 <= high_x:
        return (x0, high_z, x1, z1) if low_z <= z0 else (x0, z0, x1, low_z)
    return (high_x, z0, x1, z1) if low_x <= x0 else (x0, z0, low_x, z1)


def _make_layout(draw: Draw) -> Layout | None:
    """Draw a floor plan; None where it has too few rooms or too many."""
    plan = _Floor(draw)
    corridors = [(plan.add_corridor(rect), axis) for rect, axis in _corridors(draw)]
    sides = [(rect, axis, side) for rect, axis in corridors if rect for side in (-1, 1)]
    for rect, axis in corridors:
        if rect:
            plan.add_caps(rect, axis)
    for rect, axis, side in draw.shuffled(sides):
        plan.line_with_rooms(rect, axis, side)
    use = draw.pick(tuple(_USES))
    if use in ("hospital", "hotel"):
        carve_some(draw, plan.labels, plan.rects, plan.is_corridor)
    if not _FEWEST <= len(plan.rects) <= _MOST:
        return None
    return _cut_out(draw, plan, use)


def _corridors(draw: Draw) -> list[tuple[Rect, int]]:
    """Corridors 1.6 to 3 m wide along the lines of a skeleton, and along which axis each runs."""
    lines, turned = np.array(draw.pick(_SKELETONS), float), draw.chance(0.5)
    for axis in (0, 1):
        if draw.chance(0.5):
            lines[:, :, axis] = 1.0 - lines[:, :, axis]
    lengths = np.abs(lines[:, 1] - lines[:, 0]).sum(0)
    total, ratio = draw.uniform(38.0, 90.0), draw.uniform(0.4, 0.9)
    length = min(max(total / (lengths[0] + ratio * lengths[1]), 18.0), 46.0)
    extent = np.array([length, min(max(ratio * length, 12.0), 32.0)])
    points = np.round(lines * extent / CELL).astype(int)
    if turned:
        points = points[:, :, ::-1]
    points += (_CANVAS - points.max((0, 1)) - points.min((0, 1))) // 2
    half, rects = draw.integer(8, 15), []  # one width for all: an end then lies in the corridor that it meets
    for start, stop in points:
        x0, z0 = (int(v) - half for v in np.minimum(start, stop))
        x1, z1 = (int(v) + half for v in np.maximum(start, stop))
        rects.append(((x0, z0, x1, z1), 0 if start[1] == stop[1] else 1))
    return rects


def _cut_out(draw: Draw, plan: _Floor, use: str) -> Layout:
    """The plan without what is empty around it; what rooms are for, and how high they are."""
    z, x = np.nonzero(plan.labels != OUTSIDE)
    x0, z0 = int(x.min()) - MARGIN, int(z.min()) - MARGIN
    labels = plan.labels[z0 : int(z.max()) + 1 + MARGIN, x0 : int(x.max()) + 1 + MARGIN].copy()

    def moved(rect: Rect) -> Rect:
        return rect[0] - x0, rect[1] - z0, rect[2] - x0, rect[3] - z0

    heights = [round(draw.pick((draw.uniform(2.4, 2.8), draw.uniform(2.6, 3.8))), 2) for _ in range(3)]
    counts = np.bincount(labels[labels != OUTSIDE].astype(np.int64), minlength=len(plan.rects))
    height_of = {label: draw.pick(heights) for label in range(len(plan.rects))}
    rooms, built = [], {label for _, label in plan.covered}
    for label, rect in enumerate(plan.rects):
        area = float(counts[label]) * CELL * CELL
        size = 0 if area < _MIDDLE else 1 if area < _LARGE else 2
        kind = "corridor" if plan.is_corridor[label] else draw.pick(_USES[use][size])
        if area < 6.0:
            kind = draw.pick(("bath", "storage"))
        around = label  # of a room that was cut out of another: that one
        if label not in built:
            around = next(of for (a, b, c, d), of in plan.covered if a <= rect[0] < c and b <= rect[1] < d)
        rooms.append(Room(label, kind, moved(rect), area, height_of[around]))
    covered = [(moved(rect), rooms[label].height) for rect, label in plan.covered]
    thickness = draw.pick((0.12, 0.15, 0.2))
    return Layout(labels, rooms, [rect for rect, _ in covered], [height for _, height in covered], thickness)


def _cost(a: str, b: str) -> float:
    """How unusual a door between two kinds of room is."""
    if "corridor" in (a, b):
        return 0.5
    return 4.0 if "bath" in (a, b) or "storage" in (a, b) else 3.0


def _make_door(draw: Draw, layout: Layout, piece: Piece) -> Opening:
    kinds = [layout.rooms[room].kind for room in piece[4:]]
    top = draw.integer(200, 215) / 100
    if set(kinds) <= {"corridor", "waiting", "canteen"} and draw.chance(0.7):
        return place_door(draw, piece, draw.integer(140, 280) / 100, top)
    width = (draw.integer(110, 140) if "ward" in kinds else draw.integer(80, 105)) / 100
    if draw.chance(0.25):
        return place_door(draw, piece, width, top)
    swing = draw.integer(20, 32) if draw.chance(0.4) else 60
    door = place_door(draw, piece, min(width, 1.05), top, _leaf(draw, layout, piece), swing)
    return door if swing == 60 else _with_way(layout, piece, door)


def _with_way(layout: Layout, piece: Piece, door: Opening) -> Opening:
    """A half-open door, hinged beside the nearer end of its wall; wide open where the other end is near, too."""
    before, behind = door.start - piece[2] * CELL, piece[3] * CELL - door.stop
    hinge = 1 if before <= behind else 2
    room = max(before, behind) - layout.thickness / 2
    return replace(door, leaf=hinge if door.leaf > 0 else -hinge, swing=door.swing if room >= BESIDE_LEAF else 60)


def _leaf(draw: Draw, layout: Layout, piece: Piece) -> int:
    """Which way a leaf opens: out of corridors."""
    low, high = (room == OUTSIDE or layout.rooms[room].kind == "corridor" for room in piece[4:])
    side = draw.pick((-1, 1)) if low == high else 1 if low else -1
    return draw.pick((1, 2)) * side


def _make_openings(draw: Draw, layout: Layout) -> list[Opening] | None:
    """Doors that join all rooms, closed ones that join nothing, and windows; None where rooms cannot be joined."""
    pieces = borders(layout.labels)
    inner = [p for p in pieces if min(p[4:]) >= 0 and (p[3] - p[2]) * CELL >= 1.25]
    doors = join_rooms(draw, layout, inner, _cost, _make_door)
    if doors is None:
        return None
    taken = {(door.axis, door.line, door.sides) for door in doors}
    outer, closed = [], []
    for piece in pieces:
        axis, line, start, stop, a, b = piece
        is_outer, has_corridor = min(a, b) < 0, "corridor" in [layout.rooms[r].kind for r in (a, b) if r >= 0]
        is_bare = (axis, line * CELL, (a, b)) not in taken and (stop - start) * CELL >= 1.25
        if is_bare and draw.chance(0.3 if is_outer and has_corridor else 0.04 if is_outer else 0.12):
            leaf = draw.pick((1, 2)) * (1 if is_outer and b >= 0 else -1)
            closed.append(place_door(draw, piece, draw.integer(80, 105) / 100, 2.05, leaf, 0))
        elif is_outer:
            outer.append(piece)
    return doors + closed + make_windows(draw, layout, outer)
