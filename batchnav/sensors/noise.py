"""Noise of colour images: habitat-sim's Gaussian and speckle noise, sampled per pixel and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.loops import kernel
from batchnav.runtime.kernels.rng import RGB, normal_quantile, step_uniforms
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
        self._bound: tuple[NoiseCounters, Callable[..., None]] | None = None

    def add(self, noise: NoiseCounters | None, rgb: torch.Tensor) -> None:
        """Add noise to u8 [N, 3, H, W]."""
        noise = checked_noise("rgb", noise)
        if self._bound is None or self._bound[0] is not noise:
            n, _, height, width = rgb.shape
            add = add_noise.bind((n, height, width), view(noise), self._settings, view(rgb), live=(2,))
            self._bound = noise, add
        self._bound[1](rgb)


@device_function
def _noisy(value, u, settings):
    """A channel with noise, as a byte."""
    level = np.float32(value)
    x = settings.intensity * (settings.sigma * normal_quantile(u) + settings.mean)
    level += x * (level if settings.speckle else _WHITE)
    return np.uint8(min(max(level, _ZERO), _WHITE))


@kernel(over="pixels", fastmath=True, block=BLOCK)
def add_noise(i, row, column, noise, settings, rgb_out):
    """Add noise to one pixel."""
    pixel = np.int32(row) * np.int32(rgb_out.shape[3]) + np.int32(column)
    u, v, w, _ = pixel_uniforms(i, pixel, noise, RGB)
    rgb_out[i, 0, row, column] = _noisy(rgb_out[i, 0, row, column], u, settings)
    rgb_out[i, 1, row, column] = _noisy(rgb_out[i, 1, row, column], v, settings)
    rgb_out[i, 2, row, column] = _noisy(rgb_out[i, 2, row, column], w, settings)
