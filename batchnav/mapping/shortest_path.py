"""Shortest paths on an agent's cost map: cost-to-go from every cell to the goal.

Method: label-correcting single-source shortest paths from the goal on an 8-connected grid (Moore, "The shortest path
through a maze", 1959), with two refinements. A near-far worklist orders the cells (Davidson, Baxter, Garland and Owens,
"Work-efficient parallel GPU methods for single-source shortest paths", IPDPS 2014). An A*-style upper bound on path
cost skips cells through which every path would exceed it. The bound starts near the path cost of the previous step and
grows until a search succeeds, up to the current cost of the kept path. `costs` defines the edges.

Costs are integers, so results do not depend on device or execution order, nor on the bound.

Parallelism: all lanes of an agent run each function together; functions without a `lane` argument run on one lane.
`cost_to_go` synchronises internally.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import forward
from batchnav.mapping.costs import FREE_EDGE, edge_cost, octile_cost, traversal_cost
from batchnav.mapping.state import CELLS, MAX_PATH_CELLS, SIDE, cell_at, to_map
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_min, atomic_or, sync_lanes

UNREACHED = np.int32(2**30)
"""Cost-to-go of a cell that the search did not reach. As a bound: no bound."""
EVERYWHERE = np.int32(CELLS)
"""Pass this instead of the agent's cell, with the bound UNREACHED, to search the whole map."""
_SLACK, _GROWTH, _MAX_SLACK = np.int32(3) * FREE_EDGE, np.int32(8), np.int32(50) * FREE_EDGE
"""The bound first exceeds the expected cost by _SLACK, and _GROWTH times as much after each failed search. From
_MAX_SLACK on (the third attempt) only the kept path bounds the search. On a GPU all agents wait for the longest search,
so few attempts are better than tight bounds."""
_BAND = np.int32(20) * FREE_EDGE
"""Width of the near band: cells up to this much costlier than the nearest far cell are expanded together."""
_WORDS, _COUNTERS = CELLS // 32, 8
SHARED_PENDING, SHARED_COUNTERS = (1, 3 * _WORDS), (1, _COUNTERS)
_FAR = np.int32(2)
"""Index in `SearchBuffers.pending` of the far set, after the two worklists."""
VISIBLE, POSITION, CHANGED, REMAINING, _NEAREST_FAR, SPREAD = 2, 3, 4, 5, 6, 7
"""Indices in `SearchBuffers.counters` after the sizes of the two worklists."""


class SearchBuffers(NamedTuple):
    """Scratch memory of concurrent searches, one row each. Contents are undefined between calls."""

    cost_to_go: torch.Tensor
    """i32 [R, CELLS + 1]: path cost from each cell to the goal; the last entry, EVERYWHERE, is a sentinel."""
    worklist: torch.Tensor
    """i32 [R, 2 * CELLS]: two lists of cells, one to expand in this round and one for the next; they swap roles."""
    pending: torch.Tensor
    """i32 [R, 3 * CELLS / 32]: bit sets of the cells in each of the two worklists, and of the far cells."""
    counters: torch.Tensor
    """i32 [R, 8]: sizes of both worklists; VISIBLE: next path cells in line of sight; POSITION: index of the agent's
    cell on the kept path, MAX_PATH_CELLS where it is off the path; CHANGED: 1 where an edge of the rest of the path
    changed its cost; REMAINING: current cost of that rest; the cost-to-go of the nearest far cell; and SPREAD: number
    of cells that the searches of this step spread over."""

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> SearchBuffers:
        """Memory for `rows` concurrent searches."""
        sizes = CELLS + 1, 2 * CELLS, 3 * _WORDS, _COUNTERS
        return cls(*(torch.zeros(rows, size, dtype=torch.int32, device=device) for size in sizes))


@inline_function
def block_search(block, shared, search):
    """CUDA: the row of the search buffers that belongs to a block. `shared`: bit sets and counters in shared memory.

    Their shapes are SHARED_PENDING and SHARED_COUNTERS. Atomic operations are faster there than in global memory.
    """
    return SearchBuffers(search.cost_to_go[block : block + 1], search.worklist[block : block + 1], shared[0], shared[1])


# Bounds.


@inline_function
def next_slack(slack):
    """Slack of the bound in the attempt after one with this slack; 0 before the first."""
    return _GROWTH * slack if slack > 0 else _SLACK


