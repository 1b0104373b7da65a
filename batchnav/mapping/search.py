"""Search for objects on the agent's own map: cells with the goal's category, frontiers, and the nearest of them.

An agent keeps the evidence of its goal for each cell of its map (`evidence`). A cell with enough of it is a goal cell.
The agent plans to the nearest cell beside a goal cell by path cost; without one, to the nearest frontier, an explored
cell next to unexplored space (Yamauchi, "A frontier-based approach for autonomous exploration", CIRA 1997).
A target is kept until it is reached or is none any more.

Parallelism: all lanes of an agent run each function together; functions without a `lane` argument run on one lane.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import forward
from batchnav.mapping.costs import GAP_COST, STRAIGHT
from batchnav.mapping.evidence import (
    NEAR,
    count_miss,
    count_view,
    end_view,
    holds_object,
    note_looked,
    note_seen,
    surely_holds_object,
)
from batchnav.mapping.integrate import eye_of, pixel_offset
from batchnav.mapping.shortest_path import POSITION, bearing, extract_path, locate
from batchnav.mapping.state import (
    CELLS,
    SIDE,
    cell_at,
    cell_of,
    centre_of,
    has_obstacle,
    is_explored,
    is_near_obstacle,
    is_traversed,
)
from batchnav.mapping.waypoint import FRONTIER, GOAL, PIXELS, SCAN_BEARING, cell_value, pixel_place, pixel_scale
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_min, sync_lanes

LIKELY = np.uint8(128)
"""Least value of a mask's pixel that counts: a score of one half."""
NONE, BESIDE_OBJECT, NEAR_OBJECT, OBJECT, OPEN_FRONTIER, ANY_FRONTIER = (np.int32(kind) for kind in range(6))
"""Kinds of targets, in order of preference: explored cells without obstacles at most one cell, or two, from a goal
cell, since the object itself may be an obstacle, or stand on one; goal cells; frontiers away from obstacles that border
several unexplored cells; all frontiers. Paths to goal cells and to other than open frontiers may cross obstacles, since
cells can be too coarse for a narrow passage."""
GOAL_CELLS, NEAREST, KIND, STOP = np.int32(0), np.int32(1), np.int32(2), np.int32(3)
"""Columns of `GoalMap.counters`."""
_COLUMNS = 4
"""Number of these columns."""
_OBSTACLE_EDGE = GAP_COST * STRAIGHT
"""Least cost of an edge that touches an occupied cell."""
_STOP_MM, _STOP_METRES = np.int32(950), np.float32(0.5)
"""Distances at which the agent stops: of a pixel of the goal, millimetres, and of the end of a free path to the goal,
metres. View points are at most 1 m from the object, and low objects are not visible from close by."""
_MOST_MM, _PER_METRE = np.int32(2**30), np.float32(1000.0)
_FEW, _SEVERAL = np.int32(1), np.int32(2)
_UNSEEN, _OTHER, _GOAL = np.int32(-1), np.int32(0), np.int32(1)
"""What a pixel shows: nothing that counts, another thing from close by, the goal."""
_ZERO, _NONE_NEW = np.float32(0.0), np.int32(0)


