"""Checks of loaded meshes and navmeshes: unit, up axis, winding, and whether a navmesh file fits its mesh."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from batchnav.data.sources.rays import first_hits
from batchnav.errors import NavMeshError
from batchnav.scene.frames import NO_ORIGIN, listed
from batchnav.scene.scene import Scene
from batchnav.types import TriangleMesh

LARGEST, SMALLEST = 300.0, 1.0
"""Range of a building's longest side, metres; outside it the unit is probably not metres."""
EDGE = 1.0
"""Distance by which a navmesh may exceed its mesh, metres: baked navmeshes have a border, and headroom above."""
_UNITS = ((0.001, "millimetres"), (0.01, "centimetres"), (1000.0, "kilometres"))
"""Factors to metres, with the units' names."""
_USUAL = 2.0, 100.0
"""Range of a building's longest side for a suggestion of its unit, metres."""
_FACING = 0.9
"""Smallest cosine between a triangle's normal and an axis for a triangle that faces along the axis."""
_LEVEL = 0.98
"""Smallest cosine between a level triangle's normal and the vertical."""
_MANY, _SAMPLES, _PER_CELL = 200_000, 2**15, 6
"""About the largest number of triangles checked; points sampled on the level ones; mean number of points per cell."""
_ROOM = 1.8
"""Smallest height between two level surfaces that counts as a room, metres."""
_WRONG, _ENCLOSING = 2.0, 0.5
"""Ratio of surfaces that face the wrong way to others, and share of the footprint that is enclosed, above which a
warning is given."""
_PROBES, _REACH = 512, 3.0
"""Number of points on a navmesh that are compared with the mesh, and length of the step from each, metres."""
_KNEE, _BODY = 0.5, 0.75
"""Heights above the navmesh of rays that look down, and of rays along a step, metres."""
_ON_FLOOR, _THROUGH = 0.5, 0.05
"""Smallest share of points with a floor below, and largest share of steps through surfaces, for a fitting navmesh."""


def mesh_warnings(mesh: TriangleMesh, name: str) -> Iterator[str]:
    """Warnings about the up axis and the winding of a mesh; `name` begins them."""
    if sideways := list(_check_up(mesh, name)):  # then it is unknown which faces look up
        yield from sideways
    else:
        yield from _check_winding(mesh, name)


def unit_warning(mesh: TriangleMesh, name: str) -> str:
    """A warning about a mesh that is too large or small for a building in metres; empty for others."""
    size = float(np.ptp(mesh.vertices[np.unique(mesh.faces)], axis=0).max())
    if SMALLEST <= size <= LARGEST:
        return ""
    hints = [
        f"; in {unit}, import it with `--scale {factor:g}`"
        for factor, unit in _UNITS
        if _USUAL[0] <= size * factor <= _USUAL[1]
    ]
    text = f"{name}: is {size:.3g} m long, expected {SMALLEST:g} to {LARGEST:g}: is it in metres?"
    return text + (hints[0][1:] if hints else "")


def origin_warning(mesh: TriangleMesh, name: str) -> str:
    """A warning that a mesh was recentred; empty for others."""
    if mesh.origin == NO_ORIGIN:
        return ""
    return (
        f"{name}: is far from the origin; loading subtracts ({listed(mesh.origin)}) m (`scene.origin`), "
        "and shifts its navmesh and episodes with it"
    )


def _check_up(mesh: TriangleMesh, name: str) -> Iterator[str]:
    """A warning where the wrong axis is up: the mesh is taller than wide, and most of its area faces sideways."""
    extent = np.ptp(mesh.vertices[np.unique(mesh.faces)], axis=0)
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    normal = np.abs(np.cross(b - a, c - a))
    facing = normal * (normal > _FACING * np.linalg.norm(normal, axis=1, keepdims=True))
    along = facing.sum(0) / 2
    if extent[1] > min(extent[0], extent[2]) and along[1] < max(along[0], along[2]):
        yield (
            f"{name}: is {extent[0]:.3g} x {extent[2]:.3g} m wide and {extent[1]:.3g} m tall, and "
            f"{along[1]:.3g} m² of it face up or down, {max(along[0], along[2]):.3g} m² one side: is +Y up? "
            "`batchnav data import --up AXIS` and `load_scene(up=...)` turn it"
        )


