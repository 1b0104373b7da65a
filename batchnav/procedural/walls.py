"""The shell of a house: walls with door holes and window recesses, floors, ceilings, frames and skirting.

Each region of the plan (each room, and the outside) has its own wall faces, half a wall's thickness inside its border:
a wall is two faces with empty space between them. Reveals connect the two faces at holes. Floors and ceilings extend
below and above the walls. Only floors face upwards, so no navmesh is baked on top of the house.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from batchnav.procedural.plans import CELL, OUTSIDE, Layout, Opening
from batchnav.procedural.solids import Group, Solids

_TUCK = 0.01
"""Overlap of wall faces at inner corners, metres: it leaves no gap for rays."""
_RECESS = 0.6
"""Depth of a window's recess, in wall thicknesses."""
WOODWORK = "woodwork"
"""`Group.look` of doors, frames, skirting and ceilings: they share materials in the whole house."""


@dataclass(frozen=True)
class Face:
    """One side of a straight piece of wall."""

    room: int
    axis: int
    """0: along x, 1: along z."""
    side: int
    """+1 where the room lies towards greater z (axis 0) or x (axis 1), otherwise -1."""
    line: float
    """Centre line of the wall, metres."""
    plane: float
    """Coordinate of the face, metres: half a thickness inside the room."""
    start: float
    stop: float
    """Extent of the visible face, from corner to corner, metres."""
    inner_start: bool
    inner_stop: bool
    """True where the start, or the stop, is an inner (concave) corner of the room."""


def wall_faces(layout: Layout) -> list[Face]:
    """All faces of all walls, outside included."""
    faces, half = [], layout.thickness / 2
    for axis, image in enumerate((layout.labels, layout.labels.T)):
        for side in (1, -1):
            flipped = image if side == 1 else image[::-1]
            here, behind = flipped[1:], flipped[:-1]
            code = np.where(here != behind, here.astype(np.int32), -(2**20))
            edge = np.ones((code.shape[0], code.shape[1] + 1), bool)
            edge[:, 1:-1] = code[:, 1:] != code[:, :-1]
            row, start = np.nonzero(edge[:, :-1] & (code > -(2**20)))
            stop = np.nonzero(edge[:, 1:] & (code > -(2**20)))[1] + 1
            for r, a, b in zip(row.tolist(), start.tolist(), stop.tolist(), strict=True):
                room = int(here[r, a])
                inner = (here[r, a - 1] != room, here[r, b] != room)
                line = (r + 1 if side == 1 else len(image) - 1 - r) * CELL
                begin, end = (a * CELL + (half if inner[0] else -half), b * CELL - (half if inner[1] else -half))
                faces.append(Face(room, axis, side, line, line + side * half, begin, end, *map(bool, inner)))
    return faces


def on_face(face: Face, opening: Opening) -> bool:
    """True where an opening is visible in a face."""
    if opening.axis != face.axis or opening.line != face.line or face.room not in opening.sides:
        return False
    if opening.is_window and face.room == OUTSIDE:
        return False
    side = opening.sides[1] if face.side == 1 else opening.sides[0]
    return side == face.room and face.start <= opening.start and opening.stop <= face.stop


