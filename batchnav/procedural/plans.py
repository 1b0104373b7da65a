"""Floor plans: rooms and their kinds; doors, wide openings and windows.

A footprint has one to three rectangles. A plan is an image of room numbers on a grid of `CELL` metres; walls run along
the borders between numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN

CELL = 0.1
"""Side of a plan cell, metres; centre lines of walls lie on this grid."""
OUTSIDE = -1
"""Room number of cells outside."""
MARGIN = 2
"""Width of the border of outside cells around the plan; outer walls need an outer side."""
_ROOM_SIDE = 24
"""Shortest side of a habitable room, in cells."""
_SMALL_SIDE = 17
"""Shortest side of other rooms, in cells."""

Rect = tuple[int, int, int, int]
"""x0, z0, x1, z1 in cells; the last two are excluded."""
Piece = tuple[int, int, int, int, int, int]
"""A straight piece of a border: axis, line, start, stop, low side, high side (`borders`)."""


@dataclass
class Room:
    """One room of a plan."""

    index: int
    kind: str
    """In houses: hall, living, dining, kitchen, bedroom, bath, office or storage; further kinds in floor.py."""
    rect: Rect
    """Largest rectangle of the room, cells."""
    area: float
    """Area between the centre lines of walls, square metres."""
    height: float = 0.0
    """Height of the ceiling, metres."""


@dataclass
class Layout:
    """A floor plan."""

    labels: np.ndarray
    """i16 [Z, X]: room number of each cell; -1 outside."""
    rooms: list[Room]
    footprint: list[Rect]
    """Disjoint rectangles that cover all rooms."""
    ceilings: list[float]
    """Ceiling heights of the footprint's rectangles, metres."""
    thickness: float
    """Thickness of walls, metres."""

    @property
    def height(self) -> float:
        """Height of the highest ceiling and of all walls, metres."""
        return max(self.ceilings)


def make_layout(rng: RandomStream) -> Layout:
    """Sample a floor plan of 30 to 300 m2."""
    area = math.exp(rng.uniform(math.log(36.0), math.log(285.0)))
    footprint, labels = _make_footprint(rng, area)
    mean_room = rng.uniform(9.0, 12.0) + 0.035 * area
    leaves: list[tuple[Rect, bool]] = []
    for rect in footprint:
        leaves += _split(rng, rect, mean_room, corridors=area > 45.0)
    for index, (rect, _) in enumerate(leaves):
        view(labels, rect)[...] = index
    corridor = [is_corridor for _, is_corridor in leaves]
    rects = [rect for rect, _ in leaves]
    _merge_some(rng, labels, rects, corridor)
    carve_some(rng, labels, rects, corridor)
    rooms = _name_rooms(rng, labels, rects, corridor)
    height = rng.integer(240, 280) / 100
    thickness = rng.pick((0.1, 0.12, 0.15, 0.15, 0.2))
    for room in rooms:
        room.height = height
    return Layout(labels, rooms, footprint, [height] * len(footprint), thickness)


def borders(labels: np.ndarray) -> list[Piece]:
    """Straight pieces of border between two numbers: (axis, line, start, stop, low side, high side).

    Axis 0: the border runs along x at z = line; axis 1: along z at x = line. All in cells; sides may be `OUTSIDE`.
    """
    pieces = []
    for axis, image in enumerate((labels, labels.T)):
        low, high = image[:-1], image[1:]
        changed = low != high
        code = np.where(changed, low.astype(np.int32) * 4096 + high, -(2**30))
        edge = np.ones((code.shape[0], code.shape[1] + 1), bool)
        edge[:, 1:-1] = code[:, 1:] != code[:, :-1]
        line, start = np.nonzero(edge[:, :-1] & changed)
        stop = np.nonzero(edge[:, 1:] & changed)[1] + 1
        for k, a, b in zip(line.tolist(), start.tolist(), stop.tolist(), strict=True):
            pieces.append((axis, k + 1, a, b, int(low[k, a]), int(high[k, a])))
    return pieces


def view(labels: np.ndarray, rect: Rect) -> np.ndarray:
    """The cells of a rectangle, as a writable view."""
    return labels[rect[1] : rect[3], rect[0] : rect[2]]


def area_of(rect: Rect) -> float:
    """Area of a rectangle, square metres."""
    return (rect[2] - rect[0]) * (rect[3] - rect[1]) * CELL * CELL


