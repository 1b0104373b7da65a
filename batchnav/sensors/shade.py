"""The colour of a pixel: position on the visible triangle, footprint, mip level, texture and vertex colours.

The position follows from ray and depth. The footprint, and thus the mip level, follows from the change of texture
coordinates between the rays of neighbouring pixels on the plane of the triangle, in closed form; a rasteriser uses
finite differences between pixels (Heckbert, "Survey of Texture Mapping", IEEE CG&A 6(11), 1986). Ray cones
(Akenine-Moeller et al., JCGT 10(1), 2021) use one radius in place of two axes, and are meant for reflected rays.

On CUDA a thread shades one pixel (`color_at`). On the CPU the pixels that have a patch are collected, and each stage is
a loop over them that LLVM vectorises. Rows of patches, materials and levels are transposed into columns first
(`load_columns`), since a gather is as slow as scalar loads. Arrays between loops are local to the function
(`thread_array`), since LLVM moves loads of unknown address only past stores that cannot alias. They are indexed by the
loop counter alone: for other index expressions numba tests the sign, which turns the loads into gathers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from batchnav.geometry.pose import pixel_ray, pixel_spacing
from batchnav.runtime.kernels.decorators import device_function, inline_function
from batchnav.runtime.kernels.intrinsics import GROUP, bits_float, float_bits, fma, load4, load_columns, thread_array
from batchnav.scene.small_patches import SMALL, is_small, read_small, small_material
from batchnav.scene.textures import IN_BLOCKS, SIZE, WRAP_V_SHIFT
from batchnav.sensors.texture import WRAP_BITS, mip_level, read_blocks, read_level, wrapped

_ZERO, _ONE, _WHITE, _FULL = np.float32(0.0), np.float32(1.0), np.float32(255.0), np.float32(255.0 * 256.0)
_HALF, _PART = np.float32(0.5), np.float32(1.0 / 256.0)
_A, _U, _V, _N = np.int32(0), np.int32(4), np.int32(8), np.int32(12)
"""Columns where the four vectors of a patch begin."""
_COLOR, _TEXTURE, _FIRST, _UNIT = np.int32(0), np.int32(SIZE), np.int32(0), np.int32(1)
_IN_BLOCKS = np.int32(IN_BLOCKS)
LANES = 64
"""CPU: pixels shaded together."""
_floats, _ints = thread_array(LANES, np.float32), thread_array(LANES, np.int32)


class Paint(NamedTuple):
    """Fields of `Appearance` in kernels that compute colours."""

    paint: Any
    patches: Any
    materials: Any
    levels: Any
    texels: Any
    blocks: Any
    small_patches: Any
    """i32 [S, 7]; without rows i32 [0], for which kernels are compiled separately."""


@device_function
def as_byte(value):
    """Round to a byte, as OpenGL does; values above 255 become 255."""
    return np.uint8(np.int32(min(value, _WHITE) + _HALF))


@device_function
def _dot(a, b):
    return fma(a[0], b[0], fma(a[1], b[1], a[2] * b[2]))


@device_function
def _times(factor, a):
    return factor * a[0], factor * a[1], factor * a[2]


@inline_function
def _row(rows, row, column):
    """A vector of a row, and the number after it."""
    x, y, z, last = load4(rows, row, column)
    return (x, y, z), last


@device_function
def _from_corner(corner, depth, ray, place):
    """Vector from corner A of a patch's triangle to the visible point."""
    x, y, z = place[0] - corner[0], place[1] - corner[1], place[2] - corner[2]
    return fma(depth, ray[0], x), fma(depth, ray[1], y), fma(depth, ray[2], z)


