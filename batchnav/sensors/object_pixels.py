"""Number of pixels of each view that show a given object.

Each view casts rays in the rectangle of pixels that the object's box can cover, first at the triangles of the object
alone. Rays that hit it are cast again, at the whole scene, up to the object. That finds the same pixels as an image of
object ids: what lies deeper cannot hide the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.geometry.pose import camera_axes, pixel_ray, tan_half
from batchnav.renderers.raycast import (
    BLOCK_HEIGHT,
    BLOCK_WIDTH,
    DEPTH_ROW,
    NOTHING,
    PACKET_RAYS,
    PACKET_ROWS,
    TILE_HEIGHT,
    TILE_WIDTH,
    Camera,
    closest_hit,
    trace_hits_again,
    trace_tile,
)
from batchnav.runtime.kernels.arrays import to_device, view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel
from batchnav.runtime.kernels.intrinsics import thread_array
from batchnav.runtime.kernels.launch import launch
from batchnav.scene.appearance import ID_FIELDS
from batchnav.scene.bank import SceneBank, pack_bvhs
from batchnav.scene.bvh import BVH, MAX_LEVELS, build_bvh
from batchnav.scene.scene import Scene
from batchnav.sensors.semantic import Ids, id_at
from batchnav.types import TriangleMesh

_NEAR = 0.01
"""Depth at which boxes are cut off before they are projected, metres."""
_MARGIN = 1.0
"""Pixels that are added on each side of a rectangle, against rounding."""
_DEEPER = 1.0001, 1e-3
"""Factor and metres by which rays reach beyond the box, against rounding."""
_EDGES = np.array([(a, a | bit) for bit in (1, 2, 4) for a in range(8) if not a & bit])
"""i64 [12, 2]: edges of a box; bit k of a corner's number chooses the low or the high side of axis k."""
_BLOCK = BLOCK_HEIGHT * BLOCK_WIDTH
_COLUMN = np.int32(ID_FIELDS.index("object_id"))
_BEYOND = np.float32(1.00001)
"""Factor by which the second ray reaches beyond the object, against rounding."""
_stack_array = thread_array(MAX_LEVELS, np.int32)


class Views(NamedTuple):
    """V views of one scene, each of one object."""

    position: torch.Tensor
    """f32 [V, 3]: camera positions, metres."""
    heading: torch.Tensor
    """f32 [V], radians."""
    pitch: torch.Tensor
    """f32 [V], radians; up is positive."""
    object: torch.Tensor
    """i32 [V]: row of the object whose pixels count."""
    far: torch.Tensor
    """f32 [V]: planar depth at which rays end, metres."""
    rectangle: torch.Tensor
    """i32 [V, 4]: first row, first column, end of rows and end of columns of the pixels that are rendered."""


