"""View points by hand in procedural houses: squares of places around sampled points."""

import numpy as np


def points_on_the_main_island(navmesh, number):
    """Sampled points on the island that has most of them, f32 [K, 3]."""
    points = navmesh.sample(number, seed=1)
    islands = navmesh.island(points)
    return points[islands == np.bincount(islands).argmax()]


def square_around(navmesh, point):
    """121 places on the navmesh around a point, 8 cm apart, f32 [121, 3]."""
    side = np.arange(-0.4, 0.41, 0.08)
    square = np.stack(np.meshgrid(side, 0.0, side), axis=-1).reshape(-1, 3)
    return navmesh.snap((point.astype(np.float64) + square).astype(np.float32))
