"""Planar depth by casting one ray per pixel through each scene's BVH.

Two forms of one traversal: on CUDA a thread follows one ray (`closest_hit`); on the CPU packets of rays are followed
together (`packet.py`), since there only the rays of a packet can fill the vector units.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange

from batchnav.geometry.box import ray_boxes
from batchnav.geometry.camera import inverse_direction, pixel_ray, tan_half
from batchnav.geometry.pose import forward
from batchnav.geometry.triangle import ray_triangle
from batchnav.render.options import NEAR, check_options
from batchnav.render.raycast.packet import PACKET_RAYS, PACKET_ROWS, TILE_HEIGHT, TILE_WIDTH, Camera, render_tile
from batchnav.runtime.arrays import check_tensor, view
from batchnav.runtime.intrinsics import float_bits, load4, room_for_ints
from batchnav.runtime.kernels import cpu_kernel, cuda, cuda_kernel, device_function, inline_function
from batchnav.runtime.launch import BoundKernel
from batchnav.scene.bank import SceneBank
from batchnav.scene.bvh import MAX_LEVELS

_FAR = np.float32(3.0e38)
_BLOCK_WIDTH, _BLOCK_HEIGHT = 16, 8
"""Pixels of a CUDA block; a warp's 8 x 4 are neighbours, so that their rays visit the same nodes."""
_room_for_stack = room_for_ints(MAX_LEVELS)


@inline_function
def closest_hit(bvh, root, ox, oy, oz, dx, dy, dz, far, backface_culling, stack):
    """Ray parameter of the first hit within [NEAR, far), else `far`.

    Children are visited nearest first. `stack` holds MAX_LEVELS int32: what a level defers, never more than one child.
    """
    ix, iy, iz = inverse_direction(dx), inverse_direction(dy), inverse_direction(dz)
    inverse, offset = (ix, iy, iz), (-ox * ix, -oy * iy, -oz * iz)
    top = np.int32(0)
    link = root
    while True:
        if link >= 0:
            centre_xy, half_xy = load4(bvh.nodes, link, np.int32(0)), load4(bvh.nodes, link, np.int32(4))
            z = load4(bvh.nodes, link, np.int32(8))
            bits0, bits1, _, _ = load4(bvh.nodes, link, np.int32(12))
            entry0, leave0, entry1, leave1 = ray_boxes(centre_xy, half_xy, z, inverse, offset, NEAR, far)
            link0, link1 = float_bits(bits0), float_bits(bits1)
            hit0, hit1 = entry0 <= leave0, entry1 <= leave1
            if hit0 or hit1:
                link = link0 if hit0 else link1
                if hit0 and hit1:
                    deferred = link1
                    if entry1 < entry0:
                        link, deferred = link1, link0
                    stack[np.uint32(top)] = deferred
                    top = np.int32(top + np.int32(1))
                continue
        else:
            leaf = ~link
            first = leaf >> np.int32(2)
            for k in range(np.int32(0), np.int32((leaf & np.int32(3)) + np.int32(1))):
                index = np.int32(first + np.int32(k))
                far = ray_triangle(bvh.triangles, index, ox, oy, oz, dx, dy, dz, NEAR, far, backface_culling)
        if top == 0:
            return far
        top = np.int32(top - np.int32(1))
        link = stack[np.uint32(top)]


@device_function
def _is_pose(bvh, scene, x, y, z, heading):
    """Whether a scene's index is in the bank and the pose finite; the picture of any other is empty."""
    size = abs(x) + abs(y) + abs(z) + abs(heading)
    return scene >= 0 and scene < len(bvh.roots) and size < np.float32(1.0e30)