@inline_function
def _footprint(depth, ray, axes, spacing, normal, u, v, size):
    """Squared number of texels of the finest level that a pixel covers along the longer of its two axes on the surface.

    On a plane, depth (n . ray) is equal for all rays. If a ray changes by s, the point therefore moves by
    depth (s - ray (n . s) / (n . ray)).
    """
    right, up, _ = axes
    steeper = spacing / _dot(normal, ray)
    to_right, down = _times(spacing, right), _times(-spacing, up)
    slope_right, slope_down = -steeper * _dot(normal, right), steeper * _dot(normal, up)
    across = (
        fma(slope_right, ray[0], to_right[0]),
        fma(slope_right, ray[1], to_right[1]),
        fma(slope_right, ray[2], to_right[2]),
    )
    along = fma(slope_down, ray[0], down[0]), fma(slope_down, ray[1], down[1]), fma(slope_down, ray[2], down[2])
    width, height = depth * size[0], depth * size[1]
    u_across, v_across = width * _dot(u, across), height * _dot(v, across)
    u_along, v_along = width * _dot(u, along), height * _dot(v, along)
    return max(fma(u_across, u_across, v_across * v_across), fma(u_along, u_along, v_along * v_along))


@inline_function
def _look_up(patch, texture, depth, ray, place, axes, spacing, trilinear):
    """Texture coordinates, level and filtering of a patch at the visible point.

    Args:
        patch: four vectors with one number each.
        texture: width, height, sampler flags and last mip level.
        depth: metres.
        ray: direction of the pixel.
        place: position of the camera.
        axes: right, up and forward of the camera.
        spacing: distance of neighbouring pixels at depth 1.
        trilinear: True to interpolate between mip levels.

    Returns u and v in 0..1, level, weight of the next level, True where texels are interpolated, flags, tint.
    """
    (corner, u_start), (u, v_start), (v, tint), (normal, _) = patch
    width, height, bits, last_level = texture
    away = _from_corner(corner, depth, ray, place)
    footprint = _footprint(depth, ray, axes, spacing, normal, u, v, (width, height))
    flags = float_bits(bits)
    level, share, linear = mip_level(footprint, last_level, flags, trilinear)
    u_there = wrapped(u_start + _dot(u, away), flags & WRAP_BITS)
    v_there = wrapped(v_start + _dot(v, away), np.int32(flags >> WRAP_V_SHIFT) & WRAP_BITS)
    return u_there, v_there, level, share, linear, flags, float_bits(tint)


@device_function
def _within(start, gradient, away):
    """A channel of the interpolated vertex colours, 0 to 1."""
    return min(max(start + _dot(gradient, away), _ZERO), _ONE)


@inline_function
def _tinted(tint, depth, ray, place, patches):
    """Interpolated vertex colours at a pixel: red, green, blue, each 0 to 1."""
    corner, red_start = _row(patches, tint, _A)
    away = _from_corner(corner, depth, ray, place)
    red, green_start = _row(patches, tint, _U)
    green, blue_start = _row(patches, tint, _V)
    blue, _ = _row(patches, tint, _N)
    return _within(red_start, red, away), _within(green_start, green, away), _within(blue_start, blue, away)


@inline_function
def _read_either(level, linear, u, v, flags, paint):
    """Colour of a texture at row `level` of the levels, whether it is in blocks or not."""
    row = load4(paint.levels, level, _FIRST)
    if flags & _IN_BLOCKS:
        return read_blocks(row, linear, u, v, flags, paint.blocks)
    return read_level(row, linear, u, v, flags, paint.texels)


@inline_function
def color_at(number, depth, ray, place, axes, spacing, paint, trilinear):
    """Red, green and blue, 0 to 255, of a pixel that sees triangle `number` at `depth` along `ray`."""
    patch = paint.paint[np.uint32(number)]
    material, tint, small = np.int32(~patch), patch, is_small(patch, paint.small_patches)
    patch = np.int32(patch - SMALL) if small else patch
    if small:
        material = small_material(patch, paint.small_patches)
    elif patch >= 0:
        _, bits = _row(paint.patches, patch, _N)
        material = float_bits(bits)
    red, green, blue, bits = load4(paint.materials, material, _COLOR)
    r, g, b = _FULL, _FULL, _FULL
    first = float_bits(bits)
    if patch >= 0 and first >= 0:
        if small:
            row = read_small(patch, paint.small_patches)
        else:
            row = (
                _row(paint.patches, patch, _A), _row(paint.patches, patch, _U), _row(paint.patches, patch, _V),
                _row(paint.patches, patch, _N),
            )  # fmt: skip
        texture = load4(paint.materials, material, _TEXTURE)
        u, v, level, share, linear, flags, tint = _look_up(row, texture, depth, ray, place, axes, spacing, trilinear)
        level = max(np.int32(first + level), _FIRST)
        r, g, b = _read_either(level, linear, u, v, flags, paint)
        if share > _ZERO:
            r1, g1, b1 = _read_either(np.int32(level + _UNIT), linear, u, v, flags, paint)
            r, g, b = fma(share, r1 - r, r), fma(share, g1 - g, g), fma(share, b1 - b, b)
    if tint >= 0:
        tinted = _tinted(tint, depth, ray, place, paint.patches)
        r, g, b = r * tinted[0], g * tinted[1], b * tinted[2]
    return r * _PART * red, g * _PART * green, b * _PART * blue


