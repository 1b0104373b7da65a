"""`make_hall`: an open-plan room, one large room with windows: a shop, an office, a café, a lounge or an empty hall.

Features that closed houses lack: views across the whole plan, obstacles below camera height (shelves, counters and
screens from waist height), thin legs, pillars, ceilings at 2.2 to 6 m or no ceiling, and windows, which are holes.
"""

from __future__ import annotations

import numpy as np

from batchnav.procedural.furniture import decor, living
from batchnav.procedural.furniture.furnish import COUNTER, LOW_SHELF, PILLAR, PODIUM, TALL_SHELF, THIN_TABLE
from batchnav.procedural.furniture.placement import Piece
from batchnav.procedural.house import finish
from batchnav.procedural.random_stream import RandomStream, seeded_stream
from batchnav.procedural.solids import TURN, Solids, makes
from batchnav.types import TriangleMesh

Opening = tuple[float, float, float, float]
"""Start, stop, bottom and top of a hole in a wall, metres."""

_WALL = 0.15
"""Thickness of walls, metres."""
_TRIES = 30
"""Number of random positions tried for a piece."""


def make_hall(seed: int, surface: bool = False) -> TriangleMesh:
    """The furnished open-plan room of a seed: 12 to 400 m2; floor at y = 0, centre at x = z = 0.

    The same seed gives the same room, bit for bit, on every machine. `surface` is as in `make_house`. ArgumentError for
    a seed that is not an integer from 0 to 2^64 - 1.
    """
    rng = seeded_stream(seed)
    fill = rng.pick((_shop, _shop, _office, _cafe, _lounge, _lounge, _empty))
    low, high = (3.2, 8.0) if fill is _lounge else (6.0, 20.0)
    width, depth = rng.uniform(low, high), rng.uniform(low, high)
    height = rng.uniform(2.2, 3.2) if fill is _lounge or rng.chance(0.6) else rng.uniform(3.2, 6.0)
    hall = _Hall(rng, width, depth, height)
    hall.build_shell()
    fill(hall)
    return finish(int(seed), hall.solids, surface)


