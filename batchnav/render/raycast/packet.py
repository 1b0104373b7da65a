"""The ray caster's CPU form: a tile of neighbouring pixels goes through the tree as one packet of rays.

A CPU computes eight or sixteen float32 at once, but one ray fills few of those lanes. Neighbouring rays visit nearly
the same nodes (measured: a packet of 32 visits 1.5 times as many as one of its rays), so a packet fetches a node once,
keeps one stack and tests its rays in loops of fixed length that LLVM turns into vector instructions. All rays begin at
the camera; what depends only on that is computed once per packet: a box relative to the camera, a triangle's planes on
the screen. Wald, Slusallek, Benthin and Wagner, "Interactive Rendering with Coherent Ray Tracing" (Eurographics 2001).

On the GPU a warp's threads are already such a packet; there one thread follows one ray (`raycast.closest_hit`).
Every ray has its own test at every box. Testing the tile's frustum alone is cheaper per box, but next to a silhouette
or a hole the frustum goes on, through all that lies behind: measured in a furnished house, 15 times the triangles.

What decides the speed, and is easily lost: the three loops over a packet's rays are functions of their own (in the body
of the traversal they are not vectorised), and their counters are int32 (int64 halves the lanes). A `Packet` is made and
written in these functions only: in the body of a `prange` loop, writes to the arrays of a NamedTuple were lost.
"""

from typing import NamedTuple

import numpy as np

from batchnav.geometry.box import ray_box
from batchnav.geometry.camera import inverse_direction, pixel_ray, pixel_spacing
from batchnav.geometry.triangle import triangle_on_screen
from batchnav.runtime.intrinsics import float_bits, load4
from batchnav.runtime.kernels import inline_function

TILE_HEIGHT, TILE_WIDTH = 8, 4
"""Pixels of a packet. Measured in two kinds of houses: 4 x 8 and 8 x 8 are within a tenth of it, 4 x 4 a fifth."""
PACKET_RAYS = TILE_HEIGHT * TILE_WIDTH
PACKET_ROWS = 4
"""Rows of PACKET_RAYS float32 that the caller lends as scratch: the fields of `Packet`."""
_ROW, _COLUMN = (index.ravel().astype(np.float32) for index in np.indices((TILE_HEIGHT, TILE_WIDTH)))
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Camera(NamedTuple):
    """Scalars of one view: float32, height and width int32."""

    x: np.float32
    y: np.float32
    z: np.float32
    forward_x: np.float32
    forward_z: np.float32
    height: np.int32
    width: np.int32
    tan_half_hfov: np.float32


class Packet(NamedTuple):
    """The rays of a tile, row by row: f32 [PACKET_RAYS] each."""

    inverse_x: np.ndarray
    """1 / direction, finite."""
    inverse_y: np.ndarray
    inverse_z: np.ndarray
    depth: np.ndarray
    """Planar depth of the nearest hit so far, at first `far`; 0 for rays beyond the image, which hit nothing."""


@inline_function
def render_tile(bvh, root, camera, row, column, near, far, backface_culling, rays, stack, depth_out):
    """Write the tile whose first pixel is (row, column) to `depth_out` f32 [H, W]: metres within [near, far), else 0.

    Scratch: `rays` f32 [PACKET_ROWS, PACKET_RAYS], `stack` i32 [MAX_LEVELS].
    """
    packet = Packet(rays[0], rays[1], rays[2], rays[3])
    _aim(packet, camera, row, column, far)
    _trace(bvh, root, camera, row, column, near, backface_culling, packet, stack)
    for r in range(min(TILE_HEIGHT, camera.height - row)):
        for c in range(min(TILE_WIDTH, camera.width - column)):
            depth = packet.depth[r * TILE_WIDTH + c]
            depth_out[row + r, column + c] = depth if depth < far else _ZERO