class _Lanes(NamedTuple):
    """Pixels of a row that have a patch; each field is an array [LANES]."""

    column: Any
    patch: Any
    """Row of `patches`, of a lane with a small patch any row."""
    small: Any
    """Row of `small_patches`; -1: the lane has a whole patch."""
    level: Any
    """Row of `levels`; -1: the patch has no texture."""
    flags: Any
    linear: Any
    tint: Any
    u: Any
    v: Any
    share: Any
    r: Any
    """Red of the texture times 256."""
    g: Any
    b: Any
    red: Any
    """Red of the material, multiplied with that of the texture."""
    green: Any
    blue: Any


@inline_function
def shade_lanes(row, column, depth, triangle, place, axes, paint, tan_half_hfov, trilinear, rgb_out):
    """Write colours u8 [3, H, W] of at most LANES pixels of a row, from `column` on; images are [H, W]."""
    lanes = _Lanes(
        _ints(), _ints(), _ints(), _ints(), _ints(), _ints(), _ints(), _floats(), _floats(), _floats(), _floats(),
        _floats(), _floats(), _floats(), _floats(), _floats(),
    )  # fmt: skip
    count, whole, small = _collect(row, column, triangle, paint, lanes, rgb_out)
    if count == 0:
        return
    padded = np.int32((count + np.int32(GROUP - 1)) & np.int32(-GROUP))  # lanes beyond `count` are shaded and discarded
    for k in range(count, padded):
        lanes.column[k], lanes.patch[k], lanes.small[k] = lanes.column[0], lanes.patch[0], lanes.small[0]
    if small > 0:
        for k in range(np.int32(0), padded):
            lanes.patch[k] = lanes.patch[k] if lanes.small[k] < 0 else max(whole, _FIRST)
    view, kinds = (place, axes, tan_half_hfov), (whole >= 0, small > 0)
    texels, blocks, tint = _find_places(padded, row, depth, view, kinds, paint, trilinear, lanes)
    if texels:
        _read_nearer(padded, paint.levels, paint.texels, blocks, lanes)
        if trilinear:
            _mix_farther(padded, paint.levels, paint.texels, blocks, lanes)
    if blocks:
        _read_nearer_blocks(padded, paint.levels, paint.blocks, lanes)
        if trilinear:
            _mix_farther_blocks(padded, paint.levels, paint.blocks, lanes)
    if tint >= 0:
        _tint(padded, row, depth, place, axes, paint.patches, tan_half_hfov, lanes)
    red, green, blue = _ints(), _ints(), _ints()
    for k in range(np.int32(0), padded):
        red[k] = np.int32(as_byte(lanes.r[k] * _PART * lanes.red[k]))
        green[k] = np.int32(as_byte(lanes.g[k] * _PART * lanes.green[k]))
        blue[k] = np.int32(as_byte(lanes.b[k] * _PART * lanes.blue[k]))
    if count == LANES:  # neighbouring pixels, stored together
        for k in range(np.uint32(LANES)):
            _put(row, np.uint32(np.uint32(column) + k), red[k], green[k], blue[k], rgb_out)
    else:
        for k in range(np.int32(0), count):
            _put(row, np.uint32(lanes.column[k]), red[k], green[k], blue[k], rgb_out)


@inline_function
def _put(row, column, red, green, blue, rgb_out):
    rgb_out[0, row, column], rgb_out[1, row, column] = np.uint8(red), np.uint8(green)
    rgb_out[2, row, column] = np.uint8(blue)


