"""The surface normal sensor: normals of visible surfaces in the camera's frame."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from batchnav.geometry.pose import camera_axes, half_width, pixel_ray, view_axes
from batchnav.observation import Frame, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function
from batchnav.runtime.kernels.intrinsics import load4
from batchnav.runtime.kernels.launch import kernel
from batchnav.scene.appearance import Appearance
from batchnav.sensors.body_surfaces import OverBodies, Pictures, write_body_normals
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.sensor import CameraSensor

_ZERO, _FIRST = np.float32(0.0), np.int32(0)
_PLACES = (0, 1, 2, 3, 5)
"""Positions of triangle, heading, pitch, field of view and output among the kernel's arguments."""


class NormalSensor(CameraSensor):
    """f32 [N, 3, H, W]: unit normals (right, up, back) of the visible side; 0 where no surface is visible."""

    def __init__(self, camera: CameraConfig, config: None = None):
        spec = Spec("normals", (3, camera.height, camera.width), torch.float32, -1.0, 1.0, torch.float32)
        super().__init__(spec, triangles=True, appearance=("normal",))
        self._bound: tuple[Appearance[torch.Tensor], Callable[..., None]] | None = None
        self._bodies = OverBodies(write_body_normals)

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the normals in the camera's frame."""
        triangle, appearance = self.surfaces(frame, out)
        cameras = self.cameras(frame)
        if self._bound is None or self._bound[0] is not appearance:
            self._bound = appearance, self._bind(appearance, cameras.tan_half_hfov, out)
        self._bound[1](triangle, cameras.heading, cameras.pitch, cameras.tan_half_hfov, out)
        if frame.seen is not None:
            self._bodies.write(frame, Pictures(self.depth(frame), triangle, *cameras.poses[1:]), out)

    def _bind(
        self, appearance: Appearance[torch.Tensor], lens: torch.Tensor, example: torch.Tensor
    ) -> Callable[..., None]:
        """A kernel as a function of the tensors that change between calls; `example` is like its output."""
        n, _, height, width = example.shape
        triangle = torch.zeros(n, height, width, dtype=torch.int32, device=example.device)
        number = torch.zeros(n, dtype=torch.float32, device=example.device)
        arrays = (*map(view, (triangle, number, number, lens)), view(appearance.normal), view(example))
        return write_normals.bind((n, height, width), *arrays, live=_PLACES)


@kernel(over="pixels", fastmath=True)
@device_function
def write_normals(i, row, column, triangle, heading, pitch, tan_half_hfov, normal, normals_out):
    """Write the normal of one pixel."""
    x, y, z = _ZERO, _ZERO, _ZERO
    number = triangle[i, row, column]
    if number >= 0:
        (rx, ry, rz), (ux, uy, uz), (fx, fy, fz) = camera_axes(heading[i], pitch[i])
        axes, half = view_axes(i, heading, pitch, tan_half_hfov), half_width(i, tan_half_hfov)
        height, width = np.int32(triangle.shape[1]), np.int32(triangle.shape[2])
        dx, dy, dz = pixel_ray(np.int32(row), np.int32(column), axes, height, width, half)
        nx, ny, nz, _ = load4(normal, np.int32(number), _FIRST)
        if nx * dx + ny * dy + nz * dz > _ZERO:  # the ray meets the back of the triangle
            nx, ny, nz = -nx, -ny, -nz
        x, y, z = nx * rx + ny * ry + nz * rz, nx * ux + ny * uy + nz * uz, -(nx * fx + ny * fy + nz * fz)
    normals_out[i, 0, row, column], normals_out[i, 1, row, column], normals_out[i, 2, row, column] = x, y, z