class _Hall:
    """An open-plan room in progress; sizes in metres."""

    def __init__(self, rng: RandomStream, width: float, depth: float, height: float):
        self.rng, self.width, self.depth, self.height = rng, width, depth, height
        self.solids = Solids(rng.pick((1, 2)))
        self._taken: list[tuple[float, float, float, float]] = []  # low x, low z, high x, high z

    def build_shell(self) -> None:
        """Add floor, walls with doors and windows, and in most rooms a ceiling. Only the floor faces upwards."""
        rng, x, z = self.rng, self.width / 2, self.depth / 2
        with self.solids.object("floor"):
            self.solids.material = "floor"
            self.solids.box((-x, -0.1, -z), (x, 0.0, z))
        if rng.chance(0.75):
            y = self.height
            corners = np.array([(-x, y, -z), (x, y, -z), (x, y, z), (-x, y, z)])
            with self.solids.object("ceiling"):
                self.solids.material = "ceiling"
                self.solids.add(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32))
        share = rng.pick((0.0, 0.2, 0.4, 0.7))
        for length, turn, cx, cz in (
            (self.width, 0, 0.0, -z),
            (self.width, TURN // 2, 0.0, z),
            (self.depth, TURN // 4, -x, 0.0),
            (self.depth, 3 * TURN // 4, x, 0.0),
        ):
            wall = Solids(self.solids.detail)
            _build_wall(wall, length, self.height, -_WALL, 0.0, _openings(rng, length, self.height, share))
            self.solids.place(wall, cx, cz, turn)

    def screen(self, height: float, thickness: float) -> None:
        """Add a wall of some height across the room, with one passage."""
        rng, along_x = self.rng, self.rng.chance(0.5)
        length, across = (self.width, self.depth) if along_x else (self.depth, self.width)
        at, start = rng.uniform(-0.3, 0.3) * across, rng.uniform(0.2, max(0.21, length - 2.2))
        gaps = [(start, min(start + rng.uniform(0.9, 2.0), length - 0.1), 0.0, min(height, 2.1))]
        one = Solids(self.solids.detail)
        _build_wall(one, length, height, -thickness / 2, thickness / 2, gaps)
        self.solids.place(one, *((0.0, at, 0) if along_x else (at, 0.0, TURN // 4)))
        half, a = thickness / 2, start - length / 2
        b = gaps[0][1] - length / 2
        for low, high in ((-length / 2, a), (b, length / 2)):
            self._taken.append((low, at - half, high, at + half) if along_x else (at - half, low, at + half, high))

    def put(self, piece: Piece, x: float, z: float, quarter: int, gap: float = 0.05) -> bool:
        """Place a piece, rotated by quarter turns, if it fits with a gap to the others. True where it was placed."""
        w, d, h = piece.size(self.rng)
        return self._put(lambda one: piece.build(one, self.rng, w, d, h), w, d, x, z, quarter, gap)

    def _put(self, build, w: float, d: float, x: float, z: float, quarter: int, gap: float) -> bool:
        if quarter % 2:
            w, d = d, w
        low, high = (x - w / 2, z - d / 2), (x + w / 2, z + d / 2)
        inside = max(-low[0], high[0]) < self.width / 2 and max(-low[1], high[1]) < self.depth / 2
        if not inside or any(
            low[0] < c + gap and a - gap < high[0] and low[1] < e + gap and b - gap < high[1]
            for a, b, c, e in self._taken
        ):
            return False
        one = Solids(self.solids.detail)
        build(one)
        self.solids.place(one, x, z, quarter * TURN // 4)
        self._taken.append((*low, *high))
        return True

    def scatter(self, pieces: tuple[Piece, ...], number: int, gap: float) -> None:
        """Place pieces at random positions and quarter turns."""
        for _ in range(number):
            piece = self.rng.pick(pieces)
            for _ in range(_TRIES):
                x, z = (self.rng.uniform(-0.5, 0.5) * side for side in (self.width, self.depth))
                if self.put(piece, x, z, self.rng.integer(0, 3), gap):
                    break

    def along_walls(self, pieces: tuple[Piece, ...], number: int) -> None:
        """Place pieces with their backs to the walls."""
        for _ in range(number):
            piece, quarter = self.rng.pick(pieces), self.rng.integer(0, 3)
            deepest = piece.depth[1] / 2 + 0.02
            for _ in range(_TRIES):
                x, z = (self.rng.uniform(-0.5, 0.5) * side for side in (self.width, self.depth))
                if quarter % 2:
                    x = (self.width / 2 - deepest) * (-1 if quarter == 1 else 1)
                else:
                    z = (self.depth / 2 - deepest) * (-1 if quarter == 0 else 1)
                if self.put(piece, x, z, quarter):
                    break

    @property
    def area(self) -> float:
        """Floor area, square metres."""
        return self.width * self.depth


def _openings(rng: RandomStream, length: float, height: float, share: float) -> list[Opening]:
    """Windows and shop fronts on about `share` of a wall's length."""
    found: list[Opening] = []
    at = rng.uniform(0.2, 1.5)
    top = min(height - 0.1, rng.uniform(1.9, 3.2))
    bottom = rng.pick((0.0, 0.45, 0.9, 1.1))
    while share > 0 and at < length - 0.8:
        stop = min(at + rng.uniform(0.6, 3.0), length - 0.2)
        found.append((at, stop, bottom, top))
        at = stop + rng.uniform(0.2, 2.0) * (1 - share) / share
    return found


@makes("wall")
def _build_wall(s: Solids, length: float, height: float, back: float, front: float, openings: list[Opening]) -> None:
    """Build a wall along x, centred at 0, with its face at z = `front`; openings are measured from its left end."""
    at, s.material = 0.0, "wall"
    for start, stop, bottom, top in [*openings, (length, length, 0.0, height)]:
        for low, high in (((at, 0.0), (start, height)), ((start, 0.0), (stop, bottom)), ((start, top), (stop, height))):
            if high[0] - low[0] > 1e-3 and high[1] - low[1] > 1e-3:
                s.box((low[0] - length / 2, low[1], back), (high[0] - length / 2, high[1], front))
        at = stop


SCREENS = (1.1, 1.3, 1.5)
"""Heights of screens between desks, metres."""


def _rows(hall: _Hall, pieces: tuple[Piece, ...], aisle: float, quarter: int) -> None:
    """Place rows of pieces with aisles between them and passages across."""
    rng = hall.rng
    length, across = (hall.width, hall.depth) if quarter % 2 == 0 else (hall.depth, hall.width)
    at = -across / 2 + aisle
    while at < across / 2 - aisle / 2:
        piece, x = rng.pick(pieces), -length / 2 + rng.uniform(0.3, 1.5)
        while x < length / 2 - 0.9:
            w = rng.uniform(*piece.width)
            one = Piece(piece.build, (w, w), piece.depth, piece.height)
            place = (x + w / 2, at) if quarter % 2 == 0 else (at, x + w / 2)
            hall.put(one, *place, quarter, 0.0)
            x += w + (rng.uniform(0.7, 1.6) if rng.chance(0.35) else 0.002)
        at += piece.depth[1] + aisle * rng.uniform(0.8, 1.4)


def _shop(hall: _Hall) -> None:
    rng = hall.rng
    for _ in range(rng.integer(0, 2)):
        hall.along_walls((COUNTER,), 1)
        hall.scatter((COUNTER,), 1, 0.7)
    kinds = rng.pick(((LOW_SHELF,), (LOW_SHELF, COUNTER, THIN_TABLE), (LOW_SHELF, TALL_SHELF), (TALL_SHELF,)))
    if rng.chance(0.6):
        _rows(hall, kinds, rng.uniform(0.9, 2.0), rng.integer(0, 1))
    else:
        hall.scatter(kinds, int(hall.area / rng.uniform(5, 12)), rng.uniform(0.5, 1.0))
    hall.along_walls((*kinds, TALL_SHELF), int(hall.area / 14))
    hall.scatter((living.STOOL, living.POUFFE, decor.PLANT, THIN_TABLE), rng.integer(0, 8), 0.3)


def _office(hall: _Hall) -> None:
    rng = hall.rng
    for _ in range(rng.integer(0, 3)):
        hall.screen(rng.pick((*SCREENS, hall.height)), rng.pick((0.05, 0.1)))
    hall.scatter((PILLAR,), rng.integer(0, 4), 0.5)
    hall.scatter((living.DESK, THIN_TABLE, living.DESK, living.DINING_SET), int(hall.area / rng.uniform(7, 14)), 0.6)
    hall.along_walls((living.BOOKSHELF, living.CHEST, LOW_SHELF, decor.PLANT, living.DESK), int(hall.area / 12))
    hall.scatter((living.OFFICE_CHAIR, living.CHAIR), int(hall.area / 12), 0.1)


def _cafe(hall: _Hall) -> None:
    rng = hall.rng
    hall.along_walls((COUNTER,), rng.integer(1, 2))
    hall.scatter((COUNTER,), rng.integer(0, 2), 0.8)
    hall.scatter((living.DINING_SET, living.SIDE_TABLE, THIN_TABLE), int(hall.area / rng.uniform(6, 12)), 0.5)
    hall.scatter((living.STOOL, living.CHAIR, living.STOOL), int(hall.area / 5), 0.12)
    hall.along_walls((living.SOFA, decor.PLANT, living.BOOKSHELF), int(hall.area / 15))


def _lounge(hall: _Hall) -> None:
    hall.along_walls(
        (living.SOFA, living.BOOKSHELF, living.CHEST, living.DESK, living.TV_STAND, decor.PLANT, living.ARMCHAIR),
        3 + int(hall.area / 6),
    )
    hall.scatter((living.COFFEE_TABLE, living.DINING_SET, living.ARMCHAIR, THIN_TABLE), 1 + int(hall.area / 14), 0.4)
    hall.scatter((living.CHAIR, living.STOOL, living.POUFFE, living.SIDE_TABLE), 1 + int(hall.area / 9), 0.15)


def _empty(hall: _Hall) -> None:
    rng = hall.rng
    hall.scatter((PODIUM,), rng.integer(0, 2), 0.3)
    hall.scatter((PILLAR,), rng.integer(0, 12), 0.8)
    hall.scatter((COUNTER, LOW_SHELF, living.SOFA, living.STOOL, THIN_TABLE), int(hall.area / rng.uniform(12, 40)), 0.6)
    for _ in range(rng.integer(0, 2)):
        hall.screen(rng.pick((*SCREENS, hall.height)), 0.12)
