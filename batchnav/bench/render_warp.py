"""Depth and textured colour by NVIDIA Warp's mesh query, a peer in `batchnav bench render`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import warp as wp

from batchnav.scene.appearance import Appearance
from batchnav.scene.bank import SceneBank


@wp.func
def _pixel(thread: int, size: int):
    """View, row and column of a thread; the 32 threads of a warp cover 8 x 4 pixels."""
    lane, tile = thread % 32, thread // 32
    tiles_x = size // 8
    tiles = tiles_x * (size // 4)
    i, tile = tile // tiles, tile % tiles
    return i, (tile // tiles_x) * 4 + lane // 8, (tile % tiles_x) * 8 + lane % 8


@wp.func
def _ray(heading: float, row: int, column: int, size: int):
    """Direction of a pixel's ray, with forward component 1."""
    s, c = wp.sin(heading), wp.cos(heading)
    right = float(2 * column + 1 - size) / float(size)
    up = float(size - 1 - 2 * row) / float(size)
    return wp.vec3(-s + right * c, up, -c - right * s)


@wp.kernel
def _draw(
    meshes: wp.array(dtype=wp.uint64),
    scene_id: wp.array(dtype=int),
    position: wp.array(dtype=wp.vec3),
    heading: wp.array(dtype=float),
    size: int,
    depth: wp.array(dtype=float),
):
    i, row, column = _pixel(wp.tid(), size)
    direction = _ray(heading[i], row, column, size)
    length = wp.length(direction)
    hit = wp.mesh_query_ray(meshes[scene_id[i]], position[i], direction / length, 1000.0)
    value = float(0.0)  # noqa: UP018  (Warp: a variable, where a literal would be a constant)
    if hit.result:
        value = hit.t / length
    depth[(i * size + row) * size + column] = value


@wp.struct
class _Look:
    """Arrays of `Appearance`, and the first triangle of each scene."""

    first: wp.array(dtype=int)
    paint: wp.array(dtype=int)
    patches: wp.array(dtype=wp.vec4, ndim=2)
    materials: wp.array(dtype=wp.vec4, ndim=2)
    levels: wp.array(dtype=wp.vec4i)
    texels: wp.array(dtype=wp.uint32)


@wp.func
def _bits(value: float):
    return wp.cast(value, int)


@wp.func
def _texel(texels: wp.array(dtype=wp.uint32), place: int):
    value = texels[place]
    byte = wp.uint32(255)
    red, green, blue = value & byte, (value >> wp.uint32(8)) & byte, (value >> wp.uint32(16)) & byte
    return wp.vec3(float(red), float(green), float(blue))


@wp.func
def _bilinear(look: _Look, level: int, u: float, v: float):
    """Colour of a repeated texture at (u, v), 0 to 255."""
    part = look.levels[level]
    width, height = part[1], part[2]
    x, y = (u - wp.floor(u)) * float(width) - 0.5, (v - wp.floor(v)) * float(height) - 0.5
    left, top = int(wp.floor(x)), int(wp.floor(y))
    fx, fy = x - float(left), y - float(top)
    x0, x1 = (left + width) % width, (left + 1) % width
    above, below = part[0] + (top + height) % height * width, part[0] + (top + 1) % height * width
    upper = wp.lerp(_texel(look.texels, above + x0), _texel(look.texels, above + x1), fx)
    lower = wp.lerp(_texel(look.texels, below + x0), _texel(look.texels, below + x1), fx)
    return wp.lerp(upper, lower, fy)


@wp.func
def _color(look: _Look, number: int, point: wp.vec3, depth: float, size: int):
    """Colour, 0 to 255: base colour times texture, at the mip level nearest to the pixel's footprint."""
    patch = look.paint[number]
    if patch < 0:
        plain = look.materials[-1 - patch, 0]
        return 255.0 * wp.vec3(plain[0], plain[1], plain[2])
    a, gu, gv, last = look.patches[patch, 0], look.patches[patch, 1], look.patches[patch, 2], look.patches[patch, 3]
    material = _bits(last[3])
    base, kind = look.materials[material, 0], look.materials[material, 1]
    first = _bits(base[3])
    if first < 0:
        return 255.0 * wp.vec3(base[0], base[1], base[2])
    away = point - wp.vec3(a[0], a[1], a[2])
    along_u, along_v = wp.vec3(gu[0], gu[1], gu[2]), wp.vec3(gv[0], gv[1], gv[2])
    covered = 2.0 * depth / float(size) * wp.max(wp.length(along_u) * kind[0], wp.length(along_v) * kind[1])
    level = int(wp.clamp(wp.log2(wp.max(covered, 1.0)) + 0.5, 0.0, kind[3]))
    read = _bilinear(look, first + level, a[3] + wp.dot(along_u, away), gu[3] + wp.dot(along_v, away))
    return wp.cw_mul(read, wp.vec3(base[0], base[1], base[2]))


