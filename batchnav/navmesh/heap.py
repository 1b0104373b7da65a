"""Scratch row of a search: its nodes, its priority queue and its list.

The heap moves entries in the same order as Detour's, since the order of entries with equal totals decides between
equally long corridors. An entry is a pair (total, node); a row holds two. The first place of the first row is empty, so
that the two children of an entry share a row and one load reads both.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh.data import SCENE_ROW, NavMeshData, as_float, as_int, records
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import load1, load4, store1, store2, store4
from batchnav.types import Column

OPEN, CLOSED = 1, 2
_LAST_STAMP = 2**29 - 1
SEARCH_BLOCK = 8
"""Threads per CUDA block for searches and steps: a quarter of a warp, since searching lanes diverge and wait for each
other. With 16,384 searching agents on an H200, whole warps take 1.5 times as long."""


@inline_function
def _start(scratch, row):
    """Start of a row's memory."""
    return row * scratch.row_size


@inline_function
def begin_search(scratch, row):
    """New stamp (times 4), which distinguishes the nodes of this search from older ones."""
    base = _start(scratch, row)
    stamp = as_int(scratch.data[base, 0]) + 1
    if stamp >= _LAST_STAMP:
        for node in range(1, scratch.heap):
            scratch.data[base + node, 3] = np.float32(0.0)
        stamp = 1
    scratch.data[base, 0] = as_float(stamp)
    return np.int32(4 * stamp)


@inline_function
def read_node(node, stamp, scratch, row):
    """(cost, first link, link * 4 + parent's side, state); state is 0 for nodes that this search has not reached."""
    cost, first, link, state = load4(scratch.data, _start(scratch, row) + 1 + node, 0)
    return cost, as_int(first), as_int(link), max(np.int32(as_int(state) - stamp), np.int32(0))


@inline_function
def write_node(node, cost, first, link, state, scratch, row):
    """Store a node; `state` is stamp + OPEN or stamp + CLOSED."""
    values = cost, as_float(first), as_float(link), as_float(state)
    store4(scratch.data, _start(scratch, row) + 1 + node, 0, values)


@inline_function
def write_state(node, state, scratch, row):
    """Store the state of a node."""
    store1(scratch.data, _start(scratch, row) + 1 + node, 3, as_float(state))


@inline_function
def heap_push(size, total, node, scratch, row):
    """Add an entry to a heap of `size` entries; the caller updates the size."""
    _bubble_up(size, total, node, scratch, row)


@inline_function
def heap_decrease(size, total, node, scratch, row):
    """Decrease the total of a node in the heap."""
    for k in range(size):
        if _entry(k, scratch, row)[1] == node:
            _bubble_up(k, total, node, scratch, row)
            return


@inline_function
def heap_least(scratch, row):
    """Lowest total of a non-empty heap."""
    return _entry(0, scratch, row)[0]


@inline_function
def heap_pop(size, scratch, row):
    """Remove the entry with the lowest total: (total, node). `size`: number of entries before the call."""
    heap = _start(scratch, row) + scratch.heap
    _, _, top_total, top = load4(scratch.data, heap, 0)
    size -= 1
    total, node = _entry(size, scratch, row)
    hole, child = 0, 1
    while child < size:
        child_total, child_node, other_total, other_node = load4(scratch.data, heap + hole + 1, 0)
        if child + 1 < size and child_total > other_total:
            child, child_total, child_node = child + 1, other_total, other_node
        _put(hole, child_total, as_int(child_node), scratch, row)
        hole = child
        child = hole * 2 + 1
    _bubble_up(hole, total, node, scratch, row)
    return top_total, as_int(top)


@inline_function
def _bubble_up(hole, total, node, scratch, row):
    while hole > 0:
        parent = (hole - 1) >> 1
        parent_total, parent_node = _entry(parent, scratch, row)
        if not parent_total > total:
            break
        _put(hole, parent_total, parent_node, scratch, row)
        hole = parent
    _put(hole, total, node, scratch, row)


