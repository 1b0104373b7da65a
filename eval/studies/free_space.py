"""Grid map and path planner of the agent in `eval/studies/without_map.py`, as compiled functions.

A step of all agents is `update_maps`, then `act_all`; `set_unexplored_cost` may be called between them. The path
follows from fast marching (Sethian, "A fast marching level set method for monotonically advancing fronts", 1996).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP

CELL = 0.05
"""Side of a cell, metres."""
KNOWN_RADIUS = 6
"""Cells around the agent that are always explored."""
HIT_RADIUS = 2
"""Cells around a depth hit that become explored: the agent's radius."""
TOLERANCE = 0.1
"""Distance by which a visible floor cell may be farther than the measured depth, metres."""
OBSTACLE_HEIGHT = 1.5
"""Height above the navmesh below which a hit is an obstacle, metres: the agent's height."""
BLOCKED, INFLATED, COLLISION = np.float32(1000.0), np.float32(1.5), np.float32(4.0)
"""Cost per metre of a blocked cell and of a cell next to one, and the cost that a collision adds. All costs are finite,
since a passage can be narrower than the grid resolves."""

njit = numba.njit(error_model="numpy", cache=True)


class Maps(NamedTuple):
    """Maps of N agents. Rows of cells go along Z, columns along X."""

    free: np.ndarray
    """bool [N, R, C]: True where a cell is navigable; ground truth, which the agent sees only in explored cells."""
    explored: np.ndarray
    """bool [N, R, C]: True where the agent has seen a cell."""
    cost: np.ndarray
    """f32 [N, R, C]: traversal cost per metre, from explored cells and collisions."""
    increased: np.ndarray
    """bool [N, R, C]: True where the cost increased since the last planning."""
    cost_to_go: np.ndarray
    """f32 [N, R, C]: path cost from a cell to the goal, in cells; inf where planning did not reach."""
    origin: np.ndarray
    """f64 [N, 2]: x and z of the first cell's corner, metres."""
    size: np.ndarray
    """i64 [N, 2]: rows and columns in use."""
    outdated: np.ndarray
    """bool [N]: True where the agent has to plan again, because the map is new or a cost has decreased."""


class MapperSettings(NamedTuple):
    """Parameters that all agents share, in metres and radians."""

    camera_height: float
    reach: float
    """Depth that an image value of 1 stands for: the sensor's range."""
    turn_angle: float
    stop_radius: float
    """Distance to the goal within which an agent stops."""


# Map of one agent.


@njit
def explore(i, r, c, maps):
    """Mark a cell as explored; an obstacle increases the cost of the cells next to it."""
    rows, columns = maps.size[i]
    if r < 0 or c < 0 or r >= rows or c >= columns or maps.explored[i, r, c]:
        return
    maps.explored[i, r, c], free = True, maps.free[i, r, c]
    cost = np.float32(1.0) if free else BLOCKED
    for nr in range(max(r - 1, 0), min(r + 2, rows)):
        for nc in range(max(c - 1, 0), min(c + 2, columns)):
            explored = maps.explored[i, nr, nc]
            if not free and maps.cost[i, nr, nc] < INFLATED:
                maps.cost[i, nr, nc], maps.increased[i, nr, nc] = INFLATED, True
            elif free and explored and not maps.free[i, nr, nc]:
                cost = INFLATED
    maps.outdated[i] |= cost < maps.cost[i, r, c]
    maps.increased[i, r, c] |= cost > maps.cost[i, r, c]
    maps.cost[i, r, c] = cost


@njit
def set_unexplored_cost(i, cost, maps):
    """Set the costs per metre of unexplored cells, f32 [rows, columns]; next to an obstacle at least INFLATED."""
    rows, columns = maps.size[i]
    for r in range(rows):
        for c in range(columns):
            if maps.explored[i, r, c]:
                continue
            maps.cost[i, r, c] = cost[r, c]
            for nr in range(max(r - 1, 0), min(r + 2, rows)):
                for nc in range(max(c - 1, 0), min(c + 2, columns)):
                    if maps.explored[i, nr, nc] and not maps.free[i, nr, nc]:
                        maps.cost[i, r, c] = max(cost[r, c], INFLATED)
    maps.outdated[i] = True