def make_views(
    position: np.ndarray,
    heading: np.ndarray,
    pitch: float,
    row: np.ndarray,
    boxes: tuple[np.ndarray, np.ndarray],
    image: tuple[int, int, float],
    max_depth: float = np.inf,
) -> Views:
    """Views of objects in boxes, on the host.

    Args:
        position: f [V, 3], camera positions, metres.
        heading: f32 [V], radians.
        pitch: pitch of all cameras, radians.
        row: i [V], row of the object that each view looks for.
        boxes: f [V, 3] lowest and highest corner of each view's object.
        image: height, width, and horizontal field of view in degrees.
        max_depth: planar depth at which all rays end, metres.
    """
    height, width, hfov_deg = image
    low, high = (corner.astype(np.float64) - position for corner in boxes)
    bits = np.arange(8)[:, None] >> np.arange(3) & 1
    corners = np.where(bits, high[:, None], low[:, None])  # [V, 8, 3]
    sine, cosine = np.sin(heading.astype(np.float64))[:, None], np.cos(heading.astype(np.float64))[:, None]
    rise, level = np.sin(pitch), np.cos(pitch)
    x, y, z = np.moveaxis(corners, -1, 0)
    ahead, right = -sine * x - cosine * z, cosine * x - sine * z
    depth, up = level * ahead + rise * y, level * y - rise * ahead
    seen = np.stack([right, up, depth], -1)[:, _EDGES]  # [V, 12, 2, 3]
    start, end = seen[..., 0, :], seen[..., 1, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = start + (end - start) * ((_NEAR - start[..., 2:]) / (end[..., 2:] - start[..., 2:]))
    ends = [np.where(each[..., 2:] >= _NEAR, each, cut) for each in (start, end)]
    points = np.concatenate(ends, 1)  # [V, 24, 3]
    visible = np.repeat((np.maximum(start[..., 2], end[..., 2]) >= _NEAR)[:, None], 2, 1).reshape(len(points), -1)
    scale = width / 2 / float(tan_half(hfov_deg))
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = width / 2 + scale * points[..., 0] / points[..., 2]
        rows = height / 2 - scale * points[..., 1] / points[..., 2]
    first = [np.where(visible, each, np.inf).min(1, initial=np.inf) - _MARGIN for each in (rows, columns)]
    last = [np.where(visible, each, -np.inf).max(1, initial=-np.inf) + _MARGIN for each in (rows, columns)]
    limits = (height, width)
    tile = (TILE_HEIGHT, TILE_WIDTH)  # in tiles of the renderer, whose rays are then the same bit for bit
    rectangle = [np.clip(np.floor(edge / t) * t, 0, limit) for edge, t, limit in zip(first, tile, limits, strict=True)]
    rectangle += [np.clip(np.ceil(edge), 0, limit) for edge, limit in zip(last, limits, strict=True)]
    far = np.minimum(_DEEPER[0] * depth.max(1, initial=0.0) + _DEEPER[1], max_depth)
    columns_of = (
        np.asarray(position, np.float32), np.asarray(heading, np.float32), np.full(len(far), pitch, np.float32),
        np.asarray(row, np.int32), far.astype(np.float32), np.stack(rectangle, -1).astype(np.int32),
    )  # fmt: skip
    return Views(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns_of))


class ObjectRays:
    """Counts pixels of some objects of a scene.

    Args:
        scene: a scene with object ids: `Scene.semantic` where there is one.
        object_ids: the objects.
        device: torch device.
    """

    def __init__(self, scene: Scene, object_ids: Sequence[int], device: torch.device):
        self.bank = SceneBank.pack([scene], device, appearance=("object_id",))
        trees = [_tree(scene.mesh, object_id) for object_id in object_ids]
        self._objects = to_device(pack_bvhs(trees), self.bank.device)
        self._numbers = torch.tensor(object_ids, dtype=torch.int32, device=self.bank.device)

    def pixels(self, views: Views, image: tuple[int, int, float]) -> torch.Tensor:
        """Number of pixels that show each view's object, i32 [V] on the device.

        Args:
            views: result of `make_views`.
            image: height, width, and horizontal field of view in degrees.
        """
        height, width, hfov_deg = image
        bank, look = self.bank, self.bank.appearance
        assert look is not None
        ids = Ids(look.object_id, look.id_patches, look.id_texels)
        on_device = Views(*(column.to(bank.device) for column in views))
        pixels = torch.zeros(len(views.far), dtype=torch.int32, device=bank.device)
        arguments = (
            bank.bvh_view, view(self._objects), view(self._numbers), view(ids), view(on_device), np.int32(height),
            np.int32(width), tan_half(hfov_deg), view(pixels),
        )  # fmt: skip
        if bank.device.type == "cpu":
            count_cpu(*arguments)
        else:
            launch(count_cuda, _BLOCK * len(pixels), *arguments, block=_BLOCK)
        return pixels


def faces_of(mesh: TriangleMesh, object_id: int) -> np.ndarray:
    """Triangles that may show an object, bool [F]: its own, and those with several ids that its box touches."""
    surface = mesh.surface
    assert surface is not None and surface.object_id is not None, "the mesh has no object ids"
    own = surface.object_id == object_id
    if surface.tile is not None:
        corners, of_object = mesh.vertices[mesh.faces], mesh.vertices[mesh.faces[own]].reshape(-1, 3)
        near = (corners.min(1) <= of_object.max(0)).all(1) & (corners.max(1) >= of_object.min(0)).all(1)
        own |= near & (surface.tile >= 0)
    return own