def _make_footprint(rng: RandomStream, area: float) -> tuple[list[Rect], np.ndarray]:
    """One to three disjoint touching rectangles, and an empty plan that holds them."""
    wings = 0 if area < 45 else rng.pick((0, 1, 1, 2)) if area < 90 else rng.pick((0, 1, 1, 2, 2))
    shares = {0: (1.0,), 1: (0.65, 0.35), 2: (0.5, 0.28, 0.22)}[wings]
    rects: list[Rect] = []
    for share in shares:
        aspect = rng.uniform(1.05, 1.9)
        short = math.sqrt(area * share / aspect)
        sides = [round(short / CELL), round(short * aspect / CELL)]
        sides = rng.shuffled(sides)
        rects.append((0, 0, sides[0], sides[1]) if not rects else _attach(rng, rects, sides))
    x0, z0 = (min(r[i] for r in rects) - MARGIN for i in (0, 1))
    rects = [(a - x0, b - z0, c - x0, d - z0) for a, b, c, d in rects]
    width, depth = (max(r[i] for r in rects) + MARGIN for i in (2, 3))
    return rects, np.full((depth, width), OUTSIDE, np.int16)


def _attach(rng: RandomStream, rects: list[Rect], sides: list[int]) -> Rect:
    """A rectangle of the given sides that touches an earlier one and overlaps none."""
    width, depth = sides
    while True:
        x0, z0, x1, z1 = rng.pick(rects)
        side = rng.integer(0, 3)
        contact = min(30, width, depth, x1 - x0, z1 - z0)
        if side < 2:
            x = rng.pick((x0, x1 - width, rng.integer(x0 - width + contact, x1 - contact)))
            z = z0 - depth if side == 0 else z1
        else:
            z = rng.pick((z0, z1 - depth, rng.integer(z0 - depth + contact, z1 - contact)))
            x = x0 - width if side == 2 else x1
        new = (x, z, x + width, z + depth)
        if all(new[2] <= r[0] or r[2] <= new[0] or new[3] <= r[1] or r[3] <= new[1] for r in rects):
            return new


def _split(rng: RandomStream, rect: Rect, mean_room: float, corridors: bool) -> list[tuple[Rect, bool]]:
    """Split a rectangle into rooms and corridors: (rectangle, True for a corridor)."""
    x0, z0, x1, z1 = rect
    along_x = (x1 - x0) >= (z1 - z0)
    long, short = max(x1 - x0, z1 - z0), min(x1 - x0, z1 - z0)
    area = area_of(rect)
    slender = long > 2.1 * short
    if long < 2 * _SMALL_SIDE + 2 or (not slender and area < mean_room * rng.uniform(0.75, 1.75)):
        return [(rect, False)]
    width = rng.integer(11, 15)
    if corridors and area > 3.2 * mean_room and short > 2 * _ROOM_SIDE + width:
        return _cut_corridor(rng, rect, mean_room, along_x, width)
    least = _SMALL_SIDE if area < 26.0 else _ROOM_SIDE
    if long < 2 * least:
        return [(rect, False)]
    cut = min(max(round(long * rng.uniform(0.32, 0.68)), least), long - least)
    parts = (
        [(x0, z0, x0 + cut, z1), (x0 + cut, z0, x1, z1)]
        if along_x
        else [(x0, z0, x1, z0 + cut), (x0, z0 + cut, x1, z1)]
    )
    return [leaf for part in parts for leaf in _split(rng, part, mean_room, corridors)]


def _cut_corridor(
    rng: RandomStream, rect: Rect, mean_room: float, along_x: bool, width: int
) -> list[tuple[Rect, bool]]:
    """Two strips of rooms with a corridor between them; often a room closes one end of the corridor."""
    x0, z0, x1, z1 = rect
    leaves: list[tuple[Rect, bool]] = []
    start, stop = (x0, x1) if along_x else (z0, z1)
    if rng.chance(0.6) and stop - start > 85:
        depth = rng.integer(28, 45)
        if rng.chance(0.5):
            end, start = (start, start + depth), start + depth
        else:
            end, stop = (stop - depth, stop), stop - depth
        leaves += _split(rng, (end[0], z0, end[1], z1) if along_x else (x0, end[0], x1, end[1]), mean_room, False)
    low, high = (z0, z1) if along_x else (x0, x1)
    at = min(max(low + round((high - low) * rng.uniform(0.3, 0.7)), low + _ROOM_SIDE), high - _ROOM_SIDE - width)
    for a, b, is_corridor in ((low, at, False), (at, at + width, True), (at + width, high, False)):
        part = (start, a, stop, b) if along_x else (a, start, b, stop)
        leaves += [(part, True)] if is_corridor else _split(rng, part, mean_room, corridors=True)
    return leaves


