"""Checks of a mesh's orientation: the axis that points up, and the winding of its triangles.

Objects rest on something: in a mesh of separate objects, the axis along which most of them do points up, whatever the
shape of the room. In meshes without separate objects (scans), level triangles show it: in an upright room, the floor
faces up, the ceiling faces down, and furniture stands on the floor; in a room that is upside down, furniture hangs from
the ceiling, below head height. A storey on its side is as wide as a storey is high. Floor and ceiling look away from a
room with reversed windings. Where signs disagree, no axis is named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from batchnav.data.scenes.asset import FileAxes, axis_of
from batchnav.scene.axes import Up, rotation_of
from batchnav.types import TriangleMesh

_AXES: tuple[Up, ...] = ("y", "-y", "x", "-x", "z", "-z")
_FACING = 0.9
"""Smallest cosine between a triangle's normal and an axis for a triangle that faces along the axis."""
_LAYER, _MAX_LAYERS = 0.1, 10_000
"""Half of the thickness of a layer of triangles that counts as one surface, metres; largest number of layers."""
_LEVEL = 0.98
"""Smallest cosine between a level triangle's normal and the vertical."""
_SAMPLES, _PER_CELL = 2**16, 6
"""Points sampled on level triangles; their mean number per cell on one surface."""
_ROOM = 1.8
"""Smallest height between two level surfaces that counts as a room, metres."""
_WRONG, _ENCLOSING = 2.0, 0.5
"""Ratio of surfaces that face the wrong way to others, and share of the footprint that is enclosed, above which a
warning is given."""
_GAP, _HEAD = 0.9, 2.0
"""Heights of the free spaces in which things stand or hang, metres: above table tops, but not below tables; and below
the heads of doors, since building codes ask for more."""
_THING, _STOREY = 0.3, 1.5
"""Height of the lowest thing, and smallest distance between two floors, or two ceilings, metres."""
_MORE, _HANGING, _INDOORS = 1.5, 0.08, 0.25
"""In rooms that are upside down: smallest ratio of hanging things to standing ones, smallest share of free spaces with
hanging things, and smallest share of the footprint with free spaces."""

_MOST_FACES, _MOST_OBJECTS, _FEWEST_OBJECTS = 400_000, 200, 4
"""Largest number of triangles of a mesh whose objects are looked for, and numbers of objects that are compared."""
_SMALLEST, _LARGEST, _TOUCH, _SPANS = 0.1, 4.0, 0.015, 0.8
"""Range of an object's longest side, and largest gap between an object and the surface that it rests on, metres; share
of the mesh's extent that an object does not span along two axes."""
_RESTS, _CLEARER, _CLEAR_OF_FEW = 0.5, 0.2, 0.65
"""Smallest share of objects that rest on something along the axis that points up, and by how much it is larger than
along other axes, also with fewer objects than `_FEWEST_OBJECTS`."""
_STOREY_HEIGHT, _TALL = (2.0, 4.5), 4.0
"""Range of the height of a storey, and height above which a mesh as narrow as that may lie on its side, metres."""


class _Columns(NamedTuple):
    """Spaces between level surfaces: areas seen from above, square metres, and shares of the free spaces."""

    footprint: float
    """Area of all level surfaces."""
    rooms: float
    """Area of spaces of height `_ROOM` between two surfaces that face each other."""
    solids: float
    """Area of spaces of height `_ROOM` that both surfaces face away from."""
    free: float
    """Area of free spaces: of height `_GAP`, between two surfaces that face each other."""
    standing: float
    """Share of the free spaces that begin above the floor, on a thing."""
    hanging: float
    """Share of the free spaces that end below the ceiling and below head height, under a thing."""