@inline_function
def upper_bound(row, expected, slack, search):
    """Upper bound on the path cost of an attempt: expected cost plus slack, or the kept path's cost if close to that.

    The last attempt has no bound: rounding can move the goal to another cell, and then every path may be longer than
    the kept one.
    """
    remaining = search.counters[row, REMAINING] if search.counters[row, POSITION] < MAX_PATH_CELLS else UNREACHED
    if remaining <= expected + _GROWTH * _SLACK:
        return remaining if slack <= _SLACK else UNREACHED
    if slack < _MAX_SLACK:
        return expected + slack
    return remaining if slack < _GROWTH * _MAX_SLACK else UNREACHED


@inline_function
def is_done(row, here, bound, search):
    """True where the search reached the agent's cell, or another attempt could not reach it."""
    return here < 0 or bound >= UNREACHED or search.cost_to_go[row, here] < UNREACHED


# Worklists.


@lean_function
def clear_search(lane, lanes, row, search_out):
    """Mark all cells as unreached and empty the worklists. The lanes share the cells."""
    for cell in range(lane, CELLS + 1, lanes):
        search_out.cost_to_go[row, cell] = UNREACHED
    clear_worklists(lane, lanes, row, search_out)


@lean_function
def clear_worklists(lane, lanes, row, search_out):
    """Empty the worklists and the far set. The lanes share the words."""
    for word in range(lane, 3 * _WORDS, lanes):
        search_out.pending[row, word] = np.int32(0)
    for k in range(lane, 2, lanes):
        search_out.counters[row, k] = np.int32(0)


@lean_function
def begin_search(row, here, goal, search_out):
    """Put the goal's cell in the first worklist, if both cells are on the map."""
    if here >= 0 and goal >= 0:
        search_out.cost_to_go[row, goal] = np.int32(0)
        search_out.worklist[row, 0] = goal
        search_out.counters[row, 0] = np.int32(1)


@inline_function
def _offset(direction):
    """Rows and columns to one of eight neighbours; even directions share a side with the cell."""
    dr = np.int32(0) if direction % 4 == 2 else np.int32(1 if direction < 2 or direction > 6 else -1)
    dc = np.int32(0) if direction % 4 == 0 else np.int32(1 if direction < 4 else -1)
    return dr, dc


@inline_function
def _is_on_map(r, c):
    """True where a row and a column are on the map."""
    return r >= 0 and c >= 0 and r < SIDE and c < SIDE


