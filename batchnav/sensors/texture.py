"""Texture lookup: wrapping, mip levels and bilinear filtering, as in OpenGL and in the samplers of glTF.

Textures are arrays of texels, or blocks of 4x4 texels (`scene/blocks.py`), which are decoded where they are read.

Four texels are filtered in two words: red in the low and blue in the high half of one word, green in the other. A byte
times a weight of at most 256 fits such a half exactly, so filtering takes eight integer multiplications. A texel of a
block is a mixture of two colours in thirds, so filtering adds up the weights of both colours in such halves, with
sixteen multiplications. No value is read or written in one branch only, so that compilers vectorise loops over pixels.
"""

from __future__ import annotations

import numpy as np

from batchnav.runtime.kernels.decorators import device_function, inline_function
from batchnav.runtime.kernels.intrinsics import float_bits, fma
from batchnav.scene.textures import BETWEEN_LEVELS, CLAMP, MAGNIFY_LINEAR, MINIFY_LINEAR, MIRROR, REPEAT, WRAP_V_SHIFT

_ZERO, _HALF, _ONE, _TWO, _FULL = (np.float32(x) for x in (0.0, 0.5, 1.0, 2.0, 256.0))
_FIRST, _UNIT = np.int32(0), np.int32(1)
_RED_BLUE, _GREEN, _LOW = np.uint32(0x00FF00FF), np.uint32(0xFF00), np.uint32(0xFFFF)
WRAP_BITS = np.int32(3)
_WORD, _SIX = np.int64(0xFFFFFFFF), np.uint32(63)
_THIRDS = np.uint32(0b10011100)
"""Share of a block's second colour by code, in thirds: two bits each, code 0 in the lowest."""
_FIVE_BITS, _SIX_BITS = np.float32(255.0 / 31.0 / 3.0), np.float32(255.0 / 63.0 / 3.0)
_MANTISSA, _IN_LOW_BITS = np.int32(0x7FFFFF), np.float32(2.0**23 + 128.0)
_ON_THE_LINE = np.float32(1.0 / 2048.0)
"""Tolerance in texels: a coordinate this close to the next texel belongs to the current one, as in habitat-sim's
images."""


@device_function
def log2_fast(x):
    """log2 of a positive float32 with an error of 0.001: the exponent plus a cubic polynomial of the mantissa.

    Takes a few instructions.
    """
    bits = float_bits(x)
    exponent = np.float32(np.int32(np.int32(bits >> 23) - np.int32(127)))
    m = np.float32(np.int32(bits & _MANTISSA)) * np.float32(1.0 / 8388608.0)
    return exponent + m * (np.float32(1.4208645) + m * (np.float32(-0.5772506) + m * np.float32(0.1563861)))


@device_function
def wrapped(c, wrap):
    """A texture coordinate, wrapped into 0..1 by repetition, mirroring or clamping."""
    if wrap == CLAMP:
        return min(max(c, _ZERO), _ONE)
    if wrap == MIRROR:
        c = c * _HALF
    c = c - np.float32(np.int32(c))  # truncates; undefined beyond the range of int32
    if c < _ZERO:
        c = c + _ONE
    if wrap == MIRROR:
        c = _ONE - abs(_ONE - c * _TWO)
    return c


@device_function
def neighbours(c, size, wrap, linear):
    """The two texels to interpolate along one axis at a coordinate in 0..1, and the weight of the second, 0 to 256.

    Without interpolation both are the nearest texel.
    """
    last = np.int32(size - _UNIT)
    if linear:
        # The low bits of a float above 2**23 hold c * size + 0.5 in units of 1/256 texel.
        place = np.int32(float_bits(fma(c, np.float32(size) * _FULL, _IN_LOW_BITS)) & _MANTISSA)
        second = min(np.int32(place >> np.int32(8)), np.int32(size))  # also bounds the result for NaN
        first, weight = np.int32(second - _UNIT), np.int32(place & np.int32(255))
        if wrap == REPEAT:
            if first < 0:
                first = last
            if second > last:
                second = _FIRST
        return max(first, _FIRST), min(second, last), weight
    only = min(max(np.int32(c * np.float32(size) - _ON_THE_LINE), _FIRST), last)
    return only, only, _FIRST


@inline_function
def read_level(level, linear, u, v, flags, texels):
    """Red, green and blue, times 256, of a mip level at (u, v), each in 0..1.

    Args:
        level: the level's row of `levels`.
        linear: True for bilinear filtering.
        u: horizontal coordinate.
        v: vertical coordinate.
        flags: settings of the texture's sampler.
        texels: RGBA of all textures, packed into i32.
    """
    first, width, height, _ = level
    x0, x1, wx = neighbours(u, width, flags & WRAP_BITS, linear)
    y0, y1, wy = neighbours(v, height, np.int32(flags >> WRAP_V_SHIFT) & WRAP_BITS, linear)
    top, bottom = np.int32(first + np.int32(y0 * width)), np.int32(first + np.int32(y1 * width))
    w11 = np.int32(np.int32(wx * wy + np.int32(128)) >> 8)
    w01, w10 = np.int32(wx - w11), np.int32(wy - w11)
    w00 = np.int32(np.int32(256) - wx - w10)
    red_blue00, green00 = _times(texels[np.uint32(top + x0)], w00)
    red_blue01, green01 = _times(texels[np.uint32(top + x1)], w01)
    red_blue10, green10 = _times(texels[np.uint32(bottom + x0)], w10)
    red_blue11, green11 = _times(texels[np.uint32(bottom + x1)], w11)
    red_blue = np.uint32(red_blue00 + red_blue01 + red_blue10 + red_blue11)
    green = np.uint32(green00 + green01 + green10 + green11)
    red, blue = np.int32(red_blue & _LOW), np.int32(red_blue >> np.uint32(16))
    return np.float32(red), np.float32(np.int32(green >> np.uint32(8))), np.float32(blue)


