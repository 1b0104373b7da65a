"""The same depth images with NVIDIA Warp's mesh query, for `batchnav bench render`."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import warp as wp

from batchnav.scene.bank import SceneBank


@wp.kernel
def _draw(
    meshes: wp.array(dtype=wp.uint64),
    scene_id: wp.array(dtype=int),
    position: wp.array(dtype=wp.vec3),
    heading: wp.array(dtype=float),
    size: int,
    depth: wp.array(dtype=float),
):
    thread = wp.tid()
    lane, tile = thread % 32, thread // 32
    tiles_x = size // 8
    tiles = tiles_x * (size // 4)
    i, tile = tile // tiles, tile % tiles
    row, column = (tile // tiles_x) * 4 + lane // 8, (tile % tiles_x) * 8 + lane % 8
    s, c = wp.sin(heading[i]), wp.cos(heading[i])
    right = float(2 * column + 1 - size) / float(size)
    up = float(size - 1 - 2 * row) / float(size)
    direction = wp.vec3(-s + right * c, up, -c - right * s)
    length = wp.length(direction)
    hit = wp.mesh_query_ray(meshes[scene_id[i]], position[i], direction / length, 1000.0)
    value = float(0.0)  # noqa: UP018  (Warp: a variable, where a literal would be a constant)
    if hit.result:
        value = hit.t / length
    depth[(i * size + row) * size + column] = value


def warp_renderer(bank: SceneBank, builder: str) -> Callable[[tuple[torch.Tensor, ...], int], Callable[[], None]]:
    """Views and the images' side, a multiple of 8 -> a function that draws them once, on torch's current stream."""
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

    def aim(views: tuple[torch.Tensor, ...], size: int) -> Callable[[], None]:
        scene_id, position, heading = (view.cpu().numpy() for view in views)
        meshes = wp.array([tree.id for tree in trees], dtype=wp.uint64, device=name)
        ids = wp.array(scene_id, dtype=int, device=name)
        points = wp.array(position, dtype=wp.vec3, device=name)
        headings = wp.array(heading, dtype=float, device=name)
        depth = wp.zeros(math.prod((len(heading), size, size)), dtype=float, device=name)

        def draw():
            stream = wp.stream_from_torch(torch.cuda.current_stream(device))
            wp.launch(_draw, dim=depth.size, inputs=[meshes, ids, points, headings, size, depth], stream=stream)

        return draw

    return aim
