"""Texture patches of 28 bytes for large scenes, in place of the 64 bytes of `Appearance.patches`.

A row of seven int32 has the texture coordinates of a point P, U + gradient of U . (P - A), and likewise V:

    A x, y (16 bits each) | A z, material (16 bits) | U (25 bits), material (7 bits) | V (25 bits), exponent (7 bits)
    gradient of U x, y | gradient of U z, of V x | gradient of V y, z (16 bits each)

A is a point near the triangle's centre, a multiple of 1/128 m, and U and V are those of its plane there. Gradients have
a common exponent, stored plus 64. The normal is their cross product. A triangle whose texture coordinates would be off
by more than `MOST_ERROR` keeps a whole patch.
"""

import math

import numpy as np
from numba import prange

from batchnav.runtime.kernels.decorators import cpu_kernel, inline_function
from batchnav.runtime.kernels.intrinsics import bits_float, float_bits
from batchnav.types import TriangleMesh

WIDTH = 7
"""Int32 per row."""
SMALL = np.int32(2**30)
"""`Appearance.paint` of a triangle with a small patch: this bit and the patch's row."""
MOST_ERROR = 0.125
"""Largest error of texture coordinates, texels."""
_STEP = np.float32(1.0 / 128.0)
_PER_METRE, _LARGEST = 128.0, 32767.0
_THIN, _FLAT = 1.0 / 64.0, 1.0 / 16.0
"""Least length of a gradient relative to the larger component, and least sine of their angle: below, the cross product
would be inaccurate."""
_SIXTEEN, _LOW, _SHARED = np.int32(16), np.int32(0xFFFF), np.int32(127)
_BIAS, _EXPONENT = np.int32(63), np.int32(23)


