"""Colours, normals and ids of moving bodies in images, written over those of the scene.

Only pixels with a body's surface id change. The colour of a body is its row of `PALETTE`, shaded by a fixed light, as
that of procedural scenes is; a person's head has a colour of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import camera_axes, half_width, pixel_ray, view_axes
from batchnav.geometry.solids import body_normal, is_head
from batchnav.observation import Frame
from batchnav.renderers.bodies import FIRST_SURFACE, SeenBodies, relative_to, shape_of
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.types import PERSON

PALETTE = (
    (200, 60, 50), (60, 110, 190), (70, 150, 80), (230, 190, 60), (130, 80, 160), (235, 235, 230), (45, 45, 55),
    (220, 130, 60), (120, 190, 210), (170, 110, 80), (215, 120, 160), (90, 100, 110), (150, 170, 60), (40, 70, 110),
    (190, 180, 160), (110, 40, 50),
    (255, 0, 0), (0, 48, 0), (0, 1, 135), (255, 237, 0), (255, 255, 255), (247, 0, 255), (0, 0, 0), (0, 255, 255),
)  # fmt: skip
"""Colours of bodies by `MovingBodies.appearance`, modulo the length: `NUM_APPEARANCES` of people, then those of
MultiON's cylinders: red, green, blue, yellow, white, pink, black, cyan."""
HEADS = ((240, 205, 180), (200, 150, 115), (145, 95, 65), (85, 55, 40))
"""Colours of heads by `MovingBodies.appearance`, modulo the length."""
FIRST_INSTANCE = 2**24
"""Instance id of the first body of a world; that of body k is FIRST_INSTANCE + k, beyond the ids of scenes."""
INSTANCES = -1
"""First of the `categories` of `label_bodies` for instance ids."""
PERSON_CATEGORY = "person"
"""Category of people in semantic images."""
BODY_CATEGORIES = "categories of bodies"
"""Key of a frame's `resource`: the categories of bodies, as `category_numbers` returns them."""
_LIGHT = np.float32(0.36), np.float32(0.80), np.float32(0.48)
"""Direction towards the light."""
_AMBIENT, _DIFFUSE, _ROUND, _ZERO = np.float32(0.75), np.float32(0.25), np.float32(0.5), np.float32(0.0)
_PERSON, _FIRST_INSTANCE = np.int32(PERSON), np.int32(FIRST_INSTANCE)


class Pictures(NamedTuple):
    """Depth and surfaces of N cameras, and the poses of the cameras."""

    depth: Any
    surface: Any
    position: Any
    heading: Any
    pitch: Any
    tan_half_hfov: Any


_LIVE = tuple(range(len(Pictures._fields)))


class OverBodies:
    """A kernel over the pixels of bodies, bound to the bodies of a frame and to the tensors of its first call."""

    def __init__(self, kernel: Any):
        self._kernel = kernel
        self._bound: tuple[SeenBodies, Callable[..., None]] | None = None

    def write(self, frame: Frame, pictures: Pictures, out: torch.Tensor, *settings: Any) -> None:
        """Write `out` [N, C, H, W] where the pictures [N, H, W] show a body; nothing in a frame without bodies.

        `settings`: arguments of the kernel before its output, those of the first call.
        """
        if frame.seen is None:
            return
        if self._bound is None or self._bound[0] is not frame.seen:
            arguments = *map(view, pictures), view(frame.seen), *map(view, settings), view(out)
            live = *_LIVE, len(arguments) - 1
            self._bound = frame.seen, self._kernel.bind(tuple(pictures.surface.shape), *arguments, live=live)
        self._bound[1](*pictures, out)


def palette(device: torch.device) -> torch.Tensor:
    """f32 [P, 6]: colour of body and head by appearance, 0 to 255."""
    rows = [(*color, *HEADS[k % len(HEADS)]) for k, color in enumerate(PALETTE)]
    return torch.tensor(rows, dtype=torch.float32, device=device)


def category_numbers(bank: Any, names: Mapping[int, str]) -> torch.Tensor:
    """i32 [1 + P]: numbers in `bank.categories` of people, and of other bodies by appearance: of `names`, or 0."""
    others = [bank.category_number(names[k]) if k in names else 0 for k in range(len(PALETTE))]
    return torch.tensor([bank.category_number(PERSON_CATEGORY), *others], dtype=torch.int32, device=bank.device)


