"""Ray casting through a scene's BVH, one ray per pixel: `RaycastRenderer`.

On CUDA one thread traverses the BVH per ray; the threads of a warp are adjacent pixels, which visit nearly the same
nodes. On the CPU a tile of adjacent pixels traverses it as one packet of rays.

Method of the packets: Wald, Slusallek, Benthin and Wagner, "Interactive Rendering with Coherent Ray Tracing"
(Eurographics 2001). A CPU processes 8 or 16 float32 per instruction, and adjacent rays visit nearly the same nodes (a
packet of 32 visits 1.5 times as many as one ray). So a packet loads each node once, has one stack, and tests its rays
in loops of fixed length that LLVM vectorises. Quantities that depend only on the camera are computed once per packet:
boxes relative to the camera, and triangles projected to the screen. On the GPU the threads of a warp form such a packet
(`closest_hit`).

Each ray is tested against each box. A test of the tile's frustum alone costs less per box, but at silhouettes and holes
the frustum continues through everything behind them: 15 times as many triangles in a furnished house.

These properties determine the speed:

* Loops over the rays of a packet are separate functions; inside the traversal LLVM does not vectorise them.
* Loops over boxes reduce to one bit per box. Branches on the bits choose the next node, so that the CPU can speculate.
  The order of two children follows from the boxes' centres, before the rays are tested.
* Eight rays are tested first. They hit most of the boxes that any ray hits, which resolves mispredictions early.
* Both children are prefetched during the tests.
* Only these functions create and write a `Packet`: in the body of a `prange` loop, writes to the arrays of a NamedTuple
  were lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.geometry.pose import half_width, inverse_direction, pixel_ray, pixel_spacing, view_axes
from batchnav.geometry.triangle import ray_box, ray_four_triangles, ray_triangles, triangle_on_screen
from batchnav.renderers.base import NEAR, CameraPoses, Renderer
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, device_function, inline_function
from batchnav.runtime.kernels.intrinsics import bits_float, float_bits, fma, thread_array
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.scene.bvh import MAX_LEVELS, read_leaf
from batchnav.scene.small_nodes import camera_frame, child_boxes, meet_children, ray_frame
from batchnav.types import Visibility

# CUDA: one thread per ray

BLOCK_WIDTH, BLOCK_HEIGHT = 16, 8
"""Size of a CUDA block, pixels. A warp covers 8 x 4 adjacent pixels, whose rays visit nearly the same nodes."""
FEW_PIXELS = 2**20
"""Up to this number of pixels (256 views of 64 x 64) the longest rays determine the time. Kernels with more registers,
lower occupancy and lower latency are faster then."""
NOTHING = np.int32(-1)
"""Triangle index of pixels where nothing is hit."""
_stack_array = thread_array(MAX_LEVELS, np.int32)


@inline_function
def closest_hit(bvh, root, origin, direction, far, backface_culling, leaf_at_once, stack):
    """Ray parameter and row of `bvh.triangles` of the first hit within [NEAR, far); else `far` and NOTHING.

    Args:
        bvh: BVHs of the bank.
        root: root node of the scene.
        origin: origin of the ray.
        direction: direction of the ray.
        far: greatest ray parameter.
        backface_culling: ignore triangles seen from behind.
        leaf_at_once: test all triangles of a leaf together instead of two at a time.
        stack: i32 [MAX_LEVELS], scratch; at most one deferred child per level.

    The traversal visits the nearer child first.
    """
    frame = ray_frame(root, bvh.nodes, origin, direction)
    top, hit = np.int32(0), NOTHING
    link = root
    while True:
        if link >= 0:
            entry0, leave0, entry1, leave1, link0, link1 = meet_children(link, bvh.nodes, frame, NEAR, far)
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
            first, count = read_leaf(link)
            last = np.int32(first + count - np.int32(1))
            if leaf_at_once:
                far, found = ray_four_triangles(
                    first, last, bvh.triangles, origin, direction, NEAR, far, backface_culling
                )
                hit = found if found >= 0 else hit
            while not leaf_at_once and first <= last:
                second = min(np.int32(first + np.int32(1)), last)
                far, found = ray_triangles(first, second, bvh.triangles, origin, direction, NEAR, far, backface_culling)
                hit = found if found >= 0 else hit
                first = np.int32(first + np.int32(2))
        if top == 0:
            return far, hit
        top = np.int32(top - np.int32(1))
        link = stack[np.uint32(top)]


@device_function
def is_pose(bvh, scene, position, heading, pitch, tan_half_hfov):
    """True if the scene index is in the bank, the pose is finite and the field of view is positive."""
    x, y, z = position
    size = abs(x) + abs(y) + abs(z) + abs(heading) + abs(pitch) + abs(tan_half_hfov)
    return scene >= 0 and scene < len(bvh.roots) and size < np.float32(1.0e30) and tan_half_hfov > np.float32(0.0)


@inline_function
def middle_out(k, count):
    """Element k of 0 ... count - 1 in order from the middle outwards: 2, 1, 3, 0, 4 for five."""
    away = np.int32((k + 1) >> 1)
    return np.int32((count >> 1) + (-away if k & 1 else away))


@inline_function
def thread_pixel():
    """Agent, row and column of a thread. A block is a tile of 16 x 8 pixels of an agent: 2 x 2 warps of 8 x 4 pixels.

    Blocks start in the order of the grid, with the last dimension slowest. Rows go from the middle outwards, so that
    the last blocks show ceilings and floors, which are fast.
    """
    # Unsigned, so that numba does not check for a negative index.
    i, thread = np.uint32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
    tile_row = middle_out(np.int32(cuda.blockIdx.z), np.int32(cuda.gridDim.z))
    row = np.int32(tile_row * BLOCK_HEIGHT + ((thread >> 6) << 2) + ((thread >> 3) & 3))
    column = np.int32(cuda.blockIdx.y * BLOCK_WIDTH + (((thread >> 5) & 1) << 3) + (thread & 7))
    return i, row, column


@inline_function
def cast(i, pixel, bvh, poses, size, far, backface_culling, leaf_at_once, stack):
    """Depth and row of the triangle that agent i sees at a pixel, or `far` and NOTHING. `size`: height, width."""
    (row, column), (scene_index, position, heading, pitch, tan_half_hfov), (height, width) = pixel, poses, size
    scene, half = scene_index[i], half_width(i, tan_half_hfov)
    place = position[i, np.uint32(0)], position[i, np.uint32(1)], position[i, np.uint32(2)]
    if not is_pose(bvh, scene, place, heading[i], pitch[i], half):
        return far, NOTHING
    direction = pixel_ray(row, column, view_axes(i, heading, pitch, tan_half_hfov), height, width, half)
    return closest_hit(bvh, bvh.roots[np.uint32(scene)], place, direction, far, backface_culling, leaf_at_once, stack)


@inline_function
def render_depth(bvh, poses, far, backface_culling, leaf_at_once, depth_out):
    """Render the depth of the thread's pixel."""
    i, row, column = thread_pixel()
    size, stack = (np.int32(depth_out.shape[1]), np.int32(depth_out.shape[2])), _stack_array()
    if row >= size[0] or column >= size[1]:
        return
    depth, _ = cast(i, (row, column), bvh, poses, size, far, backface_culling, leaf_at_once, stack)
    depth_out[i, np.uint32(row), np.uint32(column)] = depth if depth < far else np.float32(0.0)


