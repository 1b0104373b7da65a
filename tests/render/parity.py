"""How two renderers' pictures of the same views may differ."""

import numpy as np

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
    """What `assert_parity` judges: fractions of pixels, and the mean difference of those that see the same surface."""
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
    found = compare(depth, expected)
    assert found["differing"] <= fraction, found
    assert found["off edges"] <= SEAMS, found
    assert found["holes"] == 0, found
    assert abs(found["nearer"] - found["farther"]) <= 20 + 0.25 * (found["nearer"] + found["farther"]), found
    assert abs(found["bias"]) < 0.1 * ABSOLUTE, found
