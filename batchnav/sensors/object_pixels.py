"""Number of pixels of each view that show a given object.

Each view casts rays in the rectangle of pixels that the object's box can cover, first at the triangles of the object
alone. Rays that hit it are cast again, at the whole scene, up to the object. That finds the same pixels as an image of
object ids: what lies deeper cannot hide the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.geometry.pose import camera_axes, mix, pixel_ray, point_at
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
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, inline_function
from batchnav.runtime.kernels.intrinsics import thread_array
from batchnav.runtime.kernels.launch import kernel, launch
from batchnav.scene.appearance import ID_FIELDS
from batchnav.scene.bank import SceneBank, pack_bvhs
from batchnav.scene.bvh import MAX_LEVELS, build_bvhs
from batchnav.scene.scene import Scene
from batchnav.sensors.semantic import Ids, id_at
from batchnav.types import Column, TriangleMesh

_NEAR = np.float32(0.01)
"""Depth at which boxes are cut off before they are projected, metres."""
_MARGIN = np.float32(1.0)
"""Pixels that are added on each side of a rectangle, against rounding."""
_DEEPER = np.float32(1.0001), np.float32(1e-3)
"""Factor and metres by which rays reach beyond the box, against rounding."""
_BLOCK = BLOCK_HEIGHT * BLOCK_WIDTH
_COLUMN = np.int32(ID_FIELDS.index("object_id"))
_BEYOND = np.float32(1.00001)
"""Factor by which the second ray reaches beyond the object, against rounding."""
_INF = np.float32(np.inf)
_stack_array = thread_array(MAX_LEVELS, np.int32)


class Views(NamedTuple, Generic[Column]):
    """V views, each of one object: NumPy arrays on the host, tensors on a device, or kernel arguments."""

    position: Column
    """f32 [V, 3]: camera positions, metres."""
    heading: Column
    """f32 [V], radians."""
    pitch: Column
    """f32 [V], radians; up is positive."""
    lens: Column
    """f32 [V]: tan(hfov / 2)."""
    object: Column
    """i32 [V]: row of the object whose pixels count."""


class Objects(NamedTuple, Generic[Column]):
    """O objects of several scenes."""

    scene: Column
    """i32 [O]: row of the object's scene."""
    number: Column
    """i32 [O]: object id."""
    box: Column
    """f32 [O, 6]: lowest and highest corner of the axis-aligned bounding box, metres."""


class ObjectRays:
    """Counts pixels of some objects of some scenes.

    Args:
        scenes: scenes with object ids: `Scene.semantic` where there is one.
        objects: the objects.
        device: torch device.
    """

    def __init__(self, scenes: Sequence[Scene], objects: Objects[np.ndarray], device: torch.device):
        self.bank = SceneBank.pack(scenes, device, appearance=("object_id",))
        found = zip(objects.scene.tolist(), objects.number.tolist(), strict=True)
        meshes = [_of_object(scenes[scene].mesh, number) for scene, number in found]
        self._trees = to_device(pack_bvhs(build_bvhs(meshes)), self.bank.device)
        self._objects = to_device(objects, self.bank.device)

    def pixels(self, views: Views[np.ndarray], image: tuple[int, int], max_depth: float = np.inf) -> torch.Tensor:
        """Number of pixels that show each view's object, i32 [V] on the device.

        Args:
            views: cameras and their objects.
            image: height and width.
            max_depth: planar depth at which all rays end, metres.
        """
        height, width = map(np.int32, image)
        bank, look, count = self.bank, self.bank.appearance, len(views.heading)
        assert look is not None
        ids = Ids(look.object_id, look.id_patches, look.id_texels)
        on_device = view(to_device(views, bank.device))
        far = torch.empty(count, dtype=torch.float32, device=bank.device)
        rectangle = torch.empty((count, 4), dtype=torch.int32, device=bank.device)
        pixels = torch.zeros(count, dtype=torch.int32, device=bank.device)
        objects = view(self._objects)
        bound(count, objects, on_device, height, width, np.float32(max_depth), view(far), view(rectangle))
        arguments = (
            bank.bvh_view, view(self._trees), objects, view(ids), on_device, view(far), view(rectangle), height, width,
            view(pixels),
        )  # fmt: skip
        if bank.device.type == "cpu":
            count_cpu(*arguments)
        else:
            launch(count_cuda, _BLOCK * count, *arguments, block=_BLOCK)
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