@inline_function
def render_visibility(bvh, poses, far, backface_culling, leaf_at_once, depth_out, triangle_out):
    """Render depth and triangle of the thread's pixel."""
    i, row, column = thread_pixel()
    size, stack = (np.int32(depth_out.shape[1]), np.int32(depth_out.shape[2])), _stack_array()
    if row >= size[0] or column >= size[1]:
        return
    depth, hit = cast(i, (row, column), bvh, poses, size, far, backface_culling, leaf_at_once, stack)
    depth_out[i, np.uint32(row), np.uint32(column)] = depth if depth < far else np.float32(0.0)
    number = NOTHING
    if hit >= 0:
        number = bvh.numbers[np.uint32(hit)]
    triangle_out[i, np.uint32(row), np.uint32(column)] = number


@functools.partial(cuda_kernel, max_registers=40, lto=False)
def depth_cuda(bvh, scene_index, position, heading, pitch, tan_half_hfov, far, backface_culling, depth_out):
    """Render depth for all agents, one thread per pixel."""
    poses = scene_index, position, heading, pitch, tan_half_hfov
    render_depth(bvh, poses, far, backface_culling, False, depth_out)


@functools.partial(cuda_kernel, max_registers=64, lto=False)
def few_depth_cuda(bvh, scene_index, position, heading, pitch, tan_half_hfov, far, backface_culling, depth_out):
    """`depth_cuda` for at most FEW_PIXELS pixels."""
    poses = scene_index, position, heading, pitch, tan_half_hfov
    render_depth(bvh, poses, far, backface_culling, True, depth_out)