@dataclass(frozen=True)
class _Level:
    """The level triangles of a mesh."""

    corners: np.ndarray
    """f64 [F, 3, 3], metres."""
    area: np.ndarray
    """f64 [F], square metres."""
    is_up: np.ndarray
    """bool [F]: the triangle faces up."""

    @classmethod
    def of(cls, corners: np.ndarray, normal: np.ndarray) -> _Level:
        """Those of all triangles: corners [F, 3, 3], metres; normals f64 [F, 3], twice as long as the area."""
        length = np.linalg.norm(normal, axis=1)
        level = np.abs(normal[:, 1]) > _LEVEL * length
        return cls(corners[level].astype(np.float64), length[level] / 2, normal[level, 1] > 0)

    @property
    def faces_down(self) -> bool:
        """True where most of the area faces down."""
        return bool(self.area[~self.is_up].sum() > _WRONG * self.area[self.is_up].sum())

    @functools.cached_property
    def columns(self) -> _Columns:
        """Spaces between the triangles, from points sampled on them in columns of equal area."""
        rng, area = np.random.default_rng(0), self.area
        chosen = np.searchsorted(np.cumsum(area), rng.random(_SAMPLES) * area.sum()).clip(max=len(area) - 1)
        points = _points_in(self.corners[chosen], rng)
        side = np.sqrt(area.sum() * _PER_CELL / _SAMPLES)
        cell = np.floor((points[:, [0, 2]] - points[:, [0, 2]].min(0)) / side).astype(np.int64)
        column = cell[:, 0] * (cell[:, 1].max() + 1) + cell[:, 1]
        order = np.lexsort((points[:, 1], column))
        column, height, faces_up = column[order], points[order, 1], self.is_up[chosen][order]
        is_one, depth = column[1:] == column[:-1], np.diff(height)
        room, solid = (is_one & (faces_up[:-1] == up) & (faces_up[1:] != up) for up in (True, False))
        free = room & (depth >= _GAP)
        spaces = room & (depth >= _ROOM), solid & (depth >= _ROOM), free
        rooms, solids, spacious = (len(np.unique(column[1:][space])) * side**2 for space in spaces)
        standing, hanging = _things(height[:-1][free], height[1:][free])
        return _Columns(len(np.unique(column)) * side**2, rooms, solids, spacious, standing, hanging)


def mesh_warnings(mesh: TriangleMesh, name: str, frame: FileAxes | None = None) -> Iterator[str]:
    """A warning about the up axis or the winding of a mesh, if it looks wrong.

    Args:
        mesh: the mesh, +Y up.
        name: start of the warning.
        frame: frame of the mesh file, which tells the axis of the file that points up; None for unknown.
    """
    corners, normal, level = _triangles(mesh)
    up, fact = _problem(mesh, corners, normal, level)
    if not fact:
        yield from _check_winding(level, name)
        return
    axis = "" if frame is None or up is None else _axis_in_file(up, frame)
    option, value = (axis, repr(axis)) if axis else ("AXIS", "...")
    yield f"{name}: {fact}: is +Y up? `batchnav data import --up {option}` and `load_scene(up={value})` turn it"


def orientation_problem(mesh: TriangleMesh) -> str:
    """Why +Y does not seem to point up in a mesh; empty where it may."""
    return _problem(mesh, *_triangles(mesh))[1]


def _triangles(mesh: TriangleMesh) -> tuple[np.ndarray, np.ndarray, _Level]:
    """Corners f32 [F, 3, 3], metres, normals f64 [F, 3], twice as long as the area, and the level triangles."""
    corners = mesh.vertices[mesh.faces]
    a, b, c = (corners[:, k].astype(np.float64) for k in range(3))
    normal = np.cross(b - a, c - a)
    return corners, normal, _Level.of(corners, normal)


def _problem(mesh: TriangleMesh, corners: np.ndarray, normal: np.ndarray, level: _Level) -> tuple[Up | None, str]:
    """The axis that seems to point up, None where several may, and why it is not +Y; "" where it may be."""
    found = _by_objects(mesh, corners, normal)  # on a side it is unknown which faces look up
    if found is None:
        found = _sideways(corners, normal) or ("-y", _upside_down(corners, level))
    return found


def _by_objects(mesh: TriangleMesh, corners: np.ndarray, normal: np.ndarray) -> tuple[Up | None, str] | None:
    """The axis along which objects rest on others, and why; "" as reason for +Y; None where they do not show it.

    The axis is None where several are as likely.
    """
    objects = _objects_of(mesh)
    if len(objects) < 2:
        return None
    rests = {up: _resting(_turned(corners, up), _turned(normal, up), objects) for up in _AXES}
    first, second = sorted(rests, key=rests.__getitem__, reverse=True)[:2]
    share, best = rests["y"], rests[first]
    is_few = len(objects) < _FEWEST_OBJECTS
    if best < _RESTS:
        return None
    if share >= best - _CLEARER or (is_few and share > best - _CLEAR_OF_FEW):
        return "y", ""
    fact = f"{share:.0%} of its {len(objects)} objects rest on a surface below them"
    if rests[second] > best - _CLEARER or is_few:
        return None, f"{fact}, {best:.0%} if another axis points up"
    return first, f"{fact}, {best:.0%} if it is turned"