def _check_winding(mesh: TriangleMesh, name: str) -> Iterator[str]:
    """A warning where most level area faces down, or where faces enclose space but look outwards."""
    faces = mesh.faces[:: max(len(mesh.faces) // _MANY, 1)]
    corners = mesh.vertices[faces].astype(np.float64)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normal, axis=1)
    level = np.abs(normal[:, 1]) > _LEVEL * length
    area, is_up = length[level] / 2 * (len(mesh.faces) / len(faces)), normal[level, 1] > 0
    if not level.any():
        return
    up, down = area[is_up].sum(), area[~is_up].sum()
    what_to_do = "reverse it with `--flip` (`load_scene(flip=True)`), or make both sides walkable with `--two-sided`"
    if down > _WRONG * up:
        yield (
            f"{name}: {down:.3g} m² of its level area face down, {up:.3g} m² up: "
            f"are its faces the wrong way round? {what_to_do}"
        )
        return
    rooms, solids, footprint = _columns(corners[level], area, is_up)
    if solids > _WRONG * rooms and solids > _ENCLOSING * footprint:
        yield (
            f"{name}: its faces look outwards from {solids:.3g} m² of enclosed space, on top of which agents walk: "
            f"is it a room seen from outside? {what_to_do}"
        )


def _columns(corners: np.ndarray, area: np.ndarray, is_up: np.ndarray) -> tuple[float, float, float]:
    """Areas seen from above, square metres: of rooms, of solids, and of all level surfaces.

    A room is space between two level surfaces that face each other; a solid is space that both face away from.

    Args:
        corners: f64 [F, 3, 3], level triangles.
        area: f64 [F], square metres.
        is_up: bool [F].
    """
    rng = np.random.default_rng(0)
    chosen = np.searchsorted(np.cumsum(area), rng.random(_SAMPLES) * area.sum()).clip(max=len(area) - 1)
    points = _points_in(corners[chosen], rng)
    side = np.sqrt(area.sum() * _PER_CELL / _SAMPLES)
    cell = np.floor((points[:, [0, 2]] - points[:, [0, 2]].min(0)) / side).astype(np.int64)
    column = cell[:, 0] * (cell[:, 1].max() + 1) + cell[:, 1]
    order = np.lexsort((points[:, 1], column))
    column, height, faces_up = column[order], points[order, 1], is_up[chosen][order]
    space = (column[1:] == column[:-1]) & (np.diff(height) >= _ROOM)
    rooms, solids = (np.unique(column[1:][space & (faces_up[:-1] == below) & (faces_up[1:] != below)]) for below in
                     (True, False))  # fmt: skip
    return len(rooms) * side**2, len(solids) * side**2, len(np.unique(column)) * side**2


def _points_in(corners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random point f64 [N, 3] in each triangle [N, 3, 3]."""
    u, v = rng.random((2, len(corners), 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    return corners[:, 0] + u * (corners[:, 1] - corners[:, 0]) + v * (corners[:, 2] - corners[:, 0])


def navmesh_outside(bounds: np.ndarray, mesh: TriangleMesh, name: str) -> str:
    """Error message where a navmesh exceeds its mesh; empty for others. `bounds`: f32 [2, 3], metres."""
    used = mesh.vertices[np.unique(mesh.faces)]
    walls = np.stack([used.min(0), used.max(0)])
    # A navmesh covers floors only, so only an extent beyond the mesh is suspicious.
    if (bounds[0] < walls[0] - EDGE).any() or (bounds[1] > walls[1] + np.array([EDGE, 2 * EDGE, EDGE])).any():
        spans = f"the navmesh spans {_box(bounds)}, the mesh {_box(walls)}"
        return f"{name}: {spans}: are they of one scene, and is the same axis up?"
    return ""


def check_fit(scene: Scene, name: str) -> list[str]:
    """Warnings about a navmesh file that does not fit the scene's mesh well; `name` begins them.

    Compares the bounds, the heights of random points with the floor below them, and random steps with the surfaces that
    they cross. NavMeshError where the navmesh exceeds the mesh, or has no floor below most of its points.
    """
    bake = "delete it, or bake another with `batchnav navmesh bake`"
    if problem := navmesh_outside(scene.navmesh.bounds, scene.mesh, name):
        raise NavMeshError(f"{problem} If not, {bake}")
    if not scene.navmesh.num_islands:
        return []
    points = scene.navmesh.sample(_PROBES)
    knee = points + np.array([0.0, _KNEE, 0.0], np.float32)
    below = first_hits(scene, knee, np.tile(np.array([0.0, -1.0, 0.0], np.float32), (_PROBES, 1)))
    on_floor = float((below <= 2 * _KNEE).mean())
    if on_floor < _ON_FLOOR:
        raise NavMeshError(
            f"{name}: found a floor of the mesh within {_KNEE:g} m of {on_floor:.0%} of the navmesh, expected "
            f"{_ON_FLOOR:.0%} or more: it belongs to another scene; {bake}"
        )
    heading = np.arange(_PROBES) * 2.4  # radians; about the golden angle, so that directions are even
    reach = (_REACH * np.stack([np.sin(heading), np.zeros(_PROBES), np.cos(heading)], axis=1)).astype(np.float32)
    steps = scene.navmesh.try_step(points, points + reach, sliding=False) - points
    length = np.linalg.norm(steps, axis=1)
    walks = length > _BODY / 2
    if not walks.any():
        return []
    body = points[walks] + np.array([0.0, _BODY, 0.0], np.float32)
    ahead = first_hits(scene, body, steps[walks] / length[walks, None])
    through = float((ahead < length[walks]).mean())
    if through <= _THROUGH:
        return []
    return [
        f"{name}: {through:.0%} of short steps on the navmesh go through surfaces of the mesh, expected at most "
        f"{_THROUGH:.0%}: are they of one scene? If not, {bake}"
    ]


def _box(bounds: np.ndarray) -> str:
    return " to ".join(str([round(float(v), 2) for v in corner]) for corner in bounds)
