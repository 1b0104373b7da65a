"""Angles modulo a full turn."""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function

_PI, _TWO_PI = np.float32(math.pi), np.float32(2.0 * math.pi)


@device_function
def wrapped(angle):
    """The equivalent angle in (-pi, pi], radians."""
    return angle - _TWO_PI * np.float32(math.ceil((angle - _PI) / _TWO_PI))


@device_function
def angle_between(heading, other):
    """Angle between two headings, radians in [0, pi]."""
    return min(abs(wrapped(heading - other)), _PI)
