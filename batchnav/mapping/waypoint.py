"""Waypoint: the farthest path cell that the agent can head for in a straight line, and the path length through it.

The line of sight runs over the map. It is blocked by occupied cells, by closed edges (`quadrants`), by traversed
obstacles in which the agent collided, and next to cells with repeated collisions. The last rule is needed since agents
turn in steps and deviate from the line by up to half a turn. The waypoint itself may be an obstacle: a path through an
obstacle leads straight to it, so the agent collides with it instead of circling in front of it.
"""

from __future__ import annotations

import math

import numpy as np

from batchnav.geometry.pose import forward
from batchnav.mapping.costs import FREE_EDGE
from batchnav.mapping.shortest_path import POSITION, VISIBLE, bearing, is_scanning, locate
from batchnav.mapping.state import (
    cell_at,
    centre_of,
    collisions_while_traversed,
    is_closed,
    is_explored,
    is_inflated,
    is_near_obstacle,
    is_occupied,
    is_traversed,
    is_traversed_obstacle,
    touches_repeated_collision,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_min

LOOKAHEAD = 24
"""Number of next path cells that are tested for a line of sight, and shown on the egocentric map."""
_TWO = np.float32(2.0)
SAME_PLACE = np.float32(1e-5)
"""Metres in the plane below which an agent stands at its goal, whatever the goal's height in its file: the path to it
has no length."""
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


@inline_function
def _goal_distance(i, agents):
    """Distance of the goal in space, metres, as success measures it; the goal sensor's is that in the plane."""
    in_plane, rise = agents.goal[i, 0], agents.goal_level[i, 1] - agents.position[i, 1]
    if rise == np.float32(0.0) or in_plane < SAME_PLACE:
        return in_plane
    return np.float32(math.sqrt(in_plane * in_plane + rise * rise))


@lean_function
def write_waypoint(i, row, agents, search, state_out, waypoint_out):
    """Write distance and bearing of the waypoint, and store the path cost for the next step.

    The distance is the straight line to the waypoint plus the path cost from there, in metres of free cells. Distance
    and bearing are those of the goal where it is in line of sight or there is no path. During the initial scan the
    distance is that of the goal and the bearing is SCAN_BEARING.
    """
    u, v, _, _, _, goal = locate(i, agents, state_out)
    position, length = search.counters[row, POSITION], state_out.path_length[i]
    waypoint_out[i, 0], waypoint_out[i, 1] = _goal_distance(i, agents), agents.goal[i, 1]
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


# Egocentric map: an image of the map and the path around the agent, which is in the centre and faces up

PIXELS = 48
"""Pixels along a side of the image."""
_PIXEL = np.float32(0.25)
"""Side of a pixel, metres."""
_LEVELS = 10
UNKNOWN, EXPLORED, INFLATED, OCCUPIED, TRAVERSED, PATH, GOAL, FRONTIER = (
    np.float32((level + 0.5) / _LEVELS) for level in range(8)
)
"""Values of a pixel: centres of the first eight of ten equal ranges, so that an encoder can tell them apart."""
_HALF = np.float32(0.5)


@lean_function
def mark_path(i, row, state, search_out):
    """Mark the next path cells in the bit set of the first worklist, which is empty, for `_is_marked`."""
    position = search_out.counters[row, POSITION]
    for k in range(position + 1, min(position + 1 + LOOKAHEAD, state.path_length[i])):
        cell = state.path[i, k]
        search_out.pending[row, cell >> np.int32(5)] |= np.int32(1) << (cell & np.int32(31))


@inline_function
def _is_marked(row, cell, search):
    """True where `mark_path` marked a cell."""
    return (search.pending[row, cell >> np.int32(5)] >> (cell & np.int32(31))) & np.int32(1) == 1


@inline_function
def pixel_scale(i, state):
    """Side of a pixel in cells."""
    return _PIXEL / state.origin_and_resolution[i, 2]


@inline_function
def pixel_place(pixel, u, v, fx, fz, scale):
    """Map coordinates of a pixel's centre. (u, v): those of the agent; (fx, fz): its forward direction."""
    pixels = np.int32(PIXELS)
    r, c = np.int32(pixel) // pixels, np.int32(pixel) % pixels
    ahead = (np.float32(pixels // 2 - r) - _HALF) * scale
    right = (np.float32(c - pixels // 2) + _HALF) * scale
    return u + ahead * fx - right * fz, v + ahead * fz + right * fx


@inline_function
def cell_value(i, row, cell, state, search):
    """Value of a pixel from the cell at its centre; `cell`: -1 off the map."""
    value = UNKNOWN
    if cell >= 0:
        if _is_marked(row, cell, search):
            value = PATH
        elif is_occupied(state.occupancy[i, cell]):
            value = OCCUPIED
        elif is_traversed(state.explored[i, cell]):
            value = TRAVERSED
        elif is_inflated(state.occupancy[i, cell]):
            value = INFLATED
        elif is_explored(state.explored[i, cell]):
            value = EXPLORED
    return value


@lean_function
def render_ego_map(lane, lanes, i, row, agents, state, search, ego_map_out):
    """Render agent i's image in ego_map_out f32 [N, 1, PIXELS, PIXELS]. The lanes share the pixels."""
    fx, fz = forward(agents.heading[i])
    u, v, goal_u, goal_v, _, _ = locate(i, agents, state)
    scale = pixel_scale(i, state)
    for pixel in range(lane, PIXELS * PIXELS, lanes):
        at_u, at_v = pixel_place(pixel, u, v, fx, fz, scale)
        value = GOAL
        if abs(at_u - goal_u) >= scale or abs(at_v - goal_v) >= scale:
            value = cell_value(i, row, cell_at(at_u, at_v), state, search)
        ego_map_out[i, 0, np.int32(pixel) // np.int32(PIXELS), np.int32(pixel) % np.int32(PIXELS)] = value
