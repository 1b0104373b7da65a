"""Degraded scans: houses and open-plan rooms with holes, missing ceilings, noise and floating pieces.

Scanned meshes have holes where glass, mirrors, black or far surfaces return no depth (Matterport3D: Chang et al., 3DV
2017, section 3; Gibson's database lists the missing share of each scene). Habitat's depth is 0 in a hole, so an agent
trained in closed houses reads a hole as a wall directly in front of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from batchnav.procedural.house import make_house
from batchnav.procedural.open_plan import make_hall
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.types import Material, Surface, TriangleMesh

_SCAN = 0x5CA9
"""First part of the seeds of defects: their random numbers are independent of the house's."""
LARGEST_EDGE = 0.12
"""Longest edge of triangles at the border of a hole, metres."""
SMALLEST_HOLE, LARGEST_HOLE = 0.08, 1.4
"""Range of a hole's radius, metres; log-uniform, so small holes are more frequent."""
MOST_HOLES, MOST_NOISE, MOST_PIECES = 0.8, 0.012, 40
"""Largest amounts; each scan samples its own between zero and these. Holes per square metre of floor, standard
deviation of vertex positions in metres, number of floating pieces."""
_PIECE_COLOR = (0.6, 0.6, 0.58, 1.0)
"""Colour of floating pieces, RGBA."""
CEILING = 0.25
"""Thickness of the layer below the highest point that counts as ceiling, metres."""
_DEPTH = 64
"""Size of the stack of triangle halves; cutting a house down to LARGEST_EDGE needs less."""


def make_scan(seed: int, surface: bool = False) -> tuple[TriangleMesh, TriangleMesh]:
    """A mesh without defects and its degraded scan: an open-plan room for seeds divisible by 3, otherwise a house."""
    scanned = (make_house if seed % 3 else make_hall)(seed, surface)
    return scanned, degrade(scanned, seed)


def degrade(scanned: TriangleMesh, seed: int) -> TriangleMesh:
    """A degraded scan of a mesh, for cameras. The navmesh is baked from the mesh without defects.

    Equal mesh and seed give an equal scan. A surface is kept: cut triangles keep their colours, and floating
    pieces are grey and belong to no object.
    """
    rng = np.random.default_rng((_SCAN, seed))
    corners = _with_origin(scanned)
    low, high = corners[..., :3].reshape(-1, 3).min(0), corners[..., :3].reshape(-1, 3).max(0)
    corners = _without_ceiling(corners, high[1] - CEILING, low, high, rng)
    corners = _with_holes(corners, low, high, rng)
    pieces = _pieces(low, high, rng)
    pieces = np.pad(pieces, ((0, 0), (0, 0), (0, corners.shape[2] - 3)), constant_values=-1.0)
    corners = np.concatenate([corners, pieces])
    vertices, inverse = np.unique(np.round(corners[..., :3].reshape(-1, 3), 5), axis=0, return_inverse=True)
    vertices = vertices + rng.uniform(0.0, MOST_NOISE) * rng.standard_normal(vertices.shape)
    faces = inverse.reshape(-1, 3).astype(np.int32)
    whole = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    surface = None if scanned.surface is None else _degraded_surface(scanned.surface, corners[whole][..., 3:])
    return TriangleMesh(vertices.astype(np.float32), np.ascontiguousarray(faces[whole]), surface=surface)


def _with_origin(house: TriangleMesh) -> np.ndarray:
    """Corners of all triangles: f64 [F, 3, 3] without a surface, else [F, 3, 7]. Cutting interpolates all columns.

    Columns 3 to 5 are the corner's barycentric coordinates in its original triangle, column 6 is that triangle's index.
    """
    corners = house.vertices[house.faces].astype(np.float64)
    if house.surface is None:
        return corners
    within = np.broadcast_to(np.eye(3), (len(corners), 3, 3))
    number = np.broadcast_to(np.arange(len(corners))[:, None, None], (len(corners), 3, 1))
    return np.concatenate([corners, within, number], axis=2)


def _degraded_surface(surface: Surface, origin: np.ndarray) -> Surface:
    """The surface of cut triangles, by origin f64 [F, 3, 4] (`_with_origin`); -1 for triangles without an origin."""
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
    if surface.finish is not None:  # floating pieces keep their material
        columns["finish"] = np.concatenate([surface.finish, np.array([[0, -1, 0, 0]], np.int32)])
    return surface._replace(materials=(*surface.materials, Material(_PIECE_COLOR)), **columns)


