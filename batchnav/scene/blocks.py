"""Textures in blocks of 4x4 texels, 8 bytes each: the format BC1 (S3TC), with all mip levels.

A block is a 64-bit word: two colours of 5, 6 and 5 bits for red, green and blue, then two bits for each texel, row by
row. The code of a texel is 0 for the first colour, 1 for the second, 2 and 3 for the colours at one and two thirds of
the line between them. The first colour is the larger number; the format's blocks of three colours are not used, nor is
alpha (OpenGL's extension EXT_texture_compression_s3tc, "COMPRESSED_RGB_S3TC_DXT1_EXT"; Microsoft, "BC1").

Encoder: the ends of the texels' principal axis, then one least-squares fit of both colours to the chosen codes, which
is kept where it reduces the error (Brown, "DXT compression techniques", 2006). Blocks of one colour use the pair whose
third point is nearest to it. Sums have a fixed order, so that equal images give equal blocks on every machine.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import prange

from batchnav.runtime.kernels.decorators import cpu_kernel, lean_function
from batchnav.scene.textures import ROW, halved, num_block_rows, num_levels
from batchnav.types import Blocks, Surface, Texture

SMALLEST = 2**16
"""Number of texels from which textures of scene files are kept in blocks (256 x 256). Smaller ones take little memory,
and may be palettes, whose neighbouring texels have nothing in common."""
MEAN, LARGEST, SHARE = 1.5, 8, 0.99
"""Bounds of the difference between blocks and image: see `with_blocks`; bytes, and share of the places."""
_COMPARED = 2
"""Number of mip levels that are compared; errors of coarser ones are alike or larger, in photographs too."""
_SIDE, _TEXELS = 4, 16
_ZERO, _ONE, _THIRD = np.float32(0.0), np.float32(1.0), np.float32(1.0 / 3.0)
_MOST, _HALF, _THREE = np.float32(255.0), np.float32(0.5), np.float32(3.0)
_TO_FIVE, _TO_SIX = np.float32(31.0 / 255.0), np.float32(63.0 / 255.0)
_OF_FIVE, _OF_SIX = np.float32(255.0 / 31.0), np.float32(255.0 / 63.0)
_ITERATIONS = 4
"""Power iterations for the principal axis."""
_INSET = np.float32(1.0 / 32.0)
"""Share of the axis that is left out at each end: a block's extreme texels are rare."""
_SINGULAR = np.float32(1e-3)
"""Determinant below which the fit of both colours is not unique."""


def with_blocks(surface: Surface | None) -> Surface | None:
    """The surface with its textures of `SMALLEST` texels or more in blocks, where these are close to the image.

    Close means, for means of 2x2 texels, about what filtering reads, on each of the largest mip levels: channels differ
    by `MEAN` on average at most, and by `LARGEST` at most in `SHARE` of the places. Text and sharp lines are often not.
    """
    if surface is None:
        return None
    made: dict[int, np.ndarray | Blocks] = {}

    def converted(texture: Texture) -> Texture:
        if isinstance(texture.pixels, Blocks) or texture.pixels.shape[0] * texture.pixels.shape[1] < SMALLEST:
            return texture
        key = id(texture.pixels)
        if key not in made:
            blocks, is_close = _compress(texture.pixels)
            made[key] = blocks if is_close else texture.pixels
        return texture._replace(pixels=made[key])

    return surface._replace(textures=tuple(map(converted, surface.textures)))


def compress(pixels: np.ndarray) -> Blocks:
    """The blocks of an image u8 [h, w, 4], with all mip levels; alpha is left out.

    Each mip level is made from the image, not from the blocks of the level before.
    """
    return _compress(pixels)[0]