@njit
def integrate_depth(i, settings, heading, depth, x, z, maps):
    """Mark the cells that a depth image f32 [H, W] shows as explored; `x` and `z`: the camera's position in cells."""
    height, width = depth.shape
    fx, fz = -math.sin(heading), -math.cos(heading)
    integrate_floor(i, settings, fx, fz, depth, x, z, maps)
    for row in range(height):
        up = (height - 1 - 2 * row) / width
        for column in range(width):
            metres, right = depth[row, column] * settings.reach, (2 * column + 1 - width) / width
            level = settings.camera_height + up * metres
            if 0.0 < metres < 0.999 * settings.reach and 0.0 < level < OBSTACLE_HEIGHT:
                hit_c = int(x + metres / CELL * (fx - right * fz))
                hit_r = int(z + metres / CELL * (fz + right * fx))
                for r in range(max(hit_r - HIT_RADIUS, 0), min(hit_r + HIT_RADIUS + 1, maps.size[i, 0])):
                    for c in range(max(hit_c - HIT_RADIUS, 0), min(hit_c + HIT_RADIUS + 1, maps.size[i, 1])):
                        if not maps.explored[i, r, c]:  # test here: most cells are explored, and a call is slow
                            explore(i, r, c, maps)


@njit
def integrate_floor(i, settings, fx, fz, depth, x, z, maps):
    """Mark the cells whose floor is visible as explored.

    Floor below the image counts as visible where the image's lowest row sees no obstacle.
    """
    height, width = depth.shape
    reach = int(settings.reach * math.sqrt(2.0) / CELL)
    for r in range(max(0, int(z) - reach), min(maps.size[i, 0], int(z) + reach)):
        for c in range(max(0, int(x) - reach), min(maps.size[i, 1], int(x) + reach)):
            if maps.explored[i, r, c]:
                continue
            dx, dz = (c + 0.5 - x) * CELL, (r + 0.5 - z) * CELL
            ahead, right = dx * fx + dz * fz, dz * fx - dx * fz
            if ahead <= 0.0 or ahead >= settings.reach or abs(right) >= ahead:
                continue
            column = min(width - 1, int((right / ahead + 1.0) * 0.5 * width))
            row = min(height - 1, int((height / width + settings.camera_height / ahead) * 0.5 * width))
            below = (2 * row + 1 - height) / width
            if depth[row, column] * settings.reach >= min(ahead, settings.camera_height / below) - TOLERANCE:
                explore(i, r, c, maps)


# Path of one agent. The binary heap is two arrays, since Numba's lists of tuples take twice as long.


@njit
def push(key, cell, size, keys, cells):
    """Insert an entry into a binary heap of `size` entries."""
    k = size
    while k > 0 and keys[(k - 1) >> 1] > key:
        keys[k], cells[k] = keys[(k - 1) >> 1], cells[(k - 1) >> 1]
        k = (k - 1) >> 1
    keys[k], cells[k] = key, cell


@njit
def pop(size, keys, cells):
    """Remove the entry with the smallest key from a binary heap of `size` entries; returns its cell."""
    top, key, cell = cells[0], keys[size - 1], cells[size - 1]
    k = 0
    while 2 * k + 1 < size - 1:
        child = 2 * k + 1
        if child + 1 < size - 1 and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[k], cells[k] = keys[child], cells[child]
        k = child
    keys[k], cells[k] = key, cell
    return top


@njit
def eikonal_update(r, c, cost, cost_to_go):
    """First-order solution of the eikonal equation at a cell, from the values of its neighbours."""
    rows, columns = cost_to_go.shape
    a = min(cost_to_go[max(r - 1, 0), c], cost_to_go[min(r + 1, rows - 1), c])
    b = min(cost_to_go[r, max(c - 1, 0)], cost_to_go[r, min(c + 1, columns - 1)])
    if abs(a - b) >= cost:
        return min(a, b) + cost
    return np.float32(0.5) * (a + b + np.float32(math.sqrt(2.0 * cost * cost - (a - b) * (a - b))))


