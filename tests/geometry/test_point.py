"""Points as tuples: rounding that does not depend on the calling code."""

import numpy as np
from numba import njit

from batchnav.geometry.pose import distance, keep_point, mix, point_at, squared_distance, within


@njit(error_model="numpy", fastmath={"contract"})
def measure(a, b, squares_out, distances_out, middles_out):
    """All pairs in a loop that carries a point, around which a compiler reorders sums."""
    last = point_at(0, b)
    for i in range(len(a)):
        p = point_at(i, a)
        distances_out[i] = distance(p, point_at(i, b))
        squares_out[i] = squared_distance(p, last)
        keep_point(i, mix(p, last, np.float32(0.5)), middles_out)
        last = point_at(min(i + 1, len(b) - 1), b)


@njit
def inside(points, limit):
    return [within(point_at(i, points), limit) for i in range(len(points))]


def test_distances_are_rounded_in_one_order():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-9, 9, (2, 4000, 3)).astype(np.float32)
    squares, distances, middles = np.empty(4000, np.float32), np.empty(4000, np.float32), np.empty_like(a)
    measure(a, b, squares, distances, middles)
    x, y, z = (b - a).T.astype(np.longdouble)  # has room for a product of two float32
    rounded = np.float32(z * z + np.float32(x * x + np.float32(y * y)))
    np.testing.assert_array_equal(squares, rounded)
    np.testing.assert_array_equal(distances, np.sqrt(rounded))
    np.testing.assert_allclose(middles, (a + b) / 2, atol=2e-6)  # two roundings of numbers up to 18


def test_within():
    points = np.array([[0, 1, -2], [0, 3, 0], [np.nan, 0, 0], [0, 0, -np.inf]], np.float32)
    assert inside(points, np.float32(2.5)) == [True, False, False, False]
