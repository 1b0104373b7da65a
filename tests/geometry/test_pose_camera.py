import math

import numpy as np
import pytest
from numba import njit
from render_reference import pixel_directions

from batchnav.geometry.pose import (
    camera_axes,
    distance,
    forward,
    goal_in_agent_frame,
    mix,
    pixel_ray,
    point_at,
    sin_cos,
    squared_distance,
    store_point,
    tan_half,
    within,
)

SINE_ERROR = 2e-7  # three roundings of float32 at 1
RAY_ERROR = 1e-6  # the same on components up to 3


@njit
def _sin_cos(angles, sine_out, cosine_out):
    for i in range(len(angles)):
        sine_out[i], cosine_out[i] = sin_cos(angles[i])


@pytest.mark.parametrize("largest", [0.8, 3.2, 100.0, 10_000.0])
def test_sin_cos_is_that_of_libm(largest):
    angles = np.random.default_rng(0).uniform(-largest, largest, 100_000).astype(np.float32)
    angles[:3] = 0.0, largest, -largest
    sine, cosine = np.empty_like(angles), np.empty_like(angles)
    _sin_cos(angles, sine, cosine)
    assert np.abs(sine - np.sin(angles.astype(np.float64))).max() < SINE_ERROR
    assert np.abs(cosine - np.cos(angles.astype(np.float64))).max() < SINE_ERROR


@pytest.mark.parametrize(("heading", "expected"), [(0.0, (0, -1)), (np.pi / 2, (-1, 0)), (np.pi, (0, 1))])
def test_heading_zero_looks_along_minus_z_and_grows_to_the_left(heading, expected):
    assert forward(np.float32(heading)) == pytest.approx(expected, abs=SINE_ERROR)


def test_camera_looks_left_as_its_heading_grows_and_up_in_row_zero():
    axes = tuple(tuple(map(np.float32, axis)) for axis in camera_axes(np.float32(0.0), np.float32(0.0)))
    ray = pixel_ray(np.int32(0), np.int32(0), axes, np.int32(2), np.int32(2), tan_half(90.0))
    assert ray == pytest.approx((-0.5, 0.5, -1.0))


@pytest.mark.parametrize(
    ("pitch", "forward", "up"), [(np.pi / 2, (0, 1, 0), (0, 0, 1)), (-np.pi / 2, (0, -1, 0), (0, 0, -1))]
)
def test_positive_pitch_looks_up(pitch, forward, up):
    axes = camera_axes(np.float32(0.0), np.float32(pitch))
    for found, expected in zip(axes, ((1, 0, 0), up, forward), strict=True):
        assert found == pytest.approx(expected, abs=SINE_ERROR)


@pytest.mark.parametrize("hfov", [45.0, 90.0, 120.0])
@pytest.mark.parametrize("pitch", [0.0, -0.9, 0.4])
def test_pixel_rays_are_those_of_the_reference(hfov, pitch):
    height, width, heading = 5, 8, np.float32(0.7)
    expected = pixel_directions(heading, height, width, hfov, pitch)
    axes = tuple(tuple(map(np.float32, axis)) for axis in camera_axes(heading, np.float32(pitch)))
    for row in range(height):
        for column in range(width):
            ray = pixel_ray(np.int32(row), np.int32(column), axes, np.int32(height), np.int32(width), tan_half(hfov))
            np.testing.assert_allclose(ray, expected[row, column], atol=RAY_ERROR)
    assert expected[2, 4] @ np.array(axes[2]) == pytest.approx(1.0)  # planar depth parameter


# Points as tuples: rounding that does not depend on the calling code


@njit(error_model="numpy", fastmath={"contract"})
def measure(a, b, squares_out, distances_out, middles_out):
    """All pairs in a loop that carries a point, around which a compiler reorders sums."""
    last = point_at(0, b)
    for i in range(len(a)):
        p = point_at(i, a)
        distances_out[i] = distance(p, point_at(i, b))
        squares_out[i] = squared_distance(p, last)
        store_point(i, mix(p, last, np.float32(0.5)), middles_out)
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


@pytest.mark.parametrize(
    ("heading", "goal", "expected"),
    [
        (0.0, (0.0, -2.0), (2.0, 0.0)),  # straight ahead: heading 0 looks along -Z
        (0.0, (-2.0, 0.0), (2.0, math.pi / 2)),  # to the left: positive
        (0.0, (2.0, 0.0), (2.0, -math.pi / 2)),
        (math.pi / 2, (-3.0, 0.0), (3.0, 0.0)),  # turned left by 90 degrees: looks along -X
        (-math.pi / 2, (3.0, -3.0), (math.sqrt(18.0), math.pi / 4)),
    ],
)
def test_goal_in_agent_frame(heading, goal, expected):
    origin, goal = (
        (np.float32(0.0), np.float32(0.0), np.float32(0.0)),
        (np.float32(goal[0]), np.float32(0.0), np.float32(goal[1])),
    )
    rho, minus_phi = goal_in_agent_frame(origin, np.float32(heading), goal)
    assert rho == pytest.approx(expected[0], rel=RAY_ERROR)
    assert minus_phi == pytest.approx(expected[1], abs=RAY_ERROR)