def _of_object(mesh: TriangleMesh, object_id: int) -> TriangleMesh:
    """The triangles that may show an object."""
    return TriangleMesh(mesh.vertices, np.ascontiguousarray(mesh.faces[faces_of(mesh, object_id)]))


@kernel()
@inline_function
def bound(i, objects, views, height, width, max_depth, far_out, rectangle_out):
    """Depth f32 [V] at which the rays of a view end, and the pixels i32 [V, 4] that its object's box can cover.

    The rectangle is first row, first column, end of rows and end of columns. It begins at a tile of the renderer, whose
    rays are then the same bit for bit.
    """
    thing, place = np.int64(views.object[i]), point_at(i, views.position)
    axes = camera_axes(views.heading[i], views.pitch[i])
    scale, half = np.float32(0.5) * np.float32(width) / views.lens[i], np.float32(0.5)
    low_row, low_column, high_row, high_column, deepest = _INF, _INF, -_INF, -_INF, np.float32(0.0)
    for corner in range(8):
        start = _corner(thing, corner, objects.box, place, axes)
        deepest = max(deepest, start[2])
        for axis in range(3):  # the edge to each corner with one more of the high sides
            bit = 1 << axis
            if corner & bit:
                continue
            end = _corner(thing, corner | bit, objects.box, place, axes)
            if max(start[2], end[2]) < _NEAR:
                continue
            for side in range(2):
                point = start if side == 0 else end
                if point[2] < _NEAR:
                    point = mix(start, end, (_NEAR - start[2]) / (end[2] - start[2]))
                depth = max(point[2], half * _NEAR)
                column = half * np.float32(width) + scale * point[0] / depth
                row = half * np.float32(height) - scale * point[1] / depth
                low_row, high_row = min(low_row, row), max(high_row, row)
                low_column, high_column = min(low_column, column), max(high_column, column)
    rectangle_out[i, 0] = _first_of_tile(low_row - _MARGIN, np.int32(TILE_HEIGHT), height)
    rectangle_out[i, 1] = _first_of_tile(low_column - _MARGIN, np.int32(TILE_WIDTH), width)
    rectangle_out[i, 2] = np.int32(min(max(high_row + _MARGIN + np.float32(1.0), np.float32(0.0)), np.float32(height)))
    rectangle_out[i, 3] = np.int32(
        min(max(high_column + _MARGIN + np.float32(1.0), np.float32(0.0)), np.float32(width))
    )
    far_out[i] = min(_DEEPER[0] * deepest + _DEEPER[1], max_depth)


@inline_function
def _corner(thing, corner, box, place, axes):
    """A corner of an object's box as seen by a camera: right, up, depth, metres; its bits choose high sides."""
    x = box[thing, 3 if corner & 1 else 0] - place[0]
    y = box[thing, 4 if corner & 2 else 1] - place[1]
    z = box[thing, 5 if corner & 4 else 2] - place[2]
    right, up, ahead = axes
    return (
        x * right[0] + y * right[1] + z * right[2],
        x * up[0] + y * up[1] + z * up[2],
        x * ahead[0] + y * ahead[1] + z * ahead[2],
    )


@inline_function
def _first_of_tile(pixel, tile, limit):
    """First row or column, inside the image, of the tile that contains a pixel."""
    inside = _clamped(pixel, limit)
    return np.int32(inside - inside % tile) if inside < limit else inside