@functools.partial(cuda_kernel, max_registers=40, lto=False)
def visibility_cuda(
    bvh, scene_index, position, heading, pitch, tan_half_hfov, far, backface_culling, depth_out, triangle_out
):
    """Render depth and triangles for all agents, one thread per pixel."""
    poses = scene_index, position, heading, pitch, tan_half_hfov
    render_visibility(bvh, poses, far, backface_culling, False, depth_out, triangle_out)


@functools.partial(cuda_kernel, max_registers=64, lto=False)
def few_visibility_cuda(
    bvh, scene_index, position, heading, pitch, tan_half_hfov, far, backface_culling, depth_out, triangle_out
):
    """`visibility_cuda` for at most FEW_PIXELS pixels."""
    poses = scene_index, position, heading, pitch, tan_half_hfov
    render_visibility(bvh, poses, far, backface_culling, True, depth_out, triangle_out)


TILE_HEIGHT, TILE_WIDTH = 8, 4
"""Size of a packet, pixels. In two scene families 4 x 8 and 8 x 8 are within 10% of its speed, 4 x 4 within 20%."""
PACKET_RAYS = TILE_HEIGHT * TILE_WIDTH
FIRST_RAYS = 2 * TILE_WIDTH
"""Number of rays (the first two rows) that are tested first against a box: the float32 lanes of an AVX2 register. Rows
farther apart are not faster."""
PACKET_ROWS = 4
"""Number of scratch rows of PACKET_RAYS float32, the fields of `Packet`."""
DEPTH_ROW = 3
"""Scratch row of `Packet.depth`."""
_ROW, _COLUMN = (index.ravel().astype(np.float32) for index in np.indices((TILE_HEIGHT, TILE_WIDTH)))
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_BEYOND = np.float32(1.00001)
_MISSED = np.float32(3.4e38)
"""Depth of a triangle that a ray misses: beyond any `far`."""


class Camera(NamedTuple):
    """Camera and options of one view."""

    position: tuple
    axes: tuple
    """Right, up and forward, see `geometry.pose.view_axes`."""
    height: np.int32
    width: np.int32
    tan_half_hfov: np.float32
    far: np.float32
    """Planar depth at which rays end."""
    backface_culling: bool


class Packet(NamedTuple):
    """Rays of a tile, row by row; each field is f32 [PACKET_RAYS]."""

    inverse_x: np.ndarray
    """1 / direction, finite."""
    inverse_y: np.ndarray
    inverse_z: np.ndarray
    depth: np.ndarray
    """Planar depth of the nearest hit so far, initially `far`; 0 for rays outside the image, which hit nothing."""