@inline_function
def _collect(row, column, triangle, paint, lanes_out, rgb_out):
    """Write pixels without a patch, and collect those with one.

    Returns the number of collected pixels, the last row of `patches` or -1, and the number of small patches.
    """
    count, whole, small = np.int32(0), np.int32(-1), np.int32(0)
    for c in range(np.uint32(column), np.uint32(min(column + LANES, triangle.shape[1]))):
        number, red, green, blue = triangle[row, c], _ZERO, _ZERO, _ZERO
        if number >= 0:
            patch = paint.paint[np.uint32(number)]
            if patch >= 0:
                lanes_out.column[count], lanes_out.patch[count], lanes_out.small[count] = (
                    np.int32(c),
                    patch,
                    np.int32(-1),
                )
                if is_small(patch, paint.small_patches):
                    lanes_out.small[count] = np.int32(patch - SMALL)
                    small = np.int32(small + np.int32(1))
                else:
                    whole = patch
                count = np.int32(count + np.int32(1))
                continue
            red, green, blue, _ = load4(paint.materials, np.int32(~patch), _COLOR)
        rgb_out[0, row, c], rgb_out[1, row, c] = as_byte(red * _WHITE), as_byte(green * _WHITE)
        rgb_out[2, row, c] = as_byte(blue * _WHITE)
    return count, whole, small


@inline_function
def _quad():
    """Arrays for four columns of floats."""
    return _floats(), _floats(), _floats(), _floats()


@inline_function
def _load(padded, array, rows, column, columns_out):
    """Load four columns of each lane's row, starting at `column`."""
    for k in range(np.int32(0), padded, np.int32(GROUP)):
        load_columns(array, rows, np.int32(k), column, columns_out)


@inline_function
def _four(columns, k):
    """The four numbers of lane k, in the order of `load4`."""
    return columns[0][k], columns[1][k], columns[2][k], columns[3][k]


@inline_function
def _vector(columns, k):
    """The vector and number of lane k, in the order of `_row`."""
    return (columns[0][k], columns[1][k], columns[2][k]), columns[3][k]


@inline_function
def _unpack(padded, patches, lanes, corner_out, across_out, down_out, normal_out):
    """Replace the columns of lanes with a small patch."""
    for k in range(np.int32(0), padded):
        small = lanes.small[k]
        if small >= 0:
            (a, u), (along_u, v), (along_v, tint), (normal, _) = read_small(small, patches)
            corner_out[0][k], corner_out[1][k], corner_out[2][k], corner_out[3][k] = a[0], a[1], a[2], u
            across_out[0][k], across_out[1][k], across_out[2][k] = along_u
            down_out[0][k], down_out[1][k], down_out[2][k] = along_v
            across_out[3][k], down_out[3][k] = v, tint
            normal_out[0][k], normal_out[1][k], normal_out[2][k] = normal
            normal_out[3][k] = bits_float(small_material(small, patches))


