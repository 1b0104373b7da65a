"""Random lights of a procedural scene, baked into the colours of its surfaces (scene ids with "?lights=random").

A scene has ambient light and lamps of random places, strengths and colours, which fade with distance and light the
faces that are turned to them; nothing casts shadows. Large triangles get vertex colours. Small ones get another of the
`LIGHT_STEPS` of their finish, which takes no memory of its own; so do their randomised materials.
"""

from __future__ import annotations

import numpy as np

from batchnav.procedural.materials.finishes import name_of
from batchnav.procedural.random_stream import RandomStream
from batchnav.types import LIGHT_STEPS, Material, Surface, TriangleMesh

_LIGHTS = 0x116475
"""First part of the seeds of lights: their random numbers are independent of all others."""
UNLIT = ("pane", "lamp", "shade")
"""Materials that shine themselves."""
LARGE = 0.02
"""Area from which on a triangle has vertex colours, square metres."""
_FLOOR_PER_LAMP = 4.0
"""Floor per lamp, square metres, at least."""
_MOST_LAMPS = 80
_FADED = 4.0
"""Distance from a lamp at which it no longer counts, multiples of its reach."""


def with_lights(mesh: TriangleMesh, seed: int) -> TriangleMesh:
    """The mesh under the random lights of a seed. Meshes without finishes do not change."""
    surface = mesh.surface
    if surface is None or surface.finish is None:
        return mesh
    corners = mesh.vertices[mesh.faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.maximum(np.linalg.norm(normal, axis=1), 1e-20)
    normal /= length[:, None]
    lamps = _Lamps(RandomStream((_LIGHTS, seed)), mesh.vertices.min(0), mesh.vertices.max(0))
    kind = surface.finish[surface.material, 1]
    unlit = np.isin(kind, [k for k in np.unique(kind).tolist() if k >= 0 and name_of(k) in UNLIT])
    tinted = ((length / 2 >= LARGE) | (kind < 0)) & ~unlit
    color = np.full((len(corners), 3, 4), 255, np.uint8) if surface.color is None else surface.color.copy()
    for k in range(3):
        light = lamps.at(corners[tinted, k], normal[tinted])
        color[tinted, k, :3] = np.round(color[tinted, k, :3] * light)
    small = np.flatnonzero(~tinted & ~unlit)
    level = lamps.at(corners[small].mean(1), normal[small]).mean(1)
    return mesh._replace(surface=_darkened(surface._replace(color=color), small, level))


class _Lamps:
    """Lights of a scene with these bounds: ambient light and lamps."""

    def __init__(self, rng: RandomStream, low: np.ndarray, high: np.ndarray):
        area = float((high[0] - low[0]) * (high[2] - low[2]))
        count = rng.integer(2, 4 + min(int(area / _FLOOR_PER_LAMP), _MOST_LAMPS))
        height = np.where(rng.array(0.0, 1.0, count) < 0.7, high[1] - 0.25, rng.array(0.5, 1.8, count))
        share = rng.array(0.0, 1.0, 2, count)
        x, z = low[0] + share[0] * (high[0] - low[0]), low[2] + share[1] * (high[2] - low[2])
        self.places = np.column_stack([x, height, z]).astype(np.float32)
        self.reach = rng.array(1.0, 4.0, count).astype(np.float32)
        self.colors = (rng.array(0.3, 1.2, count)[:, None] * _tints(rng, count)).astype(np.float32)
        self.ambient = (rng.uniform(0.3, 0.8) * _tints(rng, 1)[0]).astype(np.float32)

    def at(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """f32 [P, 3]: light of each channel at points with unit normals, f32 [P, 3], at most 1."""
        total = np.broadcast_to(self.ambient, points.shape).copy()
        for place, reach, color in zip(self.places, self.reach, self.colors, strict=True):
            near = np.flatnonzero(np.abs(points[:, 0] - place[0]) + np.abs(points[:, 2] - place[2]) < _FADED * reach)
            to = place - points[near]
            square = np.einsum("pk,pk->p", to, to)
            facing = np.maximum(np.einsum("pk,pk->p", to, normals[near]), 0.0) / np.sqrt(np.maximum(square, 1e-6))
            total[near] += (facing * (reach**2 / (reach**2 + square)))[:, None] * color
        return np.minimum(total, 1.0)


def _tints(rng: RandomStream, count: int) -> np.ndarray:
    """Colours of lamps f64 [count, 3] from warm to cool; the largest channel is 1."""
    warm = rng.array(-0.25, 0.45, count)
    tints = np.column_stack([1.0 + 0.5 * np.minimum(warm, 0.0), 1.0 - 0.35 * np.abs(warm), 1.0 - np.maximum(warm, 0.0)])
    return tints / tints.max(1, keepdims=True)


def _darkened(surface: Surface, small: np.ndarray, light: np.ndarray) -> Surface:
    """The surface with other light steps of the triangles `small`, f32 [S] in 0..1 of their present ones."""
    assert surface.finish is not None
    old = surface.material[small].astype(np.int64)
    steps = surface.finish[old, 2].astype(np.int64)
    pairs, inverse = np.unique(
        old * (LIGHT_STEPS + 1) + np.maximum(np.round(light * steps).astype(np.int64), np.minimum(steps, 1)),
        return_inverse=True,
    )
    rows, level = np.divmod(pairs, LIGHT_STEPS + 1)
    finish = surface.finish[rows]
    share = level / np.maximum(finish[:, 2], 1)
    finish[:, 2] = level
    material = surface.material.copy()
    material[small] = len(surface.materials) + inverse.reshape(-1)
    added = [_scaled(surface.materials[row], by) for row, by in zip(rows.tolist(), share.tolist(), strict=True)]
    return surface._replace(
        material=material, materials=(*surface.materials, *added), finish=np.concatenate([surface.finish, finish])
    )


def _scaled(material: Material, by: float) -> Material:
    red, green, blue, alpha = material.color
    return material._replace(color=(round(by * red, 4), round(by * green, 4), round(by * blue, 4), alpha))
