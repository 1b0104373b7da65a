"""The colour sensor: what surfaces look like, unlit: base colour x texture x vertex colour, bytes as files have them.

Nothing is decoded, lit or blended, and what nothing is seen at is black: habitat-sim's conventions for scenes without
lights, and those of the paper's renderer. Where a pixel meets its triangle follows from its ray and depth; how many
texels it covers, and so the mip level, from how the texture's coordinates change from that ray to its neighbours' on
the same plane: what a rasteriser takes from differences between neighbouring pixels, in closed form (Akenine-Moeller et
al., "Improved Shader and Texture Level of Detail Using Ray Cones", JCGT 10(1), 2021, compare it with ray cones, which
know one radius in place of two axes and blur surfaces seen at a slant).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.geometry.camera import pixel_ray, pixel_spacing, tan_half
from batchnav.geometry.pose import camera_axes
from batchnav.runtime.arrays import view
from batchnav.runtime.intrinsics import float_bits, fma, load4
from batchnav.runtime.kernels import cpu_kernel, cuda, cuda_kernel, device_function, inline_function
from batchnav.runtime.launch import BoundKernel
from batchnav.scene.appearance import COLOR_FIELDS, Appearance
from batchnav.scene.textures import SIZE
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.sensor import Views
from batchnav.sensors.texture import read_texture
from batchnav.types import Spec

BLOCK = 128
"""Pixels of a CUDA block, of one agent."""
_ZERO, _HALF, _ONE, _WHITE = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(255.0)
_A, _U, _V, _N = np.int32(0), np.int32(4), np.int32(8), np.int32(12)
"""Where the four vectors of a patch begin."""
_COLOR, _TEXTURE = np.int32(0), np.int32(SIZE)


class Paint(NamedTuple):
    """The fields of `Appearance` that colours take, as kernels read them."""

    paint: Any
    patches: Any
    materials: Any
    levels: Any
    texels: Any


@dataclass(frozen=True)
class RGBConfig:
    """How textures are read."""

    trilinear: bool = True
    """Mix two mip levels where a texture asks for it, as nearly all do. False: read the nearer one alone, which is
    faster and a little less smooth."""


class RGBSensor:
    """u8 [N, 3, H, W]: red, green, blue; 0 where nothing is seen."""

    needs_triangles, needs_appearance = True, COLOR_FIELDS
    max_depth = float("inf")

    def __init__(self, camera: CameraConfig, config: RGBConfig | None = None):
        self.spec = Spec("rgb", (3, camera.height, camera.width), torch.uint8, 0.0, 255.0, torch.uint8)
        self._options = tan_half(camera.hfov_deg), (config or RGBConfig()).trilinear
        self._bound: tuple[Appearance, Callable[..., None]] | None = None

    def write(
        self,
        depth: torch.Tensor,
        triangle: torch.Tensor | None,
        views: Views,
        appearance: Appearance | None,
        out: torch.Tensor,
    ) -> None:
        """Depth and triangles -> bytes."""
        if self._bound is None or self._bound[0] is not appearance:
            paint = Paint(*(view(getattr(appearance, name)) for name in COLOR_FIELDS))
            self._bound = appearance, self._bind(paint, out)
        self._bound[1](depth, triangle, views.position, views.heading, views.pitch, out)

    def _bind(self, paint: Paint, example: torch.Tensor) -> Callable[..., None]:
        """A kernel as a function of what changes from call to call; `example` is one of its outputs."""
        if example.device.type == "cpu":
            return lambda *tensors: _rgb_cpu(*map(view, tensors[:-1]), paint, *self._options, view(tensors[-1]))
        n, _, height, width = example.shape
        image, angle = torch.zeros(n, height, width, device=example.device), torch.zeros(n, device=example.device)
        read = (image, image.to(torch.int32), torch.zeros(n, 3, device=example.device), angle, angle)
        blocks = (n, -(-height * width // BLOCK), 1)
        kernel = BoundKernel(
            _rgb_cuda, blocks, *map(view, read), paint, *self._options, view(torch.zeros_like(example)), block=BLOCK
        )
        places = (0, 1, 2, 3, 4, len(read) + 1 + len(self._options))

        def run(*tensors: torch.Tensor) -> None:
            for place, tensor in zip(places, tensors, strict=True):
                kernel.change(place, tensor.data_ptr())
            kernel()

        return run


@device_function
def _byte(value):
    """0 to 255, rounded as OpenGL does."""
    return np.uint8(np.int32(min(value, _WHITE) + _HALF))


@device_function
def _dot(a, b):
    return fma(a[0], b[0], fma(a[1], b[1], a[2] * b[2]))


@inline_function
def _footprint(depth, ray, axes, spacing, gradients, size):
    """How many texels of the finest level a pixel covers along the longer of its axes on the surface.

    The plane's point along the ray d moves with it: P = o + depth d, n . P = constant, so a step e of d moves P by
    depth (e - d (n . e) / (n . d)).
    """
    (u, v, normal), (right, up, _) = gradients, axes
    scale = depth * spacing
    slope = _ONE / _dot(normal, ray)
    u_ray, v_ray = _dot(u, ray) * slope, _dot(v, ray) * slope
    n_right, n_up = _dot(normal, right), _dot(normal, up)
    across = scale * size[0], scale * size[1]
    u_right, v_right = (_dot(u, right) - u_ray * n_right) * across[0], (_dot(v, right) - v_ray * n_right) * across[1]
    u_up, v_up = (_dot(u, up) - u_ray * n_up) * across[0], (_dot(v, up) - v_ray * n_up) * across[1]
    return max(max(abs(u_right), abs(v_right)), max(abs(u_up), abs(v_up)))


@inline_function
def _tint(row, patches, point):
    """The colour of a triangle with coloured corners at a point, each channel 0 to 1."""
    ax, ay, az, red = load4(patches, row, _A)
    rx, ry, rz, green = load4(patches, row, _U)
    gx, gy, gz, blue = load4(patches, row, _V)
    bx, by, bz, _ = load4(patches, row, _N)
    away = point[0] - ax, point[1] - ay, point[2] - az
    red, green, blue = red + _dot((rx, ry, rz), away), green + _dot((gx, gy, gz), away), blue + _dot((bx, by, bz), away)
    return min(max(red, _ZERO), _ONE), min(max(green, _ZERO), _ONE), min(max(blue, _ZERO), _ONE)


@inline_function
def color_at(number, depth, place, ray, axes, paint, spacing, trilinear):
    """Red, green and blue, 0 to 255, of a triangle at `depth` along a ray from `place`; see `Appearance`."""
    row = paint.paint[np.uint32(number)]
    if row < 0:
        red, green, blue, _ = load4(paint.materials, np.int32(~row), _COLOR)
        return red * _WHITE, green * _WHITE, blue * _WHITE
    nx, ny, nz, material = load4(paint.patches, row, _N)
    red, green, blue, first_level = load4(paint.materials, float_bits(material), _COLOR)
    point = fma(depth, ray[0], place[0]), fma(depth, ray[1], place[1]), fma(depth, ray[2], place[2])
    first, tint = float_bits(first_level), row
    r, g, b = _WHITE, _WHITE, _WHITE
    if first >= 0:
        ax, ay, az, u = load4(paint.patches, row, _A)
        ux, uy, uz, v = load4(paint.patches, row, _U)
        vx, vy, vz, link = load4(paint.patches, row, _V)
        width, height, flags, last_level = load4(paint.materials, float_bits(material), _TEXTURE)
        away = point[0] - ax, point[1] - ay, point[2] - az
        u, v = u + _dot((ux, uy, uz), away), v + _dot((vx, vy, vz), away)
        gradients = (ux, uy, uz), (vx, vy, vz), (nx, ny, nz)
        footprint = _footprint(depth, ray, axes, spacing, gradients, (width, height))
        r, g, b = read_texture(
            first, last_level, float_bits(flags), (u, v), footprint, trilinear, paint.levels, paint.texels
        )
        tint = float_bits(link)
    if tint >= 0:
        red_tint, green_tint, blue_tint = _tint(tint, paint.patches, point)
        red, green, blue = red * red_tint, green * green_tint, blue * blue_tint
    return r * red, g * green, b * blue


@inline_function
def _shade(i, row, column, axes, depth, triangle, position, paint, options, rgb_out):
    """One pixel."""
    tan_half_hfov, trilinear = options
    height, width = np.int32(triangle.shape[1]), np.int32(triangle.shape[2])
    y, x = np.uint32(row), np.uint32(column)
    number, zero, one, two = triangle[i, y, x], np.uint32(0), np.uint32(1), np.uint32(2)
    red, green, blue = _ZERO, _ZERO, _ZERO
    if number >= 0:
        place = position[i, zero], position[i, one], position[i, two]
        ray = pixel_ray(row, column, axes, height, width, tan_half_hfov)
        spacing = pixel_spacing(width, tan_half_hfov)
        red, green, blue = color_at(number, depth[i, y, x], place, ray, axes, paint, spacing, trilinear)
    rgb_out[i, zero, y, x], rgb_out[i, one, y, x], rgb_out[i, two, y, x] = _byte(red), _byte(green), _byte(blue)


@cpu_kernel
def _rgb_cpu(depth, triangle, position, heading, pitch, paint, tan_half_hfov, trilinear, rgb_out):
    n, height, width = triangle.shape
    for task in prange(n * height):
        i, row = np.uint32(task // height), np.int32(task % height)
        axes = camera_axes(heading[i], pitch[i])
        for column in range(width):
            _shade(
                i, row, np.int32(column), axes, depth, triangle, position, paint, (tan_half_hfov, trilinear), rgb_out
            )


@cuda_kernel
def _rgb_cuda(depth, triangle, position, heading, pitch, paint, tan_half_hfov, trilinear, rgb_out):
    i, pixel = np.uint32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y * BLOCK + cuda.threadIdx.x)
    height, width = np.int32(triangle.shape[1]), np.int32(triangle.shape[2])
    if pixel < height * width:
        row = np.int32(np.uint32(pixel) // np.uint32(width))
        axes, options = camera_axes(heading[i], pitch[i]), (tan_half_hfov, trilinear)
        column = np.int32(pixel - np.int32(row * width))
        _shade(i, row, column, axes, depth, triangle, position, paint, options, rgb_out)