def _without_ceiling(corners, above, low, high, rng) -> np.ndarray:
    """Remove all of the ceiling in a third of the scans, and a part in another third: level scanners miss ceilings.

    `above` is the height y from which triangles count as ceiling; `low` and `high` are the mesh's bounds.
    """
    kind = rng.integers(3)
    if kind == 2:
        return corners
    middle = corners[..., :3].mean(1)
    gone = middle[:, 1] > above
    if kind == 1:
        axis = 2 * rng.integers(2)
        gone &= middle[:, axis] < rng.uniform(low[axis], high[axis])
    return corners[~gone]


def _with_holes(corners, low, high, rng) -> np.ndarray:
    """Cut balls out of the surface, with centres uniform on it."""
    floor = (high[0] - low[0]) * (high[2] - low[2])
    number = int(rng.uniform(0.0, MOST_HOLES) * floor)
    points = corners[..., :3]
    area = np.linalg.norm(np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]), axis=1)
    place = points[rng.choice(len(points), number, p=area / area.sum())]
    share = np.sort(rng.random((number, 2)), axis=1)
    centres = (place * np.diff(share, axis=1, prepend=0.0, append=1.0)[:, :, None]).sum(1)
    radii = SMALLEST_HOLE * (LARGEST_HOLE / SMALLEST_HOLE) ** rng.random(number)
    return outside(corners, centres, radii)


def outside(corners: np.ndarray, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """The parts of triangles f64 [F, 3, C] outside of balls f64 [B, 3], [B]. The first three columns are x, y, z.

    Triangles at a ball's border are halved until no side is longer than LARGEST_EDGE; then the centroid decides.
    """
    capacity = len(corners)
    while True:
        kept = np.empty((capacity, 3, corners.shape[2]))
        number = _cut(corners, centres, radii, LARGEST_EDGE, kept)
        if number <= capacity:
            return kept[:number]
        capacity = number


@cpu_function
def _cut(corners, centres, radii, largest_edge, kept_out):
    """Write the parts of triangles outside of all balls to `kept_out`, as many as fit, and return their total number.

    Arguments as in `outside`; `kept_out` is f64 [K, 3, C].
    """
    number = 0
    near = np.empty(len(radii), np.int64)
    stack = np.empty((_DEPTH, 3, corners.shape[2]))
    for i in range(len(corners)):
        balls = 0
        for ball in range(len(radii)):
            if _box_distance(corners[i, :, :3], centres[ball]) <= radii[ball] ** 2:
                near[balls] = ball
                balls += 1
        stack[0] = corners[i]
        top = 1
        while top:
            top -= 1
            whole = stack[top].copy()
            triangle = whole[:, :3]
            longest, longest_square = 0, 0.0
            for side in range(3):
                square = ((triangle[(side + 1) % 3] - triangle[side]) ** 2).sum()
                if square > longest_square:
                    longest, longest_square = side, square
            small = longest_square <= largest_edge**2 or top + 2 > _DEPTH
            middle = (triangle[0] + triangle[1] + triangle[2]) / 3.0
            gone, border = False, False
            for k in range(balls):
                centre, square = centres[near[k]], radii[near[k]] ** 2
                inside = 0
                for corner in range(3):
                    inside += ((triangle[corner] - centre) ** 2).sum() <= square
                gone |= inside == 3 or (small and ((middle - centre) ** 2).sum() <= square)
                border |= _box_distance(triangle, centre) <= square
            if gone:
                continue
            if small or not border:
                if number < len(kept_out):
                    kept_out[number] = whole
                number += 1
                continue
            a, b, c = whole[longest], whole[(longest + 1) % 3], whole[(longest + 2) % 3]
            half = (a + b) / 2.0
            stack[top, 0], stack[top, 1], stack[top, 2] = half, b, c
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = a, half, c
            top += 2
    return number


@cpu_function
def _box_distance(triangle, point):
    """Squared distance from a point to a triangle's bounding box: a lower bound of the distance to the triangle."""
    square = 0.0
    for axis in range(3):
        a, b, c = triangle[0, axis], triangle[1, axis], triangle[2, axis]
        beyond = max(min(a, b, c) - point[axis], point[axis] - max(a, b, c), 0.0)
        square += beyond * beyond
    return square


def _pieces(low, high, rng) -> np.ndarray:
    """Floating pieces of 3 to 20 cm, uniform in the house."""
    number = rng.integers(MOST_PIECES + 1)
    centres = rng.uniform(low, high, (number, 3))
    return centres[:, None] + rng.uniform(0.03, 0.2, (number, 1, 1)) * rng.uniform(-1.0, 1.0, (number, 3, 3))
