"""The search for the shortest way over a map of the ground, for one agent: tolls, and what spreads when.

What nobody has seen is taken for free ("freespace assumption": Zelinsky, "A mobile robot exploration algorithm", 1992;
Koenig and Smirnov, "Sensor-based planning with the freespace assumption", 1997), or for as dear as
`mapping/predictor.py` guesses. The search goes from the goal on in rounds, eight neighbours each: the cells that
came nearer in one spread in the next, which is Moore's algorithm ("The shortest path through a maze", 1959) with
weights. Cells that are more than a stride farther from the goal than those that spread come later, so that few spread
twice ("near and far": Davidson, Baxter, Garland and Owens, "Work-efficient parallel GPU methods for single-source
shortest paths", IPDPS 2014). As in A*, cells are left out through which the way would be longer than a bound: what it
was a step ago and a little more, and as long as that does not do, another search with one that is farther off, though
no farther than the last way is today. Times are whole numbers, so that every order of work and every device has the
same, and no bound changes them.

Several lanes may work for an agent: each function is done by all of them before the next one begins, and those that
take no lane are done by one. `find_ways` waits for all lanes itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from batchnav.mapping.integrate import CELLS, LONGEST, OBSTACLE, SHARED, SIDE, WALKED
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_min, atomic_or, sync_lanes

PARTS = 4
"""Of which tolls are whole numbers: guesses are finer than what is known."""
_STRAIGHT, _DIAGONAL = np.int32(5), np.int32(7)
"""The time from a cell to its neighbour is this, times what both cost."""
FREE, _BESIDE, _OBSTACLE = np.int32(2 * PARTS), np.int32(PARTS), np.int32(1000 * PARTS)
"""What a free cell costs; what it costs more beside an obstacle, and twice that where the agent stood in one; and what
an obstacle costs, as much again for each time that it stopped the agent once more. None is impassable: a passage can be
too narrow for the cells. But a way that is up to a hundred metres longer leads around a wall, not through it."""
_STOPPED = np.int32(10) * FREE
"""What walked ground where something stands costs more for each time that this stopped the agent: as much as ten free
cells, so that it goes another way, and at last as it came."""
_BEHIND = np.int32(2) * _OBSTACLE
"""What is added for a cell that was never seen next to one where something stands: it lies behind that."""
SIDE_OF_FREE, _DIAGONAL_OF_FREE = np.int32(2) * FREE * _STRAIGHT, np.int32(2) * FREE * _DIAGONAL
"""Times from a free cell to such neighbours."""
_SLACK, _MORE, _MOST = np.int32(3) * SIDE_OF_FREE, np.int32(8), np.int32(50) * SIDE_OF_FREE
"""By how much the way may become longer in a step before there is another search, how many times as much then, and
from how much on it has no bound but the last way: the third. On a GPU all agents wait for the one that searches
longest, and more searches make that one longer."""
_STRIDE = np.int32(20) * SIDE_OF_FREE
"""How much farther off than the nearest cell that has yet to spread those may be that spread with it: twenty free
cells."""
NEVER = np.int32(2**30)
NOWHERE = np.int32(CELLS)
"""In place of an agent's cell, for a search with the bound NEVER that is to reach all cells."""
_FIRST_LIMIT = _STRIDE
WORDS, COUNTS = CELLS // 32, 7
_LATER = np.int32(2)
"""Place in `Search.waiting` after those of the two lines."""
BEND, AT, BROKEN, TODAY, _NEXT = 2, 3, 4, 5, 6
"""Places in `Search.count` after those of the two lines."""


class Search(NamedTuple):
    """Memory for searches, a row each; what they leave there is nobody's business."""

    time: torch.Tensor
    """i32 [R, CELLS + 1]: from there to the goal; the last, NOWHERE, is never reached."""
    line: torch.Tensor
    """i32 [R, 2 * CELLS]: the cells that spread in this round, and those in the next, in turn."""
    waiting: torch.Tensor
    """i32 [R, 3 * WORDS]: a bit for each cell that is in such a line; and for those that come later."""
    count: torch.Tensor  # type: ignore[assignment]  # hides what tuples have by this name
    """i32 [R, COUNTS]: how many there are in both; how many of the way's next cells lie in a straight line; where on
    the kept way the agent is, LONGEST where it is not; whether that became dearer; how long its rest is today; and the
    time of the nearest cell that comes later."""

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> Search:
        """Room for so many searches."""
        sizes = CELLS + 1, 2 * CELLS, 3 * WORDS, COUNTS
        time, line, waiting, count = (torch.zeros(rows, size, dtype=torch.int32, device=device) for size in sizes)
        return cls(time, line, waiting, count)


