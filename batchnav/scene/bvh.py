"""Bounding volume hierarchy (BVH) of a mesh's triangles, packed for 16-byte loads.

Method: binned surface-area heuristic (SAH) of Wald, "On fast construction of SAH-based bounding volume hierarchies"
(IEEE Symposium on Interactive Ray Tracing 2007).

A node is a row of 16 float32 with the boxes of children 0 and 1 (centres and half sizes) and links to the children. A
triangle is a row of 12 float32. Triangles are in leaf order.

    node      centre x0 x1 y0 y1 | half x0 x1 y0 y1 | centre z0 z1 half z0 z1 | link 0, link 1, unused
    triangle  plane 0 (x y z d) | plane 1 (x y z d) | plane 2 (x y z d): see geometry/triangle.py

A link is an int32 stored as bits: the child's row if >= 0, else the leaf ~(first_triangle * 4 + count - 1). Only
`read_node`, `read_leaf`, `moved_nodes`, `pack_tree`, `unpack_tree` and `scene/small_nodes.py` depend on this format.

A tree is packed as one byte for each child, in depth-first order: 0 for a node, 1 to 4 for a leaf of as many triangles.
Boxes and planes follow from the mesh: unpacking takes a tenth of the time of building.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import prange

from batchnav.geometry.triangle import triangle_planes
from batchnav.runtime.kernels.background import releases_lock
from batchnav.runtime.kernels.decorators import (
    cpu_function,
    cpu_kernel,
    device_function,
    inline_function,
    lean_function,
)
from batchnav.runtime.kernels.intrinsics import float_bits, load4
from batchnav.types import TriangleMesh

MAX_LEAF = 4
MAX_LEVELS = 32
"""Largest number of interior nodes on a path from the root, and size of a traversal's stack, which defers at most one
child per level. Invariant: a node with L levels left below it has at most MAX_LEAF * 2**L triangles. The root satisfies
it for any mesh that fits in memory; a SAH split that would violate it is replaced by a median split."""

_MOST_BINS, _FEWEST_BINS, _TRIANGLES_PER_BIN = 128, 8, 2
"""Number of bins by number of triangles: with many triangles more bins cost little and find gaps that 16 bins miss."""
_IN_PARTS, _NUM_PARTS = 200_000, 64
"""Number of triangles from which a tree is built in parts, and number of parts."""
_FLAT = np.float32(1e-30)
"""Smallest extent of centres that is binned; the reciprocal of a smaller extent may not be finite."""
_TRIANGLE_COST = np.float32(0.7)
"""Cost of a ray-triangle test relative to visiting a node (two boxes)."""
_SLACK = 1e-6
"""Boxes and triangles are extended by this fraction of the largest coordinate: about 16 float32 roundings."""


class BVH(NamedTuple):
    """BVH of one mesh. Row 0 is the root, always an interior node."""

    nodes: np.ndarray
    """f32 [M, 16]: nodes."""
    triangles: np.ndarray
    """f32 [F, 12]: triangles in leaf order."""
    order: np.ndarray
    """i32 [F]: face of the mesh for each row of `triangles`."""


NODE_WIDTH, TRIANGLE_WIDTH = 16, 12
"""Float32 per row."""
CENTRE_XY, HALF_XY, CENTRE_HALF_Z, LINKS = np.int32(0), np.int32(4), np.int32(8), np.int32(12)
"""First columns of the four groups of four in a node's row."""


@inline_function
def read_node(row, nodes):
    """(centre x0 x1 y0 y1), (half x0 x1 y0 y1), (centre z0 z1, half z0 z1), link 0, link 1 of a node."""
    centre_xy, half_xy = load4(nodes, row, CENTRE_XY), load4(nodes, row, HALF_XY)
    z = load4(nodes, row, CENTRE_HALF_Z)
    bits0, bits1, _, _ = load4(nodes, row, LINKS)
    return centre_xy, half_xy, z, float_bits(bits0), float_bits(bits1)


