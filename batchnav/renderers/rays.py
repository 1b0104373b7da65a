"""Rays in a table of directions, such as those of a LiDAR, through the scenes of N agents: `RayCaster`.

A thread casts one ray. Moving bodies are a kernel of its own after that of the scene, as in images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.geometry.pose import forward
from batchnav.geometry.solids import ray_body
from batchnav.renderers.base import NEAR
from batchnav.renderers.bodies import SeenBodies, relative_to, shape_of
from batchnav.renderers.raycast import closest_hit, is_pose
from batchnav.runtime.kernels.arrays import check_tensor, view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import thread_array
from batchnav.runtime.kernels.launch import kernel
from batchnav.scene.bank import SceneBank
from batchnav.scene.bvh import MAX_LEVELS

_ZERO, _ONE, _LARGE = np.float32(0.0), np.float32(1.0), np.float32(1.0e30)
_stack_array = thread_array(MAX_LEVELS, np.int32)


class RayCaster:
    """Casts R rays from each of N sensors, on the CPU and on CUDA.

    Args:
        bank: scenes; determines the device.
        num_agents: number of sensors N.
        directions: f32 [rows, columns, 3]: directions ahead, to the left and up. The ray parameter of a hit is metres
            for unit vectors, and horizontal metres for directions whose horizontal part has length 1.
        far: ray parameter where rays end.
    """

    def __init__(self, bank: SceneBank, num_agents: int, directions: np.ndarray, far: float):
        if directions.ndim != 3 or directions.shape[2] != 3 or not np.isfinite(directions).all():
            found = f"{directions.dtype} {list(directions.shape)}"
            raise ArgumentError(f"directions: found {found}, expected finite numbers [rows, columns, 3]")
        self.bank, self.device, self.num_agents = bank, bank.device, num_agents
        self.far = np.float32(far)
        """Ray parameter where rays end."""
        self.table = torch.from_numpy(np.ascontiguousarray(directions, np.float32)).to(self.device)
        """f32 [rows, columns, 3]: the directions."""
        self.ranges = torch.zeros(num_agents, *self.table.shape[:2], dtype=torch.float32, device=self.device)
        """f32 [N, rows, columns]: results of the last call."""
        self._scene: Callable[..., None] | None = None
        self._bodies: tuple[SeenBodies, Callable[..., None]] | None = None

    def cast(
        self, scene_index: torch.Tensor, position: torch.Tensor, heading: torch.Tensor, seen: SeenBodies | None = None
    ) -> torch.Tensor:
        """Ray parameters of the first hits, f32 [N, rows, columns]; `far` where nothing is hit.

        The returned tensor is valid until the next call. An index outside the bank, or a pose that is not finite, hits
        nothing.

        Args:
            scene_index: i32 [N], rows of the bank.
            position: f32 [N, 3], positions of the sensors, metres.
            heading: f32 [N], radians.
            seen: moving bodies that rays also hit; None: none.
        """
        check_tensor("scene_index", scene_index, (self.num_agents,), torch.int32, self.device)
        check_tensor("position", position, (self.num_agents, 3), torch.float32, self.device)
        check_tensor("heading", heading, (self.num_agents,), torch.float32, self.device)
        poses = scene_index.contiguous(), position.contiguous(), heading.contiguous()
        if self._scene is None:
            self._scene = self._bind(cast_rays, poses, self.bank.bvh_view, view(self.table))
        self._scene(*poses)
        if seen is not None:
            if self._bodies is None or self._bodies[0] is not seen:
                count = np.int32(self.bank.num_scenes)
                self._bodies = seen, self._bind(cast_rays_at_bodies, poses, view(seen), view(self.table), count)
            self._bodies[1](*poses)
        return self.ranges

    def _bind(self, kernel: Any, poses: tuple[torch.Tensor, ...], *read: Any) -> Callable[..., None]:
        """A kernel as a function of the poses."""
        arguments = *map(view, poses), *read, self.far, view(self.ranges)
        return kernel.bind(tuple(self.ranges.shape), *arguments, live=tuple(range(len(poses))))


@inline_function
def ray_of(row, column, heading, table):
    """World direction of a ray of the table."""
    ahead, left, up = table[row, column, 0], table[row, column, 1], table[row, column, 2]
    fx, fz = forward(heading)  # left is (fz, 0, -fx)
    return ahead * fx + left * fz, up, ahead * fz - left * fx


@kernel(over="pixels", index="np.uint32", fastmath=True, max_registers=40, lto=False)
def cast_rays(i, row, column, scene_index, position, heading, bvh, table, far, ranges_out):
    """Write the ray parameter at which a ray of sensor i hits the scene, or `far`."""
    scene, stack = scene_index[i], _stack_array()
    place = position[i, np.uint32(0)], position[i, np.uint32(1)], position[i, np.uint32(2)]
    found = far
    if is_pose(bvh, scene, place, heading[i], _ZERO, _ONE):
        direction = ray_of(row, column, heading[i], table)
        found, _ = closest_hit(bvh, bvh.roots[np.uint32(scene)], place, direction, far, False, False, stack)
    ranges_out[i, row, column] = found


@kernel(over="pixels", index="np.uint32", fastmath=True)
def cast_rays_at_bodies(i, row, column, scene_index, position, heading, seen, table, num_scenes, far, ranges_out):
    """Shorten a ray of sensor i where it hits a moving body before the scene."""
    place = position[i, np.uint32(0)], position[i, np.uint32(1)], position[i, np.uint32(2)]
    finite = abs(place[0]) + abs(place[1]) + abs(place[2]) + abs(heading[i]) < _LARGE
    if scene_index[i] < 0 or scene_index[i] >= num_scenes or not finite:
        return
    direction, world, found = ray_of(row, column, heading[i], table), seen.world[i], ranges_out[i, row, column]
    for k in range(min(seen.count[world], np.int32(seen.radius.shape[1]))):
        if k != seen.own[i]:
            eye = relative_to(place, world, k, seen)
            found = min(found, ray_body(shape_of(world, k, seen), eye, direction, NEAR, False))
    ranges_out[i, row, column] = min(found, far)