def small_patches(
    mesh: TriangleMesh, which: np.ndarray, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which of some triangles i64 [n] have a small patch, bool [n], and the patches i32 [n, 7].

    Args:
        mesh: mesh with UVs.
        which: faces with a texture and without vertex colours.
        rows: i32 [M], row of each of the surface's materials in the bank; None: their own numbers.
    """
    surface = mesh.surface
    assert surface is not None
    of_material = np.zeros((len(surface.materials), 4))
    for row, material in zip(of_material, surface.materials, strict=True):
        if material.texture >= 0:
            texture = surface.textures[material.texture]
            row[:2] = texture.pixels.shape[1::-1]
            row[2:] = [mode != "clamp" for mode in texture.wrap]
    if rows is None:
        rows = np.arange(len(surface.materials), dtype=np.int32)
    words, fits = np.zeros((len(which), WIDTH), np.int32), np.zeros(len(which), np.bool_)
    _encode(mesh.vertices, mesh.faces, which, surface.uv, surface.material, of_material, rows, words, fits)
    return fits, words


@cpu_kernel
def _encode(vertices, faces, which, uv, material, of_material, rows, words_out, fits_out):
    """Write small patches and whether they are exact enough. `of_material`, f64 [M, 4]: width, height, wrapped U, V."""
    for i in prange(len(which)):
        face, start, end = which[i], np.empty(6), np.empty(6)
        kind = material[face]
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        for k in range(3):
            a, b, c = vertices[faces[face, 0], k], vertices[faces[face, 1], k], vertices[faces[face, 2], k]
            start[k], end[k], end[3 + k] = np.float64(a), np.float64(b) - a, np.float64(c) - a
            low[k], high[k] = min(a, min(b, c)), max(a, max(b, c))
        ex, ey, ez, fx, fy, fz = end[0], end[1], end[2], end[3], end[4], end[5]
        nx, ny, nz = ey * fz - ez * fy, ez * fx - ex * fz, ex * fy - ey * fx
        square = nx * nx + ny * ny + nz * nz
        nx, ny, nz = nx / square, ny / square, nz / square
        gradient, there, largest, reach = np.empty((2, 3)), np.empty(2), 0.0, 0.0
        is_near = True
        for k in range(3):
            cell = np.floor((start[k] + (end[k] + end[3 + k]) / 3.0) * _PER_METRE + 0.5)
            is_near &= abs(cell) <= _LARGEST
            start[3 + k] = min(max(cell, -_LARGEST), _LARGEST)
            place = start[3 + k] / _PER_METRE
            reach += max(abs(low[k] - place), abs(high[k] - place))
        for axis in range(2):
            shift = 2.0 * np.floor(uv[face, 0, axis] / 2.0) if of_material[kind, 2 + axis] != 0.0 else 0.0
            first = np.float64(uv[face, 0, axis])
            to_b, to_c = uv[face, 1, axis] - first, uv[face, 2, axis] - first
            gradient[axis, 0] = to_b * (fy * nz - fz * ny) + to_c * (ny * ez - nz * ey)
            gradient[axis, 1] = to_b * (fz * nx - fx * nz) + to_c * (nz * ex - nx * ez)
            gradient[axis, 2] = to_b * (fx * ny - fy * nx) + to_c * (nx * ey - ny * ex)
            there[axis] = first - shift
            for k in range(3):
                there[axis] += gradient[axis, k] * (start[3 + k] / _PER_METRE - start[k])
                largest = max(largest, abs(gradient[axis, k]))
        exponent = max(math.frexp(largest / _LARGEST)[1], -64) if largest < 1e15 else 64
        scale = 2.0**exponent
        words_out[i, 0] = _pair(start[3], start[4])
        row = rows[kind]
        words_out[i, 1] = _pair(start[5], 0.0) | np.int32(row << 16)
        words_out[i, 2] = _rounded(there[0]) | np.int32(row >> 16)
        words_out[i, 3] = _rounded(there[1]) | np.int32(exponent + 64)
        g = gradient / scale if exponent < 64 else np.zeros((2, 3))
        words_out[i, 4], words_out[i, 5] = _pair(g[0, 0], g[0, 1]), _pair(g[0, 2], g[1, 0])
        words_out[i, 6] = _pair(g[1, 1], g[1, 2])
        fits = is_near and exponent < 64 and square > 0.0
        for axis in range(2):
            error = 0.5 * scale * reach + abs(there[axis]) * 2.0**-17
            fits &= error * of_material[kind, axis] <= MOST_ERROR
        one = np.sqrt(gradient[0, 0] ** 2 + gradient[0, 1] ** 2 + gradient[0, 2] ** 2)
        other = np.sqrt(gradient[1, 0] ** 2 + gradient[1, 1] ** 2 + gradient[1, 2] ** 2)
        along = gradient[0, 0] * gradient[1, 0] + gradient[0, 1] * gradient[1, 1] + gradient[0, 2] * gradient[1, 2]
        fits &= min(one, other) >= _THIN * largest and largest > 0.0
        fits_out[i] = fits and along * along <= (1.0 - _FLAT * _FLAT) * (one * other) ** 2


@inline_function
def _pair(first, second):
    """Two whole numbers of 16 bits in a word, the first in the low half."""
    return np.int32((np.int64(np.floor(first + 0.5)) & 0xFFFF) | (np.int64(np.floor(second + 0.5)) << 16))


@inline_function
def _rounded(value):
    """The bits of a float32, rounded to the upper 25."""
    return np.int32((float_bits(np.float32(value)) + np.int32(64)) & np.int32(-128))


# What shaders read. Where a bank has no small patches, `rows` is an empty array of one dimension: kernels are compiled
# separately, and have no branch.


@inline_function
def is_small(patch, rows):
    """True for the `Appearance.paint` of a triangle with a small patch."""
    if rows.ndim == 1:
        return False
    return patch >= SMALL


@inline_function
def _first(word):
    """The number in the low half of a word."""
    return np.float32(np.int32(np.int32(word << _SIXTEEN) >> _SIXTEEN))


@inline_function
def _second(word):
    """The number in the high half of a word."""
    return np.float32(np.int32(word >> _SIXTEEN))


@inline_function
def _word(row, column, rows):
    if rows.ndim == 1:
        return SMALL
    return rows[np.uint32(row), np.uint32(column)]


@inline_function
def small_material(row, rows):
    """Row of the material of a small patch."""
    low = np.int32(np.int32(_word(row, 1, rows) >> _SIXTEEN) & _LOW)
    return np.int32(low | np.int32(np.int32(_word(row, 2, rows) & _SHARED) << _SIXTEEN))


@inline_function
def read_small(row, rows):
    """A small patch as the four vectors of a whole one, each with a number; without a tint."""
    a, b, u, v = _word(row, 0, rows), _word(row, 1, rows), _word(row, 2, rows), _word(row, 3, rows)
    c, d, e = _word(row, 4, rows), _word(row, 5, rows), _word(row, 6, rows)
    scale = bits_float(np.int32(np.int32(np.int32(v & _SHARED) + _BIAS) << _EXPONENT))
    ux, uy, uz = _first(c) * scale, _second(c) * scale, _first(d) * scale
    vx, vy, vz = _second(d) * scale, _first(e) * scale, _second(e) * scale
    corner = _first(a) * _STEP, _second(a) * _STEP, _first(b) * _STEP
    gx, gy, gz = _first(c), _second(c), _first(d)
    hx, hy, hz = _second(d), _first(e), _second(e)
    normal = gy * hz - gz * hy, gz * hx - gx * hz, gx * hy - gy * hx
    return (
        (corner, bits_float(np.int32(u & np.int32(~127)))), ((ux, uy, uz), bits_float(np.int32(v & np.int32(~127)))),
        ((vx, vy, vz), bits_float(np.int32(-1))), (normal, np.float32(0.0)),
    )  # fmt: skip