@cpu_kernel
def _render_cpu(bvh, scene_id, position, heading, tan_half_hfov, far, backface_culling, depth_out):
    """A task is a row of an agent's tiles."""
    num_agents, height, width = depth_out.shape
    tasks_per_image = -(-height // TILE_HEIGHT)
    for task in prange(num_agents * tasks_per_image):
        rays, stack = np.empty((PACKET_ROWS, PACKET_RAYS), np.float32), np.empty(MAX_LEVELS, np.int32)
        i, row = task // tasks_per_image, (task % tasks_per_image) * TILE_HEIGHT
        scene, x, y, z = scene_id[i], position[i, 0], position[i, 1], position[i, 2]
        if _is_pose(bvh, scene, x, y, z, heading[i]):
            fx, fz = forward(heading[i])
            camera = Camera(x, y, z, fx, fz, np.int32(height), np.int32(width), tan_half_hfov)
            for column in range(0, width, TILE_WIDTH):
                render_tile(
                    bvh, bvh.roots[scene], camera, np.int32(row), np.int32(column), NEAR, far, backface_culling,
                    rays, stack, depth_out[i],
                )  # fmt: skip
        else:
            depth_out[i, row : row + TILE_HEIGHT] = np.float32(0.0)


@inline_function
def middle_out(k, count):
    """The k-th of 0 ... count - 1, counted from the middle out: of five 2, 1, 3, 0, 4."""
    away = np.int32((k + 1) >> 1)
    return np.int32((count >> 1) + (-away if k & 1 else away))


@cuda_kernel
def _render_cuda(bvh, scene_id, position, heading, tan_half_hfov, far, backface_culling, depth_out):
    """A block is an agent's tile of 16 x 8 pixels: two by two warps of 8 x 4.

    Blocks start in the grid's order, the last of its numbers slowest. Rows go from the middle out, so that what is left
    at the end are ceilings and floors, which are soon done.
    """
    i, thread = np.uint32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)  # unsigned: no index counts from the end
    tile_row = middle_out(np.int32(cuda.blockIdx.z), np.int32(cuda.gridDim.z))
    row = np.int32(tile_row * _BLOCK_HEIGHT + ((thread >> 6) << 2) + ((thread >> 3) & 3))
    column = np.int32(cuda.blockIdx.y * _BLOCK_WIDTH + (((thread >> 5) & 1) << 3) + (thread & 7))
    height, width = np.int32(depth_out.shape[1]), np.int32(depth_out.shape[2])
    if row >= height or column >= width:
        return
    stack = _room_for_stack()
    scene, x, y, z = scene_id[i], position[i, np.uint32(0)], position[i, np.uint32(1)], position[i, np.uint32(2)]
    depth = far
    if _is_pose(bvh, scene, x, y, z, heading[i]):
        fx, fz = forward(heading[i])
        dx, dy, dz = pixel_ray(row, column, height, width, tan_half_hfov, fx, fz)
        depth = closest_hit(bvh, bvh.roots[np.uint32(scene)], x, y, z, dx, dy, dz, far, backface_culling, stack)
    depth_out[i, np.uint32(row), np.uint32(column)] = depth if depth < far else np.float32(0.0)


class RaycastRenderer:
    """Renders N agents' depth images by ray casting. Owns `depth`, which `render` fills and returns.

    `backface_culling` leaves out triangles seen from behind (clockwise). `max_depth` ends rays at that planar depth:
    what is farther reads 0 like a hole, so use it only where the two need not be told apart.
    """

    def __init__(
        self,
        bank: SceneBank,
        num_agents: int,
        height: int = 64,
        width: int = 64,
        hfov_deg: float = 90.0,
        backface_culling: bool = False,
        max_depth: float = float("inf"),
    ):
        check_options(num_agents, height, width, hfov_deg, max_depth)
        self.bank = bank
        self.device = bank.device
        self.num_agents = int(num_agents)
        self.depth = torch.zeros(self.num_agents, int(height), int(width), device=bank.device)
        self._depth_view = view(self.depth)
        self._options = (tan_half(hfov_deg), np.float32(min(max_depth, _FAR)), bool(backface_culling))
        if bank.device.type == "cuda":
            blocks = (self.num_agents, -(-int(width) // _BLOCK_WIDTH), -(-int(height) // _BLOCK_HEIGHT))
            scene_id = torch.zeros(self.num_agents, dtype=torch.int32, device=bank.device)
            position, heading = self.depth.new_zeros(self.num_agents, 3), self.depth.new_zeros(self.num_agents)
            poses = map(view, (scene_id, position, heading))
            self._cast = BoundKernel(_render_cuda, blocks, bank.bvh_view, *poses, *self._options, self._depth_view)

    def render(self, scene_id: torch.Tensor, position: torch.Tensor, heading: torch.Tensor) -> torch.Tensor:
        """i32 [N], f32 [N, 3] camera position, f32 [N] -> f32 [N, H, W] metres, 0 where nothing is hit.

        The tensor belongs to the renderer and is valid until the next call. An agent whose scene is not in the bank,
        or whose pose is not finite, sees nothing.
        """
        n, device = self.num_agents, self.device
        check_tensor("scene_id", scene_id, (n,), torch.int32, device)
        check_tensor("position", position, (n, 3), torch.float32, device)
        check_tensor("heading", heading, (n,), torch.float32, device)
        poses = [pose.contiguous() for pose in (scene_id, position, heading)]
        if device.type == "cuda":
            for argument, pose in enumerate(poses, start=1):
                self._cast.change(argument, pose.data_ptr())
            self._cast()
        else:
            _render_cpu(self.bank.bvh_view, *map(view, poses), *self._options, self._depth_view)
        return self.depth
