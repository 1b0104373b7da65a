"""Houses as a scanner would bring them home: torn surfaces, missing ceilings, noise, pieces that float.

Scanned meshes have holes where glass, mirrors, black or far surfaces gave no depth (Matterport3D: Chang et al., 3DV
2017, section 3; Gibson's database says how much each scene lacks). An agent that only knows closed houses takes a hole,
which Habitat's depth reads as 0, for a wall at its nose.
"""

from __future__ import annotations

import numpy as np

from batchnav.houses.hall import make_hall
from batchnav.houses.house import make_house
from batchnav.runtime.kernels import cpu_function
from batchnav.types import TriangleMesh

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
CEILING = 0.25
"""Metres below the highest point: what lies there is ceiling."""
_DEPTH = 64
"""Halves that wait for their turn: more than halving anything in a house down to LARGEST_EDGE takes."""


def make_scan(seed: int) -> tuple[TriangleMesh, TriangleMesh]:
    """What was scanned, and the scan. In two cases of three it is the house of the seed, else the hall."""
    scanned = make_house(seed) if seed % 3 else make_hall(seed)
    return scanned, tear(scanned, seed)


def tear(scanned: TriangleMesh, seed: int) -> TriangleMesh:
    """A house or hall as a scan: what is seen of it. Where one can walk is still its own.

    The same mesh and seed give the same scan.
    """
    draw = np.random.default_rng((_SCAN, seed))
    corners = scanned.vertices[scanned.faces].astype(np.float64)
    low, high = corners.reshape(-1, 3).min(0), corners.reshape(-1, 3).max(0)
    corners = _without_ceiling(corners, high[1] - CEILING, low, high, draw)
    corners = _with_holes(corners, low, high, draw)
    corners = np.concatenate([corners, _pieces(low, high, draw)])
    vertices, inverse = np.unique(np.round(corners.reshape(-1, 3), 5), axis=0, return_inverse=True)
    vertices = vertices + draw.uniform(0.0, MOST_NOISE) * draw.standard_normal(vertices.shape)
    faces = inverse.reshape(-1, 3).astype(np.int32)
    whole = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    return TriangleMesh(vertices.astype(np.float32), np.ascontiguousarray(faces[whole]))


def _without_ceiling(corners, above, low, high, draw) -> np.ndarray:
    """One scan in three has no ceiling, one in three half of one: a scanner that looks ahead does not see it."""
    kind = draw.integers(3)
    if kind == 2:
        return corners
    middle = corners.mean(1)
    gone = middle[:, 1] > above
    if kind == 1:
        axis = 2 * draw.integers(2)
        gone &= middle[:, axis] < draw.uniform(low[axis], high[axis])
    return corners[~gone]


def _with_holes(corners, low, high, draw) -> np.ndarray:
    """Cut balls out of the surface, their centres anywhere on it."""
    floor = (high[0] - low[0]) * (high[2] - low[2])
    number = int(draw.uniform(0.0, MOST_HOLES) * floor)
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    place = corners[draw.choice(len(corners), number, p=area / area.sum())]
    share = np.sort(draw.random((number, 2)), axis=1)
    centres = (place * np.diff(share, axis=1, prepend=0.0, append=1.0)[:, :, None]).sum(1)
    radii = SMALLEST_HOLE * (LARGEST_HOLE / SMALLEST_HOLE) ** draw.random(number)
    return outside(corners, centres, radii)


def outside(corners: np.ndarray, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """What triangles f64 [F, 3, 3] have outside of balls f64 [B, 3], [B].

    Triangles on a ball's border are halved until no side is longer than LARGEST_EDGE, and then go by their middle.
    """
    room = len(corners)
    while True:
        kept = np.empty((room, 3, 3))
        number = _cut(corners, centres, radii, LARGEST_EDGE, kept)
        if number <= room:
            return kept[:number]
        room = number


@cpu_function
def _cut(corners, centres, radii, largest_edge, kept_out):
    """How many triangles there are outside; as many of them as there is room for."""
    number = 0
    near = np.empty(len(radii), np.int64)
    stack = np.empty((_DEPTH, 3, 3))
    for i in range(len(corners)):
        balls = 0
        for ball in range(len(radii)):
            if _box_distance(corners[i], centres[ball]) <= radii[ball] ** 2:
                near[balls] = ball
                balls += 1
        stack[0] = corners[i]
        top = 1
        while top:
            top -= 1
            triangle = stack[top].copy()
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
                    kept_out[number] = triangle
                number += 1
                continue
            a, b, c = triangle[longest], triangle[(longest + 1) % 3], triangle[(longest + 2) % 3]
            half = (a + b) / 2.0
            stack[top, 0], stack[top, 1], stack[top, 2] = half, b, c
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = a, half, c
            top += 2
    return number


@cpu_function
def _box_distance(triangle, point):
    """Squared distance from a point to the box around a triangle: no more than to the triangle."""
    square = 0.0
    for axis in range(3):
        a, b, c = triangle[0, axis], triangle[1, axis], triangle[2, axis]
        beyond = max(min(a, b, c) - point[axis], point[axis] - max(a, b, c), 0.0)
        square += beyond * beyond
    return square


def _pieces(low, high, draw) -> np.ndarray:
    """Shards of 3 to 20 cm anywhere in the house."""
    number = draw.integers(MOST_PIECES + 1)
    centres = draw.uniform(low, high, (number, 3))
    return centres[:, None] + draw.uniform(0.03, 0.2, (number, 1, 1)) * draw.uniform(-1.0, 1.0, (number, 3, 3))