class _Quads:
    """A list of rectangles, built in wall coordinates (along, up, across) and stored as x, y, z."""

    def __init__(self) -> None:
        self.corners: list = []
        self.mark: tuple[str, str, str, str] = ("", "", "", "")
        """Material, category, look and key (`solids.Group`) of rectangles added next."""
        self.marks: list[tuple[str, str, str, str]] = []

    def add_to(self, solids: Solids) -> None:
        """Append all rectangles, two triangles each."""
        corners = np.array(self.corners)
        index = 4 * np.arange(len(corners), dtype=np.int32)[:, None]
        triangles = np.concatenate([index + np.array([[0, 1, 2]]), index + np.array([[0, 2, 3]])])
        record = [(mark, len(list(same))) for mark, same in itertools.groupby(self.marks)]
        groups = [
            Group([(material, count, count)], category, look, key) for (material, category, look, key), count in record
        ]
        solids.add_groups(corners.reshape(-1, 3), triangles.astype(np.int32), 2 * groups)

    def rect(self, axis: int, side: int, a0: float, a1: float, y0: float, y1: float, across: float) -> None:
        """An upright rectangle along the wall, facing `side`."""
        if axis == 0:
            points = [(a0, y0, across), (a1, y0, across), (a1, y1, across), (a0, y1, across)]
            flip = side < 0
        else:
            points = [(across, y0, a0), (across, y0, a1), (across, y1, a1), (across, y1, a0)]
            flip = side > 0
        self.corners.append(points[::-1] if flip else points)
        self.marks.append(self.mark)

    def flat(self, x0: float, x1: float, z0: float, z1: float, y: float, up: bool) -> None:
        """A level rectangle."""
        points = [(x0, y, z0), (x0, y, z1), (x1, y, z1), (x1, y, z0)]
        self.corners.append(points if up else points[::-1])
        self.marks.append(self.mark)

    def reveal(self, hole: Opening, c0: float, c1: float, with_sill: bool) -> None:
        """The four (or three) inner sides of a hole between the depths c0 < c1 across the wall."""
        other = 1 - hole.axis
        self.rect(other, 1, c0, c1, hole.bottom, hole.top, hole.start)
        self.rect(other, -1, c0, c1, hole.bottom, hole.top, hole.stop)
        for y, up in ((hole.top, False), (hole.bottom, True))[: 2 if with_sill else 1]:
            if hole.axis == 0:
                self.flat(hole.start, hole.stop, c0, c1, y, up)
            else:
                self.flat(c0, c1, hole.start, hole.stop, y, up)


def build_shell(solids: Solids, layout: Layout, faces: list[Face], openings: list[Opening]) -> None:
    """Append walls, floors, ceilings, frames and skirting."""
    quads, half, height = _Quads(), layout.thickness / 2, layout.height
    for i, ((x0, z0, x1, z1), ceiling) in enumerate(zip(layout.footprint, layout.ceilings, strict=True)):
        extent = (x0 * CELL - half, x1 * CELL + half, z0 * CELL - half, z1 * CELL + half)
        quads.mark = ("floor", "floor", f"wing {i}", f"floor {i}")
        quads.flat(*extent, 0.0, up=True)
        quads.mark = ("ceiling", "ceiling", WOODWORK, f"ceiling {i}")
        quads.flat(*extent, ceiling, up=False)
    by_line: dict[tuple[int, float], list[Opening]] = {}
    for opening in openings:
        by_line.setdefault((opening.axis, opening.line), []).append(opening)
        if opening.is_window:
            with solids.object("window", WOODWORK, _key(opening)):
                _build_window(solids, quads, layout, opening)
        else:
            quads.mark = ("trim", "doorframe", WOODWORK, _key(opening))
            quads.reveal(opening, opening.line - half, opening.line + half, with_sill=False)
    for i, face in enumerate(faces):
        holes = sorted((o for o in by_line.get((face.axis, face.line), ()) if on_face(face, o)), key=lambda o: o.start)
        quads.mark = ("wall", "wall", f"room {face.room}", f"wall {i}")
        _build_face(quads, face, holes, height)
        if face.room != OUTSIDE:
            _build_trim(solids, face, [hole for hole in holes if not hole.is_window])
    quads.add_to(solids)


def _key(opening: Opening) -> str:
    """Key that joins the parts of a window or of a door frame to one object."""
    return f"opening {opening.axis} {opening.line} {opening.start}"