@inline_function
def read_blocks(level, linear, u, v, flags, blocks):
    """Red, green and blue, times 256, of a mip level in blocks; arguments as in `read_level`.

    Args:
        level: the level's row of `levels`.
        linear: True for bilinear filtering.
        u: horizontal coordinate.
        v: vertical coordinate.
        flags: settings of the texture's sampler.
        blocks: blocks of all textures, i64 [R, 8].
    """
    first, width, height, _ = level
    x0, x1, wx = neighbours(u, width, flags & WRAP_BITS, linear)
    y0, y1, wy = neighbours(v, height, np.int32(flags >> WRAP_V_SHIFT) & WRAP_BITS, linear)
    columns = np.int32(np.int32(width + np.int32(3)) >> np.int32(2))
    w11 = np.int32(np.int32(wx * wy + np.int32(128)) >> 8)
    w01, w10 = np.int32(wx - w11), np.int32(wy - w11)
    w00 = np.int32(np.int32(256) - wx - w10)
    red_blue00, green00 = _mixed(_block_at(first, columns, x0, y0, blocks), x0, y0, w00)
    red_blue01, green01 = _mixed(_block_at(first, columns, x1, y0, blocks), x1, y0, w01)
    red_blue10, green10 = _mixed(_block_at(first, columns, x0, y1, blocks), x0, y1, w10)
    red_blue11, green11 = _mixed(_block_at(first, columns, x1, y1, blocks), x1, y1, w11)
    red_blue = np.uint32(red_blue00 + red_blue01 + red_blue10 + red_blue11)
    green = np.int32(np.uint32(green00 + green01 + green10 + green11))
    red, blue = np.int32(red_blue >> np.uint32(16)), np.int32(red_blue & _LOW)
    return np.float32(red) * _FIVE_BITS, np.float32(green) * _SIX_BITS, np.float32(blue) * _FIVE_BITS


@device_function
def _block_at(first, columns, x, y, blocks):
    """The block of texel (x, y) of a level whose blocks begin at row `first` and have `columns` per row."""
    number = np.int32(np.int32(np.int32(y >> np.int32(2)) * columns) + np.int32(x >> np.int32(2)))
    row = np.uint32(first + np.int32(number >> np.int32(3)))
    return blocks[row, np.uint32(number & np.int32(7))]


@device_function
def _mixed(block, x, y, weight):
    """Thirds of a texel's colour times a weight: red and blue in one word, green in the other, as they are stored."""
    colors, codes = np.uint32(block & _WORD), np.uint32((block >> np.int64(32)) & _WORD)
    place = np.uint32(np.int32(np.int32(np.int32(y & np.int32(3)) << np.int32(2)) + np.int32(x & np.int32(3))) << 1)
    code = np.uint32((codes >> place) & np.uint32(3))
    thirds = np.uint32((_THIRDS >> np.uint32(code << np.uint32(1))) & np.uint32(3))
    second = np.uint32(np.uint32(weight) * thirds)
    first = np.uint32(np.uint32(np.uint32(weight) * np.uint32(3)) - second)
    color0, color1 = np.uint32(colors & _LOW), np.uint32(colors >> np.uint32(16))
    red_blue = np.uint32(np.uint32(_spread(color0) * first) + np.uint32(_spread(color1) * second))
    green0, green1 = np.uint32((color0 >> np.uint32(5)) & _SIX), np.uint32((color1 >> np.uint32(5)) & _SIX)
    return red_blue, np.uint32(np.uint32(green0 * first) + np.uint32(green1 * second))


@device_function
def _spread(color):
    """Blue of a colour of 16 bits in the low half of a word, red in the high half."""
    return np.uint32((color & np.uint32(31)) | np.uint32(np.uint32(color & np.uint32(0xF800)) << np.uint32(5)))


@device_function
def _times(texel, weight):
    """Bytes of a texel times a weight: red and blue in one word, green in the upper bytes of the other."""
    words, weight = np.uint32(texel), np.uint32(weight)
    return np.uint32((words & _RED_BLUE) * weight), np.uint32((words & _GREEN) * weight)


@device_function
def mip_level(footprint, last_level, flags, trilinear):
    """Mip level, weight of the next level, and True where texels are interpolated.

    The level is log2(footprint) / 2, where `footprint` is the squared number of texels of the finest level that a pixel
    covers; a footprint of at most 1 magnifies the texture. `last_level` is 0 for a texture without mip levels. Without
    `trilinear` only the nearer of two levels is read, even where the texture asks for both.
    """
    level, share, linear = _FIRST, _ZERO, (flags & np.int32(MAGNIFY_LINEAR)) != 0
    if footprint > _ONE:  # False for NaN
        linear = (flags & np.int32(MINIFY_LINEAR)) != 0
        detail = min(_HALF * log2_fast(footprint), last_level)
        if trilinear and (flags & np.int32(BETWEEN_LEVELS)) != 0:
            level = np.int32(detail)
            share = detail - np.float32(level)
        else:
            level = np.int32(detail + _HALF)
    return level, share, linear
