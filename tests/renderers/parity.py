"""Comparison of the images of two renderers."""

from typing import NamedTuple

import numpy as np
from render_reference import _first_hit, pixel_directions

ABSOLUTE, RELATIVE = 1e-3, 1e-4
"""Metres, and per metre of depth, by which two pixels that see the same surface may differ."""
DIFFERING = 5e-3
"""Fraction of pixels that may see another surface: those whose ray passes within rounding of an edge."""
SEAMS = 1e-4
"""Fraction of pixels that may do so where the picture shows no edge: where surfaces abut without sharing corners, or
one is seen edge-on, along a line through pixels' centres."""
BEND = 1e-4
"""Relative bend of inverse depth, which is linear over a plane's pixels, that makes an edge; rounding is less."""


def differing(depth, expected):
    """bool [N, H, W]: pixels that do not see the same surface."""
    return np.abs(depth - expected) > ABSOLUTE + RELATIVE * expected


def around(images, reduce):
    """The least or greatest (`reduce`) of each pixel and its eight neighbours: [N, H, W]."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    h, w = images.shape[1:]
    return reduce([padded[:, r : r + h, c : c + w] for r in range(3) for c in range(3)], axis=0)


def near_edges(depth):
    """bool [N, H, W]: pixels at most one pixel from where the picture is not that of one plane."""
    inverse = np.where(depth > 0, 1 / np.maximum(depth, 1e-9), 0)  # a hole is infinitely far
    bend = np.zeros(depth.shape)
    bend[:, :, 1:-1] = np.abs(inverse[:, :, :-2] - 2 * inverse[:, :, 1:-1] + inverse[:, :, 2:])
    bend[:, 1:-1] = np.maximum(bend[:, 1:-1], np.abs(inverse[:, :-2] - 2 * inverse[:, 1:-1] + inverse[:, 2:]))
    return around(bend > BEND * np.maximum(inverse, inverse.mean()), np.max)


def compare(depth, expected):
    """What `assert_alike` judges: fractions of pixels, and the mean difference of those that see the same surface."""
    wrong, off_edge = differing(depth, expected), ~near_edges(expected)
    far, expected_far = (np.where(image > 0, image, np.inf) for image in (depth, expected))
    return {
        "differing": wrong.mean(),
        "off edges": (wrong & off_edge).mean(),
        "nearer": (wrong & (far < expected_far)).sum(),
        "farther": (wrong & (far > expected_far)).sum(),
        "holes": ((depth == 0) & (around(expected, np.min) > 0)).sum(),
        "bias": np.mean(np.where(wrong, 0.0, depth - expected)),
    }


def assert_parity(depth, expected, fraction=DIFFERING):
    """Interior pixels agree; those that differ are few, next to depth edges, and as often nearer as farther."""
    found = assert_alike(depth, expected, fraction)
    assert abs(found["nearer"] - found["farther"]) <= 20 + 0.25 * (found["nearer"] + found["farther"]), found


def assert_alike(depth, expected, fraction=DIFFERING):
    """Interior pixels agree; those that differ are few and next to depth edges."""
    found = compare(depth, expected)
    assert found["differing"] <= fraction, found
    assert found["off edges"] <= SEAMS, found
    assert found["holes"] == 0, found
    assert abs(found["bias"]) < 0.1 * ABSOLUTE, found
    return found


GRID = 1 / 128
"""Pixels by which a picture may be off: rasterisers move corners to a grid, of 1/256 pixel here and on an H200."""
OFF_GRID = 2e-4
"""Fraction of pixels on which the rasteriser may so see another surface than the pixel's own ray meets."""
GROWN = 5e-5
"""Fraction of pixels on which the ray caster may: its triangles are larger by some micrometres, so that no ray slips
between two. What it sees instead is nearer."""


UNEXPLAINED = 2e-5
"""Fraction of pixels where a picture may see what no ray within GRID meets: surfaces seen so nearly edge-on that their
depth changes by much within that."""


class Truth(NamedTuple):
    """Of P pixels: brute force in float64."""

    depth: np.ndarray
    """f64 [P], on the pixel's own ray."""
    around: np.ndarray
    """f64 [P, 18]: what that and eight rays GRID pixels from it meet: its depth, and its plane's on the own ray."""


def truth(pixels, meshes, views, hfov_deg=90.0, backface_culling=False, size=(64, 64)):
    """What is seen at pixels i64 [P, 3] (view, row, column) of views (scene_index, position, heading): `Truth`."""
    scene_index, position, heading = views
    steps = GRID * np.array([(r, c) for r in (0, -1, 1) for c in (0, -1, 1)])
    corners = [mesh.vertices[mesh.faces].astype(np.float64) for mesh in meshes]
    spheres = [(c.mean(1), np.linalg.norm(c - c.mean(1, keepdims=True), axis=2).max(1)) for c in corners]
    found = []
    for view, row, column in pixels:
        rays = pixel_directions(float(heading[view]), *size, hfov_deg)
        right, down = rays[0, 1] - rays[0, 0], rays[1, 0] - rays[0, 0]
        directions = rays[row, column] + steps[:, 1:] * right + steps[:, :1] * down
        # Triangles whose sphere the rays come near: all others are missed.
        eye, (centre, radius) = position[view].astype(np.float64), spheres[scene_index[view]]
        along = (centre - eye) @ directions[0] / (directions[0] @ directions[0])
        off = np.linalg.norm(centre - eye - along[:, None] * directions[0], axis=1)
        a, b, c = corners[scene_index[view]][off <= radius + 0.01 * np.abs(along) + 1e-3].transpose(1, 0, 2)
        depth, hit = _first_hit(eye, directions, a, b, c, backface_culling, np.inf)
        normal = np.cross(b - a, c - a)[hit]
        planes = ((a[hit] - eye) * normal).sum(1) / (normal @ directions[0])
        found.append(np.concatenate([depth, np.where(hit >= 0, planes, depth)]))
    around = np.array(found).reshape(-1, 2 * len(steps))
    return Truth(around[:, 0], around)


def assert_right(depth, expected, exact, pixels):
    """Of `pixels`, where two pictures differ: `Truth` says who is right, and neither may be wrong by more than it says.

    `depth` is a rasteriser's, `expected` the ray caster's.
    """
    at = tuple(pixels.T)
    theirs, wrong = expected[at], differing(expected[at], exact.depth)
    far, exact_far = (np.where(image > 0, image, np.inf) for image in (theirs, exact.depth))
    found = {
        "rasteriser": differing(depth[at], exact.depth).sum() / depth.size,
        "off its grid": differing(depth[at][:, None], exact.around).all(1).sum() / depth.size,
        "ray caster": wrong.sum() / depth.size,
        "off the grid, too": differing(theirs[:, None], exact.around).all(1).sum() / depth.size,
        "through": (wrong & (far > exact_far)).sum(),
    }
    assert found["rasteriser"] <= OFF_GRID and found["off its grid"] <= UNEXPLAINED, found
    assert found["ray caster"] <= GROWN and found["off the grid, too"] <= UNEXPLAINED, found
    assert found["through"] == 0, found
    return found
