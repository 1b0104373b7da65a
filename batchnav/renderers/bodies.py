"""Moving bodies in images: people and standing objects, intersected analytically over the depth of the scene.

Both renderers draw bodies by this kernel, after the scene, so that a world without bodies costs nothing. A block of
threads draws all bodies of a camera, each in the rectangle of pixels that its bounding box covers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.geometry.pose import camera_axes, lens_numbers, pixel_ray, view_axes
from batchnav.geometry.solids import MISSED, ray_body, reach_of
from batchnav.runtime.checks import check_kind
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.types import MovingBodies

MOST_BODIES = 128
"""Largest number of bodies in a world."""
FIRST_SURFACE = np.int32(-2)
"""Surface id of the first body of a camera's world; that of body k is FIRST_SURFACE - k."""
TILE_COLUMNS = 16
"""Columns of pixels that a block of threads draws at once."""
_ZERO, _HALF, _MARGIN, _LARGE = np.float32(0.0), np.float32(0.5), np.float32(1.5), np.float32(1.0e30)


class SeenBodies(NamedTuple):
    """Moving bodies, and the world of each of N cameras: `MovingBodies` with two more fields, one kernel argument."""

    count: Any
    position: Any
    heading: Any
    velocity: Any
    radius: Any
    height: Any
    shape: Any
    appearance: Any
    world: Any
    """i32 [N]: world that each camera sees."""
    own: Any
    """i32 [N]: body that carries the camera, which does not see it; -1: none."""

    @classmethod
    def of(
        cls, bodies: MovingBodies, num_cameras: int, device: torch.device, world: torch.Tensor | None = None,
        own: torch.Tensor | None = None,
    ) -> SeenBodies:  # fmt: skip
        """The bodies that `num_cameras` cameras see. ArgumentError for tensors of another shape, dtype or device.

        `world` is i32 [N]; None: camera i sees world i. `own` is i32 [N]; None: no camera is on a body.
        """
        check_kind("bodies", bodies, MovingBodies)
        check_tensor("bodies.radius", bodies.radius, (None, None), torch.float32, device)
        worlds, most = bodies.radius.shape
        if most > MOST_BODIES:
            raise ArgumentError(f"bodies: found {most} in a world, expected at most {MOST_BODIES}")
        for name, tensor in bodies._asdict().items():
            shape = (
                (worlds,) if name == "count" else (worlds, most, *{"position": (3,), "velocity": (2,)}.get(name, ()))
            )
            dtype = torch.int32 if name in ("count", "shape", "appearance") else torch.float32
            check_tensor(f"bodies.{name}", tensor, shape, dtype, device)
            if not tensor.is_contiguous():
                raise ArgumentError(f"bodies.{name}: found strides {list(tensor.stride())}, expected contiguous memory")
        if world is None:
            world = torch.arange(num_cameras, dtype=torch.int32, device=device)
        own = torch.full_like(world, -1) if own is None else own
        check_tensor("world", world, (num_cameras,), torch.int32, device)
        check_tensor("own", own, (num_cameras,), torch.int32, device)
        low, high = int(world.min()), int(world.max())
        if low < 0 or high >= worlds:
            raise ArgumentError(f"world: found {low} to {high}, expected 0 to {worlds - 1}: rows of the bodies")
        return cls(*bodies, world, own)


class DrawingOptions(NamedTuple):
    """Options of a renderer that apply to bodies."""

    num_scenes: np.int32
    near: np.float32
    far: np.float32
    """Planar depth from which on bodies are not drawn, metres."""
    backface_culling: bool


@inline_function
def shape_of(world, k, bodies):
    """Shape, heading, radius and height of body k, as `ray_body` takes them."""
    return bodies.shape[world, k], bodies.heading[world, k], bodies.radius[world, k], bodies.height[world, k]


@inline_function
def relative_to(point, world, k, bodies):
    """A point relative to the foot of body k."""
    at = bodies.position
    return point[0] - at[world, k, 0], point[1] - at[world, k, 1], point[2] - at[world, k, 2]


@inline_function
def _range(low, high, size):
    """First pixel and end of the pixels between two coordinates in pixels, with a margin against rounding."""
    limit = np.float32(size)
    first = np.int32(min(max(low - _HALF, _ZERO), limit))
    return first, np.int32(min(max(high + _MARGIN, _ZERO), limit))


