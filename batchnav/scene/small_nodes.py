"""Nodes of 32 bytes for the trees of large scenes, half the size of those of `scene/bvh.py`: boxes on a grid.

The grid has 65,536 cells along each axis of the scene. Boxes are rounded outwards, by up to two cells on each side, so
that rays hit the same triangles as with whole nodes.

    row before the root   low corner of the grid x y z, 0 | size of a cell x y z, 0 (float32 bits)
    node                  x0 x1 y0 y1 | z0 z1, link 0, link 1

A corner word holds a box's low cell in its low 16 bits and its high cell in the others. Links are those of
`scene/bvh.py`. The array of a bank is i32 [M, 2, 4], so that its number of dimensions tells kernels of the layout.

A cell q is read as the float32 2**23 + q, whose bits are those of 2**23 with q in the low half: one instruction on a
GPU. The ray's offset takes 2**23 off again, with an error of half a cell at most.
"""

from collections.abc import Sequence

import numpy as np

from batchnav.geometry.pose import inverse_direction
from batchnav.geometry.triangle import PLANE, PLANE_U, ray_boxes
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import HIGH, LOW, bits_float, float_bits, fma, half_word, load4, prefetch
from batchnav.scene.bvh import BVH, CENTRE_XY, LINKS, moved_nodes, read_node

FROM_TRIANGLES = 300_000
"""Number of triangles of a large scene."""
LARGEST = 256.0
"""Largest extent of a scene in a bank with small nodes, metres: cells are at most 4 mm."""
_CELLS = 65_520.0
"""Number of cells that a scene covers; a margin for rounding is left on both sides."""
_MARGIN = 8.0
_SMALLEST = 1e-3
"""Least extent, metres: cells have a size in flat scenes too."""
_XY, _Z = np.int32(0), np.int32(4)
_SHIFT = np.float32(2.0**23)
_OTHER = np.int32(LOW ^ HIGH)
_MASK = np.int32(0xFFFF)


def is_large(num_triangles: int) -> bool:
    """Whether a scene of so many triangles is large: its bank has small nodes, its textured triangles small patches."""
    return num_triangles >= FROM_TRIANGLES


def fits(tree: BVH) -> bool:
    """Whether a scene may be in a bank with small nodes."""
    low, high = _bounds(tree.nodes)
    return bool((high - low).max() <= LARGEST)


def choose_small(trees: Sequence[BVH]) -> bool:
    """Whether a bank of these trees has small nodes: one of them is large, and all fit."""
    return any(is_large(len(tree.triangles)) for tree in trees) and all(map(fits, trees))