@inline_function
def _find_places(padded, row, depth, view, kinds, paint, trilinear, lanes_out):
    """Find texture coordinates, levels and materials of all lanes.

    Args:
        padded: number of lanes.
        row: row of the image.
        depth: f32 [H, W].
        view: position and axes of the camera, tan(hfov / 2).
        kinds: whether there are whole patches, and small ones.
        paint: what colours depend on.
        trilinear: True to interpolate between mip levels.
        lanes_out: lanes.

    Returns whether a lane has a texture of texels, whether one has a texture in blocks, and the largest tint or -1.
    """
    (place, axes, tan_half_hfov), (has_whole, has_small) = view, kinds
    height, width = np.int32(depth.shape[0]), np.int32(depth.shape[1])
    spacing = pixel_spacing(width, tan_half_hfov)
    most_texels, most_blocks, most_tint = np.int32(-1), np.int32(-1), np.int32(-1)
    material = _ints()
    corner, across, down = _quad(), _quad(), _quad()
    normal, color, texture = _quad(), _quad(), _quad()
    for k in range(np.int32(0), padded if has_whole else np.int32(0), np.int32(GROUP)):
        load_columns(paint.patches, lanes_out.patch, np.int32(k), _A, corner)
        load_columns(paint.patches, lanes_out.patch, np.int32(k), _U, across)
        load_columns(paint.patches, lanes_out.patch, np.int32(k), _V, down)
        load_columns(paint.patches, lanes_out.patch, np.int32(k), _N, normal)
    if has_small:
        _unpack(padded, paint.small_patches, lanes_out, corner, across, down, normal)
    for k in range(np.int32(0), padded):
        material[k] = float_bits(normal[3][k])
    for k in range(np.int32(0), padded, np.int32(GROUP)):
        load_columns(paint.materials, material, np.int32(k), _COLOR, color)
        load_columns(paint.materials, material, np.int32(k), _TEXTURE, texture)
    for k in range(np.int32(0), padded):
        column, patch = lanes_out.column[k], lanes_out.patch[k]
        ray, metres = (
            pixel_ray(np.int32(row), column, axes, height, width, tan_half_hfov),
            depth[row, np.uint32(column)],
        )
        lanes_out.red[k], lanes_out.green[k], lanes_out.blue[k], bits = _four(color, k)
        rows = _vector(corner, k), _vector(across, k), _vector(down, k), _vector(normal, k)
        u, v, level, share, linear, flags, tint = _look_up(
            rows, _four(texture, k), metres, ray, place, axes, spacing, trilinear
        )
        first = float_bits(bits)
        textured = first >= 0
        level = max(np.int32(first + level), _FIRST) if textured else np.int32(-1)
        tint = tint if textured else patch
        lanes_out.u[k], lanes_out.v[k], lanes_out.share[k] = u, v, share if textured else _ZERO
        lanes_out.level[k], lanes_out.flags[k], lanes_out.tint[k] = level, flags, tint
        lanes_out.linear[k] = np.int32(linear)
        lanes_out.r[k] = lanes_out.g[k] = lanes_out.b[k] = _FULL
    for k in range(padded):
        is_blocks = (lanes_out.flags[k] & _IN_BLOCKS) != 0
        most_texels = max(most_texels, np.int32(-1) if is_blocks else lanes_out.level[k])
        most_blocks = max(most_blocks, lanes_out.level[k] if is_blocks else np.int32(-1))
        most_tint = max(most_tint, lanes_out.tint[k])
    return most_texels >= 0, most_blocks >= 0, most_tint


@inline_function
def _read_nearer(padded, levels, texels, mixed, lanes_out):
    """Read the textures of texels at each lane's level. `mixed`: other lanes have textures in blocks."""
    row, level = _ints(), (_ints(), _ints(), _ints(), _ints())
    for k in range(np.int32(0), padded):
        row[k] = max(lanes_out.level[k], _FIRST)
    _load(padded, levels, row, _FIRST, level)
    if mixed:
        _keep_kind(padded, _FIRST, lanes_out, level)
    for k in range(np.int32(0), padded):
        r, g, b = _read(k, level, texels, lanes_out)
        textured = (lanes_out.level[k] >= 0) & ((lanes_out.flags[k] & _IN_BLOCKS) == 0)
        lanes_out.r[k] = r if textured else _FULL
        lanes_out.g[k] = g if textured else _FULL
        lanes_out.b[k] = b if textured else _FULL


@inline_function
def _mix_farther(padded, levels, texels, mixed, lanes_out):
    """Interpolate textures of texels with the next level where its weight is positive."""
    row, level = _ints(), (_ints(), _ints(), _ints(), _ints())
    for k in range(np.int32(0), padded):
        nearer = max(lanes_out.level[k], _FIRST)
        row[k] = np.int32(nearer + _UNIT) if lanes_out.share[k] > _ZERO else nearer
    _load(padded, levels, row, _FIRST, level)
    if mixed:
        _keep_kind(padded, _FIRST, lanes_out, level)
    for k in range(np.int32(0), padded):
        share = _ZERO if (lanes_out.flags[k] & _IN_BLOCKS) != 0 else lanes_out.share[k]
        r, g, b = _read(k, level, texels, lanes_out)
        lanes_out.r[k] = fma(share, r - lanes_out.r[k], lanes_out.r[k])
        lanes_out.g[k] = fma(share, g - lanes_out.g[k], lanes_out.g[k])
        lanes_out.b[k] = fma(share, b - lanes_out.b[k], lanes_out.b[k])


