"""Effects of a colour camera: exposure, white balance and gamma that vary, and the losses of JPEG compression.

Exposure: s stops of light multiply an encoded value v in 0..1 by 2^(s / 2.2); white balance multiplies red and blue
alone; values above 1 are clipped; then v becomes v^g. The numbers belong to an episode or to a step.

JPEG (ITU-T T.81, JFIF): YCbCr with colours at half the resolution (4:2:0), the cosine transform of 8x8 blocks, and the
quantisation of its coefficients by the tables of annex K at a quality as in libjpeg. Entropy coding loses nothing and
is left out. Pixels beyond the image repeat its border.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import thread_array
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import step_uniforms
from batchnav.sensors.noise import checked_noise
from batchnav.sensors.sensor import NoiseCounters

STREAM = 3072
"""Stream of the random numbers of camera 0; that of camera k is STREAM + k. See `runtime.kernels.rng`."""
_EXPOSURE, _COMPRESSION = 0, 1
"""Indices within a stream."""
ENCODING = 2.2
"""Exponent from encoded values to light."""
_BLOCK = 128
_BYTE, _HALF, _ONE, _TWO = np.float32(255.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)


class ExposureNoise(NamedTuple):
    """Largest changes of images."""

    stops: np.float32
    """Stops, brighter or darker."""
    balance: np.float32
    """Change of red and of blue relative to green, as a fraction."""
    gamma: np.float32
    """Gamma is from 1 / (1 + this) to 1 + this."""
    each_step: bool
    """True: another change at every step; False: at every episode."""


class Exposure:
    """Changes exposure, white balance and gamma of images in place."""

    def __init__(self, settings: ExposureNoise):
        self._settings = settings
        self._bound: tuple[NoiseCounters, Callable[..., None], Callable[..., None]] | None = None

    def apply(self, noise: NoiseCounters | None, rgb: torch.Tensor) -> None:
        """Change u8 [N, 3, H, W]."""
        noise = checked_noise("rgb", noise)
        if self._bound is None or self._bound[0] is not noise:
            n, _, height, width = rgb.shape
            curves = torch.zeros(n, 3, 256, dtype=torch.uint8, device=rgb.device)
            logarithms = torch.arange(256, dtype=torch.float32, device=rgb.device).clamp(min=1e-6).div(255.0).log()
            make = make_curves.bind(n, view(noise), view(logarithms), self._settings, view(curves))
            self._bound = noise, make, look_up.bind((n, height, width), view(curves), view(rgb), live=(1,))
        self._bound[1]()
        self._bound[2](rgb)


@inline_function
def _gain(exponent):
    return _BYTE * np.float32(math.exp(exponent))


@kernel(fastmath=True)
def make_curves(i, noise, logarithms, settings, curves_out):
    """Write what the 256 values of each channel of an image become.

    `logarithms`: f32 [256], of the values in 0..1.
    """
    agent, step = noise.first_agent[0] + i, noise.steps[i] if settings.each_step else np.int32(0)
    stream = STREAM + noise.camera
    u, v, w, x = step_uniforms(noise.seed[0], agent, noise.episode[i], step, stream, _EXPOSURE)
    gamma = np.float32(math.exp((_TWO * x - _ONE) * np.float32(math.log(_ONE + settings.gamma))))
    green = _TO_EXPONENT * settings.stops * (_TWO * u - _ONE)
    red = green + np.float32(math.log(_ONE + settings.balance * (_TWO * v - _ONE)))
    blue = green + np.float32(math.log(_ONE + settings.balance * (_TWO * w - _ONE)))
    red, green, blue = _gain(gamma * red), _gain(gamma * green), _gain(gamma * blue)
    for value in range(256):
        level = np.float32(math.exp(gamma * logarithms[value]))
        curves_out[i, 0, value] = np.uint8(min(red * level + _HALF, _BYTE))
        curves_out[i, 1, value] = np.uint8(min(green * level + _HALF, _BYTE))
        curves_out[i, 2, value] = np.uint8(min(blue * level + _HALF, _BYTE))


_TO_EXPONENT = np.float32(math.log(2.0) / ENCODING)


@kernel(over="pixels", fastmath=True, block=_BLOCK)
def look_up(i, row, column, curves, rgb_out):
    """Replace the three values of a pixel."""
    for channel in range(3):
        rgb_out[i, channel, row, column] = curves[i, channel, rgb_out[i, channel, row, column]]


# JPEG

SIDE = 16
"""Side of the squares of pixels that are compressed by themselves: four blocks of luma, and one of each colour."""
_LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
_CHROMA = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99, *(32 * (99,)),
)  # fmt: skip
"""Quantisation tables K.1 and K.2 of T.81, rows from the top."""


def quantisation_tables() -> np.ndarray:
    """f32 [100, 2, 128]: step of each coefficient of two transposed blocks at quality 1 to 100: luma, colour."""
    quality = np.arange(1, 101)[:, None, None]
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    steps = np.clip((np.array([_LUMA, _CHROMA])[None] * scale + 50) // 100, 1, 255).reshape(100, 2, 8, 8)
    return np.tile(steps.swapaxes(2, 3).reshape(100, 2, 64), 2).astype(np.float32)


class Jpeg:
    """Compresses images in place.

    Args:
        quality: lowest and highest quality, 1 to 100; each image has its own.
    """

    def __init__(self, quality: tuple[int, ...]):
        self._quality = np.int32(quality[0]), np.int32(quality[1])
        self._bound: tuple[NoiseCounters, Callable[..., None]] | None = None

    def apply(self, noise: NoiseCounters | None, rgb: torch.Tensor) -> None:
        """Change u8 [N, 3, H, W]."""
        noise = checked_noise("rgb", noise)
        if self._bound is None or self._bound[0] is not noise:
            n, _, height, width = rgb.shape
            tables = torch.from_numpy(quantisation_tables()).to(rgb.device)
            squares = n * -(-height // SIDE) * -(-width // SIDE)
            arguments = view(noise), view(tables), *self._quality, view(rgb)
            self._bound = noise, compress.bind(squares, *arguments, live=(4,))
        self._bound[1](rgb)


_luma_array, _rows_array, _line_array = (thread_array(size, np.float32) for size in (256, 128, 16))
_S, _B, _BLOCK_SIZE, _ROWS, _LUMA_SIZE = map(np.uint64, (SIDE, 8, 64, 128, 256))
_U0, _U1, _U2, _U3, _U4, _U5, _U6, _U7 = map(np.uint64, range(8))
_FLAT = np.float32(0.5 / math.sqrt(2.0))
_C1, _C2, _C3, _C5, _C6, _C7 = (np.float32(0.5 * math.cos(k * math.pi / 16)) for k in (1, 2, 3, 5, 6, 7))
_ROUND = np.float32(1.5 * 2.0**23)
"""Adding and subtracting it rounds a float32 to an integer, where sums are not reordered."""
_MIDDLE, _QUARTER, _ZERO = np.float32(128.0), np.float32(0.25), np.float32(0.0)
_RED, _GREEN, _BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)
_TO_CB, _TO_CR = np.float32(0.125 / (1.0 - 0.114)), np.float32(0.125 / (1.0 - 0.299))
_CR_RED, _CB_BLUE = np.float32(2.0 * (1.0 - 0.299)), np.float32(2.0 * (1.0 - 0.114))
_CB_GREEN = np.float32(2.0 * 0.114 * (1.0 - 0.114) / 0.587)
_CR_GREEN = np.float32(2.0 * 0.299 * (1.0 - 0.299) / 0.587)

# A square is 16 rows of luma, and 8 rows of colour: 8 values of Cb, then 8 of Cr. Indices are unsigned and inner loops
# run along rows, so that compilers vectorise them.


@inline_function
def _forward(source, at, down, lane, count, to, down_out, lane_out, target_out):
    """Cosine transforms of `count` vectors of 8: `down` is the step within a vector, `lane` that between vectors."""
    for c in range(count):
        a, b = at + lane * c, to + lane_out * c
        x0, x7 = source[a], source[a + _U7 * down]
        x1, x6 = source[a + down], source[a + _U6 * down]
        x2, x5 = source[a + _U2 * down], source[a + _U5 * down]
        x3, x4 = source[a + _U3 * down], source[a + _U4 * down]
        s0, s1, s2, s3 = x0 + x7, x1 + x6, x2 + x5, x3 + x4
        d0, d1, d2, d3 = x0 - x7, x1 - x6, x2 - x5, x3 - x4
        outer, inner = s0 + s3, s1 + s2
        target_out[b] = _FLAT * (outer + inner)
        target_out[b + _U4 * down_out] = _FLAT * (outer - inner)
        outer, inner = s0 - s3, s1 - s2
        target_out[b + _U2 * down_out] = _C2 * outer + _C6 * inner
        target_out[b + _U6 * down_out] = _C6 * outer - _C2 * inner
        target_out[b + down_out] = _C1 * d0 + _C3 * d1 + _C5 * d2 + _C7 * d3
        target_out[b + _U3 * down_out] = _C3 * d0 - _C7 * d1 - _C1 * d2 - _C5 * d3
        target_out[b + _U5 * down_out] = _C5 * d0 - _C1 * d1 + _C7 * d2 + _C3 * d3
        target_out[b + _U7 * down_out] = _C7 * d0 - _C5 * d1 + _C3 * d2 - _C1 * d3


@inline_function
def _backward(source, at, down, lane, count, to, down_out, lane_out, target_out):
    """Inverse cosine transforms; arguments as in `_forward`."""
    for c in range(count):
        a, b = at + lane * c, to + lane_out * c
        x0, x4 = source[a], source[a + _U4 * down]
        x2, x6 = source[a + _U2 * down], source[a + _U6 * down]
        x1, x3 = source[a + down], source[a + _U3 * down]
        x5, x7 = source[a + _U5 * down], source[a + _U7 * down]
        sums, differences = _FLAT * (x0 + x4), _FLAT * (x0 - x4)
        outer, inner = _C2 * x2 + _C6 * x6, _C6 * x2 - _C2 * x6
        s0, s1, s2, s3 = sums + outer, differences + inner, differences - inner, sums - outer
        d0 = _C1 * x1 + _C3 * x3 + _C5 * x5 + _C7 * x7
        d1 = _C3 * x1 - _C7 * x3 - _C1 * x5 - _C5 * x7
        d2 = _C5 * x1 - _C1 * x3 + _C7 * x5 + _C3 * x7
        d3 = _C7 * x1 - _C5 * x3 + _C3 * x5 - _C1 * x7
        target_out[b], target_out[b + _U7 * down_out] = s0 + d0, s0 - d0
        target_out[b + down_out], target_out[b + _U6 * down_out] = s1 + d1, s1 - d1
        target_out[b + _U2 * down_out], target_out[b + _U5 * down_out] = s2 + d2, s2 - d2
        target_out[b + _U3 * down_out], target_out[b + _U4 * down_out] = s3 + d3, s3 - d3


@inline_function
def _quantise(first, steps, rows_out):
    """Transform two blocks side by side, round their coefficients to multiples of the steps, and transform them back.

    Between, blocks are transposed and one below the other, so that both directions run along rows.
    """
    one, other = _rows_array(), _rows_array()
    _forward(rows_out, first, _S, _U1, _S, _U0, _U1, _B, one)
    for block in range(_U0, _ROWS, _BLOCK_SIZE):
        _forward(one, block, _B, _U1, _B, block, _B, _U1, other)
    for k in range(_ROWS):
        other[k] = ((other[k] / steps[k] + _ROUND) - _ROUND) * steps[k]
    for block in range(_U0, _ROWS, _BLOCK_SIZE):
        _backward(other, block, _B, _U1, _B, block, _B, _U1, one)
    _backward(one, _U0, _U1, _B, _S, first, _S, _U1, rows_out)


@inline_function
def _read_line(count, image, at, left, line, luma_out, reds_out, blues_out):
    """Write luma of the pixels of a row, and how far red and blue are above luma. A constant `count` vectorises."""
    for x in range(count):
        red, green = np.float32(image[0, at, left + x]), np.float32(image[1, at, left + x])
        blue = np.float32(image[2, at, left + x])
        level = _RED * red + _GREEN * green + _BLUE * blue
        luma_out[line + x], reds_out[x], blues_out[x] = level - _MIDDLE, red - level, blue - level


@inline_function
def _read_square(image, top, left, luma_out, chroma_out):
    """Write luma of 16x16 pixels, and the means of the colours of 2x2 pixels; both around 0."""
    last, count = np.uint64(image.shape[1]) - _U1, min(np.uint64(image.shape[2]) - left, _S)
    reds, blues = _line_array(), _line_array()
    for place in range(_ROWS):
        chroma_out[place] = _ZERO
    for y in range(_S):
        at, line = min(top + y, last), _S * y
        if count == _S:
            _read_line(_S, image, at, left, line, luma_out, reds, blues)
        else:
            _read_line(count, image, at, left, line, luma_out, reds, blues)
        for x in range(count, _S):
            luma_out[line + x] = luma_out[line + count - _U1]
            reds[x], blues[x] = reds[count - _U1], blues[count - _U1]
        line = _S * (y >> _U1)
        for x in range(_B):
            chroma_out[line + x] += _TO_CB * (blues[_U2 * x] + blues[_U2 * x + _U1])
            chroma_out[line + _B + x] += _TO_CR * (reds[_U2 * x] + reds[_U2 * x + _U1])


@inline_function
def _as_byte(level):
    return np.uint8(np.int32(min(max(level + _HALF, _ZERO), _BYTE)))


@inline_function
def _write_line(count, luma, line, reds, blues, at, left, image_out):
    """Write the colours of the pixels of a row."""
    for x in range(count):
        level = luma[line + x] + _MIDDLE
        image_out[0, at, left + x] = _as_byte(level + _CR_RED * reds[x])
        image_out[1, at, left + x] = _as_byte(level - _CB_GREEN * blues[x] - _CR_GREEN * reds[x])
        image_out[2, at, left + x] = _as_byte(level + _CB_BLUE * blues[x])


@inline_function
def _write_square(luma, chroma, top, left, image_out):
    """Write the colours of 16x16 pixels."""
    count = min(np.uint64(image_out.shape[2]) - left, _S)
    reds, blues = _line_array(), _line_array()
    for y in range(min(np.uint64(image_out.shape[1]) - top, _S)):
        line = _S * (y >> _U1)
        for x in range(_B):
            cb, cr = chroma[line + x], chroma[line + _B + x]
            blues[_U2 * x], blues[_U2 * x + _U1] = cb, cb
            reds[_U2 * x], reds[_U2 * x + _U1] = cr, cr
        at, line = top + y, _S * y
        if count == _S:
            _write_line(_S, luma, line, reds, blues, at, left, image_out)
        else:
            _write_line(count, luma, line, reds, blues, at, left, image_out)


@kernel(block=64)
def compress(k, noise, tables, lowest, highest, rgb_out):
    """Compress one square of pixels of an image."""
    across = (np.int32(rgb_out.shape[3]) + np.int32(SIDE - 1)) // np.int32(SIDE)
    squares = across * ((np.int32(rgb_out.shape[2]) + np.int32(SIDE - 1)) // np.int32(SIDE))
    i, square = k // squares, np.int32(k % squares)
    agent, stream = noise.first_agent[0] + i, STREAM + noise.camera
    u, _, _, _ = step_uniforms(noise.seed[0], agent, noise.episode[i], noise.steps[i], stream, _COMPRESSION)
    quality = min(lowest + np.int32(u * np.float32(highest - lowest + 1)), highest)
    top, left = _S * np.uint64(square // across), _S * np.uint64(square % across)
    luma, chroma = _luma_array(), _rows_array()
    _read_square(rgb_out[i], top, left, luma, chroma)
    for first in range(_U0, _LUMA_SIZE, _ROWS):
        _quantise(first, tables[quality - 1, 0], luma)
    _quantise(_U0, tables[quality - 1, 1], chroma)
    _write_square(luma, chroma, top, left, rgb_out[i])