@inline_function
def toll(i, cell, known):
    """What a cell costs."""
    stands, more = known.stands[i, cell], np.int32(0)
    times = np.int32(stands) - np.int32(OBSTACLE) + np.int32(1)
    if times > 0:
        return _OBSTACLE * times
    if stands == SHARED:
        more = max(np.int32(known.ground[i, cell]) - np.int32(WALKED), np.int32(0)) * _STOPPED
    elif len(known.anticipated) > 0 and known.ground[i, cell] == 0:
        more = np.int32(known.anticipated[i, cell])
    return FREE + _BESIDE * np.int32(stands) + more


@lean_function
def clear_search(lane, lanes, row, search_out):
    """No cell has been reached, and none is in line; every lane does its share."""
    for cell in range(lane, CELLS + 1, lanes):
        search_out.time[row, cell] = NEVER
    clear_lines(lane, lanes, row, search_out)


@lean_function
def clear_lines(lane, lanes, row, search_out):
    """No cell is in line; every lane does its share."""
    for word in range(lane, 3 * WORDS, lanes):
        search_out.waiting[row, word] = np.int32(0)
    for k in range(lane, 2, lanes):
        search_out.count[row, k] = np.int32(0)


@lean_function
def begin_search(row, here, there, search_out):
    """Put the goal's cell in line, where both that and the agent's are on the map."""
    if here >= 0 and there >= 0:
        search_out.time[row, there] = np.int32(0)
        search_out.line[row, 0] = there
        search_out.count[row, 0] = np.int32(1)