def _tree(mesh: TriangleMesh, object_id: int) -> BVH:
    """BVH of the triangles that may show an object."""
    own = faces_of(mesh, object_id)
    return build_bvh(TriangleMesh(mesh.vertices, np.ascontiguousarray(mesh.faces[own])))


@cpu_kernel
def count_cpu(bvh, objects, numbers, ids, views, height, width, tan_half_hfov, pixels_out):
    """Count the pixels of all views; a task is a view."""
    for i in prange(len(pixels_out)):
        rays, stack = np.empty((PACKET_ROWS, PACKET_RAYS), np.float32), np.empty(MAX_LEVELS, np.int32)
        hits = np.empty(PACKET_RAYS, np.int32)
        place = views.position[i, 0], views.position[i, 1], views.position[i, 2]
        axes = camera_axes(views.heading[i], views.pitch[i])
        camera = Camera(place, axes, height, width, tan_half_hfov, views.far[i], False)
        root, wanted = objects.roots[views.object[i]], numbers[views.object[i]]
        count = np.int32(0)
        for row in range(views.rectangle[i, 0], views.rectangle[i, 2], TILE_HEIGHT):
            for column in range(views.rectangle[i, 1], views.rectangle[i, 3], TILE_WIDTH):
                r, c = np.int32(row), np.int32(column)
                trace_tile(r, c, objects, root, camera, rays, hits, stack)
                if hits.max() < 0:
                    continue
                trace_hits_again(r, c, bvh, bvh.roots[0], camera, rays, hits, stack)
                for k in range(PACKET_RAYS):
                    if hits[k] >= 0:
                        pixel = np.int32(row + k // TILE_WIDTH), np.int32(column + k % TILE_WIDTH)
                        ray = pixel_ray(pixel[0], pixel[1], axes, height, width, tan_half_hfov)
                        if id_at(hits[k], rays[DEPTH_ROW, k], ray, place, ids, _COLUMN) == wanted:
                            count += np.int32(1)
        pixels_out[i] = count


@cuda_kernel
def count_cuda(bvh, objects, numbers, ids, views, height, width, tan_half_hfov, pixels_out):
    """Count the pixels of all views; a block is a view, whose threads take the pixels of one tile after another."""
    i, thread, stack = np.uint32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x), _stack_array()
    zero, one, two, three = np.uint32(0), np.uint32(1), np.uint32(2), np.uint32(3)
    place = views.position[i, zero], views.position[i, one], views.position[i, two]
    axes = camera_axes(views.heading[i], views.pitch[i])
    far, thing, count = views.far[i], np.uint32(views.object[i]), np.int32(0)
    root, wanted = objects.roots[thing], numbers[thing]
    end_row, end_column = views.rectangle[i, two], views.rectangle[i, three]
    # A warp covers 8 x 4 adjacent pixels, as in `ray.thread_pixel`.
    down = np.int32(((thread >> 6) << 2) + ((thread >> 3) & 3))
    across = np.int32((((thread >> 5) & 1) << 3) + (thread & 7))
    row = np.int32(views.rectangle[i, zero] + down)
    while row < end_row:
        column = np.int32(views.rectangle[i, one] + across)
        while column < end_column:
            ray = pixel_ray(row, column, axes, height, width, tan_half_hfov)
            depth, hit = closest_hit(objects, root, place, ray, far, False, False, stack)
            if hit != NOTHING:
                depth, hit = closest_hit(bvh, bvh.roots[zero], place, ray, depth * _BEYOND, False, False, stack)
                if hit != NOTHING and id_at(bvh.numbers[np.uint32(hit)], depth, ray, place, ids, _COLUMN) == wanted:
                    count = np.int32(count + np.int32(1))
            column = np.int32(column + np.int32(BLOCK_WIDTH))
        row = np.int32(row + np.int32(BLOCK_HEIGHT))
    if count > 0:
        cuda.atomic.add(pixels_out, i, count)