@njit
def march(i, agent_r, agent_c, goal_x, goal_z, maps):
    """Compute the cost-to-go by fast marching from the goal, up to that of the agent plus 2 * KNOWN_RADIUS."""
    rows, columns = maps.size[i]
    cost, cost_to_go = maps.cost[i, :rows, :columns], maps.cost_to_go[i, :rows, :columns]
    cost_to_go[:] = np.inf
    maps.increased[i, :rows, :columns], maps.outdated[i] = False, False
    done = np.zeros((rows, columns), np.bool_)
    # Each neighbour of a cell pushes it at most once.
    keys, cells = np.empty(4 * rows * columns + 32, np.float32), np.empty(4 * rows * columns + 32, np.int64)
    size, last = 0, np.float32(np.inf)
    for r in range(max(int(goal_z) - 1, 0), min(int(goal_z) + 2, rows)):
        for c in range(max(int(goal_x) - 1, 0), min(int(goal_x) + 2, columns)):
            cost_to_go[r, c] = math.hypot(r + 0.5 - goal_z, c + 0.5 - goal_x)
            push(cost_to_go[r, c], r * columns + c, size, keys, cells)
            size += 1
    while size > 0:
        cell = pop(size, keys, cells)
        size -= 1
        r, c = cell // columns, cell % columns
        if done[r, c]:
            continue
        done[r, c] = True
        if cost_to_go[r, c] > last:
            break
        if r == agent_r and c == agent_c:
            last = cost_to_go[r, c] + np.float32(2.0 * KNOWN_RADIUS)
        for k in range(4):
            nr, nc = r + (k == 0) - (k == 1), c + (k == 2) - (k == 3)
            if nr < 0 or nc < 0 or nr >= rows or nc >= columns or done[nr, nc]:
                continue
            found = eikonal_update(nr, nc, cost[nr, nc], cost_to_go)
            if found < cost_to_go[nr, nc]:
                cost_to_go[nr, nc] = found
                push(found, nr * columns + nc, size, keys, cells)
                size += 1


@njit
def extract_path(i, r, c, goal_x, goal_z, maps, path_out):
    """Write the path of steepest descent to the goal to `path_out` f64 [K, 2]; returns its number of points.

    0 means that a new plan is needed: the path leaves the planned cells or meets a cell whose cost increased.
    """
    rows, columns = maps.size[i]
    cost_to_go = maps.cost_to_go[i, :rows, :columns]
    for count in range(len(path_out)):
        if math.hypot(goal_x - c - 0.5, goal_z - r - 0.5) < 1.5:
            path_out[count] = goal_x, goal_z
            return count + 1
        if cost_to_go[r, c] == np.inf or maps.increased[i, r, c]:
            return 0
        steepest, to_r, to_c = 0.0, r, c
        for nr in range(max(r - 1, 0), min(r + 2, rows)):
            for nc in range(max(c - 1, 0), min(c + 2, columns)):
                fall = (cost_to_go[r, c] - cost_to_go[nr, nc]) / max(math.hypot(nr - r, nc - c), 1.0)
                if fall > steepest:
                    steepest, to_r, to_c = fall, nr, nc
        if to_r == r and to_c == c:
            return 0
        r, c = to_r, to_c
        path_out[count] = c + 0.5, r + 0.5
    return 0


@njit
def is_cheap_line(i, x, z, to_x, to_z, limit, maps):
    """Return True if no cell of a straight line costs more than `limit`; the cells next to the agent do not count."""
    length = math.hypot(to_x - x, to_z - z)
    steps = int(2.0 * length) + 1
    for k in range(min(3, steps), steps + 1):
        share = k / steps
        if maps.cost[i, int(z + share * (to_z - z)), int(x + share * (to_x - x))] > limit:
            return False
    return True


