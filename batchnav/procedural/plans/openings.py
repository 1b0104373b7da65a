"""Doors, wide openings and windows of a floor plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from batchnav.procedural.plans.layout import CELL, Layout, Piece, borders
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN

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
