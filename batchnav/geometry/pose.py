"""Points, angles, headings and camera rays. Heading 0 is along -Z and increases to the left, as seen from above."""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function, inline_function
from batchnav.runtime.kernels.intrinsics import fma

_TWO_BY_PI = np.float32(2.0 / math.pi)
_HALF_PI_HIGH, _HALF_PI_MIDDLE, _HALF_PI_LOW = np.float32(1.5703125), np.float32(4.8351288e-4), np.float32(3.1391647e-7)
"""pi / 2 in three parts. The first two have trailing zero bits, so that their product with a small integer is exact."""


@device_function
def sin_cos(angle):
    """Sine and cosine of a float32 angle in radians, with errors up to 2e-7 for |angle| up to 10,000.

    CUDA may fuse its products and sums, which changes the last digit. Library functions use float64 and local memory
    for huge angles; this function does not.
    Method: reduction to [-pi/4, pi/4] (Cody and Waite 1980), then Taylor polynomials.
    """
    quarter = np.int32(math.floor(angle * _TWO_BY_PI + np.float32(0.5)))
    turns = np.float32(quarter)
    r = ((angle - turns * _HALF_PI_HIGH) - turns * _HALF_PI_MIDDLE) - turns * _HALF_PI_LOW
    x = r * r
    sine = r + r * x * (
        np.float32(-1 / 6) + x * (np.float32(1 / 120) + x * (np.float32(-1 / 5040) + x * np.float32(1 / 362880)))
    )
    cosine = np.float32(1.0) + x * (
        np.float32(-1 / 2) + x * (np.float32(1 / 24) + x * (np.float32(-1 / 720) + x * np.float32(1 / 40320)))
    )
    if quarter & np.int32(1):
        sine, cosine = cosine, -sine
    if quarter & np.int32(2):
        sine, cosine = -sine, -cosine
    return sine, cosine


@device_function
def forward(heading):
    """Components x and z of the unit vector along a heading (radians, float32); y is 0. Right is (-z, 0, x)."""
    sine, cosine = sin_cos(heading)
    return -sine, -cosine


@device_function
def camera_axes(heading, pitch):
    """Right, up and forward unit vectors (x, y, z) of a camera. Positive pitch (radians) is up."""
    fx, fz = forward(heading)
    zero, one = np.float32(0.0), np.float32(1.0)
    rise, level = zero, one
    if pitch != zero:  # most cameras are level and save a second sine
        rise, level = sin_cos(pitch)
    return (-fz, zero, fx), (-rise * fx, level, -rise * fz), (level * fx, rise, level * fz)


# Angles modulo a full turn

_PI, _TWO_PI = np.float32(math.pi), np.float32(2.0 * math.pi)


@device_function
def wrapped(angle):
    """The equivalent angle in (-pi, pi], radians."""
    return angle - _TWO_PI * np.float32(math.ceil((angle - _PI) / _TWO_PI))


@device_function
def angle_between(heading, other):
    """Angle between two headings, radians in [0, pi]."""
    return min(abs(wrapped(heading - other)), _PI)


# Points and vectors as tuples (x, y, z) of float32, the form that kernels pass


@inline_function
def point_at(i, points):
    """Row i of an f32 [N, 3] array as a point."""
    return points[i, 0], points[i, 1], points[i, 2]


@inline_function
def store_point(i, point, points_out):
    """Write a point to row i of an f32 [N, 3] array."""
    points_out[i, 0], points_out[i, 1], points_out[i, 2] = point


@inline_function
def mix(a, b, t):
    """Linear interpolation a + (b - a) t."""
    return a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t


@inline_function
def squared_distance(a, b):
    """Squared distance of two points, with explicit fused multiply-adds: bit-equal in every context."""
    dx, dy, dz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    return fma(dz, dz, fma(dx, dx, dy * dy))


@inline_function
def distance(a, b):
    """Euclidean distance of two points."""
    return math.sqrt(squared_distance(a, b))


@inline_function
def within(point, limit):
    """True if the absolute values of all coordinates are below `limit`; False for NaN."""
    return abs(point[0]) < limit and abs(point[1]) < limit and abs(point[2]) < limit


@device_function
def goal_in_agent_frame(point, heading, goal):
    """Horizontal distance of a goal, metres, and its bearing, radians to the left, as Habitat's polar goal sensor."""
    dx, dz = goal[0] - point[0], goal[2] - point[2]
    sine, cosine = np.float32(math.sin(heading)), np.float32(math.cos(heading))
    right = dx * cosine - dz * sine
    ahead = -dx * sine - dz * cosine
    return np.float32(math.sqrt(dx * dx + dz * dz)), np.float32(-math.atan2(right, ahead))


