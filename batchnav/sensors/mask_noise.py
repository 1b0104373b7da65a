"""Noise of goal masks, as of an object detector: missed and confused objects, blobs, ragged borders, delay, scores.

Random numbers are counter-based, so masks depend on seed, agent, episode, step and camera alone. Rates are shares of
views. What happens to an object is drawn for runs of RUN steps, and its traits for a whole episode: a detector that
misses an object tends to miss it in the next view as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from batchnav.config import bounded
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import MASK, normal_quantile, step_uniforms
from batchnav.sensors.noise import BLOCK

RUN = 4
"""Steps for which an object stays missed or seen."""
RAGGED = 4
"""Side of the squares of pixels that a ragged border moves together."""
OBJECTS = 1 << 18
"""Object ids are taken modulo this number in the counters of random numbers."""
LEAST_RADIUS, RADII = np.float32(0.03), np.float32(0.12)
"""Least radius of a blob along an axis, and the range above it, as shares of the image's width."""
_TRAITS, _RUNS, _VIEWS, _BORDERS = (np.int64(k) for k in range(4))
"""Streams of a camera: an object's traits, its runs, a view's blob and delay, the squares of a border."""
_STREAMS = 4
_RUN, _RAGGED, _OBJECTS = np.int32(RUN), np.int32(RAGGED), np.int32(OBJECTS)
_ZERO, _HALF, _ONE, _TWO, _BYTE = (np.float32(value) for value in (0.0, 0.5, 1.0, 2.0, 255.0))
_EPISODE, _NONE, _FAINTEST = np.int32(0), np.uint8(0), np.float32(1.0)


@dataclass(frozen=True)
class MaskNoiseConfig:
    """Rates of a goal mask's errors. They have no effect while `mask_noise` is 0."""

    mask_noise: float = bounded(0.0, 0.0, 10.0)
    """Multiplier of all rates below; 0: the exact mask, at no cost."""
    mask_missed: float = bounded(0.2, 0.0, 1.0)
    """Share of views in which an object of the goal is missed. Each object has its own share in an episode, uniform
    around this one, and stays missed or seen for four steps."""
    mask_confused: float = bounded(0.02, 0.0, 0.5)
    """Share of views in which an object of another goal category is taken for the goal. Twice this share of the objects
    is confused in an episode, each in half of the runs of four steps."""
    mask_blobs: float = bounded(0.01, 0.0, 1.0)
    """Share of views with a false blob: an ellipse anywhere in the image."""
    mask_border: float = bounded(0.5, 0.0, 100.0)
    """Standard deviation of the place of borders, pixels, in squares of 4 x 4 pixels."""
    mask_late: float = bounded(0.1, 0.0, 1.0)
    """Share of views that get the mask of the step before."""
    mask_scores: float = bounded(0.5, 0.0, 1.0)
    """Range of scores below one, the values of mask pixels. Objects of the goal have 1 - mask_scores * u * u, false
    ones 1 - mask_scores * sqrt(u), with u uniform in 0..1."""

    @property
    def noise(self) -> MaskNoise | None:
        """Rates in kernels; None: no noise."""
        if self.mask_noise == 0.0:
            return None
        shares = self.mask_missed, self.mask_confused, self.mask_blobs, self.mask_late, self.mask_scores
        missed, confused, blobs, late, scores = (np.float32(min(1.0, self.mask_noise * share)) for share in shares)
        border = np.float32(self.mask_noise * self.mask_border)
        return MaskNoise(missed, min(confused, _HALF), blobs, border, late, scores)


class MaskNoise(NamedTuple):
    """Rates of `MaskNoiseConfig`, multiplied by `mask_noise`."""

    missed: np.float32
    confused: np.float32
    blobs: np.float32
    border: np.float32
    late: np.float32
    scores: np.float32


class SeenObjects(NamedTuple):
    """Ids in the images of N cameras."""

    goal: Any
    """i32 [N, 1, H, W]: 1 + number of the goal category, 0 for other surfaces."""
    object: Any
    """i32 [N, 1, H, W]: object id."""
    wanted: Any
    """i64 [N]: number of the category that each agent searches for."""


