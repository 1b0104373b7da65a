"""Semantic and instance sensors: category, and object id, of the visible surface of each pixel.

Ids are exact: neighbouring pixels are never mixed, and rollouts store int32. Where ids are painted on a texture and a
triangle has several (`scene/id_tiles.py`), a pixel reads the texel nearest to the visible point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.geometry.pose import half_width, pixel_ray, view_axes
from batchnav.observation import Frame, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.intrinsics import float_bits, fma, load4
from batchnav.runtime.kernels.launch import kernel, launch
from batchnav.scene.appearance import ID_FIELDS, Appearance
from batchnav.scene.id_tiles import ON_THE_LINE
from batchnav.sensors.body_surfaces import (
    BODY_CATEGORIES,
    INSTANCES,
    OverBodies,
    Pictures,
    category_numbers,
    label_bodies,
)
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.sensor import CameraSensor

_NOTHING, _UNIT = np.int32(0), np.int32(1)
_A, _U, _V, _SIZE = np.int32(0), np.int32(4), np.int32(8), np.int32(12)
"""Columns where the four parts of an id patch begin."""
_ZERO, _ON_THE_LINE = np.float32(0.0), np.float32(ON_THE_LINE)
_HIGHEST = float(np.iinfo(np.int32).max)


class IdSensor(CameraSensor):
    """i32 [N, 1, H, W]: an id of the visible surface; 0 for holes and unknown values."""

    name: str
    field: str

    def __init__(self, camera: CameraConfig, config: None = None):
        spec = Spec(self.name, (1, camera.height, camera.width), torch.int32, 0.0, _HIGHEST, torch.int32)
        super().__init__(spec, triangles=True, appearance=(self.field,))
        self._bodies = OverBodies(label_bodies)

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the ids."""
        triangle, appearance = self.surfaces(frame, out)
        ids = view(getattr(appearance, self.field))
        if len(appearance.id_patches):
            self.write_tiled(frame, appearance, triangle, out)
        else:
            look_up(out.numel(), view(triangle.view(-1)), ids, view(out.view(-1)))
        if frame.seen is not None:
            pictures = Pictures(self.depth(frame), triangle, *self.cameras(frame).poses[1:])
            self._bodies.write(frame, pictures, out, self.body_categories(frame))

    def body_categories(self, frame: Frame) -> torch.Tensor:
        """Argument `categories` of `label_bodies`, the same tensor at every call."""
        return frame.resource(BODY_CATEGORIES, lambda: category_numbers(frame.bank, {}))

    def write_tiled(
        self, frame: Frame, appearance: Appearance[torch.Tensor], triangle: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Write the ids of scenes with tiles."""
        fields = (getattr(appearance, self.field), appearance.id_patches, appearance.id_texels)
        poses = self.cameras(frame).poses[1:]
        arrays = (view(triangle), view(self.depth(frame)), *map(view, poses), Ids(*map(view, fields)))
        column = np.int32(ID_FIELDS.index(self.field))
        if out.is_cuda:
            launch(_tiled_cuda, out.numel(), *arrays, column, view(out))
        else:
            _tiled_cpu(*arrays, column, view(out))


class SemanticSensor(IdSensor):
    """Indices into `SceneBank.categories`, the category names of all scenes of a bank.

    People have the category "person", MultiON's cylinders their own, such as "cylinder_red", other bodies 0.
    """

    name, field = "semantic", "category"


class InstanceSensor(IdSensor):
    """Object ids, numbered by each scene: two scenes of a bank may use the same id.

    Moving body k of the agent's world has the id FIRST_INSTANCE + k (`sensors.body_surfaces`).
    """

    name, field = "instance", "object_id"

    def body_categories(self, frame: Frame) -> torch.Tensor:
        """Argument `categories` of `label_bodies`."""
        return frame.resource(INSTANCES, lambda: torch.full((1,), INSTANCES, dtype=torch.int32, device=frame.device))


class Ids(NamedTuple):
    """Fields of `Appearance` that give ids."""

    ids: Any
    """i32 [F]: `object_id` or `category`."""
    patches: Any
    texels: Any


@kernel(index="np.uint64", fastmath=True)  # unsigned, so that no index is negative
def look_up(pixel, triangle, ids, ids_out):
    """Write the id of a pixel's triangle; 0 for -1."""
    number = triangle[pixel]
    ids_out[pixel] = ids[np.uint32(number)] if number >= 0 else _NOTHING


@device_function
def id_at(number, depth, ray, place, ids, column):
    """Id of triangle `number` at the visible point; `column` of `id_texels`."""
    if number < 0:
        return _NOTHING
    patch = ids.ids[np.uint32(number)]
    if patch >= 0:
        return patch
    patch = np.int32(~patch)
    ax, ay, az, u = load4(ids.patches, patch, _A)
    ux, uy, uz, v = load4(ids.patches, patch, _U)
    vx, vy, vz, first = load4(ids.patches, patch, _V)
    width, height, _, _ = load4(ids.patches, patch, _SIZE)
    x = fma(depth, ray[0], place[0] - ax)
    y = fma(depth, ray[1], place[1] - ay)
    z = fma(depth, ray[2], place[2] - az)
    u += fma(ux, x, fma(uy, y, uz * z))
    v += fma(vx, x, fma(vy, y, vz * z))
    columns = float_bits(width)
    row, texel = _nearest(v, float_bits(height)), _nearest(u, columns)
    return ids.texels[np.uint32(float_bits(first) + np.int32(row * columns) + texel), np.uint32(column)]


@device_function
def _nearest(place, size):
    """Number of the texel at a place on a tile of `size` texels; also for NaN."""
    inside = min(max(place - _ON_THE_LINE, _ZERO), np.float32(size - _UNIT))
    return min(max(np.int32(inside), _NOTHING), np.int32(size - _UNIT))


@cpu_kernel
def _tiled_cpu(triangle, depth, position, heading, pitch, tan_half_hfov, ids, column, ids_out):
    n, height, width = triangle.shape
    for task in prange(n * height):
        i, row = np.uint32(task // height), np.uint32(task % height)
        axes, place = view_axes(i, heading, pitch, tan_half_hfov), (position[i, 0], position[i, 1], position[i, 2])
        half = half_width(i, tan_half_hfov)
        for x in range(np.uint32(width)):
            ray = pixel_ray(np.int32(row), np.int32(x), axes, np.int32(height), np.int32(width), half)
            ids_out[i, 0, row, x] = id_at(triangle[i, row, x], depth[i, row, x], ray, place, ids, column)


@cuda_kernel
def _tiled_cuda(triangle, depth, position, heading, pitch, tan_half_hfov, ids, column, ids_out):
    n, height, width = triangle.shape
    pixel = cuda.grid(1)
    if pixel < n * height * width:
        i, rest = pixel // (height * width), pixel % (height * width)
        row, x = rest // width, rest % width
        axes, place = view_axes(i, heading, pitch, tan_half_hfov), (position[i, 0], position[i, 1], position[i, 2])
        half = half_width(i, tan_half_hfov)
        ray = pixel_ray(np.int32(row), np.int32(x), axes, np.int32(height), np.int32(width), half)
        ids_out[i, 0, row, x] = id_at(triangle[i, row, x], depth[i, row, x], ray, place, ids, column)
