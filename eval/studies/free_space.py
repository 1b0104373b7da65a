"""A map of cells that an agent makes by looking, and the way over it: what `eval/studies/without_map.py` does at a step.

Compiled, in this order: what is known and what a cell costs; what an image tells; fast marching from the goal (Sethian,
"A fast marching level set method for monotonically advancing fronts", 1996) and the way down; looking, and going. In
between somebody may say what the unseen costs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP

CELL = 0.05
"""Metres."""
NEAR = 6
"""Cells around the agent that it knows, seen or not."""
BESIDE = 2
"""Cells around one in which a ray ended that are known: an agent's radius."""
TOLERANCE = 0.1
"""Metres by which a floor may be farther than what its ray met."""
OBSTACLE = 1.5
"""Metres above the navmesh up to which a hit is on what stands in the way: an agent's height."""
BLOCKED, MARGIN, BUMPED = np.float32(1000.0), np.float32(1.5), np.float32(4.0)
"""What a metre costs where one cannot stand, beside such a cell, and by how much more where a step fell short. Nothing
is impassable: a passage can be too narrow for the cells."""

njit = numba.njit(error_model="numpy", cache=True)


class Maps(NamedTuple):
    """What every agent knows. Rows of cells go along Z, columns along X."""

    free: np.ndarray
    """bool [N, R, C]: the truth, which it does not know."""
    known: np.ndarray
    """bool [N, R, C]."""
    cost: np.ndarray
    """f32 [N, R, C]: of a metre, as far as it knows."""
    dearer: np.ndarray
    """bool [N, R, C]: since it planned."""
    time: np.ndarray
    """f32 [N, R, C]: cost from there to the goal, in cells; inf where planning did not come to."""
    low: np.ndarray
    """f64 [N, 2]: x and z of the first cell's corner."""
    size: np.ndarray
    """i64 [N, 2]: rows and columns in use."""
    stale: np.ndarray
    """bool [N]: whether it has to plan anew for other reasons."""


class Settings(NamedTuple):
    """What is the same for all agents: metres and radians."""

    camera_height: float
    reach: float
    """To which depth 1 belongs."""
    views: np.ndarray
    """f64 [V]: by how much each camera looks to the left."""
    turn: float
    radius: float
    """Within which of the goal they stop."""
    unknown: float
    """What a metre of unknown cells costs."""


# One agent's map.


@njit
def reveal(i, r, c, maps):
    """A cell becomes known, and what is beside an obstacle dearer."""
    rows, columns = maps.size[i]
    if r < 0 or c < 0 or r >= rows or c >= columns or maps.known[i, r, c]:
        return
    maps.known[i, r, c], free = True, maps.free[i, r, c]
    cost = np.float32(1.0) if free else BLOCKED
    for nr in range(max(r - 1, 0), min(r + 2, rows)):
        for nc in range(max(c - 1, 0), min(c + 2, columns)):
            known = maps.known[i, nr, nc]
            if not free and maps.cost[i, nr, nc] < MARGIN:
                maps.cost[i, nr, nc], maps.dearer[i, nr, nc] = MARGIN, True
            elif free and known and not maps.free[i, nr, nc]:
                cost = MARGIN
    maps.stale[i] |= cost < maps.cost[i, r, c]
    maps.dearer[i, r, c] |= cost > maps.cost[i, r, c]
    maps.cost[i, r, c] = cost


@njit
def reveal_all(i, maps):
    """The whole map."""
    for r in range(maps.size[i, 0]):
        for c in range(maps.size[i, 1]):
            reveal(i, r, c, maps)


