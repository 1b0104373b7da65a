"""Noise of colour images: habitat-sim's Gaussian and speckle noise, sampled per pixel and step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, device_function, lean_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.runtime.kernels.step_rng import RGB, normal_quantile, step_uniforms
from batchnav.sensors.sensor import NoiseCounters

BLOCK = 128
"""CUDA: pixels per block, all of one agent."""
_ZERO, _WHITE = np.float32(0.0), np.float32(255.0)


class ColorNoise(NamedTuple):
    """Noise of a channel I in 0..255: adds 255 x, or I x for speckle; x = intensity (sigma n + mean), n ~ N(0, 1)."""

    intensity: np.float32
    mean: np.float32
    sigma: np.float32
    speckle: bool


def checked_noise(name: str, noise: NoiseCounters | None) -> NoiseCounters:
    """The counters of a sensor's noise; ArgumentError if there are none."""
    if noise is None:
        raise ArgumentError(f"{name}: found noise but cameras without a seed, expected `Cameras.noise`; pass `seeds`")
    return noise


@lean_function
def pixel_uniforms(i, pixel, noise, stream):
    """Four uniform float32 in (0, 1) for a pixel of agent i in its current step."""
    agent, episode, step = noise.first_agent[0] + np.int64(i), noise.episode[i], noise.steps[i]
    return step_uniforms(noise.seed[0], agent, episode, step, stream + 2 * noise.camera, pixel)


class ColorNoiseModel:
    """Adds noise to images in place."""

    def __init__(self, settings: ColorNoise):
        self._settings = settings
        self._bound: tuple[NoiseCounters, BoundKernel] | None = None

    def add(self, noise: NoiseCounters | None, rgb: torch.Tensor) -> None:
        """Add noise to u8 [N, 3, H, W]."""
        noise = checked_noise("rgb", noise)
        if not rgb.is_cuda:
            _color_cpu(view(noise), self._settings, rgb.numpy())
            return
        if self._bound is None or self._bound[0] is not noise:
            n, _, height, width = rgb.shape
            grid = n, -(-height * width // BLOCK), 1
            arguments: tuple[Any, ...] = view(noise), self._settings, view(rgb)
            self._bound = noise, BoundKernel(_color_cuda, grid, *arguments, block=BLOCK)
        self._bound[1].change(2, rgb.data_ptr())
        self._bound[1]()


@device_function
def _noisy(value, u, settings):
    """A channel with noise, as a byte."""
    level = np.float32(value)
    x = settings.intensity * (settings.sigma * normal_quantile(u) + settings.mean)
    level += x * (level if settings.speckle else _WHITE)
    return np.uint8(min(max(level, _ZERO), _WHITE))


@lean_function
def _add(i, row, column, noise, settings, rgb_out):
    """Add noise to one pixel."""
    pixel = np.int32(row) * np.int32(rgb_out.shape[3]) + np.int32(column)
    u, v, w, _ = pixel_uniforms(i, pixel, noise, RGB)
    rgb_out[i, 0, row, column] = _noisy(rgb_out[i, 0, row, column], u, settings)
    rgb_out[i, 1, row, column] = _noisy(rgb_out[i, 1, row, column], v, settings)
    rgb_out[i, 2, row, column] = _noisy(rgb_out[i, 2, row, column], w, settings)


@cpu_kernel
def _color_cpu(noise, settings, rgb_out):
    n, _, height, width = rgb_out.shape
    for task in prange(n * height):
        i, row = np.int64(task // height), np.int64(task % height)
        for column in range(width):
            _add(i, row, column, noise, settings, rgb_out)


@cuda_kernel
def _color_cuda(noise, settings, rgb_out):
    """One thread per pixel."""
    i, pixel = cuda.blockIdx.x, np.int32(cuda.blockIdx.y * BLOCK + cuda.threadIdx.x)
    height, width = np.int32(rgb_out.shape[2]), np.int32(rgb_out.shape[3])
    if pixel < height * width:
        _add(i, pixel // width, pixel % width, noise, settings, rgb_out)