def _compress(pixels: np.ndarray) -> tuple[Blocks, bool]:
    """The blocks of an image, and whether they are close to it (`with_blocks`)."""
    height, width = pixels.shape[:2]
    levels = num_levels(width, height)
    words = np.zeros((num_block_rows(width, height, levels), ROW), np.int64)
    first, image, is_close = 0, np.ascontiguousarray(pixels), True
    for level in range(levels):
        image = halved(image) if level else image
        rows = num_block_rows(image.shape[1], image.shape[0], 1)
        errors = np.zeros((-(-image.shape[0] // _SIDE), 2), np.int64)
        _encode(image, *_of_one_colour(), words[first : first + rows].reshape(-1), errors)
        first += rows
        if level < _COMPARED:
            difference, far = errors.sum(0) / (4 * len(errors) * -(-image.shape[1] // _SIDE))  # by quad
            is_close &= bool(difference <= 3 * 4 * MEAN and far <= 1.0 - SHARE)
    return Blocks(width, height, words), is_close


def decompress(blocks: Blocks) -> np.ndarray:
    """The finest mip level of blocks as an opaque image u8 [h, w, 4]."""
    columns, rows = -(-blocks.width // _SIDE), -(-blocks.height // _SIDE)
    words = blocks.words.reshape(-1)[: rows * columns].view(np.uint64).reshape(rows, columns)
    ends = np.stack([words & np.uint64(0xFFFF), words >> np.uint64(16) & np.uint64(0xFFFF)], axis=-1).astype(np.int64)
    scale = np.array([255.0 / 31.0, 255.0 / 63.0, 255.0 / 31.0], np.float32)
    colors = np.stack([ends >> 11, ends >> 5 & 63, ends & 31], axis=-1).astype(np.float32) * scale  # [r, c, 2, 3]
    shares = np.array([0.0, 1.0, 1.0 / 3.0, 2.0 / 3.0], np.float32)
    pixels = np.full((rows, _SIDE, columns, _SIDE, 4), 255, np.uint8)
    for k in range(_TEXELS):
        share = shares[(words >> np.uint64(32 + 2 * k) & np.uint64(3)).astype(np.int64)][..., None]
        color = colors[:, :, 0] * (1 - share) + colors[:, :, 1] * share
        pixels[:, k // _SIDE, :, k % _SIDE, :3] = (color + 0.5).astype(np.uint8)
    return np.ascontiguousarray(pixels.reshape(rows * _SIDE, columns * _SIDE, 4)[: blocks.height, : blocks.width])


def pixels_of(texture: Texture) -> np.ndarray:
    """The image u8 [h, w, 4] of a texture, whether it is kept in blocks or not."""
    return decompress(texture.pixels) if isinstance(texture.pixels, Blocks) else texture.pixels


@functools.cache
def _of_one_colour() -> tuple[np.ndarray, np.ndarray]:
    """i32 [256, 2] for five and six bits: the two numbers whose third point is nearest to each byte."""

    def table(levels: int) -> np.ndarray:
        first, second = np.divmod(np.arange(levels * levels), levels)
        found = (2.0 * first + second) * (255.0 / 3.0 / (levels - 1))
        best = (np.abs(found - np.arange(256)[:, None]) + 1e-4 * np.abs(first - second)).argmin(1)
        return np.stack([first[best], second[best]], axis=1).astype(np.int32)

    return table(32), table(64)


@cpu_kernel
def _encode(image, five, six, words_out, errors_out):
    """Write the blocks of an image u8 [h, w, 4], row by row; a thread has a row of blocks.

    `errors_out`, i64 [rows, 2]: sums of `_difference` over each row of blocks.
    """
    height, width = image.shape[:2]
    rows, columns = (height + 3) // 4, (width + 3) // 4
    for row in prange(rows):
        texels, ends, fit = np.empty((3, _TEXELS), np.float32), np.empty(6, np.float32), np.empty(6, np.float32)
        codes, best = np.empty(_TEXELS, np.int32), np.empty(_TEXELS, np.int32)
        for column in range(columns):
            for k in range(_TEXELS):
                y, x = min(4 * row + (k >> 2), height - 1), min(4 * column + (k & 3), width - 1)
                for channel in range(3):
                    texels[channel, k] = np.float32(image[y, x, channel])
            word = _block(five, six, texels, ends, fit, codes, best)
            words_out[row * columns + column] = word
            total, far = _difference(word, texels)
            errors_out[row, 0] += total
            errors_out[row, 1] += far


@lean_function
def _block(five, six, texels, ends_out, fit_out, codes_out, best_out):
    """The word of texels f32 [3, 16]; the other arrays are scratch."""
    same = True
    for k in range(1, _TEXELS):
        same &= (texels[0, k] == texels[0, 0]) & (texels[1, k] == texels[1, 0]) & (texels[2, k] == texels[2, 0])
    if same:
        red, green, blue = np.int32(texels[0, 0]), np.int32(texels[1, 0]), np.int32(texels[2, 0])
        for k in range(_TEXELS):
            best_out[k] = 1
        first = (five[red, 0] << 11) | (six[green, 0] << 5) | five[blue, 0]
        return _packed(first, (five[red, 1] << 11) | (six[green, 1] << 5) | five[blue, 1], best_out)
    _span(texels, fit_out)
    least, first, second = np.float32(np.inf), np.int32(0), np.int32(0)
    for _ in range(2):
        one, other = _quantise(fit_out, ends_out)
        error = _choose(texels, ends_out, codes_out)
        if error >= least:
            break
        least, first, second = error, one, other
        for k in range(_TEXELS):
            best_out[k] = codes_out[k]
        if not _fit(texels, codes_out, fit_out):
            break
    return _packed(first, second, best_out)


@lean_function
def _difference(word, texels):
    """Sum of all differences of the four quads, quarters of a byte; number of quads with one above `LARGEST`."""
    one, other, codes = np.int32(word & 0xFFFF), np.int32((word >> 16) & 0xFFFF), word >> np.int64(32)
    r0, g0, b0 = (
        np.float32(one >> 11) * _OF_FIVE,
        np.float32((one >> 5) & 63) * _OF_SIX,
        np.float32(one & 31) * _OF_FIVE,
    )
    r, g = np.float32(other >> 11) * _OF_FIVE - r0, np.float32((other >> 5) & 63) * _OF_SIX - g0
    b = np.float32(other & 31) * _OF_FIVE - b0
    total, far = np.int64(0), np.int64(0)
    for quad in range(4):
        x, y, z = np.int32(0), np.int32(0), np.int32(0)
        for corner in range(4):
            k = (quad & 1) * 2 + (quad >> 1) * 8 + (corner & 1) + (corner >> 1) * 4
            code = np.int32((codes >> np.int64(2 * k)) & np.int64(3))
            share = np.float32((0b10011100 >> (2 * code)) & 3) * _THIRD
            x += np.int32(r0 + share * r + _HALF) - np.int32(texels[0, k])
            y += np.int32(g0 + share * g + _HALF) - np.int32(texels[1, k])
            z += np.int32(b0 + share * b + _HALF) - np.int32(texels[2, k])
        x, y, z = abs(x), abs(y), abs(z)
        total += x + y + z
        far += max(x, max(y, z)) > 4 * LARGEST
    return total, far


@lean_function
def _span(texels, fit_out):
    """Write the ends of the texels' extent along their principal axis: red, green, blue of both."""
    mean_r, mean_g, mean_b = _ZERO, _ZERO, _ZERO
    for k in range(_TEXELS):
        mean_r, mean_g, mean_b = mean_r + texels[0, k], mean_g + texels[1, k], mean_b + texels[2, k]
    share = np.float32(1.0 / 16.0)
    mean_r, mean_g, mean_b = mean_r * share, mean_g * share, mean_b * share
    rr, rg, rb, gg, gb, bb = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
    for k in range(_TEXELS):
        r, g, b = texels[0, k] - mean_r, texels[1, k] - mean_g, texels[2, k] - mean_b
        rr, rg, rb, gg, gb, bb = rr + r * r, rg + r * g, rb + r * b, gg + g * g, gb + g * b, bb + b * b
    x, y, z = rb, gb, bb
    if rr >= gg and rr >= bb:
        x, y, z = rr, rg, rb
    elif gg >= bb:
        x, y, z = rg, gg, gb
    for _ in range(_ITERATIONS):
        u, v, w = rr * x + rg * y + rb * z, rg * x + gg * y + gb * z, rb * x + gb * y + bb * z
        largest = max(abs(u), max(abs(v), abs(w)))
        scale = _ONE / largest if largest > _ZERO else _ZERO
        x, y, z = u * scale, v * scale, w * scale
    square = x * x + y * y + z * z
    scale = _ONE / square if square > _ZERO else _ZERO
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for k in range(_TEXELS):
        along = (texels[0, k] - mean_r) * x + (texels[1, k] - mean_g) * y + (texels[2, k] - mean_b) * z
        low, high = min(low, along), max(high, along)
    inset = (high - low) * _INSET
    low, high = (low + inset) * scale, (high - inset) * scale
    fit_out[0], fit_out[1], fit_out[2] = mean_r + low * x, mean_g + low * y, mean_b + low * z
    fit_out[3], fit_out[4], fit_out[5] = mean_r + high * x, mean_g + high * y, mean_b + high * z


@lean_function
def _nearest(value, scale):
    """A channel 0 to 255 as a whole number of fewer bits."""
    return np.int32(min(max(value, _ZERO), _MOST) * scale + _HALF)


@lean_function
def _quantise(fit, ends_out):
    """Both colours of a fit as numbers of 16 bits; writes the colours that these stand for."""
    r0, g0, b0 = _nearest(fit[0], _TO_FIVE), _nearest(fit[1], _TO_SIX), _nearest(fit[2], _TO_FIVE)
    r1, g1, b1 = _nearest(fit[3], _TO_FIVE), _nearest(fit[4], _TO_SIX), _nearest(fit[5], _TO_FIVE)
    ends_out[0], ends_out[1] = np.float32(r0) * _OF_FIVE, np.float32(g0) * _OF_SIX
    ends_out[2], ends_out[3] = np.float32(b0) * _OF_FIVE, np.float32(r1) * _OF_FIVE
    ends_out[4], ends_out[5] = np.float32(g1) * _OF_SIX, np.float32(b1) * _OF_FIVE
    return np.int32((r0 << 11) | (g0 << 5) | b0), np.int32((r1 << 11) | (g1 << 5) | b1)


@lean_function
def _choose(texels, ends, codes_out):
    """Write each texel's place between both colours, in thirds. Returns the sum of squared differences."""
    r, g, b = ends[3] - ends[0], ends[4] - ends[1], ends[5] - ends[2]
    square = r * r + g * g + b * b
    scale = _THREE / square if square > _ZERO else _ZERO
    error = _ZERO
    for k in range(_TEXELS):
        x, y, z = texels[0, k] - ends[0], texels[1, k] - ends[1], texels[2, k] - ends[2]
        thirds = np.int32(min(max((x * r + y * g + z * b) * scale, _ZERO), _THREE) + _HALF)
        share = np.float32(thirds) * _THIRD
        x, y, z = x - share * r, y - share * g, z - share * b
        error += x * x + y * y + z * z
        codes_out[k] = thirds
    return error


@lean_function
def _fit(texels, codes, fit_out):
    """Write the two colours with the least squared error for the chosen places. False where they are not unique."""
    aa, bb, ab = _ZERO, _ZERO, _ZERO
    r0, g0, b0, r1, g1, b1 = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
    for k in range(_TEXELS):
        b = np.float32(codes[k]) * _THIRD
        a = _ONE - b
        aa, bb, ab = aa + a * a, bb + b * b, ab + a * b
        r0, g0, b0 = r0 + a * texels[0, k], g0 + a * texels[1, k], b0 + a * texels[2, k]
        r1, g1, b1 = r1 + b * texels[0, k], g1 + b * texels[1, k], b1 + b * texels[2, k]
    determinant = aa * bb - ab * ab
    if determinant < _SINGULAR:
        return False
    scale = _ONE / determinant
    fit_out[0], fit_out[1], fit_out[2] = (
        (bb * r0 - ab * r1) * scale,
        (bb * g0 - ab * g1) * scale,
        (bb * b0 - ab * b1) * scale,
    )
    fit_out[3], fit_out[4], fit_out[5] = (
        (aa * r1 - ab * r0) * scale,
        (aa * g1 - ab * g0) * scale,
        (aa * b1 - ab * b0) * scale,
    )
    return True


@lean_function
def _packed(first, second, codes):
    """The word of two colours and places in thirds; the larger number comes first, equal ones have code 0 only."""
    flip = first < second
    bits = np.int64(0)
    if first != second:
        for k in range(_TEXELS):
            thirds = 3 - codes[k] if flip else codes[k]
            code = 1 if thirds == 3 else (0 if thirds == 0 else thirds + 1)
            bits |= np.int64(code) << np.int64(2 * k)
    one, other = (second, first) if flip else (first, second)
    return np.int64(one) | (np.int64(other) << np.int64(16)) | (bits << np.int64(32))
