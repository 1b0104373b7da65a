"""The colour sensor: unlit base colour x texture x vertex colour, in the bytes of the scene files.

Colours are neither decoded nor lit nor blended, and holes are black: the conventions of habitat-sim for scenes without
lights, and of the renderer of Shacklett et al. 2021. `shade.py` computes the colour of a pixel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numba import prange

from batchnav.config import bounded, shortened
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import half_width, pixel_ray, pixel_spacing, view_axes
from batchnav.observation import Frame, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel
from batchnav.runtime.kernels.launch import BoundKernel, kernel
from batchnav.scene.appearance import COLOR_FIELDS, Appearance
from batchnav.sensors.body_surfaces import OverBodies, Pictures, paint_bodies, palette
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.color_effects import Exposure, ExposureNoise, Jpeg
from batchnav.sensors.noise import ColorNoise, ColorNoiseModel
from batchnav.sensors.sensor import CameraSensor
from batchnav.sensors.shade import LANES, Paint, as_byte, color_at, shade_lanes

TILE_WIDTH, TILE_HEIGHT, ROWS = 32, 4, 4
"""CUDA: width and height of a block's tile in pixels, one thread per pixel; number of tiles per block, in a column."""
AVERAGE_BLOCK = 256
"""CUDA: threads per block for averaging samples."""
PALETTE_OF_BODIES = "palette of bodies"
"""Key of the colours of moving bodies among the resources of a frame."""
_ZERO = np.float32(0.0)


@dataclass(frozen=True)
class RGBConfig:
    """Texture filtering, samples per pixel and noise of the colour sensor."""

    trilinear: bool = True
    """Interpolate between two mip levels where a texture's sampler asks for it, as most do. False: use the nearer level
    alone, which is faster and slightly less smooth."""

    samples: Literal[1, 4] = 1
    """Samples per pixel, averaged: 4 antialias edges, at 3.5 times the cost of rendering and shading."""

    rgb_noise: Literal["none", "gaussian", "speckle"] = "none"
    """Noise as in habitat-sim. For each channel of each pixel, with n ~ N(0, 1), x = noise_intensity (noise_sigma n +
    noise_mean) is added to the intensity I in 0..1, or I x for speckle. habitat-sim calls noise_intensity
    `intensity_constant`."""
    noise_intensity: float = bounded(0.2, 0.0, 10.0)
    """Factor of the noise; 1 is the range of a channel."""
    noise_mean: float = bounded(0.0, -10.0, 10.0)
    """Mean of the noise before the factor."""
    noise_sigma: float = bounded(1.0, 0.0, 10.0)
    """Standard deviation of the noise before the factor."""

    exposure_noise: float = bounded(0.0, 0.0, 4.0)
    """Largest change of the exposure, stops (factors of 2 of the light), brighter or darker. Changes of images are
    sampled uniformly, for training policies that tolerate them; evaluation leaves those of the training out."""
    white_balance_noise: float = bounded(0.0, 0.0, 0.9)
    """Largest change of red and of blue relative to green, as a fraction, to either side."""
    gamma_noise: float = bounded(0.0, 0.0, 2.0)
    """Largest change of gamma: values in 0..1 are raised to a power from 1 / (1 + gamma_noise) to 1 + gamma_noise."""
    exposure_per: Literal["episode", "step"] = "episode"
    """Exposure, white balance and gamma change with every episode, or with every step."""
    jpeg_quality: tuple[int, ...] = bounded((), 1, 100)
    """Lowest and highest quality of JPEG compression, 1 to 100 as in libjpeg; each image samples its own. Empty: images
    are not compressed."""

    def validate(self) -> None:
        """ConfigError where the quality is no range."""
        if self.jpeg_quality and (len(self.jpeg_quality) != 2 or self.jpeg_quality[0] > self.jpeg_quality[1]):
            found = shortened(list(self.jpeg_quality))
            raise ConfigError(f"jpeg_quality: found {found}, expected the lowest and the highest value, or none")

    @property
    def fixed(self) -> RGBConfig:
        """The settings without changes of exposure and without compression."""
        own = RGBConfig()
        names = "exposure_noise", "white_balance_noise", "gamma_noise", "jpeg_quality"
        return replace(self, **{name: getattr(own, name) for name in names})

    @property
    def exposure(self) -> ExposureNoise | None:
        """Settings of the exposure in kernels; None: it does not change."""
        stops, balance, gamma = map(np.float32, (self.exposure_noise, self.white_balance_noise, self.gamma_noise))
        changes = ExposureNoise(stops, balance, gamma, self.exposure_per == "step")
        return changes if any(changes[:3]) else None

    @property
    def noise(self) -> ColorNoise:
        """Noise settings in kernels."""
        intensity, mean, sigma = map(np.float32, (self.noise_intensity, self.noise_mean, self.noise_sigma))
        return ColorNoise(intensity, mean, sigma, self.rgb_noise == "speckle")


