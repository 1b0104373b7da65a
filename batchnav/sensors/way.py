"""The shortest way over a map of the ground, for one agent: tolls, the search, and the straight part of the way.

What nobody has seen is taken for free ("freespace assumption": Zelinsky, "A mobile robot exploration algorithm", 1992;
Koenig and Smirnov, "Sensor-based planning with the freespace assumption", 1997). The search goes from the goal on in
rounds, eight neighbours each: the cells that came nearer in one spread in the next, which is Moore's algorithm ("The
shortest path through a maze", 1959) with weights. As in A*, cells are left out through which the way would be longer
than some bound: first what it was a step ago and a little more, and where that does not do, more. Times are whole
numbers, so that every order of work and every device has the same, and no bound changes them.

Several lanes may work for an agent: each function is done by all of them before the next one begins, and those that
take no lane are done by one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import forward
from batchnav.runtime.intrinsics import atomic_add, atomic_exchange, atomic_min
from batchnav.runtime.kernels import inline_function, lean_function
from batchnav.sensors.ground import CELLS, SIDE, begin_map, cell_at, forget, place_in_cells, stand

_AHEAD = 24
"""Cells of the way that are traced."""
_FREE, _BESIDE, _OBSTACLE = np.int32(2), np.int32(3), np.int32(200)
"""What a cell costs. None is impassable: a passage can be too narrow for the cells."""
_STRAIGHT, _DIAGONAL = np.int32(5), np.int32(7)
"""The time from a cell to its neighbour is this, times what both cost."""
_SIDE_OF_FREE, _DIAGONAL_OF_FREE = np.int32(20), np.int32(28)
"""Times from a free cell to such neighbours."""
_SLACK, _MORE = np.int32(40), np.int32(4)
"""By how much the way may become longer in a step, at first; and how many times that is taken where it does not do."""
_NEVER, _ON_THE_WAY = np.int32(2**30), np.int32(-1)
_HALF, _TWO = np.float32(0.5), np.float32(2.0)
_NOW, _NEXT, ROUNDS, _BEND = np.int64(0), np.int64(1), np.int64(2), np.int64(3)
"""What `Search.count` counts."""


class Walkers(NamedTuple):
    """As kernels read them."""

    position: Any
    """f32 [N, 3]."""
    heading: Any
    """f32 [N]."""
    episode: Any
    """i32 [N]."""
    goal: Any
    """f32 [N, 2]: metres to the goal in the plane, and the angle to it, radians, positive to the left."""


class Search(NamedTuple):
    """Memory for searches, a row each; what they leave there is nobody's business, but for `rounds`."""

    time: torch.Tensor
    """i32 [R, CELLS]: from there to the goal."""
    round: torch.Tensor
    """i32 [R, CELLS]: in which a cell was put in line last."""
    line: torch.Tensor
    """i32 [R, 2 * CELLS]: the cells that spread in this round, and those in the next."""
    count: torch.Tensor  # type: ignore[assignment]  # hides what tuples have by this name
    """i32 [R, 4]: how many these are; rounds so far; the first cell of the way that does not lie in a straight line."""

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> Search:
        """Room for so many searches."""
        time, round_, line, count = (
            torch.zeros(rows, size, dtype=torch.int32, device=device) for size in (CELLS, CELLS, 2 * CELLS, 4)
        )
        return cls(time, round_, line, count)


@inline_function
def _toll(i, cell, known):
    """What a cell costs."""
    if known.beside[i, cell] == 0:
        return _FREE
    return _OBSTACLE if known.obstacle[i, cell] else _BESIDE


@inline_function
def goal_of(i, walkers):
    """x and z of the goal."""
    fx, fz = forward(walkers.heading[i] + walkers.goal[i, 1])
    rho = walkers.goal[i, 0]
    return walkers.position[i, 0] + rho * fx, walkers.position[i, 2] + rho * fz


@lean_function
def renew(lane, lanes, i, walkers, known_out):
    """An empty map where an episode has begun; whether it has."""
    fresh = known_out.episode[i] != walkers.episode[i]
    if fresh:
        forget(lane, lanes, i, known_out)
    return fresh


@lean_function
def place_map(i, walkers, known_out):
    """Where the map of a new episode lies."""
    goal_x, goal_z = goal_of(i, walkers)
    x, z = walkers.position[i, 0], walkers.position[i, 2]
    begin_map(i, walkers.episode[i], x, z, goal_x, goal_z, known_out)


