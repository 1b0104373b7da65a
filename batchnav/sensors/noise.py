"""Noise models: Gaussian and speckle noise of colour images as in habitat-sim; depth of a Kinect and of a D435."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import half_width
from batchnav.runtime.files import read_array
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import DEPTH, RGB, normal_quantile, step_uniforms
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


# Redwood noise of depth cameras: shuffled pixels, a distortion that grows with depth, and quantised disparities

CELLS, LAYERS = 80, 5
"""Size of a distortion table: a row per 6 lines of 480, a column per 8 pixels of 640, layers at 1, 3, 5, 7 and 9 m."""
BASELINE = 35.130
"""Focal length times baseline of the camera, metres times pixels of disparity."""
_LARGEST_FACTOR = 10.0
_LARGEST_ERROR = 3.0
"""Largest disparity error of the synthetic table, eighths of a pixel."""
_SEED, _WAVES = 2015, 4
_UNSEEN = ((0, 2, 0, 80), (78, 80, 0, 80), (0, 80, 0, 1), (0, 80, 76, 80))
"""Rows and columns of the synthetic table without depth, at the edges of the image, as with such cameras."""
_SHUFFLE, _FAR = np.float32(0.25), np.float32(10.0)
_EIGHTHS, _DISPARITY, _DEVIATION = np.float32(8.0), np.float32(BASELINE), np.float32(0.027778)
_DEPTH_OF_ONE = np.float32(8.0 * BASELINE)
_LEAST_FACTOR = np.float32(1e-5)
_NOTHING, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
_LAST_LINE, _LAST_PIXEL = np.float32(479.0), np.float32(639.0)
_BLOCK = 128


def synthetic_table() -> np.ndarray:
    """The synthetic distortion table f32 [80, 80, 5]: true over measured depth, 0 where nothing is measured.

    It models a camera whose disparities, in eighths of a pixel, have a smooth error e(row, column) of at most 3. At
    depth z it measures 281.04 / (281.04 / z + e), so the factor is 1 + e z / 281.04. e is a sum of 4 x 4 cosines with
    seeded random weights.
    """
    weights = np.random.default_rng(_SEED).standard_normal((_WAVES, _WAVES))
    waves = np.cos(np.pi * np.outer(np.arange(_WAVES), (np.arange(CELLS) + 0.5) / CELLS))
    error = waves.T @ weights @ waves
    error *= _LARGEST_ERROR / abs(error).max()
    metres = 1.0 + 2.0 * np.arange(LAYERS)
    table = 1.0 + error[:, :, None] * metres / (8.0 * BASELINE)
    for top, bottom, left, right in _UNSEEN:
        table[top:bottom, left:right] = 0.0
    return table.astype(np.float32)


def load_table(path: str | Path) -> np.ndarray:
    """A distortion table from a `.npy` file in habitat-sim's format: floats [80, 400] or [80, 80, 5] from 0 to 10.

    Returns f32 [80, 80, 5]. ConfigError for an unreadable or invalid file.
    """
    try:
        table = read_array(path, ConfigError)
    except ConfigError as error:
        raise ConfigError(f"redwood_table: {error}") from error
    shapes = (CELLS, CELLS * LAYERS), (CELLS, CELLS, LAYERS)
    if table.shape not in shapes or not np.issubdtype(table.dtype, np.floating):
        found = f"{table.dtype} {list(table.shape)}"
        raise ConfigError(f"redwood_table: {path}: found {found}, expected floats [80, 400] or [80, 80, 5]")
    good = (table >= 0.0) & (table <= _LARGEST_FACTOR)  # NaN fails here too
    if not good.all():
        raise ConfigError(
            f"redwood_table: {path}: found {table[~good][0]}, expected factors from 0 to {_LARGEST_FACTOR:g}"
        )
    return np.ascontiguousarray(table, np.float32).reshape(CELLS, CELLS, LAYERS)


class RedwoodNoise:
    """Adds Redwood noise to depth images.

    Args:
        multiplier: scale of the pixel shuffling and of the disparity noise.
        path: file with a distortion table; "": `synthetic_table`.
    """

    def __init__(self, multiplier: float, path: str = ""):
        self._multiplier = np.float32(multiplier)
        self._table = torch.from_numpy(load_table(path) if path else synthetic_table())
        self._bound: tuple[NoiseCounters, Callable[..., None]] | None = None
        self._noisy = torch.zeros(0, dtype=torch.float32, device="cpu")

    def measure(self, noise: NoiseCounters | None, depth: torch.Tensor) -> torch.Tensor:
        """Measured depth f32 [N, H, W] for exact depth, metres, 0 for holes; valid until the next call."""
        noise = checked_noise("depth", noise)
        if self._noisy.shape != depth.shape or self._noisy.device != depth.device:
            self._noisy, self._bound = torch.zeros_like(depth), None
        if self._bound is None or self._bound[0] is not noise:
            self._table = self._table.to(depth.device)
            arrays = *map(view, (depth, noise, self._table)), self._multiplier, view(self._noisy)
            self._bound = noise, measure_depth.bind(tuple(depth.shape), *arrays, live=(0,))
        self._bound[1](depth)
        return self._noisy


@lean_function
def _shuffled(place, size, u, multiplier):
    """Row (or column) of the pixel whose depth is read for another pixel."""
    moved = np.float32(place) + _SHUFFLE * multiplier * normal_quantile(u)
    return np.int32(min(max(moved, _NOTHING), np.float32(size - 1)) + _HALF)


@lean_function
def _factor(metres, row, column, height, width, table):
    """Distortion factor for a depth in metres at a row and column of an image."""
    line = np.int32(_LAST_LINE * np.float32(row) / np.float32(height - 1) + _HALF) // np.int32(6)
    pixel = np.int32(_LAST_PIXEL * np.float32(column) / np.float32(width - 1) + _HALF) // np.int32(8)
    above = np.int32((metres + _ONE) / _TWO)
    share = (metres - np.float32(2 * above - 1)) / _TWO
    below, above = max(above - 1, 0), min(above, LAYERS - 1)
    return (_ONE - share) * table[line, pixel, below] + share * table[line, pixel, above]


@lean_function
def _measured(metres, factor, u, multiplier):
    """Depth after quantisation of the disparity to eighths of a pixel; 0 where nothing is measured."""
    if metres >= _FAR or metres <= _NOTHING or factor < _LEAST_FACTOR:
        return _NOTHING
    disparity = _DISPARITY * factor / metres + _DEVIATION * multiplier * normal_quantile(u)
    eighths = np.float32(math.floor(_EIGHTHS * disparity + _HALF))
    return _DEPTH_OF_ONE / eighths if eighths > _NOTHING else _NOTHING


@kernel(over="pixels", fastmath=True, block=_BLOCK)
def measure_depth(i, row, column, depth, noise, table, multiplier, metres_out):
    """Write the measured depth of one pixel."""
    height, width = np.int32(depth.shape[1]), np.int32(depth.shape[2])
    u, v, w, _ = pixel_uniforms(i, np.int32(row) * width + np.int32(column), noise, DEPTH)
    y, x = _shuffled(row, height, u, multiplier), _shuffled(column, width, v, multiplier)
    metres = depth[i, y - y % 2, x - x % 2]
    factor = _factor(min(metres, _FAR), y, x, height, width, table)
    metres_out[i, row, column] = _measured(metres, factor, w, multiplier)


# Noise of a stereo camera such as Intel's RealSense D435, by its geometry: noisy and quantised disparities, ragged
# edges of surfaces, and pixels that its right imager does not see: the shadow on the left of near surfaces, and the
# left edge of the image. Numbers: Intel's data sheet of the D400 series, "Tuning depth cameras for best performance".

STEREO_BASELINE = 0.05
"""Metres between both imagers; depth is that of the left one."""
STEREO_FOCAL = 424.0
"""Focal length at 848 pixels and 90 degrees, in pixels. Disparities of the matching are in these pixels."""
STEREO_LEAST, STEREO_MOST = np.float32(0.28), np.float32(10.0)
"""Metres between which it measures."""
STEREO_FADES = np.float32(6.0)
"""Metres from which on pixels are lost; their share grows linearly to all at `STEREO_MOST`."""
_SUBPIXEL, _STEPS = np.float32(0.1), np.float32(32.0)
"""Standard deviation of a disparity, pixels, and its steps per pixel."""
_WINDOW = np.float32(2.0 / STEREO_FOCAL)
"""Standard deviation of the place whose depth a pixel gets from the matching window, in focal lengths."""
_BASELINE, _BASE = np.float32(STEREO_BASELINE), np.float32(STEREO_BASELINE * STEREO_FOCAL)


class StereoNoise:
    """Adds the noise of a D435 to depth images.

    Args:
        multiplier: scale of the noise of disparities and edges.
    """

    def __init__(self, multiplier: float):
        self._multiplier = np.float32(multiplier)
        self._bound: tuple[Any, ...] = (None, None)
        self._noisy = torch.zeros(0, dtype=torch.float32, device="cpu")

    def measure(self, noise: NoiseCounters | None, depth: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        """Measured depth f32 [N, H, W] for exact depth, metres, 0 for holes; valid until the next call.

        `lens`: `Cameras.tan_half_hfov`.
        """
        noise = checked_noise("depth", noise)
        if self._noisy.shape != depth.shape or self._noisy.device != depth.device:
            self._noisy, self._bound = torch.zeros_like(depth), (None, None)
        if self._bound[0] is not noise or self._bound[1] is not lens:
            arrays = *map(view, (depth, noise, lens)), self._multiplier, view(self._noisy)
            self._bound = noise, lens, measure_stereo.bind(tuple(depth.shape), *arrays, live=(0,))
        self._bound[2](depth)
        return self._noisy


@lean_function
def _in_shadow(i, row, column, metres, focal, depth):
    """True where the right imager does not see the surface at a pixel: it is hidden, or outside of the image."""
    shift, width = focal * _BASELINE, np.int32(depth.shape[2])
    if shift / metres > np.float32(column) + _HALF:
        return True
    last = min(width - np.int32(1), np.int32(column) + np.int32(shift / STEREO_LEAST + _ONE))
    for other in range(np.int32(column) + np.int32(1), last + np.int32(1)):
        nearer = depth[i, row, other]
        if nearer > _NOTHING and shift / nearer - shift / metres >= np.float32(other - column) - _HALF:
            return True
    return False


@kernel(over="pixels", fastmath=True, block=_BLOCK)
def measure_stereo(i, row, column, depth, noise, lens, multiplier, metres_out):
    """Write the measured depth of one pixel."""
    height, width = np.int32(depth.shape[1]), np.int32(depth.shape[2])
    u, v, w, lost = pixel_uniforms(i, np.int32(row) * width + np.int32(column), noise, DEPTH)
    focal = np.float32(width) / (_TWO * half_width(i, lens))
    spread = _WINDOW * focal / _SHUFFLE * multiplier
    y, x = _shuffled(row, height, u, spread), _shuffled(column, width, v, spread)
    metres, measured = depth[i, y, x], _NOTHING
    in_range = metres >= STEREO_LEAST and lost >= (metres - STEREO_FADES) / (STEREO_MOST - STEREO_FADES)
    if in_range and metres < STEREO_MOST and not _in_shadow(i, y, x, metres, focal, depth):
        disparity = _BASE / metres + _SUBPIXEL * multiplier * normal_quantile(w)
        steps = np.float32(math.floor(_STEPS * disparity + _HALF))
        measured = _BASE * _STEPS / steps if steps > _NOTHING else _NOTHING
    metres_out[i, row, column] = measured
