"""Reading a texture at a place: wrapping, mip levels, and mixing of texels, as OpenGL and glTF's samplers have it.

Colours travel as two words: red in the low and blue in the high half of one, green in the other. A texel's bytes times
a weight of up to 256 fill such halves exactly, so that four texels are mixed by eight integer multiplications.
"""

from __future__ import annotations

import numpy as np

from batchnav.runtime.intrinsics import float_bits, load4
from batchnav.runtime.kernels import device_function, inline_function
from batchnav.scene.textures import BETWEEN_LEVELS, CLAMP, MAGNIFY_LINEAR, MINIFY_LINEAR, MIRROR, REPEAT, WRAP_V_SHIFT

_ZERO, _HALF, _ONE, _TWO, _FULL = (np.float32(x) for x in (0.0, 0.5, 1.0, 2.0, 256.0))
_FIRST, _UNIT = np.int32(0), np.int32(1)
_RED_BLUE, _BYTE, _LOW = np.uint32(0x00FF00FF), np.uint32(0xFF), np.uint32(0xFFFF)
_WRAP_BITS = np.int32(3)
_ON_THE_LINE = np.float32(1.0 / 2048.0)
"""Texels: a place so near to the next one, where rounding would choose, is this one's: as in habitat-sim's pictures."""


@device_function
def log2_fast(x):
    """log2 of a positive float32, to 0.001: its exponent, and a cubic through the mantissa's ends.

    The same on every device and a few instructions.
    """
    bits = float_bits(x)
    exponent = np.float32(np.int32(np.int32(bits >> 23) - np.int32(127)))
    m = np.float32(np.int32(bits & np.int32(0x7FFFFF))) * np.float32(1.0 / 8388608.0)
    return exponent + m * (np.float32(1.4208645) + m * (np.float32(-0.5772506) + m * np.float32(0.1563861)))


@device_function
def wrapped(c, wrap):
    """A texture coordinate within 0 to 1: repeated, mirrored or clamped."""
    if wrap == CLAMP:
        return min(max(c, _ZERO), _ONE)
    if wrap == MIRROR:
        c = c * _HALF
    c = c - np.float32(np.int32(c))  # towards 0; farther than int32 reaches is anywhere
    if c < _ZERO:
        c = c + _ONE
    if wrap == MIRROR:
        c = _ONE - abs(_ONE - c * _TWO)
    return c


@device_function
def neighbours(c, size, wrap):
    """The two texels along one axis that lie around a coordinate within 0 to 1, and the second one's weight, of 256."""
    x = c * np.float32(size) + _HALF
    first = np.int32(x)
    weight = np.int32((x - np.float32(first)) * _FULL)
    first = min(max(np.int32(first - _UNIT), np.int32(-1)), np.int32(size - _UNIT))  # whatever a NaN has become
    second = np.int32(first + _UNIT)
    if wrap == REPEAT:
        if first < 0:
            first = np.int32(size - _UNIT)
        if second >= size:
            second = _FIRST
        return first, second, weight
    return max(first, _FIRST), min(second, np.int32(size - _UNIT)), weight


@device_function
def nearest(c, size):
    """The texel along one axis at a coordinate within 0 to 1."""
    return min(max(np.int32(c * np.float32(size) - _ON_THE_LINE), _FIRST), np.int32(size - _UNIT))


@device_function
def _times(words, weight):
    """A texel's bytes times a weight: red and blue, green."""
    weight = np.uint32(weight)
    return np.uint32((words & _RED_BLUE) * weight), np.uint32(((words >> np.uint32(8)) & _BYTE) * weight)


@inline_function
def read_level(level, linear, u, v, flags, levels, texels):
    """The colour at (u, v), each within 0 to 1, on a row of `levels`, times 256: red and blue, green."""
    first, width, height, _ = load4(levels, level, _FIRST)
    if not linear:
        place = np.int32(first + np.int32(nearest(v, height) * width) + nearest(u, width))
        return _times(np.uint32(texels[np.uint32(place)]), np.int32(256))
    x0, x1, wx = neighbours(u, width, flags & _WRAP_BITS)
    y0, y1, wy = neighbours(v, height, np.int32(flags >> WRAP_V_SHIFT) & _WRAP_BITS)
    top, bottom = np.int32(first + np.int32(y0 * width)), np.int32(first + np.int32(y1 * width))
    w11 = np.int32(np.int32(wx * wy + np.int32(128)) >> 8)
    w01, w10 = np.int32(wx - w11), np.int32(wy - w11)
    w00 = np.int32(np.int32(256) - wx - w10)
    rb00, g00 = _times(np.uint32(texels[np.uint32(top + x0)]), w00)
    rb01, g01 = _times(np.uint32(texels[np.uint32(top + x1)]), w01)
    rb10, g10 = _times(np.uint32(texels[np.uint32(bottom + x0)]), w10)
    rb11, g11 = _times(np.uint32(texels[np.uint32(bottom + x1)]), w11)
    return np.uint32(rb00 + rb01 + rb10 + rb11), np.uint32(g00 + g01 + g10 + g11)


@device_function
def _channels(words):
    """Red, green, blue of 0 to 255, from a colour times 256."""
    red_blue, green = words
    scale = _ONE / _FULL
    red, blue = np.int32(red_blue & _LOW), np.int32(red_blue >> np.uint32(16))
    return np.float32(red) * scale, np.float32(np.int32(green)) * scale, np.float32(blue) * scale


@inline_function
def read_texture(first_level, last_level, flags, place, footprint, levels, texels, trilinear):
    """Red, green, blue of 0 to 255 at `place` (u, v), where a pixel covers `footprint` texels of the finest level.

    Its log2 is the level; below the finest the texture is magnified. `last_level`: 0 where it has no mip levels.
    Without `trilinear` only the nearer of two levels is read, where the texture would have both mixed.
    """
    u, v = wrapped(place[0], flags & _WRAP_BITS), wrapped(place[1], np.int32(flags >> WRAP_V_SHIFT) & _WRAP_BITS)
    level, share = _FIRST, _ZERO
    linear = (flags & np.int32(MAGNIFY_LINEAR)) != 0
    if footprint > _ONE:  # not so where it is no number
        linear = (flags & np.int32(MINIFY_LINEAR)) != 0
        detail = min(_HALF * log2_fast(footprint), last_level)
        if trilinear and (flags & np.int32(BETWEEN_LEVELS)) != 0:
            level = np.int32(detail)
            share = detail - np.float32(level)
        else:
            level = np.int32(detail + _HALF)
    level = max(np.int32(first_level + level), _FIRST)
    r, g, b = _channels(read_level(level, linear, u, v, flags, levels, texels))
    if share > _ZERO:
        r1, g1, b1 = _channels(read_level(np.int32(level + _UNIT), linear, u, v, flags, levels, texels))
        return r + share * (r1 - r), g + share * (g1 - g), b + share * (b1 - b)
    return r, g, b
