"""A search's row of scratch memory: its nodes, its priority queue, its list. The heap moves entries as Detour's does.

The order in which equal totals leave the heap decides between equally long corridors, hence the care. An entry is a
pair (total, node), two to a row; the first row's first place stays empty, so that an entry's two children share a row
and are read at once.
"""

import numpy as np

from batchnav.navmesh.data import as_float, as_int
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import load1, load4, store1, store2, store4

OPEN, CLOSED = 1, 2
_LAST_STAMP = 2**29 - 1
SEARCH_BLOCK = 8
"""CUDA: threads of a block where each searches or walks. A quarter of a warp, since lanes that search go separate ways
and wait for one another: 16,384 agents of which nearly all search took an H200 1.5 times as long in whole warps."""


@inline_function
def _start(scratch, row):
    """Where a row's memory begins."""
    return row * scratch.row_size


@inline_function
def begin_search(scratch, row):
    """A new stamp (times 4), by which this search's nodes are told from older ones."""
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
    """(cost, first link, link * 4 + parent's side, state): state is 0 where this search has not seen the node."""
    cost, first, link, state = load4(scratch.data, _start(scratch, row) + 1 + node, 0)
    return cost, as_int(first), as_int(link), max(np.int32(as_int(state) - stamp), np.int32(0))


@inline_function
def write_node(node, cost, first, link, state, scratch, row):
    """Store a node; `state` is the stamp plus OPEN or CLOSED."""
    values = cost, as_float(first), as_float(link), as_float(state)
    store4(scratch.data, _start(scratch, row) + 1 + node, 0, values)


@inline_function
def write_state(node, state, scratch, row):
    """Store a node's state alone."""
    store1(scratch.data, _start(scratch, row) + 1 + node, 3, as_float(state))


@inline_function
def heap_push(size, total, node, scratch, row):
    """Add an entry as the heap's `size`-th; the caller counts."""
    _bubble_up(size, total, node, scratch, row)


@inline_function
def heap_decrease(size, total, node, scratch, row):
    """Lower the total of a node that is in the heap."""
    for k in range(size):
        if _entry(k, scratch, row)[1] == node:
            _bubble_up(k, total, node, scratch, row)
            return


@inline_function
def heap_least(scratch, row):
    """The lowest total of a heap that is not empty."""
    return _entry(0, scratch, row)[0]


@inline_function
def heap_pop(size, scratch, row):
    """(total, node) of the lowest entry; `size` is the number of entries before."""
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
    """The row of memory that holds entry k; in 32 bits, since those of the GPU's integers are."""
    return _start(scratch, row) + scratch.heap + (np.int32(k + 1) >> 1)


@inline_function
def list_read(k, scratch, row):
    """Entry k of the row's list, an int32."""
    return as_int(load1(scratch.data, _start(scratch, row) + scratch.list + (k >> 2), k & 3))


@inline_function
def list_write(k, value, scratch, row):
    """Store entry k of the row's list."""
    store1(scratch.data, _start(scratch, row) + scratch.list + (k >> 2), k & 3, as_float(value))