@njit
def set_unseen(i, unseen, maps):
    """What a metre of the unseen cells costs, f32 [rows, columns]; beside an obstacle no less than it did."""
    rows, columns = maps.size[i]
    for r in range(rows):
        for c in range(columns):
            if maps.known[i, r, c]:
                continue
            maps.cost[i, r, c] = unseen[r, c]
            for nr in range(max(r - 1, 0), min(r + 2, rows)):
                for nc in range(max(c - 1, 0), min(c + 2, columns)):
                    if maps.known[i, nr, nc] and not maps.free[i, nr, nc]:
                        maps.cost[i, r, c] = max(unseen[r, c], MARGIN)
    maps.stale[i] = True


@njit
def look(i, settings, heading, depth, x, z, maps):
    """What one camera's image f32 [H, W] tells, from x and z in cells."""
    height, width = depth.shape
    fx, fz = -math.sin(heading), -math.cos(heading)
    look_at_floor(i, settings, fx, fz, depth, x, z, maps)
    for row in range(height):
        up = (height - 1 - 2 * row) / width
        for column in range(width):
            metres, right = depth[row, column] * settings.reach, (2 * column + 1 - width) / width
            level = settings.camera_height + up * metres
            if 0.0 < metres < 0.999 * settings.reach and 0.0 < level < OBSTACLE:
                hit_c = int(x + metres / CELL * (fx - right * fz))
                hit_r = int(z + metres / CELL * (fz + right * fx))
                for r in range(max(hit_r - BESIDE, 0), min(hit_r + BESIDE + 1, maps.size[i, 0])):
                    for c in range(max(hit_c - BESIDE, 0), min(hit_c + BESIDE + 1, maps.size[i, 1])):
                        if not maps.known[i, r, c]:  # most are: a call would cost more than all else here
                            reveal(i, r, c, maps)


@njit
def look_at_floor(i, settings, fx, fz, depth, x, z, maps):
    """The cells whose floor is not hidden; what is below the image is seen as far as its lowest row is free."""
    height, width = depth.shape
    reach = int(settings.reach * math.sqrt(2.0) / CELL)
    for r in range(max(0, int(z) - reach), min(maps.size[i, 0], int(z) + reach)):
        for c in range(max(0, int(x) - reach), min(maps.size[i, 1], int(x) + reach)):
            if maps.known[i, r, c]:
                continue
            dx, dz = (c + 0.5 - x) * CELL, (r + 0.5 - z) * CELL
            ahead, right = dx * fx + dz * fz, dz * fx - dx * fz
            if ahead <= 0.0 or ahead >= settings.reach or abs(right) >= ahead:
                continue
            column = min(width - 1, int((right / ahead + 1.0) * 0.5 * width))
            row = min(height - 1, int((height / width + settings.camera_height / ahead) * 0.5 * width))
            below = (2 * row + 1 - height) / width
            if depth[row, column] * settings.reach >= min(ahead, settings.camera_height / below) - TOLERANCE:
                reveal(i, r, c, maps)


# One agent's plan. Own heaps: lists of tuples take twice as long.


@njit
def push(key, cell, size, keys, cells):
    """Onto a binary heap of `size` entries."""
    k = size
    while k > 0 and keys[(k - 1) >> 1] > key:
        keys[k], cells[k] = keys[(k - 1) >> 1], cells[(k - 1) >> 1]
        k = (k - 1) >> 1
    keys[k], cells[k] = key, cell


@njit
def pop(size, keys, cells):
    """The cell of the least key, from a binary heap of `size` entries."""
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
def arrival(r, c, cost, time):
    """The eikonal equation's time at a cell, of first order, from its neighbours'."""
    rows, columns = time.shape
    a = min(time[max(r - 1, 0), c], time[min(r + 1, rows - 1), c])
    b = min(time[r, max(c - 1, 0)], time[r, min(c + 1, columns - 1)])
    if abs(a - b) >= cost:
        return min(a, b) + cost
    return np.float32(0.5) * (a + b + np.float32(math.sqrt(2.0 * cost * cost - (a - b) * (a - b))))