@inline_function
def render_tile(row, column, bvh, root, camera, rays, hits, stack, depth_out, triangle_out):
    """Render the tile whose first pixel is (row, column).

    Writes depth in metres within [NEAR, far), else 0, to `depth_out` f32 [H, W]. Writes triangles to `triangle_out`
    i32 [H, W], unless that and `hits` are None.
    Scratch: `rays` f32 [PACKET_ROWS, PACKET_RAYS], `hits` i32 [PACKET_RAYS], `stack` i32 [MAX_LEVELS].
    """
    trace_tile(row, column, bvh, root, camera, rays, hits, stack)
    for r in range(min(TILE_HEIGHT, camera.height - row)):
        for c in range(min(TILE_WIDTH, camera.width - column)):
            k = r * TILE_WIDTH + c
            depth = rays[DEPTH_ROW, k]
            depth_out[row + r, column + c] = depth if depth < camera.far else _ZERO
            if triangle_out is not None:
                triangle_out[row + r, column + c] = hits[k]


@inline_function
def trace_tile(row, column, bvh, root, camera, rays, hits, stack):
    """Find the hits of the tile whose first pixel is (row, column).

    Scratch as in `render_tile`. Afterwards `rays[DEPTH_ROW]` has each pixel's planar depth (`camera.far` for nothing, 0
    outside the image) and `hits` its triangle, row by row of the tile.
    """
    packet = Packet(rays[0], rays[1], rays[2], rays[DEPTH_ROW])
    _init_packet(row, column, camera, packet)
    if hits is not None:
        hits[:] = NOTHING
    _trace(row, column, bvh, root, camera, stack, packet, hits)


@inline_function
def trace_hits_again(row, column, bvh, root, camera, rays, hits, stack):
    """Trace the rays of `trace_tile` that hit something in another BVH, up to slightly beyond these hits."""
    packet = Packet(rays[0], rays[1], rays[2], rays[DEPTH_ROW])
    _limit(packet, hits)
    _trace(row, column, bvh, root, camera, stack, packet, hits)


@inline_function
def _limit(packet_out, hits_out):
    """Make each ray end slightly beyond its hit; rays without one hit nothing."""
    for k in range(PACKET_RAYS):
        packet_out.depth[k] = packet_out.depth[k] * _BEYOND if hits_out[k] >= 0 else _ZERO
        hits_out[k] = NOTHING


