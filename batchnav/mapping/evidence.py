"""Evidence of objects in the cells of a map: cells gain it where views show the object, and lose it where they do not.

Detectors miss objects, find false ones, and are late. So an object's cell has HITS of its pixels (Chaplot et al.,
"Object goal navigation using goal-oriented semantic exploration", NeurIPS 2020, use the same number). At least a third
of the views that showed the object in it, or looked at it from close by, showed the object.

The evidence of a cell is one i32 word: bits 0 to 11 pixels; bit 12: a pixel of the object is in this view; 13: the view
looks at the cell from close by; 14: the view was counted; 15: the cell holds the object; bits 16 to 19 views with the
object; bits 20 to 24 views without it. Words are 0 until the object is seen in their cell; views without it count from
then on. A view has three passes over its pixels, with `sync_lanes` between: `note_seen` or `note_looked`; `count_view`;
`end_view`.
"""

from __future__ import annotations

import numpy as np
import torch

from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_or

HITS = np.int32(5)
"""Least number of pixels of an object in a cell that holds it."""
NEAR = np.float32(2.5)
"""Depth below which a pixel looks at its cell from close by, metres."""
_PIXELS, _MOST_PIXELS = np.int32(0xFFF), np.int32(2047)
_SEEN, _LOOKED, _COUNTED, _OBJECT = (np.int32(1 << bit) for bit in (12, 13, 14, 15))
_VIEWS, _MISSES = np.int32(16), np.int32(20)
"""Lowest bits of the numbers of views."""
_MOST_VIEWS, _MOST_MISSES = np.int32(15), np.int32(31)
"""Most views that are counted. Beyond one of them both numbers are halved, so that later views count more."""
_SHARE = np.int32(2)
"""Views without the object for each view with it, beyond which the cell does not hold it."""
_CERTAIN, _WITH, _WITHOUT = np.int32(3), np.int32(2), np.int32(3)
"""Least views with the object where a cell surely holds it, since late masks and blobs rarely come twice. These views
are to those without it at least as 3 to 2, since detectors confuse some objects in half of the views."""
_NONE, _ONE = np.int32(0), np.int32(1)


def object_cells(words: torch.Tensor) -> torch.Tensor:
    """bool: cells that hold the object, of their evidence."""
    return words & int(_OBJECT) != 0


@inline_function
def holds_object(word):
    """True for the evidence of a cell that holds the object."""
    return word & _OBJECT != _NONE


@inline_function
def surely_holds_object(word):
    """True for the evidence of a cell that holds the object: several views showed it, and few did not."""
    views, misses = (word >> _VIEWS) & _MOST_VIEWS, (word >> _MISSES) & _MOST_MISSES
    return holds_object(word) and views >= _CERTAIN and _WITH * views >= _WITHOUT * misses


@inline_function
def note_seen(row, cell, words_out):
    """Note a pixel of the object in a cell."""
    if words_out[row, cell] & _PIXELS < _MOST_PIXELS:
        atomic_add(words_out, row, cell, _ONE)
    if words_out[row, cell] & _SEEN == _NONE:
        atomic_or(words_out, row, cell, _SEEN)


@inline_function
def note_looked(row, cell, words_out):
    """Note another pixel, from close by, in a cell in which the object was seen before."""
    word = words_out[row, cell]
    if word != _NONE and word & _LOOKED == _NONE:
        atomic_or(words_out, row, cell, _LOOKED)


@lean_function
def count_view(row, cell, words_out):
    """Count the view for a cell. Returns 1 where the cell begins to hold the object, -1 where it ends, else 0.

    The first lane that comes counts; the others get 0.
    """
    if words_out[row, cell] & (_SEEN | _LOOKED) == _NONE:
        return _NONE
    before = atomic_or(words_out, row, cell, _COUNTED)
    if before & _COUNTED != _NONE:
        return _NONE
    views, misses = (before >> _VIEWS) & _MOST_VIEWS, (before >> _MISSES) & _MOST_MISSES
    if before & _SEEN != _NONE:
        views += _ONE
    else:
        misses += _ONE
    if views > _MOST_VIEWS or misses > _MOST_MISSES:
        views, misses = views >> _ONE, misses >> _ONE
    pixels = min(before & _PIXELS, _MOST_PIXELS)
    after = pixels | _COUNTED | views << _VIEWS | misses << _MISSES
    held, holds = before & _OBJECT != _NONE, pixels >= HITS and _SHARE * views >= misses
    if holds:
        after |= _OBJECT
    words_out[row, cell] = after if views > _NONE else _COUNTED
    return np.int32(holds) - np.int32(held)


@inline_function
def end_view(row, cell, words_out):
    """End the view for a cell. All lanes write the same value."""
    word = words_out[row, cell]
    if word & _COUNTED != _NONE:
        words_out[row, cell] = word & ~_COUNTED


@lean_function
def count_miss(row, cell, words_out):
    """Count a view without the object for one cell, after the view has ended. Returns what `count_view` returns."""
    note_looked(row, cell, words_out)
    change = count_view(row, cell, words_out)
    end_view(row, cell, words_out)
    return change