@njit
def waypoint(i, x, z, goal_x, goal_z, maps):
    """Next waypoint, in cells: the farthest path point that a straight line reaches at no higher cost per metre.

    Plans again where necessary.
    """
    path = np.empty((4 * (maps.size[i, 0] + maps.size[i, 1]), 2))
    count = 0 if maps.outdated[i] else extract_path(i, int(z), int(x), goal_x, goal_z, maps, path)
    if count == 0:
        march(i, int(z), int(x), goal_x, goal_z, maps)
        count = extract_path(i, int(z), int(x), goal_x, goal_z, maps, path)
    limit, limits = INFLATED, np.empty(count, np.float32)
    for k in range(count):  # highest cost per metre among the unexplored cells of the path up to point k
        r, c = int(path[k, 1]), int(path[k, 0])
        if not maps.explored[i, r, c] and limit < maps.cost[i, r, c] < BLOCKED:
            limit = maps.cost[i, r, c]
        limits[k] = limit
    for k in range(count - 1, -1, -1):
        near = math.hypot(path[k, 0] - x, path[k, 1] - z) < 2.0
        if near or is_cheap_line(i, x, z, path[k, 0], path[k, 1], limits[k], maps):
            return path[k, 0], path[k, 1]
    return goal_x, goal_z


@njit
def choose_action(heading, dx, dz, turn_angle, previous):
    """Action towards the direction (dx, dz): forward or a turn.

    A turn never reverses the previous one: left and right turns could alternate without end.
    """
    error = math.atan2(-dx, -dz) - heading
    error -= 2.0 * math.pi * math.floor(error / (2.0 * math.pi) + 0.5)
    if abs(error) <= 0.5 * turn_angle:
        return FORWARD
    action = LEFT if error > 0.0 else RIGHT
    if previous + action == LEFT + RIGHT and previous != FORWARD and previous != STOP:
        return FORWARD if abs(error) < 3.0 * turn_angle else previous
    return action


@njit
def update_map(i, settings, depth, position, heading, fell_short, maps):
    """Update one agent's map from its image f32 [H, W] and its pose; `fell_short`: its last step was blocked."""
    x, z = (position[0] - maps.origin[i, 0]) / CELL, (position[2] - maps.origin[i, 1]) / CELL
    here_r, here_c = int(z), int(x)
    for k in range(1, 4 if fell_short else 1):  # the cells in front of the agent
        r, c = int(z - k * math.cos(heading)), int(x - k * math.sin(heading))
        maps.cost[i, r, c] += COLLISION
        maps.increased[i, r, c] = True
    integrate_depth(i, settings, heading, depth, x, z, maps)
    for r in range(here_r - KNOWN_RADIUS, here_r + KNOWN_RADIUS + 1):
        for c in range(here_c - KNOWN_RADIUS, here_c + KNOWN_RADIUS + 1):
            if (r - here_r) ** 2 + (c - here_c) ** 2 <= KNOWN_RADIUS * KNOWN_RADIUS:
                explore(i, r, c, maps)
    maps.cost[i, here_r, here_c] = min(maps.cost[i, here_r, here_c], INFLATED)  # the agent is there


@numba.njit(error_model="numpy", parallel=True, cache=True)
def update_maps(settings, depth, positions, headings, playing, fell_short, maps):
    """Call `update_map` for every agent with `playing` set."""
    for k in prange(len(playing)):
        i = np.int64(k)  # prange indices are unsigned
        if playing[i]:
            update_map(i, settings, depth[i], positions[i], headings[i], fell_short[i], maps)


@njit
def act(i, settings, position, heading, goal, previous, maps):
    """Next action of one agent, after its action `previous`."""
    if math.hypot(goal[0] - position[0], goal[2] - position[2]) < settings.stop_radius:
        return STOP
    x, z = (position[0] - maps.origin[i, 0]) / CELL, (position[2] - maps.origin[i, 1]) / CELL
    goal_x, goal_z = (goal[0] - maps.origin[i, 0]) / CELL, (goal[2] - maps.origin[i, 1]) / CELL
    to_x, to_z = waypoint(i, x, z, goal_x, goal_z, maps)
    return choose_action(heading, to_x - x, to_z - z, settings.turn_angle, previous)


@numba.njit(error_model="numpy", parallel=True, cache=True)
def act_all(settings, positions, headings, goals, playing, maps, actions_out):
    """Call `act` for every agent with `playing` set; other agents turn left.

    `actions_out` i64 [N] holds the previous actions before the call, and the next ones after it.
    """
    for k in prange(len(actions_out)):
        i, action = np.int64(k), LEFT  # prange indices are unsigned
        if playing[i]:
            action = act(i, settings, positions[i], headings[i], goals[i], actions_out[i], maps)
        actions_out[i] = action
