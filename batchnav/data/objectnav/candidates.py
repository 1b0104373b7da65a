"""Objects of a scene, and the places from which one of them may be visible."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from batchnav.navmesh.navmesh import NavMesh
from batchnav.types import TriangleMesh

_LOWER, _LOWERINGS = 0.05, 39
"""Metres by which a candidate off the navmesh is lowered, and how often. Habitat's generator lowers 40 times and
ignores the last result."""
_FAR_BELOW, _BELOW = 2.0, 0.5
"""Tolerance in height of the first test and of those of lowered candidates, metres."""


class SceneObject(NamedTuple):
    """One object of a scene."""

    object_id: int
    label: str
    """Category in the scene's annotations."""
    low: np.ndarray
    """f64 [3]: lowest corner of the axis-aligned bounding box, metres."""
    high: np.ndarray
    """f64 [3]: highest corner."""
    rectangle: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Rectangle of least area around the object as seen from above: centre f64 [2] (x, z), unit vector of the first
    side f64 [2], half sizes f64 [2]."""

    @property
    def centre(self) -> np.ndarray:
        """f64 [3]: centre of the axis-aligned bounding box, metres."""
        return (self.low + self.high) / 2.0


def objects_of(mesh: TriangleMesh) -> list[SceneObject]:
    """The objects of a mesh with object ids and categories, in the order of their ids; id 0 is no object."""
    surface = mesh.surface
    if surface is None or surface.object_id is None or surface.category is None:
        return []
    order = np.argsort(surface.object_id, kind="stable")
    ids, first = np.unique(surface.object_id[order], return_index=True)
    found = []
    for object_id, faces in zip(ids.tolist(), np.split(order, first[1:]), strict=True):
        if object_id <= 0:
            continue
        labels, counts = np.unique(surface.category[faces], return_counts=True)
        label = surface.categories[labels[counts.argmax()]]
        points = mesh.vertices[np.unique(mesh.faces[faces])].astype(np.float64)
        found.append(SceneObject(object_id, label, points.min(0), points.max(0), least_rectangle(points[:, [0, 2]])))
    return found


def least_rectangle(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rectangle of least area around points f64 [n, 2]: centre, unit vector of the first side, half sizes.

    One side lies on an edge of the convex hull (Freeman and Shapira, CACM 18(7), 1975).
    """
    try:
        hull = points[ConvexHull(points).vertices]
        sides = np.roll(hull, -1, 0) - hull
    except QhullError:  # all points on a line
        hull = np.unique(points, axis=0)[[0, -1]]
        sides = hull[1:] - hull[:1]
    length = np.linalg.norm(sides, axis=1)
    sides = sides[length > 0] / length[length > 0, None] if (length > 0).any() else np.array([[1.0, 0.0]])
    frames = np.stack([sides, np.stack([-sides[:, 1], sides[:, 0]], -1)], 1)  # [k, 2 axes, 2]
    along = np.einsum("kad,nd->kan", frames, hull)
    low, high = along.min(2), along.max(2)
    best = int(np.prod(high - low, 1).argmin())
    return (low[best] + high[best]) / 2.0 @ frames[best], frames[best, 0], (high[best] - low[best]) / 2.0


def grid_around(thing: SceneObject, step: float, max_distance: float) -> np.ndarray:
    """Candidates f64 [n, 3] at the height of the object's centre, within `max_distance` metres of both of its boxes."""
    x, z = (
        np.arange(-(size / 2.0 + max_distance), size / 2.0 + max_distance + 1e-5, step) + centre
        for size, centre in zip((thing.high - thing.low)[[0, 2]], thing.centre[[0, 2]], strict=True)
    )
    points = np.stack(np.meshgrid(x, z, indexing="ij"), -1).reshape(-1, 2)
    low, high = thing.low[[0, 2]], thing.high[[0, 2]]
    to_box = np.maximum(np.maximum(low - points, points - high), 0.0)
    centre, side, half = thing.rectangle
    across = points - centre
    local = np.abs(np.stack([across @ side, across @ np.array([-side[1], side[0]])], -1))
    to_rectangle = np.maximum(local - half, 0.0)
    near = (np.hypot(*to_box.T) <= max_distance) & (np.hypot(*to_rectangle.T) <= max_distance)
    points = points[near]
    return np.insert(points, 1, thing.centre[1], axis=1)


def navigable(navmesh: NavMesh, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Candidates that are above the navmesh, lowered until they are near it: their rows, and the points f64 [m, 3]."""
    points = points.copy()
    found = navmesh.is_navigable(points, _FAR_BELOW)
    waiting = np.flatnonzero(~found)
    for _ in range(_LOWERINGS):
        if not len(waiting):
            break
        points[waiting, 1] -= _LOWER
        now = navmesh.is_navigable(points[waiting], _BELOW)
        found[waiting[now]] = True
        waiting = waiting[~now]
    rows = np.flatnonzero(found)
    return rows, points[rows]
