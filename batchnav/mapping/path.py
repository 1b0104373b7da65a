"""The kept path: the test whether it is still the shortest, and the extraction of a new one from the cost-to-go.

A path is kept as long as the agent is on it and none of its edges changed its cost. It then stays the shortest, since
costs mostly rise. Costs fall where the agent traverses an occupied cell, or sees ground next to a traversed obstacle;
integration then discards the path. Costs of unexplored cells also fall when they are seen or predicted again. A detour
may then become shorter than the kept path, which is still kept until one of its own edges changes. Keeping a path also
avoids oscillation, since a new search could choose another of several equal paths.

Parallelism: all lanes of an agent run each function together; functions without a `lane` argument run on one lane.
"""

from __future__ import annotations

import math

import numpy as np

from batchnav.geometry.pose import forward
from batchnav.mapping.costs import edge_cost, octile_cost, traversal_cost
from batchnav.mapping.shortest_path import CHANGED, POSITION, REMAINING, SPREAD, UNREACHED, next_cell
from batchnav.mapping.state import MAX_PATH_CELLS, SIDE, cell_at, to_map
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_min


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