@njit
def plan(i, agent_r, agent_c, goal_x, goal_z, maps):
    """Cost from every cell to the goal, as far as to just beyond the agent."""
    rows, columns = maps.size[i]
    cost, time = maps.cost[i, :rows, :columns], maps.time[i, :rows, :columns]
    time[:] = np.inf
    maps.dearer[i, :rows, :columns], maps.stale[i] = False, False
    done = np.zeros((rows, columns), np.bool_)
    # A cell is pushed by each of its neighbours once at most.
    keys, cells = np.empty(4 * rows * columns + 32, np.float32), np.empty(4 * rows * columns + 32, np.int64)
    size, last = 0, np.float32(np.inf)
    for r in range(max(int(goal_z) - 1, 0), min(int(goal_z) + 2, rows)):
        for c in range(max(int(goal_x) - 1, 0), min(int(goal_x) + 2, columns)):
            time[r, c] = math.hypot(r + 0.5 - goal_z, c + 0.5 - goal_x)
            push(time[r, c], r * columns + c, size, keys, cells)
            size += 1
    while size > 0:
        cell = pop(size, keys, cells)
        size -= 1
        r, c = cell // columns, cell % columns
        if done[r, c]:
            continue
        done[r, c] = True
        if time[r, c] > last:
            break
        if r == agent_r and c == agent_c:
            last = time[r, c] + np.float32(2.0 * NEAR)
        for k in range(4):
            nr, nc = r + (k == 0) - (k == 1), c + (k == 2) - (k == 3)
            if nr < 0 or nc < 0 or nr >= rows or nc >= columns or done[nr, nc]:
                continue
            found = arrival(nr, nc, cost[nr, nc], time)
            if found < time[nr, nc]:
                time[nr, nc] = found
                push(found, nr * columns + nc, size, keys, cells)
                size += 1


@njit
def descend(i, r, c, goal_x, goal_z, maps, path_out):
    """The steepest way down to the goal into `path_out` f64 [K, 2]: how many points; 0 where the plan will not do."""
    rows, columns = maps.size[i]
    time = maps.time[i, :rows, :columns]
    for count in range(len(path_out)):
        if math.hypot(goal_x - c - 0.5, goal_z - r - 0.5) < 1.5:
            path_out[count] = goal_x, goal_z
            return count + 1
        if time[r, c] == np.inf or maps.dearer[i, r, c]:
            return 0
        steepest, to_r, to_c = 0.0, r, c
        for nr in range(max(r - 1, 0), min(r + 2, rows)):
            for nc in range(max(c - 1, 0), min(c + 2, columns)):
                fall = (time[r, c] - time[nr, nc]) / max(math.hypot(nr - r, nc - c), 1.0)
                if fall > steepest:
                    steepest, to_r, to_c = fall, nr, nc
        if to_r == r and to_c == c:
            return 0
        r, c = to_r, to_c
        path_out[count] = c + 0.5, r + 0.5
    return 0


@njit
def clear(i, x, z, to_x, to_z, dearest, maps):
    """Whether a straight line meets no cell that costs more than so much, but where it begins."""
    length = math.hypot(to_x - x, to_z - z)
    steps = int(2.0 * length) + 1
    for k in range(min(3, steps), steps + 1):
        share = k / steps
        if maps.cost[i, int(z + share * (to_z - z)), int(x + share * (to_x - x))] > dearest:
            return False
    return True