@inline_function
def read_leaf(link):
    """First triangle and number of triangles of a leaf, from its (negative) link."""
    leaf = ~link
    return leaf >> np.int32(2), np.int32((leaf & np.int32(3)) + np.int32(1))


def moved_nodes(nodes: np.ndarray, first_node: int, first_triangle: int) -> np.ndarray:
    """A copy of a BVH's nodes for concatenated arrays, where its nodes and triangles begin at these rows."""
    nodes = nodes.copy()
    links = nodes.view(np.int32)[:, LINKS : LINKS + 2]
    links += np.where(links >= 0, first_node, -4 * first_triangle).astype(np.int32)
    return nodes


class _Scratch(NamedTuple):
    """Scratch memory of a build."""

    bins: np.ndarray
    """f32 [3, bins, 7]: box and number of triangles of each bin on each axis."""
    sides: np.ndarray
    """f32 [2, 6]: boxes of a node's two children."""
    right_cost: np.ndarray
    """f32 [bins]."""
    range: np.ndarray
    """f32 [3, 3]: smallest centre, largest centre and bins per metre on each axis."""


def build_bvh(mesh: TriangleMesh) -> BVH:
    """Build the BVH, about 2 s of one core for a million triangles; large trees in parts, on all threads."""
    corners, slack = mesh.vertices[mesh.faces], slack_of(float(np.abs(mesh.vertices[mesh.faces.ravel()]).max()))
    boxes = np.empty((len(corners), 6), np.float32)
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]  # faster than a reduction over three corners
    np.minimum(np.minimum(a, b), c, out=boxes[:, :3])
    np.maximum(np.maximum(a, b), c, out=boxes[:, 3:])
    order = np.arange(len(corners), dtype=np.int32)
    nodes = np.zeros((max(1, len(corners) - 1), 16), np.float32)
    build = _build if len(corners) < _IN_PARTS else _build_large
    num_nodes = build(np.float32(slack), boxes, order, nodes, nodes.view(np.int32))
    triangles = np.empty((len(corners), 12), np.float32)
    _pack_triangles(corners, order, np.full(len(order), slack), triangles)
    return BVH(nodes[:num_nodes].copy(), triangles, order)


def _build_large(
    slack: np.float32, boxes: np.ndarray, order: np.ndarray, nodes_out: np.ndarray, links_out: np.ndarray
) -> int:
    """`_build` with the same result, on all threads."""
    parts, counts = np.zeros((_NUM_PARTS, 3), np.int64), np.zeros(_NUM_PARTS, np.int64)
    tree, top = np.zeros((_NUM_PARTS, 2), np.int64), np.zeros((_NUM_PARTS, NODE_WIDTH), np.float32)
    parts = parts[: _split_top(_NUM_PARTS, slack, boxes, order, parts, tree, top)]
    nodes = np.zeros((len(order), NODE_WIDTH), np.float32)
    _build_parts(parts, slack, boxes, order, nodes, nodes.view(np.int32), counts)
    return _join_parts(tree, parts, counts, top, nodes, nodes.view(np.int32), nodes_out, links_out)


def build_bvhs(meshes: Sequence[TriangleMesh]) -> list[BVH]:
    """`build_bvh` of several small meshes, a thread for each: the same trees bit for bit."""
    ends = np.cumsum([0, *(len(mesh.faces) for mesh in meshes)])
    corners = np.concatenate([np.zeros((0, 3, 3), np.float32), *(mesh.vertices[mesh.faces] for mesh in meshes)])
    bounds = list(itertools.pairwise(ends.tolist()))
    slack = np.array([slack_of(float(np.abs(corners[a:b]).max())) for a, b in bounds])
    boxes, order = np.concatenate([corners.min(1), corners.max(1)], 1), np.empty(len(corners), np.int32)
    nodes, triangles = np.zeros((len(corners), 16), np.float32), np.empty((len(corners), 12), np.float32)
    sizes = np.zeros(len(meshes), np.int64)
    if len(corners):
        _build_all(ends, slack.astype(np.float32), boxes, order, nodes, nodes.view(np.int32), sizes)
    counts = np.diff(ends)
    rows = order + np.repeat(ends[:-1], counts).astype(np.int32)
    _pack_triangles(corners, rows, np.repeat(slack, counts), triangles)  # one loop: each waits for all threads
    return [
        BVH(nodes[a : a + size], triangles[a:b], order[a:b])
        for (a, b), size in zip(bounds, sizes.tolist(), strict=True)
    ]


