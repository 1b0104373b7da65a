"""Axes of mesh files: which one is up, and coordinates far from the origin.

A float32 has steps of a millimetre or less up to `FAR`. A mesh beyond it is recentred: its origin is rounded to whole
metres and subtracted in float64, axis by axis, before vertices become float32.
"""

from __future__ import annotations

import logging
from typing import Literal, get_args

import numpy as np

from batchnav.errors import ArgumentError, MeshError
from batchnav.types import FAR, TriangleMesh

# Axes of mesh files

Up = Literal["auto", "x", "y", "z", "-x", "-y", "-z"]
"""The axis of a mesh file that points up; "auto" is y."""


log = logging.getLogger(__name__)

LARGEST = 1e9
"""Largest coordinate that is recentred, metres; larger ones are no positions on Earth."""
COARSEST = 0.01
"""Largest step of coordinates that a file stores as float32, metres; coarser files are refused."""
NO_ORIGIN = (0.0, 0.0, 0.0)
_ROWS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "y": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "z": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "-y": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    "-z": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "x": ((0, -1, 0), (1, 0, 0), (0, 0, 1)),
    "-x": ((0, 1, 0), (-1, 0, 0), (0, 0, 1)),
}


def rotation_of(up: Up) -> np.ndarray:
    """f64 [3, 3]: rotation that turns the axis `up` of a file to +Y; entries are 0, 1 and -1."""
    return np.array(_ROWS["y" if up == "auto" else up], np.float64)


def check_up(up: str) -> None:
    """ArgumentError for a name that is neither an axis nor "auto"."""
    if up not in get_args(Up):
        raise ArgumentError(f"up: found {up!r}, expected one of {', '.join(get_args(Up))}")


def recentred(
    vertices: np.ndarray, faces: np.ndarray, origin: tuple[float, float, float], name: str
) -> tuple[np.ndarray, tuple[float, float, float]]:
    """Vertices [V, 3] near the origin, and the origin that was subtracted from them.

    An axis is shifted if the median of the used vertices is farther than `FAR` from the origin; a warning is logged.

    Args:
        vertices: float32 or float64, metres.
        faces: i [F, 3], indices of vertices.
        origin: position of the vertices' frame in the file's coordinates, metres.
        name: start of messages.

    Raises MeshError where the file stores such coordinates in steps of more than `COARSEST`.
    """
    with np.errstate(invalid="ignore"):
        if origin == NO_ORIGIN and not (np.abs(vertices) > FAR).any():
            return vertices, origin
    used = vertices[used_vertices(len(vertices), faces)].astype(np.float64)
    used = used[np.isfinite(used).all(1)]
    if not len(used):
        return vertices, origin
    old = np.array(origin)
    middle = np.median(used, axis=0) + old
    is_far = (np.abs(middle) > FAR) & (np.abs(middle) < LARGEST)
    keeps = (old != 0) & (np.abs(middle - old) <= FAR)
    new = np.where(is_far, np.where(keeps, old, np.round(middle)), 0.0)
    if (new == old).all():
        return vertices, origin
    if is_far.any():
        _refuse_coarse(used[:, is_far & ~keeps] + old[is_far & ~keeps], name)
        log.warning(
            "%s: is far from the origin; subtracted (%s) m from its coordinates (`scene.origin`)", name, listed(new)
        )
    return vertices.astype(np.float64) + (old - new), (float(new[0]), float(new[1]), float(new[2]))


def used_vertices(count: int, faces: np.ndarray) -> np.ndarray:
    """Indices i64 of the vertices, of `count`, that faces use, ascending."""
    used = np.zeros(count, np.bool_)
    used[faces.ravel()] = True
    return np.flatnonzero(used)


def with_origin(mesh: TriangleMesh, origin: tuple[float, float, float]) -> TriangleMesh:
    """The mesh moved to the frame of another mesh of the same scene, which has this `origin`, metres."""
    if mesh.origin == origin:
        return mesh
    vertices = mesh.vertices.astype(np.float64) + np.subtract(mesh.origin, origin)
    return mesh._replace(vertices=np.ascontiguousarray(vertices, np.float32), origin=origin)


def listed(point: np.ndarray | tuple[float, ...]) -> str:
    """Coordinates for a message."""
    return ", ".join(f"{value:.12g}" for value in point)


def _refuse_coarse(columns: np.ndarray, name: str) -> None:
    """MeshError where a column f64 [V] holds float32 values with steps that are too coarse.

    Whole numbers with steps below a metre may be exact, so they pass.
    """
    for column in columns.T:
        step = float(np.spacing(np.float32(np.abs(column).max())))
        is_single = (column == column.astype(np.float32)).all()
        if step > COARSEST and is_single and (step >= 1.0 or (column != np.round(column)).any()):
            raise MeshError(
                f"{name}: found coordinates up to {np.abs(column).max():.9g} m in steps of {step:g} m (float32), "
                f"expected {COARSEST:g} m or less: export the mesh nearer to the origin, or in double precision"
            )


# Meshes whose floors are walkable whichever side faces up


def two_sided(mesh: TriangleMesh) -> TriangleMesh:
    """The mesh for baking a navmesh: without its surface, and with every face that looks down reversed."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    edge, other = b - a, c - a
    looks_down = edge[:, 2] * other[:, 0] - edge[:, 0] * other[:, 2] < 0
    faces = np.where(looks_down[:, None], mesh.faces[:, ::-1], mesh.faces)
    return mesh._replace(faces=np.ascontiguousarray(faces), surface=None)
