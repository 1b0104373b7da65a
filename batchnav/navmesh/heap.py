"""The priority queue and the nodes of path searches, in scratch memory; the heap moves entries exactly as Detour's.

The order in which equal totals leave the heap decides between equally long corridors, hence the care. An entry is a
pair (total, node), two to a row; the first row's first place stays empty, so that an entry's two children share a row
and are read at once.
"""

import numpy as np

from batchnav.navmesh.data import as_float, as_int
from batchnav.runtime.intrinsics import load4, store4
from batchnav.runtime.kernels import inline_function

OPEN, CLOSED = 1, 2
_LAST_STAMP = 2**29 - 1


@inline_function
def begin_search(scratch, base, num_nodes):
    """A new stamp (times 4), by which this search's nodes are told from older ones."""
    stamp = as_int(scratch.data[base, 0]) + 1
    if stamp >= _LAST_STAMP:
        for k in range(num_nodes):
            scratch.data[base + 1 + k, 3] = np.float32(0.0)
        stamp = 1
    scratch.data[base, 0] = as_float(stamp)
    return np.int32(4 * stamp)


@inline_function
def read_node(scratch, base, node, stamp):
    """(cost, first link, link * 4 + parent's side, state): state is 0 where this search has not seen the node."""
    cost, first, link, state = load4(scratch.data, base + 1 + node, 0)
    return cost, as_int(first), as_int(link), max(as_int(state) - stamp, 0)


@inline_function
def write_node(scratch, base, node, cost, first, link, state):
    """Store a node; `state` is the stamp plus OPEN or CLOSED."""
    store4(scratch.data, base + 1 + node, 0, (cost, as_float(first), as_float(link), as_float(state)))


@inline_function
def heap_push(scratch, heap, size, total, node):
    """Add an entry as the heap's `size`-th; the caller counts."""
    _bubble_up(scratch, heap, size, total, node)


@inline_function
def heap_decrease(scratch, heap, size, total, node):
    """Lower the total of a node that is in the heap."""
    for k in range(size):
        if _node(scratch, heap, k) == node:
            _bubble_up(scratch, heap, k, total, node)
            return


@inline_function
def heap_pop(scratch, heap, size):
    """(total, node) of the lowest entry; `size` is the number of entries before."""
    _, _, top_total, top = load4(scratch.data, heap, 0)
    size -= 1
    total, node = _total(scratch, heap, size), _node(scratch, heap, size)
    hole, child = 0, 1
    while child < size:
        child_total, child_node, other_total, other_node = load4(scratch.data, heap + hole + 1, 0)
        if child + 1 < size and child_total > other_total:
            child, child_total, child_node = child + 1, other_total, other_node
        _put(scratch, heap, hole, child_total, as_int(child_node))
        hole = child
        child = hole * 2 + 1
    _bubble_up(scratch, heap, hole, total, node)
    return top_total, as_int(top)


@inline_function
def _bubble_up(scratch, heap, hole, total, node):
    while hole > 0:
        parent = (hole - 1) >> 1
        parent_total = _total(scratch, heap, parent)
        if not parent_total > total:
            break
        _put(scratch, heap, hole, parent_total, _node(scratch, heap, parent))
        hole = parent
    _put(scratch, heap, hole, total, node)


@inline_function
def _total(scratch, heap, k):
    return scratch.data[heap + ((k + 1) >> 1), (~k & 1) * 2]


@inline_function
def _node(scratch, heap, k):
    return as_int(scratch.data[heap + ((k + 1) >> 1), (~k & 1) * 2 + 1])


@inline_function
def _put(scratch, heap, k, total, node):
    scratch.data[heap + ((k + 1) >> 1), (~k & 1) * 2] = total
    scratch.data[heap + ((k + 1) >> 1), (~k & 1) * 2 + 1] = as_float(node)