class GoalMap(NamedTuple):
    """What N agents know of their goals, in addition to `MapState`."""

    evidence: Any
    """i32 [N, CELLS]: evidence of the goal in each cell, see `evidence`."""
    counters: Any
    """i32 [N, 4]: number of goal cells; horizontal distance of the nearest pixel of the goal in a cell that surely
    holds it, millimetres; kind of the target; 1 where the agent has arrived at its goal, else 0."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> GoalMap:
        """State of `n` agents before their first episode."""
        return cls(*(torch.zeros(n, k, dtype=torch.int32, device=device) for k in (CELLS, _COLUMNS)))


# Goal cells.


@lean_function
def clear_goals(lane, lanes, i, agents_out, goals_out):
    """Forget the goals of agent i, and set its goal position to its own. The lanes share the cells."""
    for cell in range(lane, CELLS, lanes):
        goals_out.evidence[i, cell] = np.int32(0)
    for k in range(lane, _COLUMNS, lanes):
        goals_out.counters[i, k] = np.int32(0)
    if lane == 0:
        agents_out.goal[i, 0], agents_out.goal[i, 1] = _ZERO, _ZERO


@lean_function
def clear_nearest(i, goals_out):
    """Forget the nearest pixel of the previous step."""
    goals_out.counters[i, NEAREST] = _MOST_MM


@inline_function
def place_seen(i, pixel, depth, eye, cameras, state):
    """Cell of the point that a pixel sees, -1 outside of the map, and its horizontal distance, metres."""
    width = np.int32(depth.shape[2])
    _, dx, dz = pixel_offset(i, pixel // width, pixel % width, depth, eye)
    x, z = cameras.position[i, 0] + dx, cameras.position[i, 2] + dz
    return cell_of(i, x, z, state.origin_and_resolution), np.float32(math.sqrt(dx * dx + dz * dz))


@inline_function
def _shows(i, pixel, images, parameters):
    """1 for a pixel of the goal, 0 for another pixel close by, -1 for other pixels."""
    depth, mask = images
    width = np.int32(depth.shape[2])
    metres = depth[i, pixel // width, pixel % width]
    if not (metres > _ZERO and metres < parameters.max_depth):
        return _UNSEEN
    if mask[i, pixel // width, pixel % width] >= LIKELY:
        return _GOAL
    return _OTHER if metres < NEAR else _UNSEEN


@lean_function
def integrate_goals(lane, lanes, i, images, cameras, state, parameters, goals_out):
    """Update the evidence of goal cells by a view. `images`: depth f32 [N, H, W] and mask u8 [N, H, W]."""
    depth, _ = images
    pixels, eye = np.int32(depth.shape[1] * depth.shape[2]), eye_of(i, cameras, depth.shape[2])
    for place in range(lane, pixels, lanes):
        pixel = np.int32(place)
        shown = _shows(i, pixel, images, parameters)
        if shown != _UNSEEN:
            cell, _ = place_seen(i, pixel, depth, eye, cameras, state)
            if cell >= 0 and shown == _GOAL:
                note_seen(i, cell, goals_out.evidence)
            elif cell >= 0:
                note_looked(i, cell, goals_out.evidence)
    sync_lanes()
    for place in range(lane, pixels, lanes):
        pixel = np.int32(place)
        if _shows(i, pixel, images, parameters) != _UNSEEN:
            cell, _ = place_seen(i, pixel, depth, eye, cameras, state)
            change = _NONE_NEW if cell < 0 else count_view(i, cell, goals_out.evidence)
            if change != _NONE_NEW:
                atomic_add(goals_out.counters, i, GOAL_CELLS, change)
    sync_lanes()
    for place in range(lane, pixels, lanes):
        pixel = np.int32(place)
        shown = _shows(i, pixel, images, parameters)
        if shown != _UNSEEN:
            cell, apart = place_seen(i, pixel, depth, eye, cameras, state)
            if cell >= 0:
                end_view(i, cell, goals_out.evidence)
                if shown == _GOAL and surely_holds_object(goals_out.evidence[i, cell]):
                    atomic_min(goals_out.counters, i, NEAREST, np.int32(_PER_METRE * apart))


# Targets.


@inline_function
def _unexplored_around(i, cell, state):
    """Number of the eight cells around a cell that are unexplored and hold no known obstacle."""
    r, c, count = cell // np.int32(SIDE), cell % np.int32(SIDE), np.int32(0)
    for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
        for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
            other = nr * SIDE + nc
            if not (is_explored(state.explored[i, other]) or has_obstacle(state.occupancy[i, other])):
                count += np.int32(1)
    return count


@inline_function
def is_frontier(i, cell, kind, state):
    """True where a cell is a frontier: explored, not traversed, without an obstacle, next to unexplored cells."""
    explored, occupancy = state.explored[i, cell], state.occupancy[i, cell]
    if not is_explored(explored) or is_traversed(explored) or has_obstacle(occupancy):
        return False
    if kind == OPEN_FRONTIER and is_near_obstacle(occupancy):
        return False
    return _unexplored_around(i, cell, state) >= (_SEVERAL if kind == OPEN_FRONTIER else _FEW)


@inline_function
def _is_free_by_goal(i, cell, apart, state, goals):
    """True where a cell is explored, holds no obstacle, and is at most `apart` cells from a goal cell."""
    if not is_explored(state.explored[i, cell]) or has_obstacle(state.occupancy[i, cell]):
        return False
    r, c, found = cell // np.int32(SIDE), cell % np.int32(SIDE), False
    for nr in range(max(r - apart, 0), min(r + apart + 1, SIDE)):
        for nc in range(max(c - apart, 0), min(c + apart + 1, SIDE)):
            found |= holds_object(goals.evidence[i, nr * SIDE + nc])
    return found


@inline_function
def _is_target(i, cell, kind, state, goals):
    """True where a cell is a target of a kind."""
    if kind < OBJECT:
        return _is_free_by_goal(i, cell, np.int32(1 if kind == BESIDE_OBJECT else 2), state, goals)
    if kind == OBJECT:
        return holds_object(goals.evidence[i, cell])
    return is_frontier(i, cell, kind, state)


@inline_function
def first_kind(i, goals):
    """Kind of the targets that are searched first."""
    return BESIDE_OBJECT if goals.counters[i, GOAL_CELLS] > 0 else OPEN_FRONTIER


@inline_function
def has_target(i, state, goals):
    """True where the kept path of agent i ends at a target, and no goal cell is known if it is a frontier."""
    kind, length = goals.counters[i, KIND], state.path_length[i]
    if length == 0 or (kind > OBJECT and goals.counters[i, GOAL_CELLS] > 0):
        return False
    return _is_target(i, state.path[i, length - 1], kind, state, goals)


@lean_function
def add_targets(lane, lanes, i, row, kind, state, goals, search_out):
    """Put all targets of a kind in the first worklist, with path cost 0. The lanes share the cells."""
    for k in range(lane, CELLS, lanes):
        cell = np.int32(k)
        if _is_target(i, cell, kind, state, goals):
            search_out.cost_to_go[row, cell] = np.int32(0)
            place = atomic_add(search_out.counters, row, np.int32(0), np.int32(1))
            search_out.worklist[row, place] = cell


@inline_function
def _crosses_obstacle(i, first, last, state):
    """True where an edge of the kept path of agent i between its cells `first` and `last` touches an obstacle."""
    highest = np.int32(0)
    for k in range(first, last):
        highest = max(highest, state.cost_to_go[i, k] - state.cost_to_go[i, k + 1])
    return highest >= _OBSTACLE_EDGE


@lean_function
def store_target(i, row, here, kind, search_out, state_out, goals_out):
    """Store the path to the target that a search of a kind reached, or none."""
    extract_path(i, row, here, search_out, state_out)
    last = state_out.path_length[i] - np.int32(1)
    crosses = _crosses_obstacle(i, 0, last, state_out)
    if last < 0 or (crosses and kind != OBJECT and kind != ANY_FRONTIER):
        state_out.path_length[i], kind = np.int32(0), NONE
    goals_out.counters[i, KIND] = kind


@lean_function
def _is_confirmed(i, cell, goals_out):
    """True where a cell within two of `cell` surely holds the goal. Else those that may hold it lose evidence."""
    r, c, sure = cell // np.int32(SIDE), cell % np.int32(SIDE), False
    for nr in range(max(r - 2, 0), min(r + 3, SIDE)):
        for nc in range(max(c - 2, 0), min(c + 3, SIDE)):
            sure |= surely_holds_object(goals_out.evidence[i, nr * SIDE + nc])
    if not sure:
        for nr in range(max(r - 2, 0), min(r + 3, SIDE)):
            for nc in range(max(c - 2, 0), min(c + 3, SIDE)):
                goals_out.counters[i, GOAL_CELLS] += count_miss(i, nr * SIDE + nc, goals_out.evidence)
    return sure


@lean_function
def update_goal(i, row, search, state, agents_out, goals_out):
    """Set the goal position of agent i to its target, a quarter turn to the left for none; decide whether to stop."""
    length, visible = state.path_length[i], goals_out.counters[i, NEAREST] < _STOP_MM
    arrived = visible
    if length > 0:
        u, v, _, _, _, _ = locate(i, agents_out, state)
        to_u, to_v = centre_of(state.path[i, length - 1])
        size = state.origin_and_resolution[i, 2]
        du, dv = (to_u - u) * size, (to_v - v) * size
        distance = np.float32(math.sqrt(du * du + dv * dv))
        agents_out.goal[i, 0], agents_out.goal[i, 1] = distance, bearing(du, dv, agents_out.heading[i])
        kind = goals_out.counters[i, KIND]
        if BESIDE_OBJECT <= kind <= OBJECT and distance < _STOP_METRES:
            # The last edge to a goal cell leads into the goal, which may be an obstacle.
            last = length - (np.int32(2) if kind == OBJECT else np.int32(1))
            if not _crosses_obstacle(i, search.counters[row, POSITION], last, state):
                arrived |= _is_confirmed(i, state.path[i, length - 1], goals_out)
    else:
        agents_out.goal[i, 0], agents_out.goal[i, 1] = _ZERO, SCAN_BEARING
    goals_out.counters[i, STOP] = np.int32(1 if arrived else 0)


@lean_function
def render_search_map(lane, lanes, i, row, agents, state, goals, search, ego_map_out):
    """Render agent i's image with goal cells and frontiers in ego_map_out f32 [N, 1, PIXELS, PIXELS]."""
    fx, fz = forward(agents.heading[i])
    u, v, _, _, _, _ = locate(i, agents, state)
    scale = pixel_scale(i, state)
    for pixel in range(lane, PIXELS * PIXELS, lanes):
        at_u, at_v = pixel_place(pixel, u, v, fx, fz, scale)
        cell = cell_at(at_u, at_v)
        value = cell_value(i, row, cell, state, search)
        if cell >= 0:
            if holds_object(goals.evidence[i, cell]):
                value = GOAL
            elif is_frontier(i, cell, OPEN_FRONTIER, state):
                value = FRONTIER
        ego_map_out[i, 0, np.int32(pixel) // np.int32(PIXELS), np.int32(pixel) % np.int32(PIXELS)] = value
