"""Redwood noise of depth cameras: shuffled pixels, a distortion that grows with depth, and quantised disparities.

Method: Choi, Zhou and Koltun, "Robust reconstruction of indoor scenes" (CVPR 2015), section 4.1, as in habitat-sim's
`RedwoodDepthNoiseModel`. The distortion that they measured has no licence, so the default table is synthetic; their
table, or that of another camera, can be read from a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from batchnav.errors import ConfigError
from batchnav.runtime.files import read_array
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.loops import kernel
from batchnav.runtime.kernels.rng import DEPTH, normal_quantile
from batchnav.sensors.noise import checked_noise, pixel_uniforms
from batchnav.sensors.sensor import NoiseCounters

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
_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
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
    return np.int32(min(max(moved, _ZERO), np.float32(size - 1)) + _HALF)


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
    if metres >= _FAR or metres <= _ZERO or factor < _LEAST_FACTOR:
        return _ZERO
    disparity = _DISPARITY * factor / metres + _DEVIATION * multiplier * normal_quantile(u)
    eighths = np.float32(math.floor(_EIGHTHS * disparity + _HALF))
    return _DEPTH_OF_ONE / eighths if eighths > _ZERO else _ZERO


@kernel(over="pixels", fastmath=True, block=_BLOCK)
def measure_depth(i, row, column, depth, noise, table, multiplier, metres_out):
    """Write the measured depth of one pixel."""
    height, width = np.int32(depth.shape[1]), np.int32(depth.shape[2])
    u, v, w, _ = pixel_uniforms(i, np.int32(row) * width + np.int32(column), noise, DEPTH)
    y, x = _shuffled(row, height, u, multiplier), _shuffled(column, width, v, multiplier)
    metres = depth[i, y - y % 2, x - x % 2]
    factor = _factor(min(metres, _FAR), y, x, height, width, table)
    metres_out[i, row, column] = _measured(metres, factor, w, multiplier)
