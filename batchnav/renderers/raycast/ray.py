"""CUDA ray caster: one thread per ray traverses a scene's BVH.

The threads of a warp are adjacent pixels, which visit nearly the same nodes. The CPU traverses packets of rays with
vector instructions instead (`packet.py`).
"""

from __future__ import annotations

import functools

import numpy as np

from batchnav.geometry.box import ray_boxes
from batchnav.geometry.camera import inverse_direction, pixel_ray
from batchnav.geometry.pose import camera_axes
from batchnav.geometry.triangle import ray_four_triangles, ray_triangles
from batchnav.renderers.options import NEAR
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, device_function, inline_function
from batchnav.runtime.kernels.intrinsics import thread_array
from batchnav.scene.bvh import MAX_LEVELS, read_leaf, read_node

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
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    ix, iy, iz = inverse_direction(dx), inverse_direction(dy), inverse_direction(dz)
    inverse, offset = (ix, iy, iz), (-ox * ix, -oy * iy, -oz * iz)
    top, hit = np.int32(0), NOTHING
    link = root
    while True:
        if link >= 0:
            centre_xy, half_xy, z, link0, link1 = read_node(link, bvh.nodes)
            entry0, leave0, entry1, leave1 = ray_boxes(centre_xy, half_xy, z, inverse, offset, NEAR, far)
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
    scene, half = scene_index[i], tan_half_hfov[i]
    place = position[i, np.uint32(0)], position[i, np.uint32(1)], position[i, np.uint32(2)]
    if not is_pose(bvh, scene, place, heading[i], pitch[i], half):
        return far, NOTHING
    direction = pixel_ray(row, column, camera_axes(heading[i], pitch[i]), height, width, half)
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
