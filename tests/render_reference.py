"""Reference renderer: brute force in float64, every pixel against every triangle. It specifies all renderers."""

from __future__ import annotations

import numpy as np

from batchnav.types import TriangleMesh

NEAR = 0.01
"""Distance of the near plane, metres."""
_PIXELS_AT_ONCE = 256
"""Pixels whose rays are tested together, which bounds memory."""


def visibility_reference(
    mesh: TriangleMesh,
    position: np.ndarray,
    heading: float,
    height: int = 64,
    width: int = 64,
    hfov_deg: float = 90.0,
    backface_culling: bool = False,
    max_depth: float = np.inf,
    pitch: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Planar depth f64 [H, W] in metres, and the visible face i64 [H, W] of the mesh; 0 and -1 where nothing is hit.

    One camera at `position` [3]; angles are in radians. A ray hits a triangle at a planar depth in [0.01, max_depth);
    with `backface_culling` only from the side where its corners are counter-clockwise. The nearest hit counts; at equal
    depth, the face with the lowest index.
    """
    directions = pixel_directions(heading, height, width, hfov_deg, pitch).reshape(-1, 3)
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(np.float64) for i in range(3))
    origin = np.asarray(position, np.float64)
    hits = [
        _first_hit(origin, directions[i : i + _PIXELS_AT_ONCE], a, b, c, backface_culling, max_depth)
        for i in range(0, len(directions), _PIXELS_AT_ONCE)
    ]
    depth, triangle = (np.concatenate(parts).reshape(height, width) for parts in zip(*hits, strict=True))
    return depth, triangle


def render_reference(*args, **options) -> np.ndarray:
    """The depth of `visibility_reference`, which takes the same arguments."""
    return visibility_reference(*args, **options)[0]


def pixel_directions(
    heading: float, height: int, width: int, hfov_deg: float, pitch: float = 0.0, intrinsics: np.ndarray | None = None
) -> np.ndarray:
    """Ray directions f64 [H, W, 3] through pixel centres with forward component 1; row 0 is at the top.

    A camera matrix [3, 3] replaces the field of view; pixel centres have integer coordinates.
    """
    half = np.tan(np.radians(hfov_deg) / 2)
    right = (2 * np.arange(width) + 1 - width) / width * half
    up = (height - 1 - 2 * np.arange(height)) / width * half
    if intrinsics is not None:
        right = (np.arange(width) - intrinsics[0, 2]) / intrinsics[0, 0]
        up = (intrinsics[1, 2] - np.arange(height)) / intrinsics[1, 1]
    level, vertical = np.array([-np.sin(heading), 0.0, -np.cos(heading)]), np.array([0.0, 1.0, 0.0])
    right_axis = np.array([np.cos(heading), 0.0, -np.sin(heading)])
    forward_axis = np.cos(pitch) * level + np.sin(pitch) * vertical
    up_axis = np.cos(pitch) * vertical - np.sin(pitch) * level
    return forward_axis + right[None, :, None] * right_axis + up[:, None, None] * up_axis


def _first_hit(origin, directions, a, b, c, backface_culling, max_depth):
    """Nearest hits of [R] rays with [F] triangles (Moeller and Trumbore 1997)."""
    e, f, s = b - a, c - a, origin - a
    p = np.cross(directions[:, None], f[None])  # [R, F, 3]
    determinant = (p * e).sum(-1)  # > 0: the ray hits the front
    with np.errstate(divide="ignore", invalid="ignore"):
        u = (p * s).sum(-1) / determinant
        q = np.cross(s, e)
        v = (directions @ q.T) / determinant
        t = (q * f).sum(-1) / determinant
    hit = (determinant > 0 if backface_culling else determinant != 0) & (u >= 0) & (v >= 0) & (u + v <= 1)
    t = np.where(hit & (t >= NEAR) & (t < max_depth), t, np.inf)
    triangle, t = t.argmin(axis=1), t.min(axis=1)
    return np.where(np.isfinite(t), t, 0.0), np.where(np.isfinite(t), triangle, -1)
