"""Headings and camera axes. Heading 0 is along -Z and increases to the left (counter-clockwise seen from above)."""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function

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