def _turned(vectors: np.ndarray, up: Up) -> np.ndarray:
    """Vectors f64 [..., 3], turned so that an axis points up; one product of matrices for all of them."""
    return (vectors.reshape(-1, 3) @ rotation_of(up).T).reshape(vectors.shape)


def _objects_of(mesh: TriangleMesh) -> list[np.ndarray]:
    """Triangles i64 [K] of connected parts of the mesh, of an object's size; at most `_MOST_OBJECTS` of them."""
    if len(mesh.faces) > _MOST_FACES:
        return []
    _, place = np.unique(mesh.vertices, axis=0, return_inverse=True)
    faces = place.reshape(-1)[mesh.faces]
    ends = faces[:, [0, 0]].ravel(), faces[:, [1, 2]].ravel()
    links = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(len(mesh.vertices),) * 2)
    part = connected_components(links, directed=False)[1][faces[:, 0]]
    order = np.argsort(part, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(part[order])) + 1)
    extents = [np.ptp(mesh.vertices[mesh.faces[each]], axis=(0, 1)) for each in parts]
    spanned = _SPANS * np.ptp(mesh.vertices[mesh.faces], axis=(0, 1))  # walls and floors span the mesh along two axes
    sized = [
        each
        for each, extent in zip(parts, extents, strict=True)
        if _SMALLEST < extent.max() < _LARGEST and (extent > spanned).sum() < 2
    ]
    return sized[:: -(-len(sized) // _MOST_OBJECTS)] if sized else []


def _resting(corners: np.ndarray, normal: np.ndarray, objects: list[np.ndarray]) -> float:
    """Share of objects that touch a level triangle of another one below them.

    Args:
        corners: [F, 3, 3], metres, +Y up.
        normal: f64 [F, 3].
        objects: triangles of each object.
    """
    level = np.flatnonzero(np.abs(normal[:, 1]) > _LEVEL * np.linalg.norm(normal, axis=1))
    height = corners[level][:, :, 1].mean(1)
    order = np.argsort(height)
    level, height = level[order], height[order]
    low, high = corners[level][:, :, [0, 2]].min(1), corners[level][:, :, [0, 2]].max(1)
    count = 0
    for triangles in objects:
        own = corners[triangles].reshape(-1, 3)
        begin, end = np.searchsorted(height, own[:, 1].min() + np.array([-_TOUCH, _TOUCH]))
        middle = (own.min(0) + own.max(0))[[0, 2]] / 2
        below = (low[begin:end] < middle).all(1) & (high[begin:end] > middle).all(1)
        count += bool(np.isin(level[begin:end][below], triangles, invert=True).any())
    return count / len(objects)


def _axis_in_file(up: Up, frame: FileAxes) -> str:
    """The axis of a mesh file that is the axis `up` of the loaded mesh; "" for none of the six."""
    x, y, z = np.round(frame.rotation.T @ rotation_of(up)[1], 6).tolist()
    return axis_of(FileAxes((x, y, z)))


def _sideways(corners: np.ndarray, normal: np.ndarray) -> tuple[Up | None, str] | None:
    """The axis that points up, and why, if it is horizontal: a tall mesh as narrow as a storey is high.

    The axis is None where the mesh is narrow along both horizontal axes, or no furniture stands.
    """
    extent, length = np.ptp(corners.reshape(-1, 3), axis=0), np.linalg.norm(normal, axis=1)
    area = [
        _surface(corners[faces, :, axis].mean(1), length[faces] / 2)
        for axis, faces in enumerate((np.abs(normal) > _FACING * length[:, None]).T)
    ]
    narrow, (low, high) = min(extent[0], extent[2]), _STOREY_HEIGHT
    if not low <= narrow <= high or extent[1] < max(_TALL, 1.3 * narrow) or area[1] >= max(area[0], area[2]):
        return None
    axes: tuple[Up, Up] = ("x", "-x") if area[0] > area[2] else ("z", "-z")
    upright = _turned(corners, axes[0])
    level = _Level.of(upright, _turned(normal, axes[0]))
    up: Up | None = axes[bool(_upside_down(upright, level))]
    if max(extent[0], extent[2]) < _TALL or max(level.columns.standing, level.columns.hanging) < _HANGING:
        up = None
    size = f"{extent[0]:.3g} x {extent[2]:.3g} m wide and {extent[1]:.3g} m tall"
    return up, f"is {size}, and its largest surfaces face sideways"


def _surface(place: np.ndarray, area: np.ndarray) -> float:
    """Area that faces along an axis, square metres; a floor without a ceiling counts as two surfaces.

    Args:
        place: f64 [F], positions of triangles along the axis, metres.
        area: f64 [F], their areas.
    """
    if not len(area):
        return 0.0
    layers = np.bincount(((place - place.min()) / max(_LAYER, np.ptp(place) / _MAX_LAYERS)).astype(np.int64), area)
    return float(max(area.sum(), 2 * (layers + np.append(layers[1:], 0.0)).max()))


def _upside_down(corners: np.ndarray, level: _Level) -> str:
    """Why a mesh seems to be upside down; empty for others.

    Furnished rooms show it by things that hang, rooms without a ceiling by walls below a floor that faces down.
    """
    if not len(level.area):
        return ""
    if level.faces_down:
        floor = _median(level.corners[~level.is_up].mean(1)[:, 1], level.area[~level.is_up])
        height = corners[:, :, 1]
        above, below = float(height.max()) - floor, floor - float(height.min())
        return f"its floor, at y = {floor:.2f} m, faces down to its walls" if below > _ROOM > 2 * above else ""
    columns = level.columns
    if columns.free < _INDOORS * columns.footprint or columns.hanging < max(_MORE * columns.standing, _HANGING):
        return ""
    return (
        f"furniture hangs from the ceiling above {columns.hanging:.0%} of its floor, below head height, and stands on "
        f"{columns.standing:.0%} of it"
    )


def _check_winding(level: _Level, name: str) -> Iterator[str]:
    """A warning where most level area faces down, or where faces enclose space but look outwards."""
    if not len(level.area):
        return
    what_to_do = "reverse it with `--flip` (`load_scene(flip=True)`), or make both sides walkable with `--two-sided`"
    if level.faces_down:
        up, down = level.area[level.is_up].sum(), level.area[~level.is_up].sum()
        yield (
            f"{name}: {down:.3g} m² of its level area face down, {up:.3g} m² up: "
            f"are its faces the wrong way round? {what_to_do}"
        )
        return
    columns = level.columns
    if columns.solids > max(_WRONG * columns.rooms, _ENCLOSING * columns.footprint):
        yield (
            f"{name}: its faces look outwards from {columns.solids:.3g} m² of enclosed space, on top of which agents "
            f"walk: is it a room seen from outside? {what_to_do}"
        )


def _things(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Shares of free spaces with a thing that stands on the floor, and with one that hangs below head height.

    Args:
        low: f64 [N], lower ends of the spaces, metres.
        high: f64 [N], upper ends.
    """
    if not len(low):
        return 0.0, 0.0
    stands, hangs = ((height > _THING) & (height < _STOREY) for height in (_above_floor(low), _above_floor(-high)))
    return float(stands.mean()), float((hangs & (high - low < _HEAD)).mean())


def _above_floor(heights: np.ndarray) -> np.ndarray:
    """Heights above the floors, f64 [N]; floors are the heights that most of `heights` have, `_STOREY` apart."""
    left, above = np.sort(heights), np.full(len(heights), np.inf)
    while len(left) > 0.1 * len(heights):
        count = np.searchsorted(left, left + _THING / 3) - np.arange(len(left))
        floor = np.median(left[count.argmax() :][: count.max()])
        above = np.minimum(above, np.where(heights > floor - _THING / 2, heights - floor, np.inf))
        left = left[np.abs(left - floor) > _STOREY]
    return above


def _points_in(corners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random point f64 [N, 3] in each triangle [N, 3, 3]."""
    u, v = rng.random((2, len(corners), 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    return corners[:, 0] + u * (corners[:, 1] - corners[:, 0]) + v * (corners[:, 2] - corners[:, 0])


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    """The weighted median."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])
