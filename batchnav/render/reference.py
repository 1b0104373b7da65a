"""Depth by brute force in float64: every pixel against every triangle. The specification of all renderers."""

from __future__ import annotations

import numpy as np

from batchnav.types import TriangleMesh

NEAR = 0.01
_PIXELS_AT_ONCE = 256


def render_reference(
    mesh: TriangleMesh,
    position: np.ndarray,
    heading: float,
    height: int = 64,
    width: int = 64,
    hfov_deg: float = 90.0,
    backface_culling: bool = False,
    max_depth: float = np.inf,
) -> np.ndarray:
    """Planar depth f64 [H, W] in metres of one camera (position [3], heading in radians); 0 where nothing is hit.

    A triangle is hit where the pixel's ray meets it at a planar depth in [0.01, max_depth); with `backface_culling`
    only from the side on which its corners run counter-clockwise. The nearest hit counts.
    """
    directions = pixel_directions(heading, height, width, hfov_deg).reshape(-1, 3)
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(np.float64) for i in range(3))
    origin = np.asarray(position, np.float64)
    depth = np.concatenate([
        _first_hit(origin, directions[i : i + _PIXELS_AT_ONCE], a, b, c, backface_culling, max_depth)
        for i in range(0, len(directions), _PIXELS_AT_ONCE)
    ])  # fmt: skip
    return depth.reshape(height, width)


def pixel_directions(heading: float, height: int, width: int, hfov_deg: float) -> np.ndarray:
    """f64 [H, W, 3]: rays through pixel centres, row 0 at the top, of forward component 1."""
    half = np.tan(np.radians(hfov_deg) / 2)
    right = (2 * np.arange(width) + 1 - width) / width * half
    up = (height - 1 - 2 * np.arange(height)) / width * half
    forward_axis = np.array([-np.sin(heading), 0.0, -np.cos(heading)])
    right_axis = np.array([np.cos(heading), 0.0, -np.sin(heading)])
    return forward_axis + right[None, :, None] * right_axis + up[:, None, None] * np.array([0.0, 1.0, 0.0])


def _first_hit(origin, directions, a, b, c, backface_culling, max_depth):
    """Moeller and Trumbore (1997), [R] rays against [F] triangles."""
    e, f, s = b - a, c - a, origin - a
    p = np.cross(directions[:, None], f[None])  # [R, F, 3]
    determinant = (p * e).sum(-1)  # > 0: the ray meets the front
    with np.errstate(divide="ignore", invalid="ignore"):
        u = (p * s).sum(-1) / determinant
        q = np.cross(s, e)
        v = (directions @ q.T) / determinant
        t = (q * f).sum(-1) / determinant
    hit = (determinant > 0 if backface_culling else determinant != 0) & (u >= 0) & (v >= 0) & (u + v <= 1)
    t = np.where(hit & (t >= NEAR) & (t < max_depth), t, np.inf).min(axis=1)
    return np.where(np.isfinite(t), t, 0.0)