@inline_function
def covered_pixels(eye, reach, height, axes, size, lens, near):
    """Rectangle of the pixels that may show a body: first row, end of rows, first column, end of columns.

    Args:
        eye: position of the camera relative to the body's foot.
        reach: greatest horizontal distance of the body's surface from its axis, metres.
        height: of the body, metres.
        axes: right, up and forward of the camera.
        size: height and width of the image, pixels.
        lens: of the camera, `pose.lens_numbers`.
        near: distance of the near plane, metres.

    The rectangle bounds the projection of a box that stands around the body, aligned with the camera's heading.
    """
    (rx, _, rz), (_, level, _), (_, rise, _) = axes
    (rows, columns), (tan_half_hfov, aspect, aside, above) = size, lens
    scale = _HALF * np.float32(columns) / tan_half_hfov
    row_scale = scale / aspect
    ahead, right = -(eye[0] * rz - eye[2] * rx), -(eye[0] * rx + eye[2] * rz)
    nearest, farthest, left, wide, low, high = MISSED, -MISSED, MISSED, -MISSED, MISSED, -MISSED
    for corner in range(4):
        away = ahead + (reach if corner & 1 else -reach)
        up = (height if corner & 2 else _ZERO) - eye[1]
        depth = level * away + rise * up
        nearest, farthest = min(nearest, depth), max(farthest, depth)
        if depth >= near:
            inverse, climb = scale / depth, (level * up - rise * away) * (row_scale / depth)
            left, wide = min(left, (right - reach) * inverse), max(wide, (right + reach) * inverse)
            low, high = min(low, climb), max(high, climb)
    if farthest < near:
        return np.int32(0), np.int32(0), np.int32(0), np.int32(0)
    if nearest < near:  # beside the camera: any pixel may show it
        return np.int32(0), rows, np.int32(0), columns
    middle_row = _HALF * np.float32(rows - 1) + above * row_scale
    middle_column = _HALF * np.float32(columns - 1) - aside * scale
    top, bottom = _range(middle_row - high, middle_row - low, rows)
    first, end = _range(middle_column + left, middle_column + wide, columns)
    return top, bottom, first, end


@kernel(over="blocks", fastmath=True)
def draw_bodies(
    lane, lanes, i, scene_index, position, heading, pitch, tan_half_hfov, seen, options, depth_out, surface_out
):
    """Draw the bodies of camera i's world where they are nearer than the scene; `surface_out` may be empty."""
    lens, scene = lens_numbers(i, tan_half_hfov), scene_index[i]
    half = lens[0]
    place = position[i, 0], position[i, 1], position[i, 2]
    finite = abs(place[0]) + abs(place[1]) + abs(place[2]) + abs(heading[i]) + abs(pitch[i]) + half < _LARGE
    if scene < 0 or scene >= options.num_scenes or not finite or not half > _ZERO:
        return
    size = np.int32(depth_out.shape[1]), np.int32(depth_out.shape[2])
    axes, world = camera_axes(heading[i], pitch[i]), seen.world[i]
    view = view_axes(i, heading, pitch, tan_half_hfov)
    across = min(np.int32(lanes), np.int32(TILE_COLUMNS))
    down = np.int32(np.int32(lanes) // across)
    for k in range(min(seen.count[world], np.int32(seen.radius.shape[1]))):
        if k == seen.own[i]:
            continue
        eye, solid = relative_to(place, world, k, seen), shape_of(world, k, seen)
        top, bottom, first, end = covered_pixels(
            eye, reach_of(solid[0], solid[2]), solid[3], axes, size, lens, options.near
        )
        # A pixel belongs to one thread, whatever the rectangle, so that threads need not wait for each other.
        row = np.int32(top + (np.int32(lane) // across - top) % down)
        while row < bottom:
            column = np.int32(first + (np.int32(lane) % across - first) % across)
            while column < end:
                direction = pixel_ray(row, column, view, size[0], size[1], half)
                found = ray_body(solid, eye, direction, options.near, options.backface_culling)
                before = depth_out[i, row, column]
                if found < options.far and (found < before or before == _ZERO):
                    depth_out[i, row, column] = found
                    if len(surface_out) > 0:
                        surface_out[i, row, column] = np.int32(FIRST_SURFACE - np.int32(k))
                column = np.int32(column + across)
            row = np.int32(row + down)
