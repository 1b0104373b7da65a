"""Closed solids of triangles, collected and concatenated once: boxes, cushions, lathed solids, rods, leaves.

Every solid is closed and wound counter-clockwise from outside. Angles are in `TURN` steps of a full circle, with sines
rounded to 24 bits; IEEE 754 rounds all other operations exactly. Meshes are therefore equal to the last bit on every
machine; NumPy's vectorised sines are not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np

TURN = 240
"""Angle steps of a full circle; divisible by every number of segments in use."""
_COS = np.round(np.array([math.cos(2 * math.pi * i / TURN) for i in range(TURN)]) * 2.0**24) / 2.0**24
_SIN = np.roll(_COS, TURN // 4)

_BOX_CORNERS = np.array([[(i >> 2) & 1, (i >> 1) & 1, i & 1] for i in range(8)], dtype=bool)
"""True where a corner of a box is at the upper end in x, y, z."""
_BOX_FACES = np.array(
    [
        [0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
        [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3],
    ],
    dtype=np.int32,
)  # fmt: skip
_LEAF_FACES = np.array(
    [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]], dtype=np.int32
)

Point = Sequence[float] | np.ndarray


@lru_cache
def circle(n: int) -> np.ndarray:
    """Unit circle as f64 [n, 2] of (x, z), clockwise seen from above; n divides `TURN`. Read-only."""
    step = TURN // n
    unit = np.stack([_COS[::step], _SIN[::step]], axis=1)
    unit.flags.writeable = False
    return unit


def turned(x, z, turn):
    """Points (x, z), rotated counter-clockwise seen from above by `turn` of `TURN` steps; numbers or arrays."""
    c, s = _COS[turn % TURN], _SIN[turn % TURN]
    return x * c + z * s, z * c - x * s


Run = tuple[str, int, int]
"""Triangles added in one call: material name, number of triangles, number of triangles per solid. A plain tuple,
since a house has thousands and a NamedTuple takes ten times as long to create."""


class Group(NamedTuple):
    """Runs that form one object, or a part of the enclosing object, with their position and rotation in it."""

    record: list
    """Runs and groups, in the order of their triangles."""
    category: str = ""
    """Category of the object; "" for a part of the enclosing object."""
    look: str = ""
    """Objects of one look share materials; "" for all objects from this record."""
    key: str = ""
    """Groups of one key form one object; "" for an object of its own."""
    x: float = 0.0
    z: float = 0.0
    turn: int = 0
    y: float = 0.0


class Solids:
    """A growing set of triangles in one frame (+Y up, metres); furniture is modelled around the origin.

    A piece of furniture stands on y = 0, centred in x and z, and faces +Z; its back, towards -Z, goes to the wall.
    `record` stores the object of each triangle; `materials/surface.py` makes a surface from it on demand.
    """

    def __init__(self, detail: int) -> None:
        self.detail = detail
        """Level of detail of round solids, 1 to 3."""
        self.material = ""
        """Material of triangles added next, a key of `materials/finishes.py`."""
        self.record: list[Run | Group] = []
        """Runs and groups of all triangles, in order."""
        self.things: Sequence[Callable] = ()
        """Builders of small objects, of a user's furniture, that stand on tables beside our own."""
        self._vertices: list[np.ndarray] = []
        self._faces: list[np.ndarray] = []
        self._count = 0

    @property
    def segments(self) -> int:
        """Number of sides of a round solid; it divides `TURN`."""
        return (8, 12, 20)[self.detail - 1]

    @contextmanager
    def object(self, category: str, look: str = "", key: str = "") -> Iterator[None]:
        """Context manager: triangles added inside form one object of a category. `look` and `key` as in `Group`."""
        outer, self.record = self.record, []
        yield
        outer.append(Group(self.record, category, look, key))
        self.record = outer

    def add(self, vertices: np.ndarray, faces: np.ndarray, each: int = 0) -> None:
        """Append vertices f64 [V, 3] and triangles [F, 3]; `each` is the number of triangles per solid, 0 for all."""
        self.record.append((self.material, len(faces), each or len(faces)))
        self._append(vertices, faces)

    def add_groups(self, vertices: np.ndarray, faces: np.ndarray, groups: Iterable[Group]) -> None:
        """Append vertices and triangles with their groups, in order."""
        self.record += groups
        self._append(vertices, faces)

    def _append(self, vertices: np.ndarray, faces: np.ndarray) -> None:
        self._vertices.append(vertices)
        self._faces.append(faces + self._count)
        self._count += len(vertices)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Vertices f64 [V, 3] and faces i32 [F, 3] so far."""
        if not self._faces:
            return np.zeros((0, 3)), np.zeros((0, 3), np.int32)
        if len(self._faces) > 1:
            self._vertices = [np.concatenate(self._vertices)]
            self._faces = [np.concatenate(self._faces)]
        return self._vertices[0], self._faces[0]

    def place(self, other: Solids, x: float, z: float, turn: int = 0, y: float = 0.0) -> None:
        """Append another set, rotated counter-clockwise seen from above by `turn` of `TURN` steps, then translated.

        Solids added to the other set later are not included.
        """
        vertices, faces = other.arrays()
        across, along = turned(vertices[:, 0], vertices[:, 2], turn)
        moved = np.empty_like(vertices)
        moved[:, 0], moved[:, 1], moved[:, 2] = across + x, vertices[:, 1] + y, along + z
        self.record.append(Group(other.record, "", "", "", x, z, turn, y))
        self._append(moved, faces)

    def box(self, low: Point, high: Point, lean: tuple[float, float] = (0.0, 0.0)) -> None:
        """An axis-aligned box; `lean` moves its top in x and z."""
        (x0, y0, z0), (x1, y1, z1), (x, z) = low, high, lean
        bottom = ((x0, y0, z0), (x0, y0, z1), (x1, y0, z0), (x1, y0, z1))
        top = ((x0 + x, y1, z0 + z), (x0 + x, y1, z1 + z), (x1 + x, y1, z0 + z), (x1 + x, y1, z1 + z))
        self.add(np.array(bottom[:2] + top[:2] + bottom[2:] + top[2:], float), _BOX_FACES)  # a third of NumPy's time

    def boxes(self, low: np.ndarray, high: np.ndarray) -> None:
        """Many boxes at once: f64 [N, 3] each."""
        vertices = np.where(_BOX_CORNERS[None], np.asarray(high)[:, None], np.asarray(low)[:, None])
        faces = _BOX_FACES[None] + 8 * np.arange(len(vertices), dtype=np.int32)[:, None, None]
        self.add(vertices.reshape(-1, 3), faces.reshape(-1, 3), len(_BOX_FACES))

    def cushion(self, low: Point, high: Point, radius: float, lean: tuple[float, float] = (0.0, 0.0)) -> None:
        """A box with all edges rounded; the radius is limited to what fits."""
        signs, directions, faces = _cushion_unit(self.detail + 1)
        low, high = np.asarray(low, float), np.asarray(high, float)
        half = (high - low) / 2
        radius = min(radius, 0.98 * float(half.min()))
        vertices = signs * (half - radius) + directions * radius + (low + high) / 2
        if lean != (0.0, 0.0):
            rise = (vertices[:, 1] - low[1]) / (high[1] - low[1])
            vertices[:, 0] += lean[0] * rise
            vertices[:, 2] += lean[1] * rise
        self.add(vertices, faces)

    def lathe(self, x: float, z: float, profile: Sequence[tuple[float, float]], loop: bool = False) -> None:
        """Rotate a profile of (radius, y), bottom to top along the outside, about a vertical axis.

        An open profile is closed at both ends on the axis; a `loop` (a lampshade's wall) is joined end to start.
        """
        points = np.asarray(profile, float)
        keep = points[:, 0] > 0
        rings, unit = points[keep], circle(self.segments)
        n, m = len(unit), len(rings)
        vertices = np.empty((m, n, 3))
        vertices[:, :, 0] = rings[:, :1] * unit[:, 0] + x
        vertices[:, :, 1] = rings[:, 1:]
        vertices[:, :, 2] = rings[:, :1] * unit[:, 1] + z
        poles = [] if loop else [(x, points[0, 1], z), (x, points[-1, 1], z)]
        self.add(np.concatenate([vertices.reshape(-1, 3), np.reshape(poles, (-1, 3))]), _tube_faces(n, m, loop))

    def loft(self, x: float, z: float, rings: Sequence[tuple[float, float, float, float]]) -> None:
        """Rounded rectangles (half width, half depth, corner radius, y) joined bottom to top, closed at both ends."""
        rows, signs, directions = np.asarray(rings, float), *_corner_unit(self.segments)
        n, m = len(signs), len(rows)
        radius = np.minimum(rows[:, 2], 0.98 * np.minimum(rows[:, 0], rows[:, 1]))[:, None, None]
        flat = signs * (rows[:, None, :2] - radius) + directions * radius
        vertices = np.stack([flat[:, :, 0] + x, np.broadcast_to(rows[:, 3:], (m, n)), flat[:, :, 1] + z], axis=2)
        poles = np.array([(x, rows[0, 3], z), (x, rows[-1, 3], z)])
        self.add(np.concatenate([vertices.reshape(-1, 3), poles]), _tube_faces(n, m, False))

    def rod(self, start: Point, end: Point, radius: float, end_radius: float | None = None) -> None:
        """A round bar between two points, tapering to `end_radius`."""
        start, end = np.asarray(start, float), np.asarray(end, float)
        along = end - start
        side = _cross(along, (0.0, 0.0, 1.0) if abs(along[1]) > abs(along[2]) else (0.0, 1.0, 0.0))
        side = side / math.sqrt(side[0] ** 2 + side[1] ** 2 + side[2] ** 2)
        other = _cross(side, along)
        other = other / math.sqrt(other[0] ** 2 + other[1] ** 2 + other[2] ** 2)
        unit = circle(max(6, self.segments // 2))
        ring = unit[:, :1] * side + unit[:, 1:] * other
        last = radius if end_radius is None else end_radius
        vertices = np.concatenate([start + ring * radius, end + ring * last, start[None], end[None]])
        self.add(vertices, _tube_faces(len(unit), 2, False))

    def leaves(self, base: np.ndarray, tip: np.ndarray, width: np.ndarray, thickness: float = 0.004) -> None:
        """Flat pointed blades from base to tip: f64 [N, 3], [N, 3], [N]."""
        along = tip - base
        flat = np.stack([-along[:, 2], np.zeros(len(along)), along[:, 0]], axis=1)
        length = np.sqrt(flat[:, 0] ** 2 + flat[:, 2] ** 2)[:, None]
        side = np.where(length > 1e-6, flat / np.maximum(length, 1e-6), (1.0, 0.0, 0.0))
        normal = _cross(along.T, side.T).T
        normal = normal / np.sqrt(normal[:, 0] ** 2 + normal[:, 1] ** 2 + normal[:, 2] ** 2)[:, None]
        middle, half = (base + tip) / 2, side * (width / 2)[:, None]
        vertices = np.stack(
            [base, tip, middle + half, middle - half, middle - normal * thickness, middle + normal * thickness], axis=1
        )
        faces = _LEAF_FACES[None] + 6 * np.arange(len(base), dtype=np.int32)[:, None, None]
        self.add(vertices.reshape(-1, 3), faces.reshape(-1, 3))


def makes(category: str) -> Callable[[Callable], Callable]:
    """Decorator of a builder build(solids, ...): its triangles form one object of a category."""

    def decorate(build: Callable) -> Callable:
        @functools.wraps(build)
        def build_object(solids: Solids, *args, **options) -> None:
            outer, solids.record = solids.record, []  # as in `Solids.object`, but faster
            build(solids, *args, **options)
            outer.append(Group(solids.record, category))
            solids.record = outer

        return build_object

    return decorate


def _cross(a, b) -> np.ndarray:
    """Cross product from plain products and differences: np.cross may round differently."""
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


@lru_cache
def _tube_faces(n: int, m: int, loop: bool) -> np.ndarray:
    """Triangles of m rings of n points, outside out; two poles follow the rings unless these form a loop."""
    ring = np.arange(m if loop else m - 1)[:, None] * n
    above = (ring + n) % (m * n)
    j = np.arange(n)[None]
    k = (j + 1) % n
    quads = [np.stack([ring + j, above + k, ring + k], -1), np.stack([ring + j, above + j, above + k], -1)]
    faces = [q.reshape(-1, 3) for q in quads]
    if not loop:
        low, high, top = m * n, m * n + 1, (m - 1) * n
        j, k = j[0], k[0]
        faces.append(np.stack([np.full(n, low), j, k], -1))
        faces.append(np.stack([np.full(n, high), top + k, top + j], -1))
    return np.concatenate(faces).astype(np.int32)


@lru_cache
def _corner_unit(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Corner signs and directions, [n + 4, 2] each, of a rounded rectangle in `circle`'s order."""
    unit, quarter = circle(n), n // 4
    index = [(q * quarter + i) % n for q in range(4) for i in range(quarter + 1)]
    signs = np.repeat(np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)], float), quarter + 1, axis=0)
    return signs, unit[index]