@inline_function
def _seen_point(pixel, k, pictures, seen):
    """Ray and axes of the camera, and the visible point of body k relative to its foot.

    `pixel`: image, row and column. `pictures`: depth, position, heading, pitch, tan(hfov / 2).
    """
    (i, row, column), (depth, position, heading, pitch, tan_half_hfov) = pixel, pictures
    axes = camera_axes(heading[i], pitch[i])
    height, width = np.int32(depth.shape[1]), np.int32(depth.shape[2])
    view, half = view_axes(i, heading, pitch, tan_half_hfov), half_width(i, tan_half_hfov)
    ray = pixel_ray(np.int32(row), np.int32(column), view, height, width, half)
    metres, eye = depth[i, row, column], (position[i, 0], position[i, 1], position[i, 2])
    there = eye[0] + metres * ray[0], eye[1] + metres * ray[1], eye[2] + metres * ray[2]
    return ray, axes, relative_to(there, seen.world[i], k, seen)


@kernel(over="pixels", fastmath=True)
def paint_bodies(
    i, row, column, depth, surface, position, heading, pitch, tan_half_hfov, seen, palette, rgb_out
):  # fmt: skip
    """Write the colour of a pixel that shows a body."""
    number = surface[i, row, column]
    if number <= FIRST_SURFACE:
        k, world = np.int32(FIRST_SURFACE - number), seen.world[i]
        _, _, point = _seen_point((i, row, column), k, (depth, position, heading, pitch, tan_half_hfov), seen)
        solid = shape_of(world, k, seen)
        nx, ny, nz = body_normal(solid, point)
        lit = max(nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2], _ZERO)
        shade = _AMBIENT + _DIFFUSE * lit
        color = np.int32(seen.appearance[world, k] % np.int32(len(palette)))
        first = np.int32(3) if is_head(solid[0], point[1], solid[3]) else np.int32(0)
        rgb_out[i, 0, row, column] = np.uint8(palette[color, first] * shade + _ROUND)
        rgb_out[i, 1, row, column] = np.uint8(palette[color, first + np.int32(1)] * shade + _ROUND)
        rgb_out[i, 2, row, column] = np.uint8(palette[color, first + np.int32(2)] * shade + _ROUND)


@kernel(over="pixels", fastmath=True)
def write_body_normals(
    i, row, column, depth, surface, position, heading, pitch, tan_half_hfov, seen, normals_out
):  # fmt: skip
    """Write the normal (right, up, back) of a pixel that shows a body."""
    number = surface[i, row, column]
    if number <= FIRST_SURFACE:
        k, world = np.int32(FIRST_SURFACE - number), seen.world[i]
        ray, axes, point = _seen_point((i, row, column), k, (depth, position, heading, pitch, tan_half_hfov), seen)
        nx, ny, nz = body_normal(shape_of(world, k, seen), point)
        (rx, ry, rz), (ux, uy, uz), (fx, fy, fz) = axes
        if nx * ray[0] + ny * ray[1] + nz * ray[2] > _ZERO:  # the camera is within the body
            nx, ny, nz = -nx, -ny, -nz
        normals_out[i, 0, row, column] = nx * rx + ny * ry + nz * rz
        normals_out[i, 1, row, column] = nx * ux + ny * uy + nz * uz
        normals_out[i, 2, row, column] = -(nx * fx + ny * fy + nz * fz)


@kernel(over="pixels", fastmath=True)
def label_bodies(
    i, row, column, depth, surface, position, heading, pitch, tan_half_hfov, seen, categories, ids_out
):  # fmt: skip
    """Write the id of a pixel that shows a body: its category, or instance id if `categories` begins with INSTANCES.

    `categories`: as `category_numbers` returns them.
    """
    number = surface[i, row, column]
    if number <= FIRST_SURFACE:
        k = np.int32(FIRST_SURFACE - number)
        if categories[0] < 0:
            ids_out[i, 0, row, column] = _FIRST_INSTANCE + k
        else:
            world = seen.world[i]
            other = np.int32(1) + np.int32(seen.appearance[world, k] % np.int32(len(categories) - 1))
            ids_out[i, 0, row, column] = categories[np.int32(0) if seen.shape[world, k] == _PERSON else other]