@inline_function
def _aim(packet, camera, row, column, far):
    """Fill the packet with the rays of the tile at (row, column)."""
    _, _, _, forward_x, forward_z, height, width, tan_half_hfov = camera
    for k in range(PACKET_RAYS):
        r, c = np.int32(row + k // TILE_WIDTH), np.int32(column + k % TILE_WIDTH)
        dx, dy, dz = pixel_ray(r, c, height, width, tan_half_hfov, forward_x, forward_z)
        packet.inverse_x[k] = inverse_direction(dx)
        packet.inverse_y[k] = inverse_direction(dy)
        packet.inverse_z[k] = inverse_direction(dz)
        packet.depth[k] = far if r < height and c < width else _ZERO


@inline_function
def _trace(bvh, root, camera, row, column, near, backface_culling, packet, stack):
    """Find the packet's nearest hits: the traversal of `raycast.closest_hit`, a node visited if any ray needs it."""
    x, y, z, forward_x, forward_z, height, width, tan_half_hfov = camera
    first_ray = pixel_ray(row, column, height, width, tan_half_hfov, forward_x, forward_z)
    spacing = pixel_spacing(width, tan_half_hfov)
    top = np.int32(0)
    link = root
    while True:
        if link >= 0:
            x0, x1, y0, y1 = load4(bvh.nodes, link, np.int32(0))
            wide0, wide1, high0, high1 = load4(bvh.nodes, link, np.int32(4))
            z0, z1, deep0, deep1 = load4(bvh.nodes, link, np.int32(8))
            bits0, bits1, _, _ = load4(bvh.nodes, link, np.int32(12))
            box0 = around(x0 - x, y0 - y, z0 - z, wide0, high0, deep0)
            box1 = around(x1 - x, y1 - y, z1 - z, wide1, high1, deep1)
            hits0, hits1, nearer1 = _count_hits(packet, box0, box1, near)
            if hits0 > 0 or hits1 > 0:
                link, deferred = float_bits(bits0), float_bits(bits1)
                if hits0 == 0 or (hits1 > 0 and nearer1 > PACKET_RAYS // 2):
                    link, deferred = deferred, link
                if hits0 > 0 and hits1 > 0:
                    stack[np.uint32(top)] = deferred
                    top = np.int32(top + np.int32(1))
                continue
        else:
            leaf = ~link
            first = leaf >> np.int32(2)
            for k in range(np.int32(0), np.int32((leaf & np.int32(3)) + np.int32(1))):
                index = np.int32(first + np.int32(k))
                side, w, u, v = triangle_on_screen(
                    bvh.triangles, index, x, y, z, first_ray, forward_x, forward_z, spacing
                )
                if side > _ZERO or not backface_culling:
                    _hit_triangle(packet, w, u, v, near)
        if top == 0:
            return
        top = np.int32(top - np.int32(1))
        link = stack[np.uint32(top)]


@inline_function
def around(x, y, z, wide, high, deep):
    """Low and high corner of a box from its centre and half its size."""
    return x - wide, y - high, z - deep, x + wide, y + high, z + deep


@inline_function
def _count_hits(packet, box0, box1, near):
    """How many rays meet each of two boxes before their hit so far, and how many enter box 1 before box 0."""
    hits0, hits1, nearer1 = np.int32(0), np.int32(0), np.int32(0)
    for k in range(PACKET_RAYS):
        ix, iy, iz, far = packet.inverse_x[k], packet.inverse_y[k], packet.inverse_z[k], packet.depth[k]
        entry0, leave0 = ray_box(box0, ix, iy, iz, near, far)
        entry1, leave1 = ray_box(box1, ix, iy, iz, near, far)
        hits0 = np.int32(hits0 + np.int32(entry0 <= leave0))
        hits1 = np.int32(hits1 + np.int32(entry1 <= leave1))
        nearer1 = np.int32(nearer1 + np.int32(entry1 < entry0))
    return hits0, hits1, nearer1


@inline_function
def _hit_triangle(packet, w, u, v, near):
    """Shorten the rays that meet a triangle before their hit so far; the arguments are of `triangle_on_screen`."""
    w0, w_column, w_row = w
    u0, u_column, u_row = u
    v0, v_column, v_row = v
    for k in range(PACKET_RAYS):
        row, column, far = _ROW[k], _COLUMN[k], packet.depth[k]
        wk = w0 + column * w_column + row * w_row
        uk = u0 + column * u_column + row * u_row
        vk = v0 + column * v_column + row * v_row
        depth = _ONE / wk
        # & and not `and`: no branches. A triangle seen edge-on has a depth or edges that are not finite, and is missed.
        hit = (uk >= _ZERO) & (vk >= _ZERO) & (uk + vk <= wk) & (depth >= near) & (depth < far)
        packet.depth[k] = depth if hit else far