@inline_function
def _read_nearer_blocks(padded, levels, blocks, lanes_out):
    """Read the textures in blocks at each lane's level; other lanes stay as they are."""
    row, level = _ints(), (_ints(), _ints(), _ints(), _ints())
    for k in range(np.int32(0), padded):
        row[k] = max(lanes_out.level[k], _FIRST)
    _load(padded, levels, row, _FIRST, level)
    _keep_kind(padded, _IN_BLOCKS, lanes_out, level)
    for k in range(np.int32(0), padded):
        r, g, b = _read_block(k, level, blocks, lanes_out)
        textured = (lanes_out.level[k] >= 0) & ((lanes_out.flags[k] & _IN_BLOCKS) != 0)
        lanes_out.r[k] = r if textured else lanes_out.r[k]
        lanes_out.g[k] = g if textured else lanes_out.g[k]
        lanes_out.b[k] = b if textured else lanes_out.b[k]


@inline_function
def _mix_farther_blocks(padded, levels, blocks, lanes_out):
    """Interpolate textures in blocks with the next level where its weight is positive."""
    row, level = _ints(), (_ints(), _ints(), _ints(), _ints())
    for k in range(np.int32(0), padded):
        nearer = max(lanes_out.level[k], _FIRST)
        row[k] = np.int32(nearer + _UNIT) if lanes_out.share[k] > _ZERO else nearer
    _load(padded, levels, row, _FIRST, level)
    _keep_kind(padded, _IN_BLOCKS, lanes_out, level)
    for k in range(np.int32(0), padded):
        share = lanes_out.share[k] if (lanes_out.flags[k] & _IN_BLOCKS) != 0 else _ZERO
        r, g, b = _read_block(k, level, blocks, lanes_out)
        lanes_out.r[k] = fma(share, r - lanes_out.r[k], lanes_out.r[k])
        lanes_out.g[k] = fma(share, g - lanes_out.g[k], lanes_out.g[k])
        lanes_out.b[k] = fma(share, b - lanes_out.b[k], lanes_out.b[k])


@inline_function
def _keep_kind(padded, kind, lanes, level_out):
    """Replace the levels of lanes of the other kind, 0 or `_IN_BLOCKS`, by one texel at the start of the array."""
    for k in range(np.int32(0), padded):
        same = (lanes.level[k] >= 0) & ((lanes.flags[k] & _IN_BLOCKS) == kind)
        level_out[0][k] = level_out[0][k] if same else _FIRST
        level_out[1][k] = level_out[1][k] if same else _UNIT
        level_out[2][k] = level_out[2][k] if same else _UNIT


@inline_function
def _read(k, level, texels, lanes):
    """Colour of the texture of lane k at a level, whose row is in the four arrays `level`."""
    return read_level(_four(level, k), lanes.linear[k] != 0, lanes.u[k], lanes.v[k], lanes.flags[k], texels)


@inline_function
def _read_block(k, level, blocks, lanes):
    """Colour of the texture in blocks of lane k at a level, whose row is in the four arrays `level`."""
    return read_blocks(_four(level, k), lanes.linear[k] != 0, lanes.u[k], lanes.v[k], lanes.flags[k], blocks)


@inline_function
def _tint(padded, row, depth, place, axes, patches, tan_half_hfov, lanes_out):
    """Multiply with vertex colours, where there are any."""
    height, width = np.int32(depth.shape[0]), np.int32(depth.shape[1])
    for k in range(np.int32(0), padded):
        column, tint = lanes_out.column[k], lanes_out.tint[k]
        ray = pixel_ray(np.int32(row), column, axes, height, width, tan_half_hfov)
        red, green, blue = _tinted(max(tint, _FIRST), depth[row, np.uint32(column)], ray, place, patches)
        lanes_out.r[k] *= red if tint >= 0 else _ONE
        lanes_out.g[k] *= green if tint >= 0 else _ONE
        lanes_out.b[k] *= blue if tint >= 0 else _ONE
