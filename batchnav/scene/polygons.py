"""Triangulation of polygons with any number of corners."""

from __future__ import annotations

import mapbox_earcut
import numpy as np

from batchnav.errors import MeshError

MOST_CORNERS = 4096
"""Largest number of corners of a polygon; the time for triangulation is quadratic in it."""
_STRAIGHT = 1e-9
"""Tolerance relative to a polygon's area; a corner that turns back by less counts as straight."""


def triangulate(vertices: np.ndarray, corners: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Triangles i64 [F, 3] of polygons, with the same front: fans for convex polygons, ear clipping for concave ones.

    Args:
        vertices: f64 [V, 3].
        corners: i64 [C], vertices of all polygons in sequence.
        counts: i64 [P], number of corners of each polygon; polygons with fewer than three are skipped.

    mapbox_earcut triangulates concave polygons, projected along their normal; if it finds no ear, a fan is used.
    MeshError where a polygon has more than MOST_CORNERS corners.
    """
    if len(counts) and counts.max() > MOST_CORNERS:
        raise MeshError(f"has a polygon of {counts.max()} corners, expected at most {MOST_CORNERS}")
    first = np.cumsum(counts) - counts
    parts = [np.empty((0, 3), np.int64)]
    for number in np.unique(counts[counts >= 3]):
        polygons = corners[first[counts == number][:, None] + np.arange(number)]
        if number == 3:
            parts.append(polygons)
            continue
        normal, concave = _normals(vertices[polygons])
        parts.append(_fans(polygons[~concave]))
        parts += [_ears(vertices, polygon, n) for polygon, n in zip(polygons[concave], normal[concave], strict=True)]
    return np.concatenate(parts)


def _normals(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newell normals f64 [P, 3] (length: twice the area) of polygons f64 [P, n, 3]; bool [P], True for concave ones."""
    edge = np.roll(points, -1, axis=1) - points
    normal = np.cross(points - points[:, :1], np.roll(points, -1, axis=1) - points[:, :1]).sum(1)
    turn = (np.cross(np.roll(edge, 1, axis=1), edge) * normal[:, None]).sum(2)
    return normal, (turn < -_STRAIGHT * (normal * normal).sum(1)[:, None]).any(1)


def _fans(polygons: np.ndarray) -> np.ndarray:
    """Triangles i64 [P * (n - 2), 3] of polygons i64 [P, n]."""
    middle, last = polygons[:, 1:-1], polygons[:, 2:]
    return np.stack([np.broadcast_to(polygons[:, :1], middle.shape), middle, last], axis=2).reshape(-1, 3)


def _ears(vertices: np.ndarray, polygon: np.ndarray, normal: np.ndarray) -> np.ndarray:
    across = [axis for axis in range(3) if axis != np.argmax(np.abs(normal))]
    flat = np.ascontiguousarray(vertices[polygon][:, across])
    found = mapbox_earcut.triangulate_float64(flat, np.array([len(polygon)], np.uint32)).reshape(-1, 3)
    if not len(found):
        return _fans(polygon[None])
    triangles = polygon[found.astype(np.int64)]
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    back = (np.cross(b - a, c - a) * normal).sum(1) < 0
    triangles[back] = triangles[back][:, ::-1]
    return triangles