def _merge_some(rng: RandomStream, labels: np.ndarray, rects: list[Rect], corridor: list[bool]) -> None:
    """Merge some pairs of neighbouring rooms into one, often concave, room."""
    wanted = rng.integer(0, 1 + len(rects) // 7)
    taken = set()
    for _, _, start, stop, a, b in rng.shuffled(borders(labels)):
        if wanted == 0:
            return
        if min(a, b) < 0 or corridor[a] or corridor[b] or a in taken or b in taken or stop - start < 16:
            continue
        if not 14.0 < area_of(rects[a]) + area_of(rects[b]) < 46.0:
            continue
        keep, gone = (a, b) if area_of(rects[a]) >= area_of(rects[b]) else (b, a)
        labels[labels == gone] = keep
        taken |= {a, b}
        wanted -= 1


def carve_some(rng: RandomStream, labels: np.ndarray, rects: list[Rect], corridor: list[bool]) -> None:
    """Cut a bathroom or closet out of a corner of some large rooms, which become L-shaped."""
    for index in range(len(rects)):
        x0, z0, x1, z1 = rects[index]
        if corridor[index] or not (view(labels, rects[index]) == index).all():
            continue
        width, depth = rng.integer(_SMALL_SIDE, 26), rng.integer(_SMALL_SIDE, 26)
        if min(x1 - x0 - width, z1 - z0 - depth) < 17 or area_of(rects[index]) < 15.0 or not rng.chance(0.4):
            continue
        left, top = rng.chance(0.5), rng.chance(0.5)
        x, z = (x0 if left else x1 - width), (z0 if top else z1 - depth)
        new = (x, z, x + width, z + depth)
        view(labels, new)[...] = len(rects)
        rects.append(new)
        corridor.append(False)
        wide = (x + width, z0, x1, z1) if left else (x0, z0, x, z1)
        tall = (x0, z + depth, x1, z1) if top else (x0, z0, x1, z)
        rects[index] = max(wide, tall, key=area_of)


def _name_rooms(rng: RandomStream, labels: np.ndarray, rects: list[Rect], corridor: list[bool]) -> list[Room]:
    """Number the remaining rooms from 0 and choose their kinds by size and neighbours."""
    counts = np.bincount(labels[labels >= 0].astype(np.int64), minlength=len(rects))
    old = np.flatnonzero(counts)
    number = np.full(len(rects) + 1, OUTSIDE, np.int16)
    number[old] = np.arange(len(old))
    labels[...] = number[labels]
    rooms = [
        Room(i, "hall" if corridor[k] else "", rects[k], float(counts[k]) * CELL * CELL)
        for i, k in enumerate(old.tolist())
    ]
    free = sorted((r for r in rooms if not r.kind), key=lambda r: (-r.area, r.index))
    near: dict[int, set[int]] = {i: set() for i in range(-1, len(rooms))}
    for _, _, start, stop, a, b in borders(labels):
        if stop - start >= 13:
            near[a].add(b)
            near[b].add(a)
    free[0].kind = "living"
    rest = free[1:]
    baths = [r for r in rest if r.area < 7.5]
    for room in baths[: max(1, len(rest) // 4)] if baths else rest[-1:]:
        room.kind = "bath"
    rest = [r for r in rest if not r.kind]
    kitchens = sorted(rest, key=lambda r: (free[0].index not in near[r.index], abs(r.area - 13.0), r.index))
    if kitchens:
        kitchens[0].kind = "kitchen"
    for room in rest:
        if room.kind:
            continue
        if room.area < 6.0:
            room.kind = "storage"
        elif room.area > 12.0 and free[0].index in near[room.index] and rng.chance(0.25):
            room.kind = "dining"
        else:
            room.kind = rng.pick(("bedroom", "bedroom", "bedroom", "office"))
    return rooms


# Doors, wide openings and windows of a floor plan

_END = 0.2
"""Distance between a door and the end of its wall, metres: space for half a wall and the door's frame."""
LEAF_CLEARANCE = 0.35
"""Free width at the end of a half-open leaf, metres, for bodies to pass."""


@dataclass(frozen=True)
class Opening:
    """A hole in a wall, or a window's recess in one side of it."""

    axis: int
    """0: the wall runs along x at z = line; 1: along z at x = line."""
    line: float
    start: float
    stop: float
    bottom: float
    top: float
    sides: tuple[int, int]
    """Rooms on the low and the high side; -1 for the outer side of a window."""
    is_window: bool = False
    leaf: int = 0
    """Door leaf: 0 none, else hinged at the start (1) or the stop (2), negative on the low side."""
    swing: int = TURN // 4
    """Opening angle of the leaf, `TURN` steps: at most a quarter turn; 0 for closed, which blocks the door."""


class Plan(NamedTuple):
    """A floor plan that is ready to be built."""

    layout: Layout
    openings: list[Opening]
    """Doors and windows."""
    detail: int
    """Level of detail of round solids, 1 to 3."""


def make_openings(rng: RandomStream, layout: Layout) -> list[Opening] | None:
    """Doors that connect all rooms (a spanning tree and some more), and windows; None where no spanning tree exists."""
    pieces = borders(layout.labels)
    inner = [p for p in pieces if min(p[4], p[5]) >= 0 and (p[3] - p[2]) * CELL >= 1.25]
    doors = join_rooms(rng, layout, inner, _cost, _make_door)
    if doors is None:
        return None
    return doors + make_windows(rng, layout, [p for p in pieces if min(p[4], p[5]) < 0])


def join_rooms(
    rng: RandomStream, layout: Layout, pieces: list[Piece], usual: Callable[[str, str], float],
    make_door: Callable[[RandomStream, Layout, Piece], Opening],
) -> list[Opening] | None:  # fmt: skip
    """Doors on Kruskal's minimum spanning tree over the borders of rooms, and some further doors.

    Args:
        rng: random stream.
        layout: the rooms.
        pieces: pieces of borders between two rooms, long enough for a door.
        usual: cost of a door between two kinds of room: less than 1 for usual doors, up to 5 for unusual ones.
        make_door: makes the door in a piece of a border.
    """
    kinds = [room.kind for room in layout.rooms]
    by_pair: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        by_pair.setdefault((min(piece[4:]), max(piece[4:])), []).append(piece)
    cost = {pair: usual(kinds[pair[0]], kinds[pair[1]]) + rng.uniform(0.0, 1.5) for pair in sorted(by_pair)}
    parent = list(range(len(kinds)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    doors = []
    for pair in sorted(cost, key=lambda p: (cost[p], p)):
        a, b = root(pair[0]), root(pair[1])
        extra = 0.3 if cost[pair] < 2.5 else 0.04
        if a == b and not rng.chance(extra):
            continue
        parent[a] = b
        doors.append(make_door(rng, layout, rng.pick(by_pair[pair])))
    return doors if len({root(i) for i in range(len(kinds))}) == 1 else None


def _cost(a: str, b: str) -> float:
    """Cost of a door between two kinds of room; unusual doors cost more."""
    kinds = {a, b}
    if "hall" in kinds:
        return 0.5
    if kinds in ({"living", "kitchen"}, {"living", "dining"}, {"kitchen", "dining"}):
        return 0.8
    if "living" in kinds:
        return 2.0
    if "bath" in kinds or "storage" in kinds:
        return 2.6 if "bedroom" in kinds else 4.5
    return 3.2


def _make_door(rng: RandomStream, layout: Layout, piece: Piece) -> Opening:
    kinds = {layout.rooms[room].kind for room in piece[4:]}
    width, top, leaf = rng.integer(80, 100) / 100, rng.integer(200, 210) / 100, 0
    open_plan = kinds <= {"hall", "living", "kitchen", "dining"}
    if open_plan and rng.chance(0.65):
        width = rng.integer(120, 240) / 100
        top = min(rng.integer(205, 230) / 100, layout.height - 0.15)
    elif rng.chance(0.75):
        leaf = rng.pick((1, 2)) * rng.pick((-1, 1))
    return place_door(rng, piece, width, top, leaf)


def place_door(
    rng: RandomStream, piece: Piece, width: float, top: float, leaf: int = 0, swing: int = TURN // 4
) -> Opening:
    """A door in a piece of a border: near one of its ends, or anywhere; narrower where the piece is too short."""
    axis, line, low, high, a, b = piece
    start, stop = low * CELL + _END, high * CELL - _END
    width = min(width, stop - start)
    slack = stop - start - width
    near_end = rng.uniform(0.0, min(slack, 0.25))
    at = rng.pick((near_end, slack - near_end, rng.uniform(0.0, slack)))
    at = start + round(at, 2)
    return Opening(axis, line * CELL, at, at + width, 0.0, top, (a, b), leaf=leaf, swing=swing)


def make_windows(rng: RandomStream, layout: Layout, pieces: list[Piece]) -> list[Opening]:
    """Windows in most border pieces to the outside."""
    windows = []
    for axis, line, low, high, a, b in pieces:
        room = layout.rooms[max(a, b)]
        length = (high - low) * CELL
        if room.kind in ("storage",) or length < 1.3 or not rng.chance(0.85):
            continue
        small = room.kind in ("bath", "hall", "corridor")
        width = min(rng.uniform(0.5, 0.9) if small else rng.uniform(0.9, 2.0), length - 0.8)
        count = max(1, int(length / (width + rng.uniform(1.0, 2.2))))
        sill = rng.uniform(1.2, 1.4) if small else 1.0 if room.kind == "kitchen" else rng.pick((0.4, 0.8, 0.9))
        top = min(rng.uniform(2.0, 2.2), layout.height - 0.2)
        for i in range(count):
            middle = low * CELL + length * (i + 0.5) / count
            start, stop = round(middle - width / 2, 2), round(middle + width / 2, 2)
            sill = round(sill, 2)
            windows.append(Opening(axis, line * CELL, start, stop, sill, round(top, 2), (a, b), is_window=True))
    return windows