@inline_function
def _clamped(pixel, limit):
    """A row or column from 0 to `limit`, rounded down."""
    return np.int32(min(max(pixel, np.float32(0.0)), np.float32(limit)))


@cpu_kernel
def count_cpu(bvh, trees, objects, ids, views, ends, rectangle, height, width, pixels_out):
    """Count the pixels of all views; a task is a view."""
    for i in prange(len(pixels_out)):
        rays, stack = np.empty((PACKET_ROWS, PACKET_RAYS), np.float32), np.empty(MAX_LEVELS, np.int32)
        hits = np.empty(PACKET_RAYS, np.int32)
        place = views.position[i, 0], views.position[i, 1], views.position[i, 2]
        axes = camera_axes(views.heading[i], views.pitch[i])
        camera = Camera(place, axes, height, width, views.lens[i], ends[i], False)
        thing = views.object[i]
        root, whole, wanted = trees.roots[thing], bvh.roots[objects.scene[thing]], objects.number[thing]
        count = np.int32(0)
        for row in range(rectangle[i, 0], rectangle[i, 2], TILE_HEIGHT):
            for column in range(rectangle[i, 1], rectangle[i, 3], TILE_WIDTH):
                r, c = np.int32(row), np.int32(column)
                trace_tile(r, c, trees, root, camera, rays, hits, stack)
                if hits.max() < 0:
                    continue
                trace_hits_again(r, c, bvh, whole, camera, rays, hits, stack)
                for k in range(PACKET_RAYS):
                    if hits[k] >= 0:
                        pixel = np.int32(row + k // TILE_WIDTH), np.int32(column + k % TILE_WIDTH)
                        ray = pixel_ray(pixel[0], pixel[1], axes, height, width, views.lens[i])
                        if id_at(hits[k], rays[DEPTH_ROW, k], ray, place, ids, _COLUMN) == wanted:
                            count += np.int32(1)
        pixels_out[i] = count


@cuda_kernel
def count_cuda(bvh, trees, objects, ids, views, ends, rectangle, height, width, pixels_out):
    """Count the pixels of all views; a block is a view, whose threads take the pixels of one tile after another."""
    i, thread, stack = np.uint32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x), _stack_array()
    zero, one, two, three = np.uint32(0), np.uint32(1), np.uint32(2), np.uint32(3)
    place = views.position[i, zero], views.position[i, one], views.position[i, two]
    axes = camera_axes(views.heading[i], views.pitch[i])
    end, lens, thing, count = ends[i], views.lens[i], np.uint32(views.object[i]), np.int32(0)
    root, whole, wanted = trees.roots[thing], bvh.roots[np.uint32(objects.scene[thing])], objects.number[thing]
    end_row, end_column = rectangle[i, two], rectangle[i, three]
    # A warp covers 8 x 4 adjacent pixels, as in `ray.thread_pixel`.
    down = np.int32(((thread >> 6) << 2) + ((thread >> 3) & 3))
    across = np.int32((((thread >> 5) & 1) << 3) + (thread & 7))
    row = np.int32(rectangle[i, zero] + down)
    while row < end_row:
        column = np.int32(rectangle[i, one] + across)
        while column < end_column:
            ray = pixel_ray(row, column, axes, height, width, lens)
            depth, hit = closest_hit(trees, root, place, ray, end, False, False, stack)
            if hit != NOTHING:
                depth, hit = closest_hit(bvh, whole, place, ray, depth * _BEYOND, False, False, stack)
                if hit != NOTHING and id_at(bvh.numbers[np.uint32(hit)], depth, ray, place, ids, _COLUMN) == wanted:
                    count = np.int32(count + np.int32(1))
            column = np.int32(column + np.int32(BLOCK_WIDTH))
        row = np.int32(row + np.int32(BLOCK_HEIGHT))
    if count > 0:
        cuda.atomic.add(pixels_out, i, count)
