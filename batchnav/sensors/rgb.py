"""The colour sensor: what surfaces look like, unlit: base colour x texture x vertex colour, bytes as files have them.

Nothing is decoded, lit or blended, and what nothing is seen at is black: habitat-sim's conventions for scenes without
lights, and those of the paper's renderer. Where a pixel meets its triangle follows
from its ray and depth; how many texels it covers, and so the mip level, from how the texture's coordinates change from
that ray to its neighbours' on the same plane: what a rasteriser takes from differences between neighbouring pixels, in
closed form (Heckbert, "Survey of Texture Mapping", IEEE CG&A 6(11), 1986). Ray cones (Akenine-Moeller et al., JCGT
10(1), 2021) know one radius in place of two axes, and are for rays that were reflected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.config import in_range
from batchnav.geometry.camera import pixel_ray, pixel_spacing, tan_half
from batchnav.geometry.pose import camera_axes
from batchnav.runtime.arrays import view
from batchnav.runtime.intrinsics import float_bits, fma, load4
from batchnav.runtime.kernels import cpu_kernel, cuda, cuda_kernel, device_function, inline_function
from batchnav.runtime.launch import BoundKernel
from batchnav.scene.appearance import COLOR_FIELDS, Appearance
from batchnav.scene.textures import SIZE
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.noise import ColorNoise, ColorNoiseModel
from batchnav.sensors.sensor import Views
from batchnav.sensors.texture import read_texture
from batchnav.types import Spec

BLOCK = 128
"""Pixels of a CUDA block, of one agent."""
_ZERO, _HALF, _ONE, _WHITE = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(255.0)
_A, _U, _V, _N = np.int32(0), np.int32(4), np.int32(8), np.int32(12)
"""Where the four vectors of a patch begin."""
_COLOR, _TEXTURE, _FIRST = np.int32(0), np.int32(SIZE), np.int32(0)


class Paint(NamedTuple):
    """The fields of `Appearance` that colours take, as kernels read them."""

    paint: Any
    patches: Any
    materials: Any
    levels: Any
    texels: Any


@dataclass(frozen=True)
class RGBConfig:
    """How textures are read, and how noisy the camera is."""

    trilinear: bool = True
    """Mix two mip levels where a texture asks for it, as nearly all do. False: read the nearer one alone, which is
    faster and a little less smooth."""

    rgb_noise: Literal["none", "gaussian", "speckle"] = "none"
    """habitat-sim's: of n ~ N(0, 1), drawn for every channel of every pixel, x = noise_intensity (noise_sigma n +
    noise_mean) is added to an intensity I of 0 to 1, or I x as speckle. The intensity is `intensity_constant` there."""
    noise_intensity: float = 0.2
    noise_mean: float = 0.0
    noise_sigma: float = 1.0

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "noise_intensity", 0.0, 10.0)
        in_range(self, "noise_mean", -10.0, 10.0)
        in_range(self, "noise_sigma", 0.0, 10.0)

    @property
    def noise(self) -> ColorNoise:
        """As kernels take it."""
        intensity, mean, sigma = map(np.float32, (self.noise_intensity, self.noise_mean, self.noise_sigma))
        return ColorNoise(intensity, mean, sigma, self.rgb_noise == "speckle")


class RGBSensor:
    """u8 [N, 3, H, W]: red, green, blue; 0 where nothing is seen."""

    needs_triangles, needs_appearance = True, COLOR_FIELDS
    max_depth = float("inf")

    def __init__(self, camera: CameraConfig, config: RGBConfig | None = None):
        self.spec = Spec("rgb", (3, camera.height, camera.width), torch.uint8, 0.0, 255.0, torch.uint8)
        config = config or RGBConfig()
        self._options = tan_half(camera.hfov_deg), config.trilinear
        self._noise = None if config.rgb_noise == "none" else ColorNoiseModel(config.noise)
        self._bound: tuple[Appearance | None, Callable[..., None]] | None = None

    def write(
        self,
        depth: torch.Tensor,
        triangle: torch.Tensor | None,
        views: Views,
        appearance: Appearance | None,
        out: torch.Tensor,
    ) -> None:
        """Depth and triangles -> bytes."""
        tensors = depth, triangle, views.position, views.heading, views.pitch, out
        if self._bound is None or self._bound[0] is not appearance:
            self._bound = appearance, self._bind(appearance, *tensors)
        self._bound[1](*tensors)
        if self._noise is not None:
            self._noise.add(views.draws, out)

    def _bind(self, appearance: Appearance | None, *tensors: Any) -> Callable[..., None]:
        """A kernel as a function of what changes from call to call; `tensors` are those of the first."""
        paint, (*read, out) = Paint(*(view(getattr(appearance, name)) for name in COLOR_FIELDS)), tensors
        if not out.is_cuda:
            return lambda *now: _rgb_cpu(*map(view, now[:-1]), paint, *self._options, view(now[-1]))
        n, _, height, width = out.shape
        arguments = (*map(view, read), paint, *self._options, view(out))
        kernel = BoundKernel(_rgb_cuda, (n, -(-height * width // BLOCK), 1), *arguments, block=BLOCK)
        places = *range(len(read)), len(arguments) - 1

        def run(*now: torch.Tensor) -> None:
            for place, tensor in zip(places, now, strict=True):
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
def _field(start, gradient, away, row, axes, first_ray, spacing):
    """A value that is linear in space, as a row of pixels sees it: `start` + gradient . (P - A) at P = o + depth d.

    That is s + depth (gradient . d), of which the last is linear over the image. Returns s, gradient . d in the row's
    first column, and by how much it grows to the right and downwards; `away` is o - A.
    """
    right, up, _ = axes
    to_right, down = spacing * _dot(gradient, right), -spacing * _dot(gradient, up)
    return start + _dot(gradient, away), fma(np.float32(row), down, _dot(gradient, first_ray)), to_right, down


@inline_function
def sight_of(number, row, place, axes, first_ray, spacing, paint):
    """What a row of pixels needs to know of a triangle that some of them see from `place`; see `Appearance`.

    Returns its colour (red, green, blue, each 0 to 1), its texture (first level or -1; last level, flags), by how much
    1 / depth grows to the right and downwards with the texture's width and height, U and V as `_field`s, and of the
    corners' colours whether there are any, and three fields.
    """
    patch = paint.paint[np.uint32(number)]
    material, tint, first = np.int32(~patch), np.int32(-1), np.int32(-1)
    nothing = _ZERO, _ZERO, _ZERO, _ZERO
    u, v, texture, slope = nothing, nothing, (_ZERO, _FIRST), (_ZERO, _ZERO, _ZERO, _ZERO)
    reds = greens = blues = nothing
    if patch >= 0:
        _, _, _, bits = load4(paint.patches, patch, _N)
        material, tint = float_bits(bits), patch
    red, green, blue, bits = load4(paint.materials, material, _COLOR)
    if patch >= 0:
        first = float_bits(bits)
    if first >= 0:
        nx, ny, nz, _ = load4(paint.patches, patch, _N)
        ax, ay, az, u_start = load4(paint.patches, patch, _A)
        ux, uy, uz, v_start = load4(paint.patches, patch, _U)
        vx, vy, vz, link = load4(paint.patches, patch, _V)
        width, height, flags, last_level = load4(paint.materials, material, _TEXTURE)
        away = place[0] - ax, place[1] - ay, place[2] - az
        u = _field(u_start, (ux, uy, uz), away, row, axes, first_ray, spacing)
        v = _field(v_start, (vx, vy, vz), away, row, axes, first_ray, spacing)
        right, up, _ = axes
        # The plane is met where depth (n . d) = n . (A - o).
        steeper = -spacing / _dot((nx, ny, nz), away)
        slope = steeper * _dot((nx, ny, nz), right), -steeper * _dot((nx, ny, nz), up), width, height
        texture, tint = (last_level, float_bits(flags)), float_bits(link)
    if tint >= 0:
        ax, ay, az, r_start = load4(paint.patches, tint, _A)
        rx, ry, rz, g_start = load4(paint.patches, tint, _U)
        gx, gy, gz, b_start = load4(paint.patches, tint, _V)
        bx, by, bz, _ = load4(paint.patches, tint, _N)
        away = place[0] - ax, place[1] - ay, place[2] - az
        reds = _field(r_start, (rx, ry, rz), away, row, axes, first_ray, spacing)
        greens = _field(g_start, (gx, gy, gz), away, row, axes, first_ray, spacing)
        blues = _field(b_start, (bx, by, bz), away, row, axes, first_ray, spacing)
    return (red, green, blue), first, texture, slope, u, v, tint >= 0, reds, greens, blues


@inline_function
def _footprint(depth, u, v, slope, u_ray, v_ray):
    """Square of how many texels of the finest level a pixel covers, along the longer of its two axes on the surface.

    With s + depth g and 1 / depth linear in x: d(s + depth g)/dx = depth (dg/dx - depth g d(1 / depth)/dx).
    """
    right, down = depth * slope[0], depth * slope[1]
    across_u, across_v = depth * slope[2], depth * slope[3]
    u_right, v_right = across_u * (u[2] - right * u_ray), across_v * (v[2] - right * v_ray)
    u_down, v_down = across_u * (u[3] - down * u_ray), across_v * (v[3] - down * v_ray)
    return max(fma(u_right, u_right, v_right * v_right), fma(u_down, u_down, v_down * v_down))


@device_function
def _within(field, column, depth):
    """A channel of the corners' colours at a pixel, 0 to 1."""
    return min(max(fma(depth, fma(column, field[2], field[1]), field[0]), _ZERO), _ONE)


