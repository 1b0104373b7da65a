"""Waypoint: the farthest path cell that the agent can head for in a straight line, and the path length through it.

The line of sight runs over the map. It is blocked by occupied cells, by closed edges (`quadrants`), by traversed
obstacles in which the agent collided, and next to cells with repeated collisions. The last rule is needed since agents
turn in steps and deviate from the line by up to half a turn. The waypoint itself may be an obstacle: a path through an
obstacle leads straight to it, so the agent collides with it instead of circling in front of it.
"""

from __future__ import annotations

import math

import numpy as np

from batchnav.mapping.costs import FREE_EDGE
from batchnav.mapping.path import bearing, is_scanning, locate
from batchnav.mapping.quadrants import is_closed
from batchnav.mapping.shortest_path import POSITION, VISIBLE
from batchnav.mapping.state import (
    cell_at,
    centre_of,
    collisions_while_traversed,
    is_near_obstacle,
    is_occupied,
    is_traversed_obstacle,
    touches_repeated_collision,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_min

LOOKAHEAD = 24
"""Number of next path cells that are tested for a line of sight, and shown on the egocentric map."""
_TWO = np.float32(2.0)
SCAN_BEARING = np.float32(math.pi / 2)
"""Bearing of the waypoint during the initial scan and without a target, radians: a quarter turn to the left."""


@inline_function
def _blocks_sight(i, cell, state):
    """True where a cell blocks a line of sight."""
    occupancy = state.occupancy[i, cell]
    if is_traversed_obstacle(occupancy) and collisions_while_traversed(state.explored[i, cell]) > 0:
        return True
    return is_occupied(occupancy) or (is_near_obstacle(occupancy) and touches_repeated_collision(i, cell, state))


@inline_function
def _has_line_of_sight(i, u, v, to_u, to_v, state):
    """True where no cell and no edge blocks the line between two points, in map coordinates.

    The line's last cell is not tested, nor is the edge to it. In the first half cell of the line only edges count.
    """
    du, dv, last = to_u - u, to_v - v, cell_at(to_u, to_v)
    steps = np.int32(_TWO * np.float32(math.sqrt(du * du + dv * dv))) + np.int32(1)
    before = cell_at(u, v)
    for k in range(1, steps + 1):
        share = np.float32(k) / np.float32(steps)
        cell = cell_at(u + share * du, v + share * dv)
        if cell == last:
            break
        if cell < 0 or (before >= 0 and is_closed(i, before, cell, state)):
            return False
        if k > 1 and _blocks_sight(i, cell, state):
            return False
        before = cell
    return True


@lean_function
def begin_waypoint(row, search_out):
    """Assume that all next path cells are in line of sight, until `find_waypoint` finds one that is not."""
    search_out.counters[row, VISIBLE] = LOOKAHEAD


@lean_function
def find_waypoint(lane, lanes, i, row, agents, state, search_out):
    """Count the next path cells in line of sight, up to the first that is not. The lanes share the cells."""
    u, v, _, _, _, _ = locate(i, agents, state)
    position = search_out.counters[row, POSITION]
    for k in range(lane, min(LOOKAHEAD, state.path_length[i] - 1 - position), lanes):
        to_u, to_v = centre_of(state.path[i, position + 1 + k])
        if not _has_line_of_sight(i, u, v, to_u, to_v, state):
            atomic_min(search_out.counters, row, np.int32(VISIBLE), np.int32(k))
            break


@lean_function
def write_waypoint(i, row, agents, search, state_out, waypoint_out):
    """Write distance and bearing of the waypoint, and store the path cost for the next step.

    The distance is the straight line to the waypoint plus the path cost from there, in metres of free cells. Distance
    and bearing are those of the goal sensor where the goal is in line of sight or there is no path. During the initial
    scan the distance is the goal sensor's and the bearing is SCAN_BEARING.
    """
    u, v, _, _, _, goal = locate(i, agents, state_out)
    position, length = search.counters[row, POSITION], state_out.path_length[i]
    waypoint_out[i, 0], waypoint_out[i, 1] = agents.goal[i, 0], agents.goal[i, 1]
    state_out.expected_cost[i] = state_out.cost_to_go[i, position] if length > 0 else np.int32(0)
    if is_scanning(i, state_out):
        waypoint_out[i, 1] = SCAN_BEARING
        return
    # the farthest cell in line of sight, and at least the next one
    target = min(position + max(search.counters[row, VISIBLE], np.int32(1)), length - np.int32(1))
    if target <= position or state_out.path[i, target] == goal:
        return
    to_u, to_v = centre_of(state_out.path[i, target])
    du, dv = to_u - u, to_v - v
    waypoint_out[i, 1] = bearing(du, dv, agents.heading[i])
    if target > position + 1 and is_occupied(state_out.occupancy[i, state_out.path[i, target]]):
        target -= np.int32(1)  # so that the distance includes the cost of passing the obstacle
        to_u, to_v = centre_of(state_out.path[i, target])
        du, dv = to_u - u, to_v - v
    beyond = np.float32(state_out.cost_to_go[i, target]) / np.float32(FREE_EDGE)
    distance = np.float32(math.sqrt(du * du + dv * dv)) + beyond
    waypoint_out[i, 0] = distance * state_out.origin_and_resolution[i, 2]
