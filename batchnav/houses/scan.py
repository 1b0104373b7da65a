"""Houses as a scanner would bring them home: torn surfaces, missing ceilings, noise, pieces that float.

Scanned meshes have holes where glass, mirrors, black or far surfaces gave no depth (Matterport3D: Chang et al., 3DV
2017, section 3; Gibson's database says how much each scene lacks). An agent that only knows closed houses takes a hole,
which Habitat's depth reads as 0, for a wall at its nose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from batchnav.types import Material, Surface, TriangleMesh

_SCAN = 0x5CA9
"""Begins the seeds of tearing, so that its draws are not those of the house."""
LARGEST_EDGE = 0.12
"""Metres: so finely are triangles cut at the border of a hole."""
MOST_HOLES = 0.8
"""Holes per square metre of floor, at most; a scan draws its own number from 0 on."""
SMALLEST_HOLE, LARGEST_HOLE = 0.08, 1.4
"""Metres: radius of a hole; small ones are the more frequent."""
MOST_NOISE = 0.012
"""Metres: standard deviation of the surface, at most."""
MOST_PIECES = 40
"""Shards that float, at most."""
_SHARDS = (0.6, 0.6, 0.58, 1.0)
"""Colour of pieces that float."""
CEILING = 0.25
"""Metres below the highest point: what lies there is ceiling."""


def tear(house: TriangleMesh, seed: int) -> TriangleMesh:
    """The house as a scan: what is seen of it. Where one can walk is still the house's own.

    The same house and seed give the same scan, with the surface of the house where that has one: what is cut keeps its
    colours, and pieces that float are grey parts of nothing.
    """
    draw = np.random.default_rng((_SCAN, seed))
    corners = _with_origin(house)
    low, high = corners[..., :3].reshape(-1, 3).min(0), corners[..., :3].reshape(-1, 3).max(0)
    corners = _without_ceiling(corners, high[1] - CEILING, low, high, draw)
    corners = _with_holes(corners, low, high, draw)
    pieces = _pieces(low, high, draw)
    pieces = np.pad(pieces, ((0, 0), (0, 0), (0, corners.shape[2] - 3)), constant_values=-1.0)
    corners = np.concatenate([corners, pieces])
    vertices, inverse = np.unique(np.round(corners[..., :3].reshape(-1, 3), 5), axis=0, return_inverse=True)
    vertices = vertices + draw.uniform(0.0, MOST_NOISE) * draw.standard_normal(vertices.shape)
    faces = inverse.reshape(-1, 3).astype(np.int32)
    whole = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    surface = None if house.surface is None else _torn(house.surface, corners[whole][..., 3:])
    return TriangleMesh(vertices.astype(np.float32), np.ascontiguousarray(faces[whole]), surface=surface)


def _with_origin(house: TriangleMesh) -> np.ndarray:
    """Corners f64 [F, 3, 3]; [F, 3, 7] where there is a surface: what is cut is cut in all of these columns.

    The further ones say where a corner lies in the triangle of the house that it comes from, as barycentric
    coordinates, and that triangle's number.
    """
    corners = house.vertices[house.faces].astype(np.float64)
    if house.surface is None:
        return corners
    within = np.broadcast_to(np.eye(3), (len(corners), 3, 3))
    number = np.broadcast_to(np.arange(len(corners))[:, None, None], (len(corners), 3, 1))
    return np.concatenate([corners, within, number], axis=2)


def _torn(surface: Surface, origin: np.ndarray) -> Surface:
    """The surface of triangles that come from a house's: f64 [F, 3, 4], see `_with_origin`; -1: from none."""
    within, number = origin[..., :3], origin[:, 0, 3].astype(np.int64)
    is_piece = number < 0
    number[is_piece] = 0
    columns: dict[str, Any] = {
        field: np.where(is_piece, blank, array[number]).astype(np.int32)
        for field, blank, array in (
            ("material", len(surface.materials), surface.material), ("object_id", 0, surface.object_id),
            ("category", 0, surface.category),
        ) if array is not None
    }  # fmt: skip
    if surface.uv is not None:
        uv = np.einsum("fik,fkc->fic", within, surface.uv[number].astype(np.float64))
        columns["uv"] = np.where(is_piece[:, None, None], 0.0, uv).astype(np.float32)
    if surface.color is not None:
        color = np.einsum("fik,fkc->fic", within, surface.color[number].astype(np.float64))
        columns["color"] = np.where(is_piece[:, None, None], 255.0, np.round(color)).astype(np.uint8)
    return surface._replace(materials=(*surface.materials, Material(_SHARDS)), **columns)


def _without_ceiling(corners, above, low, high, draw) -> np.ndarray:
    """One scan in three has no ceiling, one in three half of one: a scanner that looks ahead does not see it."""
    kind = draw.integers(3)
    if kind == 2:
        return corners
    middle = corners[..., :3].mean(1)
    gone = middle[:, 1] > above
    if kind == 1:
        axis = 2 * draw.integers(2)
        gone &= middle[:, axis] < draw.uniform(low[axis], high[axis])
    return corners[~gone]


def _with_holes(corners, low, high, draw) -> np.ndarray:
    """Cut balls out of the surface, their centres anywhere on it."""
    floor = (high[0] - low[0]) * (high[2] - low[2])
    number = int(draw.uniform(0.0, MOST_HOLES) * floor)
    if not number:
        return corners
    points = corners[..., :3]
    area = np.linalg.norm(np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]), axis=1)
    place = points[draw.choice(len(points), number, p=area / area.sum())]
    share = np.sort(draw.random((number, 2)), axis=1)
    centres = (place * np.diff(share, axis=1, prepend=0.0, append=1.0)[:, :, None]).sum(1)
    radii = SMALLEST_HOLE * (LARGEST_HOLE / SMALLEST_HOLE) ** draw.random(number)
    for centre, radius in zip(centres, radii, strict=True):
        points = corners[..., :3]
        near = (points.min(1) <= centre + radius).all(1) & (points.max(1) >= centre - radius).all(1)
        corners = np.concatenate([corners[~near], _outside(corners[near], centre, radius)])
    return corners


def _outside(corners, centre, radius) -> np.ndarray:
    """What triangles have outside a ball: those on its border are halved until small, and then go by their middle."""
    kept = []
    while len(corners):
        points = corners[..., :3]
        inside = np.linalg.norm(points - centre, axis=2) <= radius
        sides = np.linalg.norm(np.roll(points, -1, axis=1) - points, axis=2)
        longest, small = sides.argmax(1), sides.max(1) <= LARGEST_EDGE
        near = (points.min(1) <= centre + radius).all(1) & (points.max(1) >= centre - radius).all(1)
        gone = inside.all(1) | (small & (np.linalg.norm(points.mean(1) - centre, axis=1) <= radius))
        stays = ~gone & (small | ~near)
        kept.append(corners[stays])
        split = ~gone & ~stays
        rows, longest, parts = np.arange(split.sum()), longest[split], corners[split]
        a, b, c = (parts[rows, (longest + k) % 3] for k in range(3))
        middle = (a + b) / 2
        corners = np.concatenate([np.stack([a, middle, c], 1), np.stack([middle, b, c], 1)])
    return np.concatenate(kept) if kept else corners


def _pieces(low, high, draw) -> np.ndarray:
    """Shards of 3 to 20 cm anywhere in the house."""
    number = draw.integers(MOST_PIECES + 1)
    centres = draw.uniform(low, high, (number, 3))
    return centres[:, None] + draw.uniform(0.03, 0.2, (number, 1, 1)) * draw.uniform(-1.0, 1.0, (number, 3, 3))
