"""Depth odometry: corrects estimated poses by aligning each depth image with the one before.

Method: projective data association and point-to-plane residuals (Chen and Medioni 1992; Newcombe et al. 2011,
"KinectFusion"), minimised over x, z and heading by Gauss-Newton steps with Cauchy weights. Only pixels of planes count,
where inverse depth is linear in the image: at creases and edges, differences of depths give no surface's normal. The
pose of odometry is start and prior: where nothing in view limits the motion, as along a corridor, it stays. Images that
do not agree after the alignment, such as those of a noisy camera, correct nothing. Turns in place are not corrected:
the error of odometry grows with the distance travelled.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import camera_axes, lens_numbers, pixel_ray, sin_cos, view_axes
from batchnav.observation import Frame
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sensors.camera import CameraConfig, MountedCamera, Seeds
from batchnav.sensors.depth import DepthConfig, MeasuredDepth
from batchnav.sensors.disturbances import Track

ITERATIONS = 4
"""Gauss-Newton steps."""
SAMPLES = 32
"""Pixels along a side of the image that are aligned, at least; larger images are sampled."""
_ZERO, _ONE, _TWO, _HALF = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(0.5)
_MOVED = np.float32(1e-3)
"""Shortest motion that is corrected, metres."""
_FLAT = np.float32(0.002)
"""Largest second difference of inverse depths of neighbouring pixels, relative to the pixel's: zero on a plane."""
_LARGEST, _TYPICAL = np.float32(0.15), np.float32(0.003)
"""Residuals above which a pixel is left out, and above which its weight falls, metres."""
_AGREES = np.float32(3e-3)
"""Mean residual of aligned images up to which they correct the pose, metres."""
_PRIOR = np.float32(0.25)
"""Weight of the pose of odometry, in pixels: residuals of 1 cm against errors of 2 cm."""
_PRIOR_TURN = np.float32(0.33)
"""Weight of the heading of odometry: residuals of 1 cm against errors of one degree."""


class View(NamedTuple):
    """Depth images of N agents and the cameras that took them, at estimated poses."""

    depth: Any
    """f32 [N, H, W], metres; 0: nothing measured."""
    position: Any
    """f32 [N, 3], metres."""
    heading: Any
    """f32 [N], radians."""
    pitch: Any
    """f32 [N], radians."""