@inline_function
def _init_packet(row, column, camera, packet_out):
    """Initialise the packet with the rays of the tile at (row, column)."""
    _, axes, height, width, tan_half_hfov, far, _ = camera
    for k in range(PACKET_RAYS):
        r, c = np.int32(row + k // TILE_WIDTH), np.int32(column + k % TILE_WIDTH)
        dx, dy, dz = pixel_ray(r, c, axes, height, width, tan_half_hfov)
        packet_out.inverse_x[k] = inverse_direction(dx)
        packet_out.inverse_y[k] = inverse_direction(dy)
        packet_out.inverse_z[k] = inverse_direction(dz)
        packet_out.depth[k] = far if r < height and c < width else _ZERO


@inline_function
def _trace(row, column, bvh, root, camera, stack, packet_out, hits_out):
    """Find the packet's nearest hits, like `closest_hit`; a node is visited if any ray needs it.

    The child whose centre is nearer along the first ray is visited first.
    """
    position, axes, height, width, tan_half_hfov, _, backface_culling = camera
    frame = camera_frame(root, bvh.nodes, position)
    ahead_x, ahead_y, ahead_z = first_ray = pixel_ray(row, column, axes, height, width, tan_half_hfov)
    spacing = pixel_spacing(width, tan_half_hfov)
    top = np.int32(0)
    link = root
    while True:
        if link >= 0:
            box0, box1, (x, y, z), link0, link1 = child_boxes(link, bvh.nodes, bvh.triangles, frame)
            met0, met1 = _first_meet(packet_out, box0, box1)
            met0 = met0 or _others_meet(packet_out, box0)
            met1 = met1 or _others_meet(packet_out, box1)
            if met0 and met1:
                link, deferred = link0, link1
                if x * ahead_x + y * ahead_y + z * ahead_z < _ZERO:
                    link, deferred = link1, link0
                stack[np.uint32(top)] = deferred
                top = np.int32(top + np.int32(1))
                continue
            if met0:
                link = link0
                continue
            if met1:
                link = link1
                continue
        else:
            first, count = read_leaf(link)
            for k in range(np.int32(0), count):
                index = np.int32(first + np.int32(k))
                side, w, u, v = triangle_on_screen(index, bvh.triangles, position, first_ray, axes, spacing)
                if side > _ZERO or not backface_culling:
                    number = NOTHING
                    if hits_out is not None:
                        number = bvh.numbers[np.uint32(index)]
                    _hit_triangle(number, w, u, v, packet_out, hits_out)
        if top == 0:
            return
        top = np.int32(top - np.int32(1))
        link = stack[np.uint32(top)]


@inline_function
def _first_meet(packet, box0, box1):
    """Two flags, True if any of the first rays hits the box before its nearest hit so far."""
    met0, met1 = False, False
    for k in range(FIRST_RAYS):
        ix, iy, iz, far = packet.inverse_x[k], packet.inverse_y[k], packet.inverse_z[k], packet.depth[k]
        entry0, leave0 = ray_box(box0, ix, iy, iz, NEAR, far)
        entry1, leave1 = ray_box(box1, ix, iy, iz, NEAR, far)
        met0 |= entry0 <= leave0
        met1 |= entry1 <= leave1
    return met0, met1


@inline_function
def _others_meet(packet, box):
    """True if any of the other rays hits the box before its nearest hit so far."""
    met = False
    for k in range(FIRST_RAYS, PACKET_RAYS):
        ix, iy, iz, far = packet.inverse_x[k], packet.inverse_y[k], packet.inverse_z[k], packet.depth[k]
        entry, leave = ray_box(box, ix, iy, iz, NEAR, far)
        met |= entry <= leave
    return met


@inline_function
def _hit_triangle(number, w, u, v, packet_out, hits_out):
    """Update the rays that hit a triangle before their nearest hit so far; w, u, v: see `triangle_on_screen`."""
    w0, w_column, w_row = w
    u0, u_column, u_row = u
    v0, v_column, v_row = v
    for k in range(PACKET_RAYS):
        row, column, far = _ROW[k], _COLUMN[k], packet_out.depth[k]
        wk = fma(row, w_row, fma(column, w_column, w0))
        uk = fma(row, u_row, fma(column, u_column, u0))
        vk = fma(row, v_row, fma(column, v_column, v0))
        depth = _ONE / wk
        # `&` avoids branches. A triangle seen edge-on has values that are not finite and is missed.
        hit = (uk >= _ZERO) & (vk >= _ZERO) & (uk + vk <= wk) & (depth >= NEAR)
        # A minimum of the bits, since LLVM turns `if` into masked stores: 42 operations each on AMD Zen 3.
        before, now = float_bits(far), float_bits(depth if hit else _MISSED)
        packet_out.depth[k] = bits_float(min(before, now))
        if hits_out is not None:
            hits_out[k] = number if now < before else hits_out[k]


@cpu_kernel
def depth_cpu(bvh, scene_index, position, heading, pitch, tan_half_hfov, far, backface_culling, depth_out):
    """Render depth for all agents. A task is a row of tiles of an agent."""
    num_agents, height, width = depth_out.shape
    tasks_per_image = -(-height // TILE_HEIGHT)
    for task in prange(num_agents * tasks_per_image):
        rays, stack = np.empty((PACKET_ROWS, PACKET_RAYS), np.float32), np.empty(MAX_LEVELS, np.int32)
        i, row = task // tasks_per_image, (task % tasks_per_image) * TILE_HEIGHT
        scene, place = scene_index[i], (position[i, 0], position[i, 1], position[i, 2])
        half = half_width(i, tan_half_hfov)
        if is_pose(bvh, scene, place, heading[i], pitch[i], half):
            axes = view_axes(i, heading, pitch, tan_half_hfov)
            camera = Camera(place, axes, np.int32(height), np.int32(width), half, far, backface_culling)
            for column in range(0, width, TILE_WIDTH):
                render_tile(
                    np.int32(row), np.int32(column), bvh, bvh.roots[scene], camera, rays, None, stack,
                    depth_out[i], None,
                )  # fmt: skip
        else:
            depth_out[i, row : row + TILE_HEIGHT] = _ZERO


@cpu_kernel
def visibility_cpu(
    bvh, scene_index, position, heading, pitch, tan_half_hfov, far, backface_culling, depth_out, triangle_out
):
    """Render depth and triangles for all agents. A task is a row of tiles of an agent."""
    num_agents, height, width = depth_out.shape
    tasks_per_image = -(-height // TILE_HEIGHT)
    for task in prange(num_agents * tasks_per_image):
        rays, stack = np.empty((PACKET_ROWS, PACKET_RAYS), np.float32), np.empty(MAX_LEVELS, np.int32)
        hits = np.empty(PACKET_RAYS, np.int32)
        i, row = task // tasks_per_image, (task % tasks_per_image) * TILE_HEIGHT
        scene, place = scene_index[i], (position[i, 0], position[i, 1], position[i, 2])
        half = half_width(i, tan_half_hfov)
        if is_pose(bvh, scene, place, heading[i], pitch[i], half):
            axes = view_axes(i, heading, pitch, tan_half_hfov)
            camera = Camera(place, axes, np.int32(height), np.int32(width), half, far, backface_culling)
            for column in range(0, width, TILE_WIDTH):
                render_tile(
                    np.int32(row), np.int32(column), bvh, bvh.roots[scene], camera, rays, hits, stack,
                    depth_out[i], triangle_out[i],
                )  # fmt: skip
        else:
            depth_out[i, row : row + TILE_HEIGHT] = _ZERO
            triangle_out[i, row : row + TILE_HEIGHT] = NOTHING


# The renderer

_FAR = np.float32(3.0e38)
"""Planar depth where rays end without `max_depth`, metres."""


class RaycastRenderer(Renderer):
    """A renderer by ray casting, on the CPU and on CUDA. Options, arguments and results: see `Renderer`."""

    capturable = True

    def _allocate(self) -> None:
        self.depth = torch.zeros(self.num_agents, self.height, self.width, dtype=torch.float32, device=self.device)
        self._options = np.float32(min(self.max_depth, float(_FAR))), self.backface_culling
        self._few = self.depth.numel() <= FEW_PIXELS
        self._cast_depth = self._bind(depth_cpu, few_depth_cuda if self._few else depth_cuda, self.depth)
        self._triangle: torch.Tensor | None = None
        """Allocated at the first call of `visibility`."""

    def _bind(self, cpu: Callable, cuda: Callable, *outputs: torch.Tensor) -> Callable[..., None]:
        """A kernel as a function of the poses."""
        bvh, written = self.bank.bvh_view, tuple(map(view, outputs))
        if self.device.type == "cpu":
            return lambda *poses: cpu(bvh, *map(view, poses), *self._options, *written)
        blocks = (self.num_agents, -(-self.width // BLOCK_WIDTH), -(-self.height // BLOCK_HEIGHT))
        scene_index = torch.zeros(self.num_agents, dtype=torch.int32, device=self.device)
        position = self.depth.new_zeros(self.num_agents, 3)
        poses = map(view, (scene_index, position, self._level, self._level, self._tan_half))
        kernel = BoundKernel(cuda, blocks, bvh, *poses, *self._options, *written)

        def launch(*poses: torch.Tensor) -> None:
            for argument, pose in enumerate(poses, start=1):
                kernel.change(argument, pose.data_ptr())
            kernel()

        return launch

    def _render(self, poses: CameraPoses) -> torch.Tensor:
        self._cast_depth(*poses)
        return self.depth

    def _visibility(self, poses: CameraPoses) -> Visibility:
        if self._triangle is None:
            self._triangle = torch.zeros_like(self.depth, dtype=torch.int32)
            cuda = few_visibility_cuda if self._few else visibility_cuda
            self._cast_both = self._bind(visibility_cpu, cuda, self.depth, self._triangle)
        self._cast_both(*poses)
        return Visibility(self.depth, self._triangle)