def _build_face(quads: _Quads, face: Face, holes: list[Opening], height: float) -> None:
    """A wall's face around its holes."""
    tuck = _TUCK if face.room != OUTSIDE else 0.0
    at = face.start - (tuck if face.inner_start else 0.0)
    stop = face.stop + (tuck if face.inner_stop else 0.0)
    for hole in holes:
        quads.rect(face.axis, face.side, at, hole.start, 0.0, height, face.plane)
        if hole.bottom > 0:
            quads.rect(face.axis, face.side, hole.start, hole.stop, 0.0, hole.bottom, face.plane)
        quads.rect(face.axis, face.side, hole.start, hole.stop, hole.top, height, face.plane)
        at = hole.stop
    quads.rect(face.axis, face.side, at, stop, 0.0, height, face.plane)


def wall_box(
    solids: Solids, axis: int, side: int, plane: float, along: tuple[float, float], up: tuple[float, float],
    depth: tuple[float, float],
) -> None:  # fmt: skip
    """A box by its extent along a wall, upwards, and from the wall's plane towards the room."""
    near, far = sorted((plane + side * depth[0], plane + side * depth[1]))
    if axis == 0:
        solids.box((along[0], up[0], near), (along[1], up[1], far))
    else:
        solids.box((near, up[0], along[0]), (far, up[1], along[1]))


def _build_trim(solids: Solids, face: Face, doors: list[Opening]) -> None:
    """Skirting boards between the doors, and frames around them."""
    wall = (face.axis, face.side, face.plane)
    gaps, at = [], face.start
    solids.material = "trim"
    for door in doors:
        gaps.append((at, door.start - 0.07))
        at = door.stop + 0.07
        with solids.object("doorframe", WOODWORK, _key(door)):
            wall_box(solids, *wall, (door.start - 0.07, door.start), (0.0, door.top + 0.07), (-0.005, 0.02))
            wall_box(solids, *wall, (door.stop, door.stop + 0.07), (0.0, door.top + 0.07), (-0.005, 0.02))
            wall_box(solids, *wall, (door.start, door.stop), (door.top, door.top + 0.07), (-0.005, 0.02))
    with solids.object("baseboard", WOODWORK):
        for start, stop in [*gaps, (at, face.stop)]:
            if stop - start > 0.02:
                wall_box(solids, *wall, (start, stop), (0.0, 0.09), (-0.005, 0.014))


def _build_window(solids: Solids, quads: _Quads, layout: Layout, window: Opening) -> None:
    """A recessed pane in the room's side of an outer wall, with bars, a casing and a sill board."""
    side = 1 if window.sides[0] == OUTSIDE else -1
    plane = window.line + side * layout.thickness / 2
    back = plane - side * _RECESS * layout.thickness
    solids.material = "trim"
    quads.mark = ("pane", "window", WOODWORK, _key(window))
    quads.rect(window.axis, side, window.start, window.stop, window.bottom, window.top, back)
    quads.mark = ("trim", "window", WOODWORK, _key(window))
    quads.reveal(window, min(plane, back), max(plane, back), with_sill=True)
    wall = (window.axis, side, back)
    width = window.stop - window.start
    bars = 1 + (width > 0.8) + (width > 1.5)
    for i in range(bars + 1):
        middle = window.start + 0.025 + (width - 0.05) * i / bars
        wall_box(solids, *wall, (middle - 0.025, middle + 0.025), (window.bottom, window.top), (0.0, 0.03))
    middle = window.bottom + 0.68 * (window.top - window.bottom)
    for y in (window.bottom + 0.025, middle, window.top - 0.025):
        wall_box(solids, *wall, (window.start, window.stop), (y - 0.025, y + 0.025), (0.0, 0.025))
    wall = (window.axis, side, plane)
    start, stop, top = window.start, window.stop, window.top
    wall_box(solids, *wall, (start - 0.06, start), (window.bottom, top + 0.06), (-0.005, 0.015))
    wall_box(solids, *wall, (stop, stop + 0.06), (window.bottom, top + 0.06), (-0.005, 0.015))
    wall_box(solids, *wall, (start, stop), (top, top + 0.06), (-0.005, 0.015))
    wall_box(solids, *wall, (start - 0.08, stop + 0.08), (window.bottom - 0.03, window.bottom), (-0.005, 0.05))