class DepthOdometry:
    """Corrects the estimated poses of N agents by the depth images of their main cameras.

    Args:
        bodies: the bodies at their estimated poses.
        track: the estimates, which are corrected.
        camera: the main camera.
        depth: range and noise of its depth.
        seeds: seed of camera ranges.
    """

    def __init__(self, bodies: Any, track: Track, camera: CameraConfig, depth: DepthConfig, seeds: Seeds):
        n, device = len(bodies.heading), bodies.heading.device
        self._measured = MeasuredDepth(depth)
        self._mount = MountedCamera(bodies, camera, 0, seeds)
        sizes = (n, camera.height, camera.width), (n, 3), (n,), (n,)
        self._before = View(*(torch.zeros(size, dtype=torch.float32, device=device) for size in sizes))
        now, far = self._mount.cameras, np.float32(depth.max_depth)
        self._depth = torch.zeros_like(self._before.depth)
        read = view(View(self._depth, *now[1:4])), view(self._before)
        self._align = align.bind(n, *read, view(now.tan_half_hfov), view(bodies.steps), far, view(track))

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors of the last images and their cameras, by name."""
        return {f"odometry_camera_{name}": tensor for name, tensor in self._before._asdict().items()}

    def correct(self, frame: Frame) -> None:
        """Correct the estimates of this step."""
        self._depth.copy_(self._measured.read(frame))
        self._mount.move()
        self._align()
        self._mount.move()
        for kept, new in zip(self._before, (self._depth, *self._mount.cameras[1:4]), strict=True):
            kept.copy_(new)


@device_function
def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@device_function
def _cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@lean_function
def _surface(i, row, column, before, axes, half):
    """Offset from the camera and unit normal of a surface at a pixel of the image before; zeros without a surface."""
    height, width = np.int32(before.depth.shape[1]), np.int32(before.depth.shape[2])
    none = (_ZERO, _ZERO, _ZERO)
    if row == 0 or column == 0:
        return none, none
    d, left, right = before.depth[i, row, column], before.depth[i, row, column - 1], before.depth[i, row, column + 1]
    above, below = before.depth[i, row - 1, column], before.depth[i, row + 1, column]
    if not (d > _ZERO and left > _ZERO and right > _ZERO and above > _ZERO and below > _ZERO):
        return none, none
    if abs(d / left + d / right - _TWO) > _FLAT or abs(d / above + d / below - _TWO) > _FLAT:
        return none, none
    x, y, z = pixel_ray(row, column, axes, height, width, half)
    at = d * x, d * y, d * z
    x, y, z = pixel_ray(row, column + np.int32(1), axes, height, width, half)
    a = right * x - at[0], right * y - at[1], right * z - at[2]
    x, y, z = pixel_ray(row + np.int32(1), column, axes, height, width, half)
    b = below * x - at[0], below * y - at[1], below * z - at[2]
    normal = _cross(a, b)
    length = np.float32(math.sqrt(_dot(normal, normal)))
    if length <= _ZERO:
        return none, none
    return at, (normal[0] / length, normal[1] / length, normal[2] / length)


@lean_function
def _pixel_of(offset, axes, lens, height, width):
    """Row and column of the nearest pixel that sees an offset from the camera; -1 outside the image.

    `axes`: of `camera_axes`. The last row and column have no neighbours, and count as outside.
    """
    half, aspect, across, rise = lens
    depth = _dot(offset, axes[2])
    if depth <= np.float32(0.05):
        return np.int32(-1), np.int32(-1)
    scale = np.float32(width) / half
    right = (_dot(offset, axes[0]) / depth - across) * scale
    up = (_dot(offset, axes[1]) / depth - rise) / aspect * scale
    column = _HALF * (right + np.float32(width))
    row = _HALF * (np.float32(height) - up)
    if not (column >= _ZERO and row >= _ZERO and column < np.float32(width - 1) and row < np.float32(height - 1)):
        return np.int32(-1), np.int32(-1)
    return np.int32(row), np.int32(column)


@device_function
def _solved(a, g):
    """Solution of a symmetric system of three: a = (xx, xz, xt, zz, zt, tt), g = (x, z, t)."""
    xx, xz, xt, zz, zt, tt = a
    c0, c1, c2 = zz * tt - zt * zt, xt * zt - xz * tt, xz * zt - xt * zz
    scale = _ONE / (xx * c0 + xz * c1 + xt * c2)
    c3, c4, c5 = xx * tt - xt * xt, xz * xt - xx * zt, xx * zz - xz * xz
    return (
        scale * (c0 * g[0] + c1 * g[1] + c2 * g[2]), scale * (c1 * g[0] + c3 * g[1] + c4 * g[2]),
        scale * (c2 * g[0] + c4 * g[1] + c5 * g[2]),
    )  # fmt: skip


@kernel(block=64)
def align(i, now, before, lens, steps, far, track_out):
    """Correct the estimated pose of agent i so that its depth image agrees with the one before.

    The correction (x, z, t) shifts the pose by x and z, metres, and turns it by t, radians to the left.
    """
    if steps[i] == 0 or track_out.moved[i] < _MOVED:
        return
    height, width = np.int32(now.depth.shape[1]), np.int32(now.depth.shape[2])
    stride = max(min(height, width) // np.int32(SAMPLES), np.int32(1))
    numbers = lens_numbers(i, lens)
    old_axes, old_rays = (
        camera_axes(before.heading[i], before.pitch[i]),
        view_axes(i, before.heading, before.pitch, lens),
    )
    rays, half = view_axes(i, now.heading, now.pitch, lens), numbers[0]
    # offset from the camera before to the present one, and from the body to the present camera
    ox, oz = now.position[i, 0] - before.position[i, 0], now.position[i, 2] - before.position[i, 2]
    oy = now.position[i, 1] - before.position[i, 1]
    ax, az = now.position[i, 0] - track_out.position[i, 0], now.position[i, 2] - track_out.position[i, 2]
    x, z, t, residuals, weights = _ZERO, _ZERO, _ZERO, _ZERO, _ONE
    for _ in range(ITERATIONS):
        xx = zz = _PRIOR
        tt = _PRIOR_TURN
        xz = xt = zt = residuals = weights = _ZERO
        gx, gz, gt = _PRIOR * x, _PRIOR * z, _PRIOR_TURN * t
        sine, cosine = sin_cos(t)
        for k in range((height // stride) * (width // stride)):
            row, column = np.int32(k) // (width // stride) * stride, np.int32(k) % (width // stride) * stride
            d = now.depth[i, row, column]
            if d <= _ZERO or d >= far:
                continue
            rx, ry, rz = pixel_ray(row, column, rays, height, width, half)
            bx, bz = ax + d * rx, az + d * rz  # from the body
            bx, bz = bx * cosine + bz * sine, bz * cosine - bx * sine
            offset = bx - ax + ox + x, oy + d * ry, bz - az + oz + z
            old_row, old_column = _pixel_of(offset, old_axes, numbers, height, width)
            if old_row < 0:
                continue
            at, normal = _surface(i, old_row, old_column, before, old_rays, half)
            r = _dot(normal, (offset[0] - at[0], offset[1] - at[1], offset[2] - at[2]))
            if abs(r) > _LARGEST:
                continue
            weight = _ONE / (_ONE + (r / _TYPICAL) * (r / _TYPICAL))
            residuals, weights = residuals + weight * abs(r), weights + weight
            jx, jz, jt = normal[0], normal[2], normal[0] * bz - normal[2] * bx
            xx, xz, xt = xx + weight * jx * jx, xz + weight * jx * jz, xt + weight * jx * jt
            zz, zt, tt = zz + weight * jz * jz, zt + weight * jz * jt, tt + weight * jt * jt
            gx, gz, gt = gx + weight * jx * r, gz + weight * jz * r, gt + weight * jt * r
        dx, dz, dt = _solved((xx, xz, xt, zz, zt, tt), (gx, gz, gt))
        x, z, t = x - dx, z - dz, t - dt
    if residuals <= _AGREES * weights:  # before the last step, which is small
        track_out.position[i, 0] += x
        track_out.position[i, 2] += z
        track_out.turned[i] += t
        track_out.heading[i] += t