@njit
def aim(i, x, z, goal_x, goal_z, unknown, maps):
    """Where to walk to: the farthest point of the planned way that lies in a straight line; it plans where it must."""
    path = np.empty((4 * (maps.size[i, 0] + maps.size[i, 1]), 2))
    count = 0 if maps.stale[i] else descend(i, int(z), int(x), goal_x, goal_z, maps, path)
    if count == 0:
        plan(i, int(z), int(x), goal_x, goal_z, maps)
        count = descend(i, int(z), int(x), goal_x, goal_z, maps, path)
    dearest, most = max(MARGIN, np.float32(unknown)), np.empty(count, np.float32)
    for k in range(count):  # a short cut is no dearer than the unseen that the way to there leads through
        r, c = int(path[k, 1]), int(path[k, 0])
        if not maps.known[i, r, c] and dearest < maps.cost[i, r, c] < BLOCKED:
            dearest = maps.cost[i, r, c]
        most[k] = dearest
    for k in range(count - 1, -1, -1):
        near = math.hypot(path[k, 0] - x, path[k, 1] - z) < 2.0
        if near or clear(i, x, z, path[k, 0], path[k, 1], most[k], maps):
            return path[k, 0], path[k, 1]
    return goal_x, goal_z


@njit
def choose(heading, dx, dz, turn, before):
    """Forward or a turn; never back from a turn just made, which could go on for ever."""
    error = math.atan2(-dx, -dz) - heading
    error -= 2.0 * math.pi * math.floor(error / (2.0 * math.pi) + 0.5)
    if abs(error) <= 0.5 * turn:
        return FORWARD
    action = LEFT if error > 0.0 else RIGHT
    if before + action == LEFT + RIGHT and before != FORWARD and before != STOP:
        return FORWARD if abs(error) < 3.0 * turn else before
    return action


@njit
def look_around(i, settings, depth, position, heading, fell_short, maps):
    """What one agent learns from its images f32 [V, H, W], from where it stands, and from a step that fell short."""
    x, z = (position[0] - maps.low[i, 0]) / CELL, (position[2] - maps.low[i, 1]) / CELL
    here_r, here_c = int(z), int(x)
    for k in range(1, 4 if fell_short else 1):  # what is just ahead
        r, c = int(z - k * math.cos(heading)), int(x - k * math.sin(heading))
        maps.cost[i, r, c] += BUMPED
        maps.dearer[i, r, c] = True
    for view in range(len(depth)):
        look(i, settings, heading + settings.views[view], depth[view], x, z, maps)
    for r in range(here_r - NEAR, here_r + NEAR + 1):
        for c in range(here_c - NEAR, here_c + NEAR + 1):
            if (r - here_r) ** 2 + (c - here_c) ** 2 <= NEAR * NEAR:
                reveal(i, r, c, maps)
    maps.cost[i, here_r, here_c] = min(maps.cost[i, here_r, here_c], MARGIN)  # it stands there


@numba.njit(error_model="numpy", parallel=True, cache=True)
def look_all(settings, depth, positions, headings, playing, fell_short, maps):
    """`look_around` of every agent that plays."""
    for k in prange(len(playing)):
        i = np.int64(k)  # prange counts in unsigned integers
        if playing[i]:
            look_around(i, settings, depth[i], positions[i], headings[i], fell_short[i], maps)


@njit
def go(i, settings, position, heading, goal, before, maps):
    """One agent's action."""
    if math.hypot(goal[0] - position[0], goal[2] - position[2]) < settings.radius:
        return STOP
    x, z = (position[0] - maps.low[i, 0]) / CELL, (position[2] - maps.low[i, 1]) / CELL
    goal_x, goal_z = (goal[0] - maps.low[i, 0]) / CELL, (goal[2] - maps.low[i, 1]) / CELL
    to_x, to_z = aim(i, x, z, goal_x, goal_z, settings.unknown, maps)
    return choose(heading, to_x - x, to_z - z, settings.turn, before)


@numba.njit(error_model="numpy", parallel=True, cache=True)
def go_all(settings, positions, headings, goals, playing, maps, actions_out):
    """`go` of every agent that plays, from its last action to its next; the others turn on the spot."""
    for k in prange(len(actions_out)):
        i, action = np.int64(k), LEFT  # prange counts in unsigned integers
        if playing[i]:
            action = go(i, settings, positions[i], headings[i], goals[i], actions_out[i], maps)
        actions_out[i] = action