@cpu_kernel
def _build_all(ends, slack, boxes_out, order_out, nodes_out, links_out, sizes_out):
    """Write the trees of meshes whose triangles begin and end at `ends`, and their numbers of nodes."""
    for k in prange(len(sizes_out)):
        m = np.int64(k)
        a, b = ends[m], ends[m + 1]
        order = order_out[a:b]
        for i in range(b - a):
            order[i] = i
        sizes_out[m] = _build(slack[m], boxes_out[a:b], order, nodes_out[a:b], links_out[a:b])


def pack_tree(tree: BVH) -> np.ndarray:
    """u8 [2 M]: one byte for each child of a tree that `build_bvh` built of more than one triangle."""
    links = tree.nodes.view(np.int32)[:, LINKS : LINKS + 2]
    return np.where(links >= 0, 0, (~links & 3) + 1).astype(np.uint8)[*_child_order(links)]


def _child_order(links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and side of each child in depth-first order."""
    order = np.empty((2, 2 * len(links)), np.int64)
    _order_children(links, order)
    return order[0], order[1]


@cpu_function
def _order_children(links, order_out):
    """Write row and side i64 [2, 2 M] of each child in depth-first order."""
    stack, waiting = np.empty(MAX_LEVELS + 2, np.int64), 0
    row, side = np.int64(0), np.int64(0)
    for k in range(order_out.shape[1]):
        order_out[0, k], order_out[1, k] = row, side
        link = np.int64(links[row, side])
        if side == 0:
            stack[waiting] = row
            waiting += 1
        if link >= 0:
            row, side = link, np.int64(0)
        elif waiting:
            waiting -= 1
            row, side = stack[waiting], np.int64(1)


def unpack_tree(packed: np.ndarray, mesh: TriangleMesh, order: np.ndarray) -> BVH | None:
    """The tree of a mesh from `pack_tree`'s bytes and its `order`, bit for bit; None where the bytes are not valid.

    Faces and order must be valid.
    """
    count = len(order)
    if len(packed) % 2 or len(packed) > 2 * count:
        return None
    nodes = np.zeros((max(1, len(packed) // 2), 16), np.float32)
    if not _unpack_links(packed, count, nodes.view(np.int32)):
        return None
    corners = mesh.vertices[mesh.faces]
    slack = slack_of(float(np.abs(corners).max()))
    _unpack_boxes(corners, order, np.float32(slack), np.empty((len(nodes), 6), np.float32), nodes)
    triangles = np.empty((count, 12), np.float32)
    _pack_triangles(corners, order, np.full(count, slack), triangles)
    return BVH(nodes, triangles, order)


@releases_lock
@cpu_function
def _unpack_links(packed, count, links_out):
    """Write the links of all nodes. False where the bytes are not those of a tree of `count` triangles."""
    stack, waiting, rows, first = np.empty(MAX_LEVELS + 1, np.int64), 0, np.int64(1), np.int64(0)
    row, side, k = np.int64(0), np.int64(0), np.int64(0)
    while k < len(packed):
        size = np.int64(packed[k])
        if size > 4 or row < 0 or (size == 0 and rows == len(links_out)):
            return False
        if side == 0:
            if waiting == MAX_LEVELS:
                return False
            stack[waiting] = row
            waiting += 1
        if size == 0:
            links_out[row, 12 + side] = rows
            row, side, rows = rows, np.int64(0), rows + 1
        else:
            links_out[row, 12 + side] = ~np.int32(first * 4 + size - 1)
            first += size
            row, side = np.int64(-1), np.int64(1)
            if waiting:
                waiting -= 1
                row = stack[waiting]
        k += 1
    return len(packed) > 0 and row < 0 and first == count and rows == len(links_out)


@releases_lock
@cpu_function
def _unpack_boxes(corners, order, slack, boxes_out, nodes_out):
    """Write the boxes of all nodes, from the last row on. `boxes_out`: scratch f32 [M, 6]."""
    sides, links = np.empty((2, 6), np.float32), nodes_out.view(np.int32)
    for row in range(len(nodes_out) - 1, -1, -1):
        for side in range(2):
            link = np.int64(links[row, 12 + side])
            _clear(side, sides)
            if link >= 0:
                _grow(side, link, boxes_out, sides)
                continue
            first = ~link >> 2
            for i in range(first, first + (~link & 3) + 1):
                for k in range(3):
                    for corner in range(3):
                        value = corners[order[i], corner, k]
                        sides[side, k], sides[side, k + 3] = min(sides[side, k], value), max(sides[side, k + 3], value)
        _set_children(row, sides, 0, 1, slack, nodes_out)
        _union(row, 0, 2, sides, boxes_out)


def slack_of(largest: float) -> float:
    """Length by which boxes and triangles are extended, metres; `largest`: largest coordinate of a corner."""
    return _SLACK * max(largest, 1e-3)


@releases_lock
@cpu_kernel
def _pack_triangles(corners, order, slack, triangles_out):
    """Write the planes f32 [F, 12] of triangles f32 [F, 3, 3], in leaf order; slack: f64 [F], metres."""
    for i in prange(len(order)):
        t = corners[order[i]]
        planes = triangle_planes(
            (np.float64(t[0, 0]), np.float64(t[0, 1]), np.float64(t[0, 2])),
            (np.float64(t[1, 0]), np.float64(t[1, 1]), np.float64(t[1, 2])),
            (np.float64(t[2, 0]), np.float64(t[2, 1]), np.float64(t[2, 2])), slack[i],
        )  # fmt: skip
        for p in range(3):
            for k in range(4):
                triangles_out[i, 4 * p + k] = planes[p][k]


@cpu_kernel
def _build_parts(parts, slack, boxes_out, order_out, nodes_out, links_out, counts_out):
    """Build the subtrees of ranges i64 [P, 3] (begin, end, interior levels left); each has its rows from `begin` on.

    A subtree's links count from its own first row. `counts_out`: number of its nodes, 0 for a leaf.
    """
    for i in prange(len(parts)):
        begin, end, levels = parts[i, 0], parts[i, 1], parts[i, 2]
        nodes, links = nodes_out[begin:end], links_out[begin:end]
        counts_out[i] = _build_range(begin, end, levels, False, slack, boxes_out, order_out, nodes, links)


@cpu_function
def _split_top(num_parts, slack, boxes_out, order_out, parts_out, tree_out, nodes_out):
    """Split the largest range until there are `num_parts`, or all may be leaves.

    Returns the number of parts. `tree_out`, i64 [P, 2]: their children, ~part for a range. `parts_out`, i64
    [P, 3]: see `_build_parts`. `nodes_out`, f32 [P, 16]: boxes of the children.
    """
    scratch = _scratch()
    owner, rows, count = np.zeros((num_parts, 2), np.int64), 0, 1
    parts_out[0, 0], parts_out[0, 1], parts_out[0, 2] = 0, len(order_out), MAX_LEVELS
    while count < num_parts:
        k = np.argmax(parts_out[:count, 1] - parts_out[:count, 0])
        begin, end, levels = parts_out[k, 0], parts_out[k, 1], parts_out[k, 2]
        if end - begin <= MAX_LEAF:
            break
        middle = _split(begin, end, levels, rows == 0, scratch, boxes_out, order_out)
        _union(0, begin, middle, boxes_out, scratch.sides)
        _union(1, middle, end, boxes_out, scratch.sides)
        _set_children(rows, scratch.sides, 0, 1, slack, nodes_out)
        if rows:
            tree_out[owner[k, 0], owner[k, 1]] = rows
        tree_out[rows, 0], tree_out[rows, 1] = ~k, ~count
        parts_out[k, 1], parts_out[k, 2] = middle, levels - 1
        parts_out[count, 0], parts_out[count, 1], parts_out[count, 2] = middle, end, levels - 1
        owner[k, 0], owner[k, 1], owner[count, 0], owner[count, 1] = rows, 0, rows, 1
        rows, count = rows + 1, count + 1
    return count


@cpu_function
def _join_parts(tree, parts, counts, top, nodes, links, nodes_out, links_out):
    """Write the nodes of the top and of all parts in depth-first order. Returns their number."""
    waiting = np.empty((MAX_LEVELS + 2, 3), np.int64)  # child of `tree`, row of its parent, side
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, -1, 0
    depth, rows = 1, np.int64(0)
    while depth:
        depth -= 1
        child, parent, side = waiting[depth, 0], waiting[depth, 1], waiting[depth, 2]
        if parent >= 0:
            links_out[parent, 12 + side] = rows
        if child >= 0:
            nodes_out[rows] = top[child]
            for other in range(1, -1, -1):  # the first child comes next
                waiting[depth, 0], waiting[depth, 1], waiting[depth, 2] = tree[child, other], rows, other
                depth += 1
            rows += 1
            continue
        begin, end = parts[~child, 0], parts[~child, 1]
        if counts[~child] == 0:
            links_out[parent, 12 + side] = ~np.int32(begin * 4 + (end - begin - 1))
        for k in range(counts[~child]):
            nodes_out[rows + k] = nodes[begin + k]
            for other in range(12, 14):
                link = links[begin + k, other]
                links_out[rows + k, other] = link + rows if link >= 0 else link
        rows += counts[~child]
    return rows


@cpu_function
def _build(slack, boxes_out, order_out, nodes_out, links_out):
    """Write nodes in depth-first order, and sort boxes and order by leaf. Returns the number of nodes."""
    return _build_range(0, len(order_out), MAX_LEVELS, True, slack, boxes_out, order_out, nodes_out, links_out)


@device_function
def _scratch():
    """Scratch memory for `_split`."""
    return _Scratch(
        np.empty((3, _MOST_BINS, 7), np.float32), np.empty((2, 6), np.float32), np.empty(_MOST_BINS, np.float32),
        np.empty((3, 3), np.float32),
    )  # fmt: skip


@device_function
def _build_range(first, last, levels, is_root, slack, boxes_out, order_out, nodes_out, links_out):
    """Write the nodes of the triangles from `first` to `last`, excluded, in depth-first order. Returns their number.

    The root of a tree is an interior node; a subtree may be a leaf, without nodes.
    """
    scratch, begin, end, levels = _scratch(), np.int64(first), np.int64(last), np.int64(levels)
    if is_root and end - begin == 1:  # both children are the same leaf
        _set_children(0, boxes_out, begin, begin, slack, nodes_out)
        links_out[0, 12] = links_out[0, 13] = ~np.int32(begin * 4)
        return 1
    # Tasks: begin, end, remaining interior levels including this one, parent's row, side. At most one per level waits.
    tasks = np.empty((MAX_LEVELS + 2, 5), np.int64)
    parent, side, waiting, rows = np.int64(-1), 0, 0, np.int64(0)
    while True:
        middle = _split(begin, end, levels, is_root and parent < 0, scratch, boxes_out, order_out)
        if middle < 0 and parent < 0:
            return 0
        if middle < 0:
            links_out[parent, 12 + side] = ~np.int32(begin * 4 + (end - begin - 1))
        else:
            if parent >= 0:
                links_out[parent, 12 + side] = rows
            _union(0, begin, middle, boxes_out, scratch.sides)
            _union(1, middle, end, boxes_out, scratch.sides)
            _set_children(rows, scratch.sides, 0, 1, slack, nodes_out)
            for k, value in enumerate((middle, end, levels - 1, rows, 1)):
                tasks[waiting, k] = value
            waiting += 1
            end, levels, parent, side = middle, levels - 1, rows, 0
            rows += 1
            continue
        if waiting == 0:
            return rows
        waiting -= 1
        begin, end, levels = tasks[waiting, 0], tasks[waiting, 1], tasks[waiting, 2]
        parent, side = tasks[waiting, 3], tasks[waiting, 4]


@lean_function
def _set_children(row, boxes, first, second, slack, nodes_out):
    """Write two boxes, extended by `slack`, as the children of a node."""
    for side, child in enumerate((first, second)):
        for axis in range(3):
            low, high = boxes[child, axis] - slack, boxes[child, axis + 3] + slack
            centre = low + (high - low) * np.float32(0.5)
            half = max(high - centre, centre - low)
            column = 8 if axis == 2 else 2 * axis
            nodes_out[row, column + side] = centre
            nodes_out[row, column + (2 if axis == 2 else 4) + side] = half


@lean_function
def _clear(row, boxes_out):
    """Make a box empty."""
    for k in range(3):
        boxes_out[row, k] = np.inf
        boxes_out[row, k + 3] = -np.inf


@lean_function
def _grow(row, other, others, boxes_out):
    """Extend a box to contain box `other` of `others`."""
    for k in range(3):
        boxes_out[row, k] = min(boxes_out[row, k], others[other, k])
        boxes_out[row, k + 3] = max(boxes_out[row, k + 3], others[other, k + 3])


@lean_function
def _union(row, begin, end, boxes, boxes_out):
    """Write the box around the boxes [begin, end)."""
    _clear(row, boxes_out)
    for i in range(begin, end):
        _grow(row, i, boxes, boxes_out)


@lean_function
def _area(row, boxes):
    """Half the surface area of a box."""
    x, y, z = boxes[row, 3] - boxes[row, 0], boxes[row, 4] - boxes[row, 1], boxes[row, 5] - boxes[row, 2]
    return x * y + y * z + z * x


@lean_function
def _bin(i, axis, boxes, low, scale, num_bins):
    """Bin of a triangle, from twice the centre of its box."""
    return min(num_bins - 1, int((boxes[i, axis] + boxes[i, axis + 3] - low) * scale))


@lean_function
def _split(begin, end, levels, must_split, scratch, boxes_out, order_out):
    """Reorder [begin, end) around the best split and return its position; -1 if a leaf is better."""
    count = end - begin
    if count == 1 or levels == 0:
        return -1
    low, high, scale = scratch.range
    num_bins = min(_MOST_BINS, max(_FEWEST_BINS, count // _TRIANGLES_PER_BIN))
    widest = np.int64(0)
    for axis in range(3):
        low[axis], high[axis], scale[axis] = np.inf, -np.inf, 0.0
        for i in range(begin, end):
            centre = boxes_out[i, axis] + boxes_out[i, axis + 3]
            low[axis] = min(low[axis], centre)
            high[axis] = max(high[axis], centre)
        if high[axis] - low[axis] > _FLAT:
            scale[axis] = np.float32(num_bins) / (high[axis] - low[axis])
        if high[axis] - low[axis] > high[widest] - low[widest]:
            widest = axis
    _fill_bins(begin, end, boxes_out, low, scale, num_bins, scratch.bins)
    best_axis, best_bin, best_cost = _cheapest(scale, count, num_bins, scratch)
    if count <= MAX_LEAF and not must_split:
        _union(0, begin, end, boxes_out, scratch.sides)
        area = _area(0, scratch.sides)
        if best_axis < 0 or best_cost * _TRIANGLE_COST + area >= count * _TRIANGLE_COST * area:
            return -1
    middle = begin
    if best_axis >= 0:
        least, per_metre = low[best_axis], scale[best_axis]
        middle = _partition(begin, end, best_axis, best_bin, least, per_metre, num_bins, boxes_out, order_out)
    capacity = MAX_LEAF << min(levels - 1, 40)  # of each child's subtree
    if middle == begin or middle == end or max(middle - begin, end - middle) > capacity:
        middle = (begin + end) // 2
        _select(begin, end, middle, widest, boxes_out, order_out)
    return middle


@lean_function
def _fill_bins(begin, end, boxes, low, scale, num_bins, bins_out):
    """Bounds and number of triangles of each bin on all three axes."""
    for axis in range(3):
        for j in range(num_bins):
            _clear(j, bins_out[axis])
            bins_out[axis, j, 6] = 0.0
    for i in range(begin, end):
        for axis in range(3):
            j = _bin(i, axis, boxes, low[axis], scale[axis], num_bins)
            _grow(j, i, boxes, bins_out[axis])
            bins_out[axis, j, 6] += np.float32(1.0)


@lean_function
def _cheapest(scale, count, num_bins, scratch):
    """Axis, first bin of the right side, and cost (sum of area * count over both sides) of the best split."""
    box, right_cost = scratch.sides, scratch.right_cost
    best_axis, best_bin, best_cost = -1, -1, np.float32(np.inf)
    for axis in range(3):
        if scale[axis] == 0:
            continue
        bins = scratch.bins[axis]
        _clear(0, box)
        number = np.float32(0.0)
        for j in range(num_bins - 1, 0, -1):
            number += bins[j, 6]
            _grow(0, j, bins, box)
            right_cost[j] = _area(0, box) * number if number > 0 else np.float32(0.0)
        _clear(0, box)
        number = np.float32(0.0)
        for j in range(num_bins - 1):
            number += bins[j, 6]
            _grow(0, j, bins, box)
            if 0 < number < count:
                cost = _area(0, box) * number + right_cost[j + 1]
                if cost < best_cost:
                    best_axis, best_bin, best_cost = axis, j + 1, cost
    return best_axis, best_bin, best_cost


@lean_function
def _swap(i, j, boxes_out, order_out):
    order_out[i], order_out[j] = order_out[j], order_out[i]
    for k in range(6):
        boxes_out[i, k], boxes_out[j, k] = boxes_out[j, k], boxes_out[i, k]


@lean_function
def _partition(begin, end, axis, first_right, low, scale, num_bins, boxes_out, order_out):
    """Move triangles of bins below `first_right` to the front. Returns the start of the others."""
    i, j = begin, end - 1
    while i <= j:
        if _bin(i, axis, boxes_out, low, scale, num_bins) < first_right:
            i += 1
        else:
            _swap(i, j, boxes_out, order_out)
            j -= 1
    return i


@lean_function
def _select(begin, end, middle, axis, boxes_out, order_out):
    """Reorder so that no centre in [begin, middle) exceeds one in [middle, end) (Hoare's quickselect)."""
    last = end - 1
    while begin < last:
        pivot = boxes_out[(begin + last) // 2, axis] + boxes_out[(begin + last) // 2, axis + 3]
        i, j = begin, last
        while i <= j:
            while boxes_out[i, axis] + boxes_out[i, axis + 3] < pivot:
                i += 1
            while boxes_out[j, axis] + boxes_out[j, axis + 3] > pivot:
                j -= 1
            if i <= j:
                _swap(i, j, boxes_out, order_out)
                i, j = i + 1, j - 1
        if middle <= j:
            last = j
        elif middle >= i:
            begin = i
        else:
            return
