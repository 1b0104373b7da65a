"""The shortest way over a map of the ground, for one agent: when it is kept, and the straight part of it.

`mapping/shortest_path.py` finds it. As long as the agent is on its last way, and no cell of that became dearer, it is kept. It
stays the shortest, since cells only become dearer, but for those that the agent walks over and what it comes to see
beside those, after which it is planned anew. Nor would another search choose among equal ways otherwise. A way through
obstacles may have become longer than another, behind whose obstacles the ground came to be seen, and another through
what was guessed to be dear may have become shorter; it is kept nevertheless, until one of its own cells changes.

Several lanes may work for an agent: each function is done by all of them before the next one begins, and those that
take no lane are done by one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from batchnav.geometry.pose import forward
from batchnav.mapping.integrate import (
    FIRMEST,
    LONGEST,
    OBSTACLE,
    SHARED,
    SIDE,
    WALKED,
    begin_map,
    cell_at,
    forget,
    place_in_cells,
    stand,
    touches,
)
from batchnav.mapping.shortest_path import (
    AT,
    BEND,
    BROKEN,
    NEVER,
    SIDE_OF_FREE,
    TODAY,
    least_time,
    next_of_way,
    step_time,
    toll,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_min

_AHEAD = 24
"""Cells of the way that are looked at for the farthest in a straight line, and drawn."""
_HALF, _TWO = np.float32(0.5), np.float32(2.0)
_LEFT = np.float32(math.pi / 2)
"""The direction that is told to who looks around."""


class Walkers(NamedTuple):
    """As kernels read them."""

    position: Any
    """f32 [N, 3]."""
    heading: Any
    """f32 [N]."""
    episode: Any
    """i32 [N]."""
    collisions: Any
    """i32 [N]."""
    goal: Any
    """f32 [N, 2]: metres to the goal in the plane, and the angle to it, radians, positive to the left."""


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
    pose = walkers.position[i, 0], walkers.position[i, 2], walkers.heading[i]
    begin_map(i, walkers.episode[i], pose, goal_x, goal_z, known_out)
    known_out.collisions[i] = walkers.collisions[i]  # what was run into before is not news


@inline_function
def where(i, walkers, known):
    """Places on the map of the agent and of its goal, in cells, and the cells of both, -1 where they are off it."""
    goal_x, goal_z = goal_of(i, walkers)
    u, v = place_in_cells(i, walkers.position[i, 0], walkers.position[i, 2], known.frame)
    goal_u, goal_v = place_in_cells(i, goal_x, goal_z, known.frame)
    return u, v, goal_u, goal_v, cell_at(u, v), cell_at(goal_u, goal_v)


@lean_function
def arrive(i, row, walkers, known_out, search_out):
    """The agent is where it is, and whether on its last way is to be found out."""
    here = where(i, walkers, known_out)[4]
    if here >= 0:
        stand(i, here, known_out)
    search_out.count[row, AT], search_out.count[row, BROKEN], search_out.count[row, TODAY] = LONGEST, 0, 0


@lean_function
def find_on_way(lane, lanes, i, row, walkers, known, search_out):
    """Where on its last way the agent is; every lane does its share."""
    here, length = where(i, walkers, known)[4], known.length[i]
    if length > 0 and known.left[i, length - 1] == 0:
        for k in range(lane, length, lanes):
            if known.way[i, k] == here:
                atomic_min(search_out.count, row, np.int32(AT), np.int32(k))


@lean_function
def check_way(lane, lanes, i, row, known, search_out):
    """Whether the rest of that way is as long as it was; every lane does its share."""
    side = np.int32(SIDE)
    for k in range(search_out.count[row, AT] + lane, known.length[i] - 1, lanes):
        cell, before = known.way[i, k], known.way[i, k + 1]
        dr, dc = cell // side - before // side, cell % side - before % side
        time = step_time(i, before, toll(i, before, known), dr, dc, known)
        atomic_add(search_out.count, row, np.int32(TODAY), time)
        if known.left[i, k + 1] + time != known.left[i, k]:
            search_out.count[row, BROKEN] = np.int32(1)


@inline_function
def looks_around(i, known):
    """Whether an agent is still to turn, and needs no way."""
    return known.around[i] > 0


@inline_function
def is_kept(row, search):
    """Whether the last way will do."""
    return search.count[row, AT] < LONGEST and search.count[row, BROKEN] == 0


@inline_function
def least_way(i, walkers, known):
    """About how long the way is, or longer: what it was a step ago; in a new episode, what it is over free cells."""
    _, _, _, _, here, there = where(i, walkers, known)
    return known.expected[i] if known.expected[i] > 0 else least_time(there, here)


@lean_function
def trace(i, row, here, search_out, known_out):
    """Keep the way that was found; none where there is none."""
    cell, length = here, np.int32(0)
    if here >= 0 and search_out.time[row, here] < NEVER:
        while length < LONGEST:
            known_out.way[i, length], known_out.left[i, length] = cell, search_out.time[row, cell]
            length += np.int32(1)
            if search_out.time[row, cell] == 0:
                break
            cell = next_of_way(i, row, cell, known_out, search_out)
    known_out.length[i], search_out.count[row, AT] = length, np.int32(0)


@inline_function
def _centre(cell):
    """The middle of a cell, in cells."""
    return np.float32(cell % np.int32(SIDE)) + _HALF, np.float32(cell // np.int32(SIDE)) + _HALF


@inline_function
def _is_open(i, u, v, to_u, to_v, known):
    """Whether a straight line meets no obstacle nor what stopped the agent, but where it ends, and is beside none firm.

    Where a way leads through an obstacle, an agent that goes round the last corner before it can step past that, to and
    fro, and never meet it. And what stops an agent again and again can do so beside its own cell, since the agent goes
    where it looks, within half a turn of the line.
    """
    du, dv, last = to_u - u, to_v - v, cell_at(to_u, to_v)
    steps = np.int32(_TWO * np.float32(math.sqrt(du * du + dv * dv))) + np.int32(1)
    for k in range(min(np.int32(2), steps), steps + 1):
        share = np.float32(k) / np.float32(steps)
        cell = cell_at(u + share * du, v + share * dv)
        if cell == last:
            break
        if cell < 0 or known.stands[i, cell] >= OBSTACLE:
            return False
        if known.stands[i, cell] == SHARED and known.ground[i, cell] > WALKED:
            return False
        if known.stands[i, cell] > 0 and touches(i, cell, OBSTACLE + 1, FIRMEST, known):
            return False
    return True


@lean_function
def begin_bend(row, search_out):
    """All of the way's next cells may lie in a straight line."""
    search_out.count[row, BEND] = _AHEAD


