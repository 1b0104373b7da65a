"""Placement of furniture: inside its room, away from doors, and with free paths between all doors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import ndimage

from batchnav.procedural.plans import CELL, LEAF_CLEARANCE, OUTSIDE, Layout, Opening, Room
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids
from batchnav.procedural.walls import WOODWORK, Face, on_face

Build = Callable[[Solids, RandomStream, float, float, float], None]
"""build(solids, draw, width, depth, height): append one piece, centred, standing on y = 0, facing +Z."""
Range = tuple[float, float]


@dataclass(frozen=True)
class Piece:
    """A kind of furniture; sizes in metres."""

    build: Build
    width: Range
    depth: Range
    height: Range
    front: float = 0.0
    """Depth of free floor in front, metres."""

    def size(self, rng: RandomStream) -> tuple[float, float, float]:
        """Random width, depth and height, metres, in whole centimetres."""
        width, depth, height = (round(rng.uniform(*r), 2) for r in (self.width, self.depth, self.height))
        return width, depth, height


class Replacements(Protocol):
    """Furniture of a user's that takes places of our own pieces (`models.Furniture`)."""

    def in_place_of(self, rng: RandomStream, piece: Piece) -> Piece:
        """A piece that takes the place of our own; the piece itself where there is none."""

    def further(self, rng: RandomStream, area: float) -> list[Piece]:
        """Pieces for the walls of a room of an area in square metres that none of our own stands for."""


_GRID = CELL / 2
"""Side of a grid cell, metres."""
_DOOR_DEPTH, _HALF_OPEN_DEPTH = 0.8, 1.4
"""Free depth in front of a door, and of a half-open door, metres."""
_PASSAGE = 13
"""Width of the free path between doors, grid cells (0.65 m)."""
_POCKET = 9
"""Free floor of this width, grid cells (0.45 m), must be reachable over floor of the same width."""
_GAP = 0.02
"""Gap between furniture and wall, metres; skirting boards fit in."""
_HEADROOM = 0.45
"""Gap between furniture and ceiling, metres: closer tops merge with the ceiling in voxels of 0.2 m."""
_EPS = 1e-3
_CROSS = ndimage.generate_binary_structure(2, 1)

Box = tuple[float, float, float, float]
"""x0, z0, x1, z1 in metres."""