def paint_of(appearance: Appearance[torch.Tensor] | None) -> Paint:
    """Kernel arguments for the colours of a bank with colours."""
    fields = {name: getattr(appearance, name) for name in COLOR_FIELDS}
    if not len(fields["small_patches"]):
        fields["small_patches"] = fields["small_patches"].view(-1)
    return Paint(**{name: view(field) for name, field in fields.items()})


class RGBSensor(CameraSensor):
    """u8 [N, 3, H, W]: red, green, blue; 0 for holes."""

    Config = RGBConfig

    def __init__(self, camera: CameraConfig, config: RGBConfig | None = None, scale: int = 1):
        """`scale`: rows (and columns) of `camera` per row (and column) of the camera that renders."""
        config = config or RGBConfig()
        spec = Spec("rgb", (3, camera.height, camera.width), torch.uint8, 0.0, 255.0, torch.uint8)
        self._samples = 2 if config.samples == 4 else 1  # along a row, and along a column, of a pixel
        super().__init__(spec, triangles=True, appearance=COLOR_FIELDS, scale=self._samples * scale)
        self._trilinear = config.trilinear
        self._exposure = config.exposure and Exposure(config.exposure)
        self._noise = None if config.rgb_noise == "none" else ColorNoiseModel(config.noise)
        self._jpeg = Jpeg(config.jpeg_quality) if config.jpeg_quality else None
        self._bound: tuple[Appearance[torch.Tensor] | None, Callable[..., None]] | None = None
        self._bodies = OverBodies(paint_bodies)

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the samples before averaging, where a pixel has several, and of the curves of the exposure."""
        size = {} if self._exposure is None else {f"exposure of {self.spec.name}": num_envs * 3 * 256}
        if self._samples == 1:
            return size
        samples = num_envs * self._samples**2 * math.prod(self.spec.shape)
        return {f"samples of {self.spec.name}": samples, **size}

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write colours. Depth and triangles have a row (and column) per sample of a pixel."""
        depth, triangle, cameras = self.depth(frame), self.triangle(frame), self.cameras(frame)
        n, _, *sides = out.shape
        rendered = n, *(self._samples * side for side in sides)
        if depth.shape != rendered or triangle.shape != rendered:
            found = f"{list(depth.shape)} and {list(triangle.shape)}"
            raise ArgumentError(f"depth and triangles: found {found}, expected {list(rendered)}")
        tensors, appearance = (depth, triangle, *cameras.poses[1:], out), frame.appearance
        if self._bound is None or self._bound[0] is not appearance:
            self._bound = appearance, self._bind(appearance, *tensors)
        self._bound[1](frame, *tensors)
        if self._exposure is not None:
            self._exposure.apply(cameras.noise, out)
        if self._noise is not None:
            self._noise.add(cameras.noise, out)
        if self._jpeg is not None:
            self._jpeg.apply(cameras.noise, out)

    def _bind(self, appearance: Appearance[torch.Tensor] | None, *tensors: torch.Tensor) -> Callable[..., None]:
        """Kernels as a function of the tensors that may change between calls; `tensors` are those of the first call."""
        paint, (*read, out) = paint_of(appearance), tensors
        fine = out if self._samples == 1 else out.new_empty(*out.shape[:2], *tensors[0].shape[1:])
        shade = self._bind_shading(paint, *read, fine)

        def shade_all(frame: Frame, *now: torch.Tensor) -> None:
            shade(*now)
            if frame.seen is not None:
                colors = frame.resource(PALETTE_OF_BODIES, lambda: palette(frame.device))
                self._bodies.write(frame, Pictures(*now[:-1]), now[-1], colors)

        if self._samples == 1:
            return shade_all
        shrink = _bind_average(fine, out)

        def run(frame: Frame, *now: torch.Tensor) -> None:
            shade_all(frame, *now[:-1], fine)
            shrink(now[-1].view(-1, *now[-1].shape[2:]))

        return run

    def _bind_shading(self, paint: Paint, *tensors: torch.Tensor) -> Callable[..., None]:
        """Kernel that shades one sample per pixel."""
        *read, out = tensors
        if not out.is_cuda:
            return lambda *now: _rgb_cpu(*map(view, now[:-1]), paint, self._trilinear, view(now[-1]))
        n, _, height, width = out.shape
        arguments = (*map(view, read), paint, self._trilinear, view(out))
        blocks = n, -(-width // TILE_WIDTH), -(-height // (TILE_HEIGHT * ROWS))
        kernel = BoundKernel(_rgb_cuda, blocks, *arguments, block=TILE_WIDTH * TILE_HEIGHT)
        places = *range(len(read)), len(arguments) - 1

        def run(*now: torch.Tensor) -> None:
            for place, tensor in zip(places, now, strict=True):
                kernel.change(place, tensor.data_ptr())
            kernel()

        return run


def _bind_average(fine: torch.Tensor, example: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """Averages of 2 x 2 pixels of u8 [N, 3, 2 H, 2 W], as a function of the output u8 [N, 3, H, W]."""
    n, channels, height, width = example.shape
    planes = view(fine.view(-1, *fine.shape[2:])), view(example.view(-1, height, width))
    return average.bind((n * channels, height, width), *planes, live=(1,))


@kernel(over="pixels", index="np.uint32", block=AVERAGE_BLOCK, fastmath=True)
def average(plane, row, column, fine, mean_out):
    """Write one channel of a pixel: the rounded mean of its samples."""
    y, x, one = np.uint32(2 * row), np.uint32(2 * column), np.uint32(1)
    above = np.uint32(fine[plane, y, x]) + np.uint32(fine[plane, y, x + one])
    below = np.uint32(fine[plane, y + one, x]) + np.uint32(fine[plane, y + one, x + one])
    mean_out[plane, row, column] = np.uint8((above + below + np.uint32(2)) >> np.uint32(2))


@cpu_kernel
def _rgb_cpu(depth, triangle, position, heading, pitch, tan_half_hfov, paint, trilinear, rgb_out):
    """One task per row of an image."""
    n, height, width = triangle.shape
    for task in prange(n * height):
        i, row = np.uint32(task // height), np.uint32(task % height)
        axes, place = view_axes(i, heading, pitch, tan_half_hfov), (position[i, 0], position[i, 1], position[i, 2])
        half = half_width(i, tan_half_hfov)
        for column in range(0, width, LANES):
            shade_lanes(row, column, depth[i], triangle[i], place, axes, paint, half, trilinear, rgb_out[i])


@functools.partial(cuda_kernel, max_registers=48, lto=False)
def _rgb_cuda(depth, triangle, position, heading, pitch, tan_half_hfov, paint, trilinear, rgb_out):
    """A thread shades one pixel in each of ROWS stacked tiles; threads of a warp shade neighbours in a row."""
    i, thread = np.uint32(cuda.blockIdx.x), np.uint32(cuda.threadIdx.x)
    height, width = np.int32(triangle.shape[1]), np.int32(triangle.shape[2])
    column = np.int32(cuda.blockIdx.y * TILE_WIDTH + thread % TILE_WIDTH)
    first = np.int32(cuda.blockIdx.z * (TILE_HEIGHT * ROWS) + thread // TILE_WIDTH)
    if column >= width:
        return
    x, zero, one, two = np.uint32(column), np.uint32(0), np.uint32(1), np.uint32(2)
    axes = view_axes(i, heading, pitch, tan_half_hfov)
    place, half = (position[i, zero], position[i, one], position[i, two]), half_width(i, tan_half_hfov)
    spacing = pixel_spacing(width, half)
    for k in range(np.int32(ROWS)):
        row = np.int32(first + np.int32(np.int32(k) * np.int32(TILE_HEIGHT)))
        if row >= height:
            return
        y = np.uint32(row)
        number, red, green, blue = triangle[i, y, x], _ZERO, _ZERO, _ZERO
        if number >= 0:
            ray = pixel_ray(row, column, axes, height, width, half)
            red, green, blue = color_at(number, depth[i, y, x], ray, place, axes, spacing, paint, trilinear)
        rgb_out[i, zero, y, x], rgb_out[i, one, y, x], rgb_out[i, two, y, x] = (
            as_byte(red),
            as_byte(green),
            as_byte(blue),
        )
