"""Pinhole camera: square pixels, rays through pixel centres, row 0 at the top."""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function

_TINY = np.float32(1e-12)


def tan_half(hfov_deg: float) -> np.float32:
    """Half the width of the image plane at distance 1: tan(hfov / 2)."""
    return np.float32(math.tan(math.radians(hfov_deg) / 2))


@device_function
def pixel_ray(row, column, axes, height, width, tan_half_hfov):
    """Direction of a pixel's ray with forward component 1, so that the ray parameter is planar depth.

    `axes`: result of `pose.camera_axes`.
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