@lean_function
def _draw(i, noise, step, stream, index):
    """Four uniform float32 in (0, 1) for a step, or run of steps, of agent i's episode."""
    agent, stream = noise.first_agent[0] + np.int64(i), MASK + _STREAMS * noise.camera + stream
    return step_uniforms(noise.seed[0], agent, noise.episode[i], step, stream, index)


@device_function
def _object_score(i, y, x, noise, seen, rates):
    """Score of the object at a pixel; 0 where the detector sees no goal there."""
    category = seen.goal[i, 0, y, x]
    if category <= 0:
        return _ZERO
    number = seen.object[i, 0, y, x] % _OBJECTS
    ease, confusion, _, _ = _draw(i, noise, _EPISODE, _TRAITS, number)
    luck, u, _, _ = _draw(i, noise, noise.steps[i] // _RUN, _RUNS, number)
    if category == np.int32(seen.wanted[i] + 1):
        spread = min(rates.missed, _ONE - rates.missed)
        share = rates.missed + (_TWO * ease - _ONE) * spread
        return _ZERO if luck < share else _ONE - rates.scores * u * u
    if confusion < _TWO * rates.confused and luck < _HALF:
        return _ONE - rates.scores * np.float32(math.sqrt(u))
    return _ZERO


@device_function
def _blob_score(i, row, column, width, height, noise, rates):
    """Score of the view's blob at a pixel; 0 outside of it, and in views without one."""
    hit, x, y, u = _draw(i, noise, noise.steps[i], _VIEWS, 0)
    if hit >= rates.blobs:
        return _ZERO
    across, down, _, _ = _draw(i, noise, noise.steps[i], _VIEWS, 1)
    size = np.float32(width)
    dx = (np.float32(column) + _HALF - x * size) / (size * (LEAST_RADIUS + RADII * across))
    dy = (np.float32(row) + _HALF - y * np.float32(height)) / (size * (LEAST_RADIUS + RADII * down))
    return _ONE - rates.scores * np.float32(math.sqrt(u)) if dx * dx + dy * dy < _ONE else _ZERO


@device_function
def _shifted(place, size, u, border):
    """Row (or column) that a pixel's mask is read from."""
    shift = np.int32(math.floor(border * normal_quantile(u) + _HALF))
    return min(max(np.int32(place) + shift, np.int32(0)), np.int32(size - 1))


@kernel(over="pixels", fastmath=True, block=BLOCK)
def detect(i, row, column, noise, seen, rates, history_out, mask_out):
    """Write one pixel of the mask that a detector gives.

    `history_out`: u8 [N, 2, H, W], the masks of the last two steps; no rows where no mask is late.
    """
    height, width = np.int32(mask_out.shape[2]), np.int32(mask_out.shape[3])
    y, x = np.int32(row), np.int32(column)
    if rates.border > _ZERO:
        squares = (width + _RAGGED - np.int32(1)) // _RAGGED
        square = np.int32(row) // _RAGGED * squares + np.int32(column) // _RAGGED
        u, v, _, _ = _draw(i, noise, noise.steps[i], _BORDERS, square)
        y, x = _shifted(row, height, u, rates.border), _shifted(column, width, v, rates.border)
    score = _object_score(i, y, x, noise, seen, rates)
    if rates.blobs > _ZERO:
        score = max(score, _blob_score(i, row, column, width, height, noise, rates))
    found = np.uint8(max(_BYTE * score + _HALF, _FAINTEST)) if score > _ZERO else _NONE
    if rates.late > _ZERO:
        step = noise.steps[i]
        history_out[i, step & 1, row, column] = found
        late, _, _, _ = _draw(i, noise, step, _VIEWS, 2)
        if step > 0 and late < rates.late:
            found = history_out[i, (step + 1) & 1, row, column]
    mask_out[i, 0, row, column] = found