@inline_function
def _entry(k, scratch, row):
    """(total, node) of entry k."""
    odd_total, odd, even_total, even = load4(scratch.data, _place(k, scratch, row), 0)
    if k & 1:
        return odd_total, as_int(odd)
    return even_total, as_int(even)


@inline_function
def _put(k, total, node, scratch, row):
    store2(scratch.data, _place(k, scratch, row), (~k & 1) * 2, (total, as_float(node)))


@inline_function
def _place(k, scratch, row):
    """Memory row of entry k, in 32 bits, the width of integers on the GPU."""
    return _start(scratch, row) + scratch.heap + (np.int32(k + 1) >> 1)


@inline_function
def list_read(k, scratch, row):
    """Entry k of the row's list, int32."""
    return as_int(load1(scratch.data, _start(scratch, row) + scratch.list + (k >> 2), k & 3))


@inline_function
def list_write(k, value, scratch, row):
    """Store entry k of the row's list."""
    store1(scratch.data, _start(scratch, row) + scratch.list + (k >> 2), k & 3, as_float(value))


# Scratch memory of searches on a navmesh, and the limits of a search

NODE_POOL = 2048
"""Largest number of polygons that a path search may reach; beyond it there is no path (habitat-sim's
dtNavMeshQuery)."""
MAX_VISITS = 16 * NODE_POOL
"""Largest number of polygons that a path search may expand, with repetitions; it bounds the time on any mesh."""
MAX_PATH = 256
"""Largest number of polygons and of corners of a path (habitat-sim's buffers)."""


class SearchScratch(NamedTuple, Generic[Column]):
    """Scratch memory of searches: one row per CPU chunk or CUDA thread. `search_scratch` allocates it, zeroed, once.

    Row-major on both devices, since the searches of adjacent threads diverge immediately: a node is one 16-byte access,
    and a search's heap uses few cache lines. Only `navmesh/heap.py` accesses the contents.
    """

    data: Column
    """f32 [rows * row_size, 4]. A row: search counter | nodes (cost, first link, link, state) | heap | list."""
    corners: Column
    """f32 [rows * max_corners (at least 1), 4]: corners of the latest path, x, y, z, unused."""
    row_size: int
    heap: int
    """Start of the heap within a row: pairs (total, node)."""
    list: int
    """Start of the list within a row: the links of a path, last first, or the polygons that a step has reached."""
    max_corners: int


def search_scratch(nodes: int, rows: int, device: torch.device, max_corners: int = 0) -> SearchScratch[torch.Tensor]:
    """Zeroed memory for `rows` concurrent searches over `nodes` nodes. ArgumentError beyond the range of int32."""
    heap, listed, row_size = _search_row(nodes)
    if rows * row_size >= 2**31:
        raise ArgumentError(f"rows: found {rows}, expected at most {2**31 // row_size} for {nodes} polygons per scene")
    memory = torch.zeros((rows * row_size, 4), dtype=torch.float32, device=device)
    corners = torch.zeros((max(rows * max_corners, 1), 4), dtype=torch.float32, device=device)
    return SearchScratch(memory, corners, row_size, heap, listed, max_corners)


def search_bytes(nodes: int) -> int:
    """Size of a row of `search_scratch` without corners, bytes."""
    return _search_row(nodes)[2] * 16


def _search_row(nodes: int) -> tuple[int, int, int]:
    """Start of the heap, start of the list and size of a row, in units of four floats."""
    heap = 1 + nodes
    listed = heap + min(nodes, NODE_POOL) // 2 + 1
    return heap, listed, -(-(listed + MAX_PATH // 4) // 8) * 8


def search_size(data: NavMeshData) -> int:
    """Number of search nodes in the largest scene, for `search_scratch`."""
    scenes = data.scenes.cpu().numpy() if isinstance(data.scenes, torch.Tensor) else np.asarray(data.scenes)
    scenes = records(scenes, SCENE_ROW)
    return int((scenes["polygons"] << scenes["side_shift"]).max(initial=1))
