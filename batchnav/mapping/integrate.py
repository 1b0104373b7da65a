"""Integration: marks obstacles and explored ground on the map, from depth images, motion and collisions.

A depth pixel between the agent's climb height and its head marks the quarter of a cell as an obstacle (`quadrants`).
Between two neighbouring pixels of one surface, obstacles are interpolated. A pixel on the ground marks its cell as
explored, and all cells between it and the point that the pixel above it sees. A collision marks the cell ahead of the
agent, as in the collision map of Chaplot et al., "Learning to explore using active neural SLAM" (ICLR 2020). Cells that
the agent passes become traversed.
"""

from __future__ import annotations

import math

import numpy as np

from batchnav.geometry.pose import forward, half_width, view_axes
from batchnav.mapping.state import (
    EXPLORED,
    cell_at,
    cell_of,
    collided_explored,
    collided_occupancy,
    has_obstacle,
    interpolated_code,
    is_closed,
    is_explored,
    is_interpolated,
    is_near_obstacle,
    is_occupied,
    is_traversed,
    obstacle_code,
    quadrant_bit,
    quadrants_in,
    to_map,
    touches_traversed_obstacle,
    traversed_codes,
    word_of,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.synchronization import atomic_add, atomic_or

FULL_TURN = np.float32(2.0 * math.pi)
_SAME_SURFACE = np.float32(0.5)
"""Neighbouring obstacle pixels less than this apart lie on one surface, which is marked between them too, metres."""
_AHEAD, _NEAR_AHEAD = np.float32(1.5), np.float32(0.9)
"""Distances ahead of the agent at which a collision is marked, in cells. The first lies outside the agent's own cell in
every direction. The second is marked too where the first cell is already occupied."""
_MAX_BETWEEN = 32
"""Maximum number of steps from a ground pixel to the point of the pixel above it; each marks a cell as explored."""
_NOTHING, _GROUND, _OBSTACLE = np.int32(0), np.int32(1), np.int32(2)
_ZERO, _HALF, _TWO = np.float32(0.0), np.float32(0.5), np.float32(2.0)


# Updates of one cell.


@inline_function
def _add_obstacle(i, cell, code, row, search_out, state_out):
    """Set the occupancy code of a new obstacle, and append its cell to the list of new obstacles."""
    state_out.occupancy[i, cell], state_out.dirty[i] = code, np.int32(1)
    place = atomic_add(search_out.counters, row, np.int32(0), np.int32(1))
    if place < search_out.worklist.shape[1]:  # several lanes may append one cell
        search_out.worklist[row, place] = cell


@inline_function
def _mark_obstacle(i, x, z, row, search_out, state_out):
    """Mark the quarter of a cell at world x and z as an obstacle."""
    u, v = to_map(i, x, z, state_out.origin_and_resolution)
    cell = cell_at(u, v)
    if cell >= 0:
        word, bit = word_of(cell), quadrant_bit(cell, u, v)
        if state_out.quadrants[i, word] & bit == 0:
            before = atomic_or(state_out.quadrants, i, word, bit)
            if quadrants_in(cell, before) == 0:
                _detect_obstacle(i, cell, row, search_out, state_out)


@inline_function
def _detect_obstacle(i, cell, row, search_out, state_out):
    """Record that depth shows an obstacle in a cell for the first time. One lane does this for a cell.

    An obstacle that was known from collisions may get a gap. Its cost then falls, so the kept path is discarded.
    """
    before = state_out.occupancy[i, cell]
    code = obstacle_code(before, state_out.explored[i, cell])
    if not has_obstacle(before):
        _add_obstacle(i, cell, code, row, search_out, state_out)
        return
    state_out.occupancy[i, cell] = code
    if is_occupied(before) and not is_interpolated(before):
        state_out.path_length[i] = np.int32(0)


@inline_function
def _interpolate_obstacle(i, x, z, row, search_out, state_out):
    """Mark the cell at world x and z as an interpolated obstacle, unless it is an obstacle.

    Another lane may detect an obstacle there at the same time; `inflate` then sets its code.
    """
    cell = cell_of(i, x, z, state_out.origin_and_resolution)
    if cell >= 0 and not has_obstacle(state_out.occupancy[i, cell]):
        _add_obstacle(i, cell, interpolated_code(state_out.explored[i, cell]), row, search_out, state_out)


@inline_function
def mark_explored(i, x, z, state_out):
    """Mark the cell at world x and z as explored. Discards the kept path where this may shorten another path."""
    cell = cell_of(i, x, z, state_out.origin_and_resolution)
    if cell >= 0 and not is_explored(state_out.explored[i, cell]):
        state_out.explored[i, cell], state_out.dirty[i] = np.uint8(EXPLORED), np.int32(1)
        # Cells around a traversed obstacle are inflated or obstacles, so only those need the slower test.
        near = is_near_obstacle(state_out.occupancy[i, cell])
        if near and state_out.path_length[i] > 0 and touches_traversed_obstacle(i, cell, state_out):
            state_out.path_length[i] = np.int32(0)


@inline_function
def mark_traversed(i, cell, state_out):
    """Mark a cell as traversed. Discards the kept path where the cell was occupied: another path may become shorter."""
    if is_occupied(state_out.occupancy[i, cell]):
        state_out.path_length[i], state_out.dirty[i] = np.int32(0), np.int32(1)
    occupancy, explored = traversed_codes(state_out.occupancy[i, cell], state_out.explored[i, cell])
    state_out.occupancy[i, cell], state_out.explored[i, cell] = occupancy, explored


@inline_function
def _mark_collision(i, x, z, row, search_out, state_out):
    """Record a collision in the cell at world x and z: a new obstacle, or a higher cost of a known one."""
    cell = cell_of(i, x, z, state_out.origin_and_resolution)
    if cell < 0:
        return
    if is_occupied(state_out.occupancy[i, cell]):
        state_out.occupancy[i, cell] = collided_occupancy(state_out.occupancy[i, cell])
        return
    if is_traversed(state_out.explored[i, cell]):
        state_out.explored[i, cell] = collided_explored(state_out.explored[i, cell])
    if not has_obstacle(state_out.occupancy[i, cell]):
        code = obstacle_code(state_out.occupancy[i, cell], state_out.explored[i, cell])
        _add_obstacle(i, cell, code, row, search_out, state_out)


# Motion and collisions.


@lean_function
def begin_scan(i, tan_half_hfov, parameters, state_out):
    """Set the rotation after which the camera has seen the scan angle, radians; 0 without an initial scan."""
    hfov = _TWO * np.float32(math.atan(tan_half_hfov))
    state_out.remaining_scan[i] = max(parameters.scan_angle - hfov, _ZERO)


@inline_function
def _continue_scan(i, turned, state_out):
    """Reduce the remaining scan by a turn to the left, radians modulo 2 pi. A turn to the right increases it."""
    turned -= FULL_TURN * np.float32(math.floor(turned / FULL_TURN + _HALF))
    if state_out.remaining_scan[i] > _ZERO:
        state_out.remaining_scan[i] = max(state_out.remaining_scan[i] - turned, _ZERO)


@lean_function
def integrate_motion(i, row, agents, parameters, search_out, state_out):
    """Record the agent's motion since the previous step: scan rotation, collision, traversed cells, pose."""
    x, z, heading = agents.position[i, 0], agents.position[i, 2], agents.heading[i]
    dx, dz = x - state_out.pose[i, 0], z - state_out.pose[i, 1]
    advance = np.float32(math.sqrt(dx * dx + dz * dz))
    turn = heading - state_out.pose[i, 2]
    _continue_scan(i, turn, state_out)
    collided = agents.collisions[i] > state_out.collisions[i] and abs(turn) < parameters.half_turn
    if collided and advance < parameters.half_step:
        _integrate_collision(i, x, z, heading, row, search_out, state_out)
    parts = max(np.int32(advance / state_out.origin_and_resolution[i, 2]) + np.int32(1), np.int32(2))
    for k in range(1, parts):
        share = np.float32(k) / np.float32(parts)
        between = cell_of(i, x - share * dx, z - share * dz, state_out.origin_and_resolution)
        if between >= 0:
            mark_traversed(i, between, state_out)
    state_out.pose[i, 0], state_out.pose[i, 1], state_out.pose[i, 2] = x, z, heading
    state_out.collisions[i] = agents.collisions[i]


@lean_function
def _integrate_collision(i, x, z, heading, row, search_out, state_out):
    """Record a collision in the cell ahead, even if depth shows no obstacle: cameras look over low obstacles close by.

    Only the nearer cell is recorded if it is a known wall, since the wall may have no thickness. The nearer cell is
    recorded too if the cell ahead is already occupied. Each repeated collision raises the cost, so an enclosed agent
    next tries another of the obstacles around it.
    """
    (fx, fz), size = forward(heading), state_out.origin_and_resolution[i, 2]
    ahead, nearer = _AHEAD * size, _NEAR_AHEAD * size
    here = cell_of(i, x, z, state_out.origin_and_resolution)
    near = cell_of(i, x + nearer * fx, z + nearer * fz, state_out.origin_and_resolution)
    if here >= 0 and near >= 0 and is_occupied(state_out.occupancy[i, near]) and is_closed(i, here, near, state_out):
        _mark_collision(i, x + nearer * fx, z + nearer * fz, row, search_out, state_out)
        return
    cell = cell_of(i, x + ahead * fx, z + ahead * fz, state_out.origin_and_resolution)
    if cell >= 0 and is_occupied(state_out.occupancy[i, cell]):
        _mark_collision(i, x + nearer * fx, z + nearer * fz, row, search_out, state_out)
    _mark_collision(i, x + ahead * fx, z + ahead * fz, row, search_out, state_out)


# Depth.


@inline_function
def eye_of(i, cameras, width):
    """Argument `eye` of `pixel_point`, for images with `width` columns."""
    axes = view_axes(i, cameras.heading, cameras.pitch, cameras.tan_half_hfov)
    scale = half_width(i, cameras.tan_half_hfov) / np.float32(width)
    return axes, scale, cameras.position[i, 1] - cameras.ground[i, 1]


@inline_function
def pixel_offset(i, row, column, depth, eye):
    """Height above the ground of the point that a pixel sees, and its offset along world X and Z, metres.

    `eye`: as in `pixel_point`.
    """
    _, height, width = depth.shape
    metres, (axes, scale, camera_height) = depth[i, row, column], eye
    right = np.float32(2 * column + 1 - width) * scale * metres
    up = np.float32(height - 1 - 2 * row) * scale * metres
    (rx, _, rz), (ux, uy, uz), (fx, fy, fz) = axes
    level = camera_height + up * uy + metres * fy
    return level, right * rx + up * ux + metres * fx, right * rz + up * uz + metres * fz


@inline_function
def pixel_point(i, row, column, depth, eye, parameters):
    """Class of the point that a pixel sees, and its offset from the camera along world X and Z, metres.

    `eye`: the camera's axes, half the side of a pixel at distance 1, and the camera's height above the ground, metres.
    """
    metres = depth[i, row, column]
    level, dx, dz = pixel_offset(i, row, column, depth, eye)
    return point_class(metres, level, parameters), dx, dz


@inline_function
def point_class(metres, level, parameters):
    """Class of a point at a height above the ground: nothing, ground or obstacle."""
    kind = _NOTHING
    if metres > _ZERO and metres < parameters.max_depth and level < parameters.agent_height:
        kind = _OBSTACLE if level > parameters.max_climb else _GROUND
    return kind


@inline_function
def is_ground(kind):
    """True where the class of a point is that of the ground."""
    return kind == _GROUND


@inline_function
def is_obstacle(kind):
    """True where the class of a point is that of an obstacle."""
    return kind == _OBSTACLE


@lean_function
def integrate_depth(lane, lanes, i, row, depth, cameras, parameters, search_out, state_out):
    """Mark obstacles and ground of agent i's image in depth f32 [N, H, W]. The lanes share the pixels.

    Several lanes may write one cell. New obstacles are listed in row `row` of `search_out.worklist` and counted.
    """
    _, height, width = depth.shape
    eye = eye_of(i, cameras, width)
    x, z, size = cameras.position[i, 0], cameras.position[i, 2], state_out.origin_and_resolution[i, 2]
    place, w = np.int32(lane), np.int32(width)
    for _ in range(lane, height * width, lanes):
        line, column = place // w, place % w
        place += np.int32(lanes)
        kind, dx, dz = pixel_point(i, line, column, depth, eye, parameters)
        if kind == _NOTHING:
            continue
        if kind == _GROUND:
            mark_explored(i, x + dx, z + dz, state_out)
            if line > 0:  # the ground up to the point that the pixel above sees is visible too
                above, to_dx, to_dz = pixel_point(i, line - np.int32(1), column, depth, eye, parameters)
                apart = np.float32(math.sqrt((to_dx - dx) * (to_dx - dx) + (to_dz - dz) * (to_dz - dz)))
                if above != _NOTHING and apart > size:
                    steps = min(np.int32(apart / size) + np.int32(1), np.int32(_MAX_BETWEEN))
                    for k in range(1, steps):
                        share = np.float32(k) / np.float32(steps)
                        mark_explored(i, x + dx + share * (to_dx - dx), z + dz + share * (to_dz - dz), state_out)
            continue
        _mark_obstacle(i, x + dx, z + dz, row, search_out, state_out)
        if column + 1 < width:
            next_kind, to_dx, to_dz = pixel_point(i, line, column + np.int32(1), depth, eye, parameters)
            apart = np.float32(math.sqrt((to_dx - dx) * (to_dx - dx) + (to_dz - dz) * (to_dz - dz)))
            if next_kind == _OBSTACLE and size < apart < _SAME_SURFACE:
                third = np.float32(1.0 / 3.0)
                for k in range(1, 3):
                    share = np.float32(k) * third
                    u, v = x + dx + share * (to_dx - dx), z + dz + share * (to_dz - dz)
                    _interpolate_obstacle(i, u, v, row, search_out, state_out)