@inline_function
def where(i, walkers, known):
    """Places on the map of the agent and of its goal, in cells, and the cells of both, -1 where they are off it."""
    goal_x, goal_z = goal_of(i, walkers)
    u, v = place_in_cells(i, walkers.position[i, 0], walkers.position[i, 2], known.frame)
    goal_u, goal_v = place_in_cells(i, goal_x, goal_z, known.frame)
    return u, v, goal_u, goal_v, cell_at(u, v), cell_at(goal_u, goal_v)


@lean_function
def clear_times(lane, lanes, row, search_out):
    """No cell has been reached."""
    for cell in range(lane, CELLS, lanes):
        search_out.time[row, cell] = _NEVER


@lean_function
def begin_search(i, row, walkers, known_out, search_out):
    """Put the goal in line, where both it and the agent are on the map."""
    _, _, _, _, here, there = where(i, walkers, known_out)
    search_out.count[row, _NOW], search_out.count[row, _NEXT], search_out.count[row, _BEND] = 0, 0, _AHEAD
    if here >= 0 and there >= 0:
        stand(i, here, known_out)
        search_out.time[row, there] = np.int32(0)
        search_out.line[row, 0] = there
        search_out.count[row, _NOW] = 1


@inline_function
def least_time(cell, here):
    """The time between two cells where all are free."""
    side = np.int32(SIDE)
    across, along = abs(cell % side - here % side), abs(cell // side - here // side)
    longer, shorter = max(across, along), min(across, along)
    return _SIDE_OF_FREE * longer + (_DIAGONAL_OF_FREE - _SIDE_OF_FREE) * shorter


@inline_function
def first_bound(i, here, there, known):
    """How long the way may be at first, and by how much more than that it may be should that not do."""
    expected = max(known.expected[i], least_time(there, here))
    return expected + _SLACK, _SLACK


@inline_function
def next_bound(bound, slack):
    """The same after a search that did not come to the agent."""
    more = min(slack * _MORE, _NEVER // np.int32(8))
    return min(bound + more, _NEVER), more


@inline_function
def is_done(row, here, bound, search):
    """Whether the search came to the agent, or need not."""
    return here < 0 or bound >= _NEVER or search.time[row, here] < _NEVER


@inline_function
def _reach(row, cell, time, here, bound, next_line, round_, search_out):
    """A cell can be reached in so much time: if that is news, put it in the next line, once."""
    if time >= search_out.time[row, cell] or time + least_time(cell, here) > bound:
        return
    if time < atomic_min(search_out.time, row, cell, time):
        if atomic_exchange(search_out.round, row, cell, round_) != round_:
            place = atomic_add(search_out.count, row, np.int64(next_line), np.int32(1))
            search_out.line[row, next_line * np.int32(CELLS) + place] = cell


@lean_function
def spread(lane, lanes, i, row, course, known, search_out):
    """Reach the neighbours of the cells in line; `course`: the agent's cell, the bound, which line, and the round."""
    here, bound, this_line, round_ = course
    next_line, side = np.int32(1) - this_line, np.int32(SIDE)
    for k in range(lane, search_out.count[row, this_line], lanes):
        cell = search_out.line[row, this_line * np.int32(CELLS) + k]
        time, own = search_out.time[row, cell], _toll(i, cell, known)
        if time >= search_out.time[row, here]:
            continue
        r, c = cell // side, cell % side
        for straight in range(4):
            dr, dc = _direction(straight)
            nr, nc = r + dr, c + dc
            if nr < 0 or nc < 0 or nr >= side or nc >= side:
                continue
            beside = nr * side + nc
            toll = _toll(i, beside, known)
            _reach(row, beside, time + _STRAIGHT * (own + toll), here, bound, next_line, round_, search_out)
            # and the cell across, between this neighbour and the next
            ar, ac = nr - dc, nc + dr
            if ar < 0 or ac < 0 or ar >= side or ac >= side:
                continue
            across = ar * side + ac
            dearest = max(max(toll, _toll(i, across, known)), _toll(i, (r - dc) * side + c + dr, known))
            _reach(row, across, time + _DIAGONAL * (own + dearest), here, bound, next_line, round_, search_out)


@inline_function
def _direction(straight):
    """Rows and columns to one of the four neighbours along the sides."""
    if straight % 2 == 0:
        return np.int32(1 - straight), np.int32(0)
    return np.int32(0), np.int32(2 - straight)


@inline_function
def _next_of_way(i, row, cell, known, search):
    """The neighbour from which a cell was reached."""
    side = np.int32(SIDE)
    time, own = search.time[row, cell], _toll(i, cell, known)
    r, c = cell // side, cell % side
    for straight in range(4):
        dr, dc = _direction(straight)
        nr, nc = r + dr, c + dc
        if nr < 0 or nc < 0 or nr >= side or nc >= side:
            continue
        beside = nr * side + nc
        toll = _toll(i, beside, known)
        if search.time[row, beside] + _STRAIGHT * (own + toll) == time:
            return beside
        ar, ac = nr - dc, nc + dr
        if ar < 0 or ac < 0 or ar >= side or ac >= side:
            continue
        across = ar * side + ac
        dearest = max(max(own, toll), _toll(i, (r - dc) * side + c + dr, known))
        if search.time[row, across] + _DIAGONAL * (_toll(i, across, known) + dearest) == time:
            return across
    return cell


@lean_function
def trace(i, row, here, known, search_out):
    """The way's first cells, in the line of now."""
    cell, count = here, np.int32(0)
    while cell >= 0 and count < _AHEAD and search_out.time[row, cell] > 0:
        following = _next_of_way(i, row, cell, known, search_out)
        if following == cell:
            break
        cell = following
        search_out.line[row, count] = cell
        count += np.int32(1)
    search_out.count[row, _NOW] = count


@inline_function
def _centre(cell):
    """The middle of a cell, in cells."""
    return np.float32(cell % np.int32(SIDE)) + _HALF, np.float32(cell // np.int32(SIDE)) + _HALF


@inline_function
def _is_open(i, u, v, to_u, to_v, known):
    """Whether a straight line meets no obstacle, but where it begins."""
    du, dv = to_u - u, to_v - v
    steps = np.int32(_TWO * np.float32(math.sqrt(du * du + dv * dv))) + np.int32(1)
    for k in range(min(np.int32(2), steps), steps + 1):
        share = np.float32(k) / np.float32(steps)
        cell = cell_at(u + share * du, v + share * dv)
        if cell < 0 or known.obstacle[i, cell]:
            return False
    return True


@lean_function
def find_bend(lane, lanes, i, row, walkers, known, search_out):
    """The first cell of the way that does not lie in a straight line, as a count."""
    u, v, _, _, _, _ = where(i, walkers, known)
    for k in range(lane, search_out.count[row, _NOW], lanes):
        to_u, to_v = _centre(search_out.line[row, k])
        if not _is_open(i, u, v, to_u, to_v, known):
            atomic_min(search_out.count, row, _BEND, np.int32(k))
            break


@lean_function
def tell(i, row, walkers, search, known_out, out):
    """Length and direction; and what the next search will expect."""
    u, v, _, _, here, there = where(i, walkers, known_out)
    count, bend = search.count[row, _NOW], search.count[row, _BEND]
    out[i, 0], out[i, 1] = walkers.goal[i, 0], walkers.goal[i, 1]
    known_out.expected[i] = search.time[row, here] if here >= 0 and there >= 0 else np.int32(0)
    if count == 0 or here < 0 or there < 0:
        return
    last = max(min(bend, count) - np.int32(1), np.int32(0))
    cell = search.line[row, last]
    if cell == there:
        return
    to_u, to_v = _centre(cell)
    du, dv = to_u - u, to_v - v
    fx, fz = forward(walkers.heading[i])
    cells = np.float32(math.sqrt(du * du + dv * dv)) + np.float32(search.time[row, cell]) / np.float32(_SIDE_OF_FREE)
    out[i, 0] = cells * known_out.frame[i, 2]
    out[i, 1] = np.float32(math.atan2(du * fz - dv * fx, du * fx + dv * fz))


@lean_function
def mark_way(row, search_out):
    """What was traced, for `is_on_way`; the times are lost."""
    for k in range(search_out.count[row, _NOW]):
        search_out.time[row, search_out.line[row, k]] = _ON_THE_WAY


@inline_function
def is_on_way(row, cell, search):
    """Whether a cell was marked."""
    return search.time[row, cell] == _ON_THE_WAY