@inline_function
def least_time(cell, here):
    """The time between two cells where all are free."""
    side = np.int32(SIDE)
    across, along = abs(cell % side - here % side), abs(cell // side - here // side)
    longer, shorter = max(across, along), min(across, along)
    return SIDE_OF_FREE * longer + (_DIAGONAL_OF_FREE - SIDE_OF_FREE) * shorter


@inline_function
def next_slack(slack):
    """By how much it may be longer in the search after one that did not find it."""
    return _MORE * slack if slack > 0 else _SLACK


@inline_function
def bound_of(row, least, slack, search):
    """How long the way may be: as the last one is today, where that is near what is expected or nearer bounds failed.

    Where that fails too it has no bound: no way may be as short where rounding has moved the goal into another cell.
    """
    today = search.count[row, TODAY] if search.count[row, AT] < LONGEST else NEVER
    if today <= least + _MORE * _SLACK:
        return today if slack <= _SLACK else NEVER
    if slack < _MOST:
        return least + slack
    return today if slack < _MORE * _MOST else NEVER


@inline_function
def is_done(row, here, bound, search):
    """Whether the search came to the agent, or need not."""
    return here < 0 or bound >= NEVER or search.time[row, here] < NEVER


@inline_function
def _towards(direction):
    """Rows and columns to one of eight neighbours, of which those with even numbers share a side with the cell."""
    dr = np.int32(0) if direction % 4 == 2 else np.int32(1 if direction < 2 or direction > 6 else -1)
    dc = np.int32(0) if direction % 4 == 0 else np.int32(1 if direction < 4 else -1)
    return dr, dc


@inline_function
def _is_on_map(r, c):
    """Whether there is such a row and such a column."""
    return r >= 0 and c >= 0 and r < SIDE and c < SIDE


@inline_function
def dearest(i, cell, dr, dc, known):
    """The toll that a step from a cell to a neighbour finds there, and the cell whose toll it is.

    Past a corner that is the dearest of the neighbour and the two cells beside it.
    """
    down = dr * np.int32(SIDE)
    to = cell + down + dc
    price, payer = toll(i, to, known), to
    from_wall, to_wall = known.stands[i, cell] >= SHARED, known.stands[i, to] >= SHARED
    if (from_wall and known.ground[i, to] == 0) or (to_wall and known.ground[i, cell] == 0):
        price += _BEHIND
    if dr != 0 and dc != 0:
        for beside in (cell + down, cell + dc):
            other = toll(i, beside, known)
            if other > price:
                price, payer = other, beside
    return price, payer


@inline_function
def pace(dr, dc):
    """The time of a step to a neighbour where both cells' tolls are 1 together."""
    return _STRAIGHT if dr == 0 or dc == 0 else _DIAGONAL


@inline_function
def step_time(i, cell, own, dr, dc, known):
    """The time from a cell with toll `own` to a neighbour."""
    price, _ = dearest(i, cell, dr, dc, known)
    return pace(dr, dc) * (own + price)


@lean_function
def spread(lane, lanes, i, row, course, known, search_out):
    """Reach the neighbours of the cells in line. Eight lanes share a cell, where there are as many.

    `course`: the agent's cell, the bound, the time from which on cells come later, and which line.
    """
    here, bound, limit, line = course
    after, side = np.int32(1) - line, np.int32(SIDE)
    for k in range(lane // 8, search_out.count[row, line], max(lanes // 8, 1)):
        cell = search_out.line[row, line * np.int32(CELLS) + k]
        emptied = line * np.int32(WORDS) + (cell >> np.int32(5))
        search_out.waiting[row, emptied] = np.int32(0)  # all that have a bit in it spread in this round
        begun, own, r, c = search_out.time[row, cell], toll(i, cell, known), cell // side, cell % side
        if begun >= search_out.time[row, here]:
            continue
        for direction in range(lane % 8, 8, min(lanes, 8)):
            dr, dc = _towards(np.int32(direction))
            if not _is_on_map(r + dr, c + dc):
                continue
            reached = cell + dr * side + dc
            time = begun + step_time(i, cell, own, dr, dc, known)
            if time >= search_out.time[row, reached] or time + least_time(reached, here) > bound:
                continue
            atomic_min(search_out.time, row, reached, time)
            bit = np.int32(1) << (reached & np.int32(31))
            part = after if time < limit else _LATER
            word = part * np.int32(WORDS) + (reached >> np.int32(5))
            if atomic_or(search_out.waiting, row, word, bit) & bit == 0 and time < limit:
                place = atomic_add(search_out.count, row, after, np.int32(1))
                search_out.line[row, after * np.int32(CELLS) + place] = reached


@lean_function
def leave(row, line, search_out):
    """No cell is in a line whose cells have spread."""
    search_out.count[row, line] = np.int32(0)


@lean_function
def begin_later(row, search_out):
    """No cell is known to come later."""
    search_out.count[row, _NEXT] = NEVER


@lean_function
def find_later(lane, lanes, row, limit, search_out):
    """The nearest of the cells that come later; every lane does its share. Those within the limit have spread."""
    nearest = NEVER
    for word in range(lane, WORDS, lanes):
        bits = search_out.waiting[row, _LATER * np.int32(WORDS) + np.int32(word)]
        for k in range(32 if bits != 0 else 0):
            if (bits >> np.int32(k)) & np.int32(1):
                time = search_out.time[row, np.int32(word) * np.int32(32) + np.int32(k)]
                if limit <= time < nearest:
                    nearest = time
    if nearest < NEVER:
        atomic_min(search_out.count, row, np.int32(_NEXT), nearest)


@inline_function
def next_limit(row, here, search):
    """The next limit; 0 where no cell comes later through which the way could be shorter."""
    nearest = search.count[row, _NEXT]
    if nearest >= NEVER or nearest >= search.time[row, here]:
        return np.int32(0)
    return nearest + _STRIDE


@lean_function
def line_up(lane, lanes, row, course, search_out):
    """Put those in line that come next; every lane does its share. `course`: this limit, the next, and which line."""
    limit, following, line = course
    for word in range(lane, WORDS, lanes):
        later = _LATER * np.int32(WORDS) + np.int32(word)
        bits, kept, lined = search_out.waiting[row, later], np.int32(0), np.int32(0)
        for k in range(32 if bits != 0 else 0):
            bit = np.int32(1) << np.int32(k)
            if bits & bit:
                cell = np.int32(word) * np.int32(32) + np.int32(k)
                time = search_out.time[row, cell]
                if time >= following:
                    kept |= bit
                elif time >= limit:
                    lined |= bit
                    place = atomic_add(search_out.count, row, line, np.int32(1))
                    search_out.line[row, line * np.int32(CELLS) + place] = cell
        search_out.waiting[row, later] = kept
        search_out.waiting[row, line * np.int32(WORDS) + np.int32(word)] = lined


@inline_function
def find_ways(lane, lanes, i, row, ends, bound, known, search_out):
    """The times from all cells to the goal, through which a way is no longer than the bound.

    `ends`: the agent's cell, or NOWHERE; and the goal's.
    """
    here, there = ends
    sync_lanes()
    clear_search(lane, lanes, row, search_out)
    sync_lanes()
    if lane == 0:
        begin_search(row, here, there, search_out)
    sync_lanes()
    line, limit = np.int32(0), _FIRST_LIMIT
    while limit > 0:
        while search_out.count[row, line] > 0:
            spread(lane, lanes, i, row, (here, bound, limit, line), known, search_out)
            sync_lanes()
            if lane == 0:
                leave(row, line, search_out)
            line = np.int32(1) - line
            sync_lanes()
        if lane == 0:
            begin_later(row, search_out)
        sync_lanes()
        find_later(lane, lanes, row, limit, search_out)
        sync_lanes()
        following = next_limit(row, here, search_out)
        if following > 0:
            line_up(lane, lanes, row, (limit, following, line), search_out)
        limit = following
        sync_lanes()


@inline_function
def next_of_way(i, row, cell, known, search):
    """The neighbour from which a cell was reached."""
    side = np.int32(SIDE)
    for direction in range(8):
        dr, dc = _towards(np.int32(direction))
        if _is_on_map(cell // side + dr, cell % side + dc):
            before = cell + dr * side + dc
            time = search.time[row, before]
            if time < search.time[row, cell]:
                time += step_time(i, before, toll(i, before, known), -dr, -dc, known)
                if time == search.time[row, cell]:
                    return before
    return cell