@wp.kernel
def _paint(
    meshes: wp.array(dtype=wp.uint64),
    scene_id: wp.array(dtype=int),
    position: wp.array(dtype=wp.vec3),
    heading: wp.array(dtype=float),
    size: int,
    look: _Look,
    depth: wp.array(dtype=float),
    rgb: wp.array(dtype=wp.uint8),
):
    """Depth, and colour in planes: red, green, blue."""
    i, row, column = _pixel(wp.tid(), size)
    direction = _ray(heading[i], row, column, size)
    length = wp.length(direction)
    hit = wp.mesh_query_ray(meshes[scene_id[i]], position[i], direction / length, 1000.0)
    value, color = float(0.0), wp.vec3(0.0, 0.0, 0.0)  # noqa: UP018
    if hit.result:
        value = hit.t / length
        color = _color(look, look.first[scene_id[i]] + hit.face, position[i] + value * direction, value, size)
    depth[(i * size + row) * size + column] = value
    for k in range(3):
        rgb[((i * 3 + k) * size + row) * size + column] = wp.uint8(color[k] + 0.5)


def _look_of(bank: SceneBank, appearance: Appearance[torch.Tensor], name: str) -> _Look:
    """The bank's arrays as Warp arrays that share memory."""
    look = _Look()
    counts = [len(scene.mesh.faces) for scene in bank.scenes]
    look.first = wp.array(np.cumsum([0, *counts[:-1]]), dtype=int, device=name)
    look.paint = wp.from_torch(appearance.paint)
    look.patches = wp.from_torch(appearance.patches.view(-1, 4, 4), dtype=wp.vec4)
    look.materials = wp.from_torch(appearance.materials.view(-1, 2, 4), dtype=wp.vec4)
    look.levels = wp.from_torch(appearance.levels, dtype=wp.vec4i)
    look.texels = wp.from_torch(appearance.texels, dtype=wp.uint32)
    return look


def warp_renderer(
    bank: SceneBank, builder: str
) -> dict[str, Callable[[tuple[torch.Tensor, ...], int], Callable[[], None]]]:
    """Renderers by sensors: functions of views and image side (a multiple of 8) that return a rendering function.

    Rendering runs on PyTorch's current stream. Colour needs a bank with textures, none of them in blocks, and no large
    scene: bilinear samples of one mip level, repeat wrapping only, no vertex colours.

    Args:
        bank: scenes on a CUDA device.
        builder: constructor of Warp's BVH: "lbvh", "sah" or "cubql".
    """
    wp.config.quiet = True
    device, name = bank.device, str(bank.device)
    trees = [
        wp.Mesh(
            points=wp.array(scene.mesh.vertices, dtype=wp.vec3, device=name),
            indices=wp.array(scene.mesh.faces.ravel(), dtype=wp.int32, device=name),
            bvh_constructor=builder,
        )
        for scene in bank.scenes
    ]
    appearance = bank.appearance
    look = None
    if appearance is not None and len(appearance.paint) and not len(appearance.blocks) + len(appearance.small_patches):
        look = _look_of(bank, appearance, name)

    def aim(views: tuple[torch.Tensor, ...], size: int, colored: bool = False) -> Callable[[], None]:
        scene_id, position, heading = (view.cpu().numpy() for view in views)
        meshes = wp.array([tree.id for tree in trees], dtype=wp.uint64, device=name)
        ids = wp.array(scene_id, dtype=int, device=name)
        points = wp.array(position, dtype=wp.vec3, device=name)
        headings = wp.array(heading, dtype=float, device=name)
        depth = wp.zeros(math.prod((len(heading), size, size)), dtype=float, device=name)
        inputs = [meshes, ids, points, headings, size]
        kernel, last = _draw, [depth]
        if colored:
            kernel, last = _paint, [look, depth, wp.zeros(3 * depth.size, dtype=wp.uint8, device=name)]

        def draw():
            stream = wp.stream_from_torch(torch.cuda.current_stream(device))
            wp.launch(kernel, dim=depth.size, inputs=[*inputs, *last], stream=stream)

        return draw

    if look is None:
        return {"depth": aim}
    return {"depth": aim, "rgb+depth": lambda views, size: aim(views, size, colored=True)}