@inline_function
def color_at(column, depth, sight, levels, texels, trilinear):
    """Red, green and blue, 0 to 255, of the pixel in this column that sees a triangle of `sight_of` at `depth`."""
    (red, green, blue), first, texture, slope, u, v, tinted, reds, greens, blues = sight
    x, r, g, b = np.float32(column), _WHITE, _WHITE, _WHITE
    if first >= 0:
        last_level, flags = texture
        u_ray, v_ray = fma(x, u[2], u[1]), fma(x, v[2], v[1])
        footprint = _footprint(depth, u, v, slope, u_ray, v_ray)
        place = fma(depth, u_ray, u[0]), fma(depth, v_ray, v[0])
        r, g, b = read_texture(first, last_level, flags, place, footprint, levels, texels, trilinear)
    if tinted:
        r, g, b = r * _within(reds, x, depth), g * _within(greens, x, depth), b * _within(blues, x, depth)
    return r * red, g * green, b * blue


@cpu_kernel
def _rgb_cpu(depth, triangle, position, heading, pitch, paint, tan_half_hfov, trilinear, rgb_out):
    """A thread's task is a row of a picture; neighbours that see one triangle share what they know of it."""
    n, height, width = triangle.shape
    spacing = pixel_spacing(np.int32(width), tan_half_hfov)
    for task in prange(n * height):
        i, row = np.uint32(task // height), np.int32(task % height)
        axes, place = camera_axes(heading[i], pitch[i]), (position[i, 0], position[i, 1], position[i, 2])
        corner = pixel_ray(_FIRST, _FIRST, axes, np.int32(height), np.int32(width), tan_half_hfov)
        last, known = np.int32(-1), np.int32(0)
        sight = sight_of(known, row, place, axes, corner, spacing, paint)
        for column in range(width):
            number, red, green, blue = triangle[i, row, column], _ZERO, _ZERO, _ZERO
            if number >= 0:
                if number != last:
                    sight, last = sight_of(number, row, place, axes, corner, spacing, paint), number
                far = depth[i, row, column]
                red, green, blue = color_at(np.int32(column), far, sight, paint.levels, paint.texels, trilinear)
            rgb_out[i, 0, row, column] = _byte(red)
            rgb_out[i, 1, row, column] = _byte(green)
            rgb_out[i, 2, row, column] = _byte(blue)


@cuda_kernel
def _rgb_cuda(depth, triangle, position, heading, pitch, paint, tan_half_hfov, trilinear, rgb_out):
    """A pixel a thread; a warp's are neighbours in a row."""
    i, pixel = np.uint32(cuda.blockIdx.x), np.int32(cuda.blockIdx.y * BLOCK + cuda.threadIdx.x)
    height, width = np.int32(triangle.shape[1]), np.int32(triangle.shape[2])
    if pixel >= height * width:
        return
    row = np.int32(np.uint32(pixel) // np.uint32(width))
    column = np.int32(pixel - np.int32(row * width))
    y, x, zero, one, two = np.uint32(row), np.uint32(column), np.uint32(0), np.uint32(1), np.uint32(2)
    number, red, green, blue = triangle[i, y, x], _ZERO, _ZERO, _ZERO
    if number >= 0:
        axes, place = camera_axes(heading[i], pitch[i]), (position[i, zero], position[i, one], position[i, two])
        corner = pixel_ray(_FIRST, _FIRST, axes, height, width, tan_half_hfov)
        sight = sight_of(number, row, place, axes, corner, pixel_spacing(width, tan_half_hfov), paint)
        red, green, blue = color_at(column, depth[i, y, x], sight, paint.levels, paint.texels, trilinear)
    rgb_out[i, zero, y, x], rgb_out[i, one, y, x], rgb_out[i, two, y, x] = _byte(red), _byte(green), _byte(blue)