# Pinhole cameras: rays through pixel centres, row 0 at the top
#
# Most cameras have square pixels and the principal point in the middle of the image. One number describes such a lens:
# tan(hfov / 2), an element of an array f32 [N]. Other lenses are rows of an array f32 [N, 4], for which kernels are
# compiled separately: `view_axes` then shears the camera's axes, and all that follows is the same.

_TINY = np.float32(1e-12)
_SAME_LENS = 1e-9
"""Difference of pixel aspect and principal point, relative to the image, up to which a lens counts as symmetric."""


def tan_half(hfov_deg: float) -> np.float32:
    """Half the width of the image plane at distance 1: tan(hfov / 2)."""
    return np.float32(math.tan(math.radians(hfov_deg) / 2))


def lens_of(intrinsics: np.ndarray, height: int, width: int) -> tuple[float, float, float, float] | None:
    """A row of lenses f32 [N, 4] for a camera matrix [3, 3]; None for square pixels and a centred principal point.

    The numbers are tan(hfov / 2) = width / (2 fx), the pixel aspect fx / fy, and the offsets to the right and upwards
    of the central ray at distance 1, relative to tan(hfov / 2) and, upwards, to the aspect. They do not change with the
    number of pixels. Pixel centres have integer coordinates, as in OpenCV and ROS.
    """
    fx, fy, cx, cy = (float(intrinsics[row][column]) for row, column in ((0, 0), (1, 1), (0, 2), (1, 2)))
    aspect, right, up = fx / fy, (width - 1 - 2.0 * cx) / width, (2.0 * cy + 1 - height) / width
    if max(abs(aspect - 1.0), abs(right), abs(up)) <= _SAME_LENS:
        return None
    return width / (2.0 * fx), aspect, right, up


@inline_function
def half_width(i, lens):
    """tan(hfov / 2) of camera i; `lens`: f32 [N] or f32 [N, 4]."""
    if lens.ndim == 1:
        return lens[i]
    return lens[i, np.uint32(0)]


@inline_function
def lens_numbers(i, lens):
    """tan(hfov / 2), pixel aspect, and the central ray's offset to the right and upwards at distance 1 of camera i."""
    if lens.ndim == 1:
        return lens[i], np.float32(1.0), np.float32(0.0), np.float32(0.0)
    half, aspect = lens[i, np.uint32(0)], lens[i, np.uint32(1)]
    return half, aspect, half * lens[i, np.uint32(2)], half * aspect * lens[i, np.uint32(3)]


@inline_function
def view_axes(i, heading, pitch, lens):
    """`camera_axes` of camera i for `pixel_ray` and `pixel_spacing`: sheared where its lens is not symmetric."""
    axes = camera_axes(heading[i], pitch[i])
    if lens.ndim == 1:
        return axes
    _, aspect, across, rise = lens_numbers(i, lens)
    (rx, ry, rz), (ux, uy, uz), (fx, fy, fz) = axes
    ahead = fx + across * rx + rise * ux, fy + across * ry + rise * uy, fz + across * rz + rise * uz
    return (rx, ry, rz), (aspect * ux, aspect * uy, aspect * uz), ahead


@device_function
def pixel_ray(row, column, axes, height, width, tan_half_hfov):
    """Direction of a pixel's ray with forward component 1, so that the ray parameter is planar depth.

    `axes`: result of `pose.view_axes`, or of `pose.camera_axes` for a symmetric lens.
    """
    (rx, ry, rz), (ux, uy, uz), (fx, fy, fz) = axes
    scale = tan_half_hfov / np.float32(width)
    # explicit int32: numba promotes int32 arithmetic to int64, which a GPU converts to float slowly
    right = np.float32(np.int32(np.int32(2) * column + np.int32(1) - width)) * scale
    up = np.float32(np.int32(height - np.int32(1) - np.int32(2) * row)) * scale
    return (fx + right * rx) + up * ux, (fy + right * ry) + up * uy, (fz + right * rz) + up * uz


@device_function
def pixel_spacing(width, tan_half_hfov):
    """Difference between the ray directions of adjacent pixels, along a row or a column."""
    return np.float32(2.0) * tan_half_hfov / np.float32(width)


@device_function
def inverse_direction(component):
    """1 / component, finite for 0 too, so that the slab test has no NaN for rays parallel to an axis plane."""
    if abs(component) < _TINY:
        return np.float32(1.0) / _TINY
    return np.float32(1.0) / component