def _boxes(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high corners f64 [M, 2, 3] of the children of nodes f32 [M, 16]."""
    columns = np.array([[0, 2, 8], [1, 3, 9]])
    centre = nodes[:, columns].astype(np.float64)
    half = nodes[:, columns + np.array([4, 4, 2])].astype(np.float64)
    return centre - half, centre + half


def _bounds(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high corner f64 [3] of a tree, from its root."""
    low, high = _boxes(nodes[:1])
    return low.min((0, 1)), high.max((0, 1))


def small_nodes(nodes: np.ndarray) -> np.ndarray:
    """i32 [M + 1, 2, 4]: the nodes f32 [M, 16] of a tree on a grid, after the grid's row; links count that row."""
    low, high = _bounds(nodes)
    cell = (np.maximum(high - low, _SMALLEST) / _CELLS).astype(np.float32)
    origin = (low - _MARGIN * cell).astype(np.float32)
    rows = np.zeros((len(nodes) + 1, 2, 4), np.int32)
    rows.view(np.float32)[0, :, :3] = origin, cell
    low, high = _boxes(nodes)
    first = np.floor((low - origin) / cell).astype(np.int32) - 1
    last = np.ceil((high - origin) / cell).astype(np.int32) + 1
    words = first | last << 16  # [M, 2, 3]
    rows[1:, 0, :2], rows[1:, 0, 2:], rows[1:, 1, :2] = words[:, :, 0], words[:, :, 1], words[:, :, 2]
    links = nodes.view(np.int32)[:, LINKS : LINKS + 2]
    rows[1:, 1, 2:] = links + (links >= 0)
    return rows


def placed_nodes(nodes: np.ndarray, first_node: int, first_triangle: int, is_small: bool) -> np.ndarray:
    """A tree's nodes for a bank in whose arrays its rows and triangles begin at these rows."""
    if not is_small:
        return moved_nodes(nodes, first_node, first_triangle) if first_node else nodes
    rows = small_nodes(nodes)
    links = rows[1:, 1, 2:]
    links += np.where(links >= 0, first_node, -4 * first_triangle).astype(np.int32)
    return rows


# What kernels read, from both kinds of nodes: f32 [M, 16] and i32 [M, 2, 4]


@inline_function
def _grid(root, nodes):
    """Low corner and cell size of a scene's grid."""
    row = np.int32(root - np.int32(1))
    ox, oy, oz, _ = load4(nodes, row, _XY)
    sx, sy, sz, _ = load4(nodes, row, _Z)
    origin = bits_float(ox), bits_float(oy), bits_float(oz)
    return origin, (bits_float(sx), bits_float(sy), bits_float(sz))


@inline_function
def ray_frame(root, nodes, origin, direction):
    """The ray as `meet_children` needs it: inverse direction, offset and, with small nodes, the nearer sides."""
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    ix, iy, iz = inverse_direction(dx), inverse_direction(dy), inverse_direction(dz)
    if nodes.ndim == 2:
        return (ix, iy, iz), (-ox * ix, -oy * iy, -oz * iz)
    (lx, ly, lz), (sx, sy, sz) = _grid(root, nodes)
    jx, jy, jz = ix * sx, iy * sy, iz * sz
    offset = (
        fma(lx - ox, ix, -_SHIFT * jx), fma(ly - oy, iy, -_SHIFT * jy), fma(lz - oz, iz, -_SHIFT * jz),
    )  # fmt: skip
    zero = np.float32(0.0)
    return (jx, jy, jz), offset, (LOW if ix > zero else HIGH, LOW if iy > zero else HIGH, LOW if iz > zero else HIGH)


@inline_function
def meet_children(link, nodes, frame, near, far):
    """Entry and exit of both children's boxes, and their links: entry 0, exit 0, entry 1, exit 1, link 0, link 1.

    `frame`: result of `ray_frame`. Entry and exit are as in `ray_boxes`.
    """
    if nodes.ndim == 2:
        centre_xy, half_xy, z, link0, link1 = read_node(link, nodes)
        entry0, leave0, entry1, leave1 = ray_boxes(centre_xy, half_xy, z, frame[0], frame[1], near, far)
        return entry0, leave0, entry1, leave1, link0, link1
    x0, x1, y0, y1 = load4(nodes, link, _XY)
    z0, z1, link0, link1 = load4(nodes, link, _Z)
    entry0, leave0 = _meet((x0, y0, z0), frame, near, far)
    entry1, leave1 = _meet((x1, y1, z1), frame, near, far)
    return entry0, leave0, entry1, leave1, link0, link1


@inline_function
def _meet(words, frame, near, far):
    """Entry and exit of a box, bits of float32: see `ray_boxes`."""
    (x, y, z), ((ix, iy, iz), (ox, oy, oz), (nx, ny, nz)) = words, frame
    ex, lx = fma(half_word(x, nx), ix, ox), fma(half_word(x, np.int32(nx ^ _OTHER)), ix, ox)
    ey, ly = fma(half_word(y, ny), iy, oy), fma(half_word(y, np.int32(ny ^ _OTHER)), iy, oy)
    ez, lz = fma(half_word(z, nz), iz, oz), fma(half_word(z, np.int32(nz ^ _OTHER)), iz, oz)
    entry = max(max(max(float_bits(ex), float_bits(ey)), float_bits(ez)), float_bits(near))
    return entry, min(min(min(float_bits(lx), float_bits(ly)), float_bits(lz)), float_bits(far))


@inline_function
def camera_frame(root, nodes, position):
    """The camera as `child_boxes` needs it: its position or, with small nodes, the grid relative to it."""
    if nodes.ndim == 2:
        return position
    (lx, ly, lz), cell = _grid(root, nodes)
    return (lx - position[0], ly - position[1], lz - position[2]), cell


@inline_function
def child_boxes(link, nodes, triangles, frame):
    """Both children's boxes relative to the camera (low and high corner), from the first to the second centre, links.

    It also prefetches the children. `frame`: result of `camera_frame`.
    """
    if nodes.ndim == 2:
        (x0, x1, y0, y1), (wide0, wide1, high0, high1), (z0, z1, deep0, deep1), link0, link1 = read_node(link, nodes)
        prefetch_child(link0, nodes, triangles)
        prefetch_child(link1, nodes, triangles)
        x, y, z = frame
        box0 = around(x0 - x, y0 - y, z0 - z, wide0, high0, deep0)
        box1 = around(x1 - x, y1 - y, z1 - z, wide1, high1, deep1)
        return box0, box1, (x1 - x0, y1 - y0, z1 - z0), link0, link1
    a0, a1, b0, b1 = load4(nodes, link, _XY)
    c0, c1, link0, link1 = load4(nodes, link, _Z)
    prefetch_child(link0, nodes, triangles)
    prefetch_child(link1, nodes, triangles)
    box0, box1 = _box((a0, b0, c0), frame), _box((a1, b1, c1), frame)
    apart = (
        (box1[0] - box0[0]) + (box1[3] - box0[3]), (box1[1] - box0[1]) + (box1[4] - box0[4]),
        (box1[2] - box0[2]) + (box1[5] - box0[5]),
    )  # fmt: skip
    return box0, box1, apart, link0, link1


@inline_function
def _box(words, frame):
    """Low and high corner of a box relative to the camera."""
    (x, y, z), ((lx, ly, lz), (sx, sy, sz)) = words, frame
    return (
        fma(_low(x), sx, lx), fma(_low(y), sy, ly), fma(_low(z), sz, lz),
        fma(_high(x), sx, lx), fma(_high(y), sy, ly), fma(_high(z), sz, lz),
    )  # fmt: skip


@inline_function
def _low(word):
    return np.float32(np.int32(word & _MASK))


@inline_function
def _high(word):
    return np.float32(np.int32(np.int32(word >> np.int32(16)) & _MASK))


@inline_function
def around(x, y, z, wide, high, deep):
    """Low and high corner of a box from its centre and half size."""
    return x - wide, y - high, z - deep, x + wide, y + high, z + deep


@inline_function
def prefetch_child(link, nodes, triangles):
    """Prefetch the target of a link on the CPU: a node, or the first 128 bytes of a leaf's triangles.

    Branch-free, to avoid mispredictions: it also prefetches row 0 of the other array.
    """
    row, first = max(link, np.int32(0)), max(~link, np.int32(0)) >> np.int32(2)
    prefetch(nodes, row, CENTRE_XY)
    if nodes.ndim == 2:
        prefetch(nodes, row, LINKS)  # rows begin 16 bytes after a multiple of 64 in NumPy's allocations
    prefetch(triangles, first, PLANE)
    prefetch(triangles, np.int32(first + np.int32(1)), PLANE_U)