@lean_function
def _expand(lane, lanes, i, row, phase, state, search_out):
    """Relax the edges of all cells in the current worklist. With eight or more lanes, eight lanes share a cell.

    `phase`: the agent's cell, the bound, the cost-to-go from which on cells are far, and the index of the current
    worklist, 0 or 1.
    """
    here, bound, limit, current = phase
    other, side = np.int32(1) - current, np.int32(SIDE)
    for k in range(lane // 8, search_out.counters[row, current], max(lanes // 8, 1)):
        cell = search_out.worklist[row, current * np.int32(CELLS) + k]
        emptied = current * np.int32(_WORDS) + (cell >> np.int32(5))
        search_out.pending[row, emptied] = np.int32(0)  # all cells with a bit in this word are expanded in this round
        begun, own, r, c = search_out.cost_to_go[row, cell], traversal_cost(i, cell, state), cell // side, cell % side
        if begun >= search_out.cost_to_go[row, here]:
            continue
        for direction in range(lane % 8, 8, min(lanes, 8)):
            dr, dc = _offset(np.int32(direction))
            if not _is_on_map(r + dr, c + dc):
                continue
            reached = cell + dr * side + dc
            cost = begun + edge_cost(i, cell, own, dr, dc, state)
            if cost >= search_out.cost_to_go[row, reached] or cost + octile_cost(reached, here) > bound:
                continue
            atomic_min(search_out.cost_to_go, row, reached, cost)
            bit = np.int32(1) << (reached & np.int32(31))
            part = other if cost < limit else _FAR
            word = part * np.int32(_WORDS) + (reached >> np.int32(5))
            if atomic_or(search_out.pending, row, word, bit) & bit == 0 and cost < limit:
                place = atomic_add(search_out.counters, row, other, np.int32(1))
                search_out.worklist[row, other * np.int32(CELLS) + place] = reached


@lean_function
def _empty_worklist(row, current, search_out):
    """Set the size of the current worklist to 0, and add it to SPREAD."""
    search_out.counters[row, SPREAD] += search_out.counters[row, current]
    search_out.counters[row, current] = np.int32(0)


@lean_function
def _reset_nearest_far(row, search_out):
    """Clear the cost-to-go of the nearest far cell."""
    search_out.counters[row, _NEAREST_FAR] = UNREACHED


@lean_function
def _find_nearest_far(lane, lanes, row, limit, search_out):
    """Find the lowest cost-to-go of the far cells. The lanes share the cells; cells below the limit were expanded."""
    nearest = UNREACHED
    for word in range(lane, _WORDS, lanes):
        bits = search_out.pending[row, _FAR * np.int32(_WORDS) + np.int32(word)]
        for k in range(32 if bits != 0 else 0):
            if (bits >> np.int32(k)) & np.int32(1):
                cost = search_out.cost_to_go[row, np.int32(word) * np.int32(32) + np.int32(k)]
                if limit <= cost < nearest:
                    nearest = cost
    if nearest < UNREACHED:
        atomic_min(search_out.counters, row, np.int32(_NEAREST_FAR), nearest)


@inline_function
def _next_limit(row, here, search):
    """Upper end of the next near band; 0 where no far cell can shorten the path."""
    nearest = search.counters[row, _NEAREST_FAR]
    if nearest >= UNREACHED or nearest >= search.cost_to_go[row, here]:
        return np.int32(0)
    return nearest + _BAND


@lean_function
def _move_near(lane, lanes, row, phase, search_out):
    """Move the far cells of the next near band to a worklist. The lanes share the cells.

    `phase`: upper ends of the finished band and of the next one, and the index of the worklist that is filled.
    """
    limit, following, current = phase
    for word in range(lane, _WORDS, lanes):
        far = _FAR * np.int32(_WORDS) + np.int32(word)
        bits, kept, moved = search_out.pending[row, far], np.int32(0), np.int32(0)
        for k in range(32 if bits != 0 else 0):
            bit = np.int32(1) << np.int32(k)
            if bits & bit:
                cell = np.int32(word) * np.int32(32) + np.int32(k)
                cost = search_out.cost_to_go[row, cell]
                if cost >= following:
                    kept |= bit
                elif cost >= limit:
                    moved |= bit
                    place = atomic_add(search_out.counters, row, current, np.int32(1))
                    search_out.worklist[row, current * np.int32(CELLS) + place] = cell
        search_out.pending[row, far] = kept
        search_out.pending[row, current * np.int32(_WORDS) + np.int32(word)] = moved


@inline_function
def cost_to_go(lane, lanes, i, row, ends, bound, state, search_out):
    """Compute `search_out.cost_to_go` of all cells that lie on a path within the bound. Synchronises the lanes.

    `ends`: cell of the agent, or EVERYWHERE; and cell of the goal. -1: off the map, no cell is reached.
    """
    here, goal = ends
    sync_lanes()
    clear_search(lane, lanes, row, search_out)
    sync_lanes()
    if lane == 0:
        begin_search(row, here, goal, search_out)
    sync_lanes()
    spread(lane, lanes, i, row, here, bound, state, search_out)


@inline_function
def spread(lane, lanes, i, row, here, bound, state, search_out):
    """Compute the cost-to-go from the cells in the first worklist, whose costs are set. Synchronises the lanes.

    `here`, `bound`: the agent's cell and the bound, as in `cost_to_go`.
    """
    current, limit = np.int64(0), np.int64(_BAND)  # as wide as what is assigned below: callees are compiled once
    while limit > 0:
        while search_out.counters[row, current] > 0:
            _expand(lane, lanes, i, row, (here, bound, limit, current), state, search_out)
            sync_lanes()
            if lane == 0:
                _empty_worklist(row, current, search_out)
            current = np.int32(1) - current
            sync_lanes()
        if lane == 0:
            _reset_nearest_far(row, search_out)
        sync_lanes()
        _find_nearest_far(lane, lanes, row, limit, search_out)
        sync_lanes()
        following = _next_limit(row, here, search_out)
        if following > 0:
            _move_near(lane, lanes, row, (limit, following, current), search_out)
        limit = following
        sync_lanes()


@inline_function
def next_cell(i, row, cell, state, search):
    """The next cell of a shortest path from a cell to the goal; the cell itself where there is none."""
    side = np.int32(SIDE)
    for direction in range(8):
        dr, dc = _offset(np.int32(direction))
        if _is_on_map(cell // side + dr, cell % side + dc):
            following = cell + dr * side + dc
            cost = search.cost_to_go[row, following]
            if cost < search.cost_to_go[row, cell]:
                cost += edge_cost(i, following, traversal_cost(i, following, state), -dr, -dc, state)
                if cost == search.cost_to_go[row, cell]:
                    return following
    return cell


# The kept path: the test whether it is still the shortest, and the extraction of a new one from the cost-to-go


@inline_function
def goal_position(i, agents):
    """World x and z of the goal, from the goal sensor's distance and bearing."""
    fx, fz = forward(agents.heading[i] + agents.goal[i, 1])
    rho = agents.goal[i, 0]
    return agents.position[i, 0] + rho * fx, agents.position[i, 2] + rho * fz


@inline_function
def locate(i, agents, state):
    """Map coordinates (u, v) of the agent and of its goal, in cells, then the cells of both; -1 off the map."""
    goal_x, goal_z = goal_position(i, agents)
    u, v = to_map(i, agents.position[i, 0], agents.position[i, 2], state.origin_and_resolution)
    goal_u, goal_v = to_map(i, goal_x, goal_z, state.origin_and_resolution)
    return u, v, goal_u, goal_v, cell_at(u, v), cell_at(goal_u, goal_v)


@inline_function
def bearing(du, dv, heading):
    """Bearing of an offset in map coordinates from an agent with a heading, radians, positive to the left."""
    fx, fz = forward(heading)
    return np.float32(math.atan2(du * fz - dv * fx, du * fx + dv * fz))


# Keeping a path.


@lean_function
def begin_check(row, search_out):
    """Assume that the agent is off its path, until `find_position` finds it there."""
    search_out.counters[row, POSITION], search_out.counters[row, CHANGED] = MAX_PATH_CELLS, 0
    search_out.counters[row, REMAINING], search_out.counters[row, SPREAD] = 0, 0


@lean_function
def find_position(lane, lanes, i, row, agents, state, search_out):
    """Find the agent's cell on its kept path. The lanes share the path's cells."""
    here, length = locate(i, agents, state)[4], state.path_length[i]
    if length > 0 and state.cost_to_go[i, length - 1] == 0:
        for k in range(lane, length, lanes):
            if state.path[i, k] == here:
                atomic_min(search_out.counters, row, np.int32(POSITION), np.int32(k))


@lean_function
def check_path(lane, lanes, i, row, state, search_out):
    """Sum the current costs of the remaining edges, and flag a change since planning. The lanes share the edges."""
    side = np.int32(SIDE)
    for k in range(search_out.counters[row, POSITION] + lane, state.path_length[i] - 1, lanes):
        cell, following = state.path[i, k], state.path[i, k + 1]
        dr, dc = cell // side - following // side, cell % side - following % side
        cost = edge_cost(i, following, traversal_cost(i, following, state), dr, dc, state)
        atomic_add(search_out.counters, row, np.int32(REMAINING), cost)
        if state.cost_to_go[i, k + 1] + cost != state.cost_to_go[i, k]:
            search_out.counters[row, CHANGED] = np.int32(1)


@inline_function
def is_kept(row, search):
    """True where the agent is on its path and no remaining edge changed its cost."""
    return search.counters[row, POSITION] < MAX_PATH_CELLS and search.counters[row, CHANGED] == 0


@inline_function
def is_scanning(i, state):
    """True during the initial scan, when the agent needs no path."""
    return state.remaining_scan[i] > 0


# A new path.


@inline_function
def expected_cost(i, agents, state):
    """Expected path cost: the cost at the previous step; without one, the cost over free cells."""
    _, _, _, _, here, goal = locate(i, agents, state)
    return state.expected_cost[i] if state.expected_cost[i] > 0 else octile_cost(goal, here)


@lean_function
def extract_path(i, row, here, search_out, state_out):
    """Store a shortest path from the agent's cell `here`, read from the cost-to-go; length 0 where there is none."""
    cell, length = here, np.int32(0)
    if here >= 0 and search_out.cost_to_go[row, here] < UNREACHED:
        while length < MAX_PATH_CELLS:
            state_out.path[i, length], state_out.cost_to_go[i, length] = cell, search_out.cost_to_go[row, cell]
            length += np.int32(1)
            if search_out.cost_to_go[row, cell] == 0:
                break
            cell = next_cell(i, row, cell, state_out, search_out)
    state_out.path_length[i], search_out.counters[row, POSITION] = length, np.int32(0)
