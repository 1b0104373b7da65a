"""Semantic and instance sensors: category, and object id, of the visible triangle of each pixel.

Ids are exact: neighbouring pixels are never mixed, and rollouts store int32.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange

from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.launch import launch
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.sensor import CameraSensor
from batchnav.types import Frame, Spec

_NOTHING = np.int32(0)
_HIGHEST = float(np.iinfo(np.int32).max)


class _IdSensor(CameraSensor):
    """i32 [N, 1, H, W]: a field of `Appearance` at the visible triangle; 0 for holes and unknown values."""

    name: str
    field: str

    def __init__(self, camera: CameraConfig, config: None = None):
        spec = Spec(self.name, (1, camera.height, camera.width), torch.int32, 0.0, _HIGHEST, torch.int32)
        super().__init__(spec, triangles=True, appearance=(self.field,))

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the ids."""
        triangle, appearance = self.surfaces(frame, out)
        arrays = view(triangle.view(-1)), view(getattr(appearance, self.field)), view(out.view(-1))
        if out.is_cuda:
            launch(_look_up_cuda, out.numel(), *arrays)
        else:
            _look_up_cpu(*arrays)


class SemanticSensor(_IdSensor):
    """Indices into `SceneBank.categories`, the category names of all scenes of a bank."""

    name, field = "semantic", "category"


class InstanceSensor(_IdSensor):
    """Object ids, numbered by each scene: two scenes of a bank may use the same id."""

    name, field = "instance", "object_id"


@device_function
def _id_of(number, ids):
    """Id of a triangle; 0 for -1."""
    return ids[np.uint32(number)] if number >= 0 else _NOTHING


@cpu_kernel
def _look_up_cpu(triangle, ids, ids_out):
    for pixel in prange(len(triangle)):
        ids_out[pixel] = _id_of(triangle[pixel], ids)


@cuda_kernel
def _look_up_cuda(triangle, ids, ids_out):
    pixel = np.uint64(cuda.grid(1))  # unsigned, so that no index is negative
    if pixel < np.uint64(len(triangle)):
        ids_out[pixel] = _id_of(triangle[pixel], ids)