class Arranger:
    """Places furniture on a floor plan, and keeps paths between doors open.

    Args:
        solids: receives the furniture.
        layout: rooms.
        faces: wall faces of the layout (`shell.walls.wall_faces`).
        openings: doors and windows; door leaves are added to `solids`.
        reach: distance around new furniture, grid cells, within which connectivity is checked; 0 checks the whole room,
            which is slow for large rooms.
        furniture: takes places of our own pieces; None for none.

    Grids are [Z, X] with cells of 0.05 m.
    """

    def __init__(
        self,
        solids: Solids,
        layout: Layout,
        faces: list[Face],
        openings: list[Opening],
        reach: int = 0,
        furniture: Replacements | None = None,
    ) -> None:
        self.solids, self.layout, self.reach, self.furniture = solids, layout, reach, furniture
        self.room_of = layout.labels.repeat(2, axis=0).repeat(2, axis=1)
        """i16: room of each cell, `OUTSIDE` outside."""
        self.blocked = np.zeros(self.room_of.shape, bool)
        """True for cells with furniture."""
        self.reserved = np.zeros(self.room_of.shape, bool)
        """True for cells in front of doors that stay free."""
        self.faces: list[list[Face]] = [[f for f in faces if f.room == r.index] for r in layout.rooms]
        """Wall faces of each room."""
        self.holes: dict[Face, list[Opening]] = {}
        """Doors and windows in each face."""
        self.used: dict[Face, list[tuple[float, float, float]]] = {}
        """Furniture against each face: start, stop and height, metres."""
        self.anchors: list[list[tuple[int, int]]] = [[] for _ in layout.rooms]
        """A cell in front of each door of a room."""
        self.floor = self._make_floor()
        """False for cells inside walls and outside."""
        self.views = ndimage.find_objects(self.room_of.astype(np.int32) + 1)
        """Slices of each room's bounding box."""
        for face in faces:
            if face.room == OUTSIDE:
                continue
            self.holes[face] = [o for o in openings if on_face(face, o)]
            self.used[face] = []
            for hole in self.holes[face]:
                if not hole.is_window:
                    self._reserve_door(face, hole)
        for face, holes in self.holes.items():
            for hole in holes:
                if hole.leaf and (hole.leaf > 0) == (face.side > 0):
                    self._hang_leaf(face, hole)

    def chosen(self, rng: RandomStream, piece: Piece) -> Piece:
        """The piece, or the furniture that takes its place."""
        return piece if self.furniture is None else self.furniture.in_place_of(rng, piece)

    def wall(self, rng: RandomStream, room: Room, piece: Piece, width: float = 0.0) -> Box | None:
        """Place a piece with its back to a wall; None where no tried place fits. `width` overrides the piece's."""
        own, piece = piece, self.chosen(rng, piece)
        w, d, h = piece.size(rng)
        w, h = (width if piece is own else 0.0) or w, min(h, room.height - _HEADROOM)
        spots = []
        for face in self.faces[room.index]:
            length = face.stop - face.start
            if length < w + 2 * _GAP:
                continue
            slack = length - w - 2 * _GAP
            starts = [0.0, slack, *(round(rng.uniform(0.0, slack), 2) for _ in range(4))]
            spots += [(face, face.start + _GAP + s) for s in starts]
        for face, start in rng.shuffled(spots)[:36]:
            box = self.at_face(rng, face, start, piece, (w, d, h))
            if box is not None:
                return box
        return None

    def at_face(
        self, rng: RandomStream, face: Face, start: float, piece: Piece, size: tuple[float, float, float]
    ) -> Box | None:
        """Place a piece of the given size against a face, from `start` along it; None where it does not fit."""
        w, d, h = size
        stop = start + w
        for hole in self.holes[face]:
            if start < hole.stop + 0.08 and stop > hole.start - 0.08 and h > hole.bottom - 0.04:
                return None
        near, far = face.plane + face.side * _GAP, face.plane + face.side * (_GAP + d)
        front = far + face.side * piece.front
        box, clear = _along(face.axis, start, stop, near, far), _along(face.axis, start, stop, far, front)
        if not self._fits(face.room, box, clear if piece.front else None):
            return None
        self.used[face].append((start, stop, h))
        turn = (0 if face.axis == 0 else TURN // 4) + (0 if face.side > 0 else TURN // 2)
        self._build(rng, piece, size, box, turn)
        return box

    def centre(
        self, rng: RandomStream, room: Room, piece: Piece, margin: float, about: Box | None = None
    ) -> Box | None:
        """Place a free-standing piece in the room, or in the box `about`, with `margin` metres free around it."""
        piece = self.chosen(rng, piece)
        size = piece.size(rng)
        x0, z0, x1, z1 = about or tuple(v * CELL for v in room.rect)
        for attempt in range(16):
            w, d = size[:2] if rng.chance(0.5) == (x1 - x0 > z1 - z0) or attempt > 8 else size[1::-1]
            spread = min(0.5, 0.1 + 0.05 * attempt)
            x = (x0 + x1) / 2 + rng.uniform(-spread, spread) * (x1 - x0 - w)
            z = (z0 + z1) / 2 + rng.uniform(-spread, spread) * (z1 - z0 - d)
            box = (x - w / 2, z - d / 2, x + w / 2, z + d / 2)
            if self._fits(room.index, box, _grow(box, margin)):
                turn = (0 if (w, d) == size[:2] else TURN // 4) + rng.pick((0, TURN // 2))
                self._build(rng, piece, size, box, turn)
                return box
        return None

    def at(
        self, rng: RandomStream, room: Room, piece: Piece, x: float, z: float, quarter: int, margin: float = 0.0
    ) -> bool:
        """Place a free-standing piece centred at (x, z), rotated by quarter turns. True where it was placed."""
        size = piece.size(rng)
        w, d = size[:2] if quarter % 2 == 0 else size[1::-1]
        box = (x - w / 2, z - d / 2, x + w / 2, z + d / 2)
        if not self._fits(room.index, box, _grow(box, margin)):
            return False
        self._build(rng, piece, size, box, quarter * TURN // 4)
        return True

    def in_front_of(self, rng: RandomStream, box: Box, piece: Piece, gap: float) -> Box | None:
        """Place a piece `gap` metres in front of furniture that `wall` placed at `box`; None where it does not fit."""
        piece = self.chosen(rng, piece)
        w, d, h = piece.size(rng)
        cx, cz = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        face = self.face_behind(box)
        room, side = face.room, face.side
        if face.axis == 0:
            at = (box[3] if side > 0 else box[1]) + side * (gap + d / 2)
            new = (cx - w / 2, at - d / 2, cx + w / 2, at + d / 2)
        else:
            at = (box[2] if side > 0 else box[0]) + side * (gap + d / 2)
            new = (at - d / 2, cz - w / 2, at + d / 2, cz + w / 2)
        if not self._fits(room, new, None):
            return None
        self._build(rng, piece, (w, d, h), new, 0 if face.axis == 0 else TURN // 4)
        return new

    def on_floor(self, rng: RandomStream, room: Room, build, radius: float) -> bool:
        """Place a small object on the floor of the room. True where it was placed."""
        x0, z0, x1, z1 = (v * CELL for v in room.rect)
        for _ in range(5):
            x, z = rng.uniform(x0 + radius, x1 - radius), rng.uniform(z0 + radius, z1 - radius)
            box = (x - radius, z - radius, x + radius, z + radius)
            if self._fits(room.index, box, None):
                one = Solids(self.solids.detail)
                build(one, rng)
                self._block(box)
                self.solids.place(one, x, z, rng.integer(0, TURN - 1))
                return True
        return False

    def inside(self, room: int, box: Box) -> bool:
        """True where a box lies within the walls of a room."""
        return bool((self.room_of[_cells(_grow(box, self.layout.thickness / 2))] == room).all())

    def face_behind(self, box: Box) -> Face:
        """The wall face behind a piece that `wall` placed at a box. LookupError where there is none."""
        for face, used in self.used.items():
            low, high = (box[0], box[2]) if face.axis == 0 else (box[1], box[3])
            back = (box[1], box[3]) if face.axis == 0 else (box[0], box[2])
            near = back[0] if face.side > 0 else back[1]
            if abs(near - face.plane) < 2 * _GAP and any(
                abs(a - low) < _EPS and abs(b - high) < _EPS for a, b, _ in used
            ):
                return face
        raise LookupError("found no piece at this box, expected one that `wall` placed")

    def _build(self, rng: RandomStream, piece: Piece, size: tuple[float, float, float], box: Box, turn: int) -> None:
        """Add a piece at a box, rotated by `turn` of `TURN` steps, and block its cells."""
        one = Solids(self.solids.detail)
        one.things = self.solids.things
        piece.build(one, rng, *size)
        self._block(box)
        self.solids.place(one, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, turn)

    def _make_floor(self) -> np.ndarray:
        """bool [Z, X]: False for cells inside a wall, within half a thickness of a border."""
        labels, reach = self.room_of, 1 if self.layout.thickness <= 0.1 + _EPS else 2
        floor = labels != OUTSIDE
        for k in range(1, reach + 1):
            for axis in (0, 1):
                same = np.ones(labels.shape, bool)
                a, b = [slice(None)] * 2, [slice(None)] * 2
                a[axis], b[axis] = slice(k, None), slice(None, -k)
                equal = labels[tuple(a)] == labels[tuple(b)]
                same[tuple(a)] &= equal
                same[tuple(b)] &= equal
                floor &= same
        return floor

    def _reserve_door(self, face: Face, hole: Opening) -> None:
        """Reserve the floor in front of a door, and add an anchor there."""
        half_open = hole.leaf and hole.swing < TURN // 4
        far = face.plane + face.side * (_HALF_OPEN_DEPTH if half_open else _DOOR_DEPTH)
        clearance = LEAF_CLEARANCE if half_open and hole.swing else 0.05
        before, behind = (0.05, clearance) if abs(hole.leaf) == 1 else (clearance, 0.05)
        cells = _cells(_along(face.axis, hole.start - before, hole.stop + behind, face.line, far))
        self.reserved[cells] |= self.room_of[cells] == face.room
        middle, out = (hole.start + hole.stop) / 2, face.plane + face.side * 0.4
        z, x = (out, middle) if face.axis == 0 else (middle, out)
        self.anchors[face.room].append((int(z / _GRID), int(x / _GRID)))

    def _hang_leaf(self, face: Face, hole: Opening) -> None:
        """Add a door leaf: closed, half open, or fully open at a right angle where that blocks no path."""
        if hole.swing < TURN // 4:
            self._hang_turned(face, hole)
            return
        low = hole.start - 0.045 if abs(hole.leaf) == 1 else hole.stop + 0.005
        width = hole.stop - hole.start
        near, far = face.plane + face.side * 0.022, face.plane + face.side * (0.022 + width)
        box = _along(face.axis, low, low + 0.04, near, far)
        cells = _cells(box)
        if not self.inside(face.room, box) or self.blocked[cells].any() or not self._stays_open(face.room, cells):
            return
        self.blocked[cells] = True
        x0, z0, x1, z1 = box
        with self.solids.object("door", WOODWORK):
            self.solids.material = "door"
            self.solids.box((x0, 0.01, z0), (x1, hole.top - 0.01, z1))
            self.solids.material = "metal"
            across = face.plane + face.side * (width - 0.05)
            for side in (low - 0.05, low + 0.05):
                start, end = ((a, 1.02, across) if face.axis == 0 else (across, 1.02, a) for a in (side, low + 0.02))
                self.solids.rod(start, end, 0.02, 0.012)

    def _hang_turned(self, face: Face, hole: Opening) -> None:
        """Add a leaf that opens by less than a right angle; it fits in the free space in front of the door."""
        one, width, at_start = Solids(self.solids.detail), hole.stop - hole.start, abs(hole.leaf) == 1
        with one.object("door", WOODWORK):
            one.material = "door"
            one.box((0.005, 0.01, -0.02), (width - 0.005, hole.top - 0.01, 0.02))
            one.material = "metal"
            for z in (-0.05, 0.05):
                one.rod((width - 0.05, 1.02, z), (width - 0.05, 1.02, 0.0), 0.02, 0.012)
        closed = (0 if at_start else TURN // 2) if face.axis == 0 else (-TURN // 4 if at_start else TURN // 4)
        opens = -face.side if at_start == (face.axis == 0) else face.side
        along = hole.start if at_start else hole.stop
        across = face.plane + face.side * 0.022 if hole.swing else hole.line
        x, z = (along, across) if face.axis == 0 else (across, along)
        self.solids.place(one, x, z, closed + opens * hole.swing)

    def _block(self, box: Box) -> None:
        """Mark the cells of a box as furniture."""
        self.blocked[_cells(box)] = True

    def _fits(self, room: int, box: Box, clear: Box | None) -> bool:
        """True where a box is free floor of the room, `clear` has no furniture, and all doors stay connected."""
        if not self.inside(room, box):
            return False
        cells = _cells(box)
        if self.blocked[cells].any() or self.reserved[cells].any():
            return False
        if clear is not None:
            front = _cells(clear)
            if self.blocked[front].any() or not (self.room_of[front] == room).all():
                return False
        return self._stays_open(room, cells)

    def _stays_open(self, room: int, cells: tuple[slice, slice]) -> bool:
        """True where doors and floor of the room stay connected with these cells occupied."""
        if self.reach:
            return self._stays_open_here(room, cells)
        view = self.views[room]
        z0, x0 = view[0].start, view[1].start
        free = self.floor[view] & (self.room_of[view] == room) & ~self.blocked[view]
        free[cells[0].start - z0 : cells[0].stop - z0, cells[1].start - x0 : cells[1].stop - x0] = False
        anchors = [(z - z0, x - x0) for z, x in self.anchors[room]]
        wide, _ = ndimage.label(_shrink(free, _PASSAGE), _CROSS)
        ids = {int(wide[a]) for a in anchors}
        if len(ids) > 1 or 0 in ids:
            return False
        return ndimage.label(_shrink(free, _POCKET), _CROSS)[1] <= 1

    def _stays_open_here(self, room: int, cells: tuple[slice, slice]) -> bool:
        """True where, within `reach` of these cells, connected floor and doors stay connected with them occupied."""
        rows, columns = (slice(max(c.start - self.reach, 0), c.stop + self.reach) for c in cells)
        free = self.floor[rows, columns] & (self.room_of[rows, columns] == room) & ~self.blocked[rows, columns]
        taken = free.copy()
        taken[cells[0].start - rows.start : cells[0].stop - rows.start][
            :, cells[1].start - columns.start : cells[1].stop - columns.start
        ] = False
        anchors = [(z - rows.start, x - columns.start) for z, x in self.anchors[room]]
        anchors = [(z, x) for z, x in anchors if 0 <= z < free.shape[0] and 0 <= x < free.shape[1]]
        for size, doors in ((_PASSAGE, anchors), (_POCKET, [])):
            before, after = _shrink(free, size), _shrink(taken, size)
            joined = ndimage.label(before, _CROSS)[0]
            parts = ndimage.label(after, _CROSS)[1]
            if parts > len(np.unique(joined[after > 0])) or any(before[door] and not after[door] for door in doors):
                return False
        return True


def _shrink(free: np.ndarray, size: int) -> np.ndarray:
    """Centres of the free squares of size x size cells."""
    rows = ndimage.minimum_filter1d(free.view(np.uint8), size, axis=0, mode="constant")
    return ndimage.minimum_filter1d(rows, size, axis=1, mode="constant")


def _along(axis: int, start: float, stop: float, a: float, b: float) -> Box:
    """A box from its extent along a wall and the two coordinates across it, in any order."""
    low, high = (a, b) if a < b else (b, a)
    return (start, low, stop, high) if axis == 0 else (low, start, high, stop)


def _grow(box: Box, by: float) -> Box:
    """A box extended by a distance on every side, metres."""
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by


def _cells(box: Box) -> tuple[slice, slice]:
    """Slices of the grid cells that a box touches."""
    x0, z0 = int((box[0] + _EPS) / _GRID), int((box[1] + _EPS) / _GRID)
    x1, z1 = int((box[2] - _EPS) / _GRID) + 1, int((box[3] - _EPS) / _GRID) + 1
    return slice(z0, z1), slice(x0, x1)