@lru_cache
def _cushion_unit(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Octant signs, directions and faces of a rounded box whose corners are k x k pieces of a sphere."""
    signs2, flat = _corner_unit(4 * k)
    n = len(flat)
    quarter = TURN // 4 // k
    rise = np.array([-_SIN[i * quarter] for i in range(k, -1, -1)] + [_SIN[i * quarter] for i in range(k + 1)])
    out = np.array([_COS[i * quarter] for i in range(k, -1, -1)] + [_COS[i * quarter] for i in range(k + 1)])
    up = np.repeat([-1.0, 1.0], k + 1)
    signs: np.ndarray = np.empty((len(up), n, 3))
    signs[:, :, 0], signs[:, :, 1], signs[:, :, 2] = signs2[:, 0], up[:, None], signs2[:, 1]
    directions = np.empty_like(signs)
    directions[:, :, 0], directions[:, :, 2] = out[:, None] * flat[:, 0], out[:, None] * flat[:, 1]
    directions[:, :, 1] = rise[:, None]
    signs, directions = signs.reshape(-1, 3), directions.reshape(-1, 3)
    # The pole rows hold each corner k + 1 times: merge them, drop the triangles that collapse, close both ends flat.
    _, first, merged = np.unique(signs * 4 + directions, axis=0, return_index=True, return_inverse=True)
    merged = merged.reshape(-1)
    faces = merged[_tube_faces(n, len(up), False)[: -2 * n]]
    corners = merged[np.arange(4) * (k + 1)]
    top = merged[len(signs) - n + np.arange(4) * (k + 1)]
    ends = np.array([corners[[0, 1, 2]], corners[[0, 2, 3]], top[[0, 2, 1]], top[[0, 3, 2]]])
    faces = np.concatenate([faces, ends])
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    return signs[first], directions[first], faces.astype(np.int32)
