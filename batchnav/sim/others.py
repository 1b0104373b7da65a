"""What stops a robot besides walls: people, standing objects and other robots of its world.

The functions are compiled into a step only where `body` has the fields of `Others`: a world without them has the same
machine code as if this file did not exist.

Discs of people stop a robot where it touches them. Robots of one world move at the same time: each keeps to its side of
the plane in the middle between itself and any other at the start of the step (buffered Voronoi cells: Zhou et al.,
"Fast, on-line collision avoidance for dynamic vehicles using buffered Voronoi cells", RA-L 2017). Two robots cannot
meet then, and no order of robots matters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import types

from batchnav.geometry.pose import point_at
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.intrinsics import instruction

STOREY = np.float32(1.5)
"""Metres. Bodies with a greater difference of height are on different storeys and do not meet."""
GAP = np.float32(1e-3)
"""Metres that a robot keeps from what stops it, so that rounding leaves no overlap."""
CONTACT = np.float32(5e-3)
"""Metres between two bodies up to which they touch."""
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_NO_NORMAL = _ZERO, _ZERO


class Others(NamedTuple):
    """Whom a robot can meet. `view` of the arrays; fields of `sim.bodies.BodyAmongOthers`."""

    other_count: torch.Tensor
    """i32 [W]: people and objects of each world."""
    other_position: torch.Tensor
    """f32 [W * K, 3], metres."""
    other_radius: torch.Tensor
    """f32 [W * K], metres."""
    robots: torch.Tensor
    """f32 [N, 3]: positions of all robots at the start of the step."""
    others_per_world: np.int64
    """K."""
    agents_per_world: np.int64
    agent_radius: np.float32
    """Metres."""
    slides_along_people: bool
    """True if a robot slides along people; False: they stop it."""


def _plain_others_of(body):
    return body if hasattr(body, "other_count") else None


@instruction(_plain_others_of)
def others_of(typingctx, body):
    """A body's record if it has the fields of `Others`, else None, which selects a branch at compile time."""
    if "other_count" in getattr(body, "fields", ()):
        return body(body), lambda context, builder, signature, args: args[0]
    return types.none(body), lambda context, builder, signature, args: context.get_dummy_value()


@inline_function
def _share_before_disc(point, dx, dz, centre, reach):
    """Share of a motion (dx, dz) before its point comes within `reach` of a centre; 1 where it does not."""
    if abs(point[1] - centre[1]) > STOREY:
        return _ONE
    x, z = point[0] - centre[0], point[2] - centre[2]
    approach = x * dx + z * dz
    outside = x * x + z * z - reach * reach
    if approach >= _ZERO:
        return _ONE
    if outside <= _ZERO:
        return _ZERO
    length = dx * dx + dz * dz
    below = approach * approach - length * outside
    if below <= _ZERO:
        return _ONE
    share = (-approach - math.sqrt(below)) / length
    return share if share < _ONE else _ONE


@inline_function
def _share_before_middle(point, dx, dz, other, reach):
    """Share of a motion on this side of the plane in the middle between two robots; 1 where it stays there."""
    if abs(point[1] - other[1]) > STOREY:
        return _ONE
    x, z = other[0] - point[0], other[2] - point[2]
    apart = math.sqrt(x * x + z * z)
    if apart <= _ZERO:
        return _ONE
    approach = (x * dx + z * dz) / apart
    free = _HALF * (apart - reach)
    free = free if free > _ZERO else _ZERO
    return free / approach if approach > free else _ONE


@lean_function
def _first_contact(i, point, dx, dz, others):
    """Share of a motion before the first contact, and the direction (x, z) from there away from what is touched."""
    share, normal = _ONE, _NO_NORMAL
    world = i // others.agents_per_world
    for k in range(others.other_count[world]):
        row = world * others.others_per_world + k
        centre = point_at(row, others.other_position)
        reach = others.agent_radius + others.other_radius[row] + GAP
        found = _share_before_disc(point, dx, dz, centre, reach)
        if found < share:
            share, normal = found, (point[0] + found * dx - centre[0], point[2] + found * dz - centre[2])
    for j in range(world * others.agents_per_world, (world + 1) * others.agents_per_world):
        if j != i:
            other = point_at(j, others.robots)
            found = _share_before_middle(point, dx, dz, other, others.agent_radius + others.agent_radius + GAP)
            if found < share:
                share, normal = found, (point[0] - other[0], point[2] - other[2])
    return share, normal


@lean_function
def step_among(i, start, reached, others, nav, scene, scratch, row):
    """Where a robot ends that walls let move from `start` to `reached`. `others`: result of `others_of`."""
    if others is None:
        return reached
    dx, dz = reached[0] - start[0], reached[2] - start[2]
    share, normal = _first_contact(i, start, dx, dz, others)
    if share >= _ONE:
        return reached
    stop = start
    if share > _ZERO:
        end = start[0] + share * dx, start[1] + share * (reached[1] - start[1]), start[2] + share * dz
        stop = try_step(nav, scene, start, end, False, scratch, row)
    away = normal[0] * normal[0] + normal[1] * normal[1]
    if not others.slides_along_people or away <= _ZERO:
        return stop
    rest = _ONE - share
    along = rest * (dx * normal[1] - dz * normal[0]) / away
    dx, dz = along * normal[1], -along * normal[0]
    share, _ = _first_contact(i, stop, dx, dz, others)
    if share <= _ZERO:
        return stop
    end = stop[0] + share * dx, stop[1], stop[2] + share * dz
    return try_step(nav, scene, stop, end, False, scratch, row)