@lean_function
def find_bend(lane, lanes, i, row, walkers, known, search_out):
    """How many of the way's next cells lie in a straight line; every lane does its share."""
    u, v, _, _, _, _ = where(i, walkers, known)
    at = search_out.count[row, AT]
    for k in range(lane, min(_AHEAD, known.length[i] - 1 - at), lanes):
        to_u, to_v = _centre(known.way[i, at + 1 + k])
        if not _is_open(i, u, v, to_u, to_v, known):
            atomic_min(search_out.count, row, np.int32(BEND), np.int32(k))
            break


@lean_function
def tell(i, row, walkers, search, known_out, plan_out):
    """Length and direction; and what the next search will expect."""
    u, v, _, _, _, there = where(i, walkers, known_out)
    at, length = search.count[row, AT], known_out.length[i]
    plan_out[i, 0], plan_out[i, 1] = walkers.goal[i, 0], walkers.goal[i, 1]
    known_out.expected[i] = known_out.left[i, at] if length > 0 else np.int32(0)
    if looks_around(i, known_out):
        plan_out[i, 1] = _LEFT
        return
    # as far as a straight line goes, and at least to the next cell
    bend = min(at + max(search.count[row, BEND], np.int32(1)), length - np.int32(1))
    if bend <= at or known_out.way[i, bend] == there:
        return
    to_u, to_v = _centre(known_out.way[i, bend])
    du, dv = to_u - u, to_v - v
    fx, fz = forward(walkers.heading[i])
    plan_out[i, 1] = np.float32(math.atan2(du * fz - dv * fx, du * fx + dv * fz))
    if bend > at + 1 and known_out.stands[i, known_out.way[i, bend]] >= OBSTACLE:
        bend -= np.int32(1)  # what it costs to go through the obstacle is left
        to_u, to_v = _centre(known_out.way[i, bend])
        du, dv = to_u - u, to_v - v
    beyond = np.float32(known_out.left[i, bend]) / np.float32(SIDE_OF_FREE)
    plan_out[i, 0] = (np.float32(math.sqrt(du * du + dv * dv)) + beyond) * known_out.frame[i, 2]


@lean_function
def mark_way(i, row, known, search_out):
    """The way's next cells, for `is_on_way`, by the bits of those in line."""
    at = search_out.count[row, AT]
    for k in range(at + 1, min(at + 1 + _AHEAD, known.length[i])):
        cell = known.way[i, k]
        search_out.waiting[row, cell >> np.int32(5)] |= np.int32(1) << (cell & np.int32(31))


@inline_function
def is_on_way(row, cell, search):
    """Whether a cell was marked."""
    return (search.waiting[row, cell >> np.int32(5)] >> (cell & np.int32(31))) & np.int32(1) == 1
