"""Cells that moving bodies leave: obstacles of the map that are gone become free again.

An obstacle becomes free where an image looks past all of its cell. The image is reduced to bins of horizontal
direction, one for each column. In a bin, pixels tell how near the nearest obstacle is, how far the bin is free, and
from where on its ground is seen. In all bins that the cell covers, the nearest obstacle must lie beyond the cell, and
ground before it. So static obstacles stay, whatever share of their cell they fill, and wherever the border of the image
is. Close to the camera, where it does not see the ground, the obstacle must be tall, as people are.

Close cells that an image looked past hold no static obstacle. What appears in them later is a body, and becomes free
some steps after it was last seen: it may have walked on behind the agent.

Cells with which an agent collided repeatedly stay occupied: cameras do not see glass.

Environments without moving bodies do not launch this kernel: their maps keep every obstacle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.mapping.integrate import eye_of, is_ground, is_obstacle, pixel_offset, point_class
from batchnav.mapping.state import (
    CELLS,
    CELLS_PER_WORD,
    INFLATED,
    MAX_OCCUPIED,
    OCCUPIED,
    SIDE,
    TRAVERSED_OBSTACLE,
    cell_of,
    has_obstacle,
    is_inflated,
    touches_codes,
)
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import atomic_min, sync_lanes

LEFT = np.uint8(255)
"""Temporary occupancy code of cells that become free."""
_FREE, _ONE = np.uint8(0), np.int32(1)
_HALF_CELL = np.float32(0.6)
"""Half the side of the square around a cell's centre that must be free, in cells."""
_NEAREST = np.float32(0.1)
"""Distance ahead of the camera from which on points and cells are judged, metres."""
_NOTHING_SEEN = np.int32(2**30)
_MILLIMETRES, _HALF = np.float32(1000.0), np.float32(0.5)
NUM_ROWS = 3
_OBSTACLE, _SIGHT, _GROUND = (np.int32(row) for row in range(NUM_ROWS))
"""Rows of `MovingState.bins`."""
_EYE_LEVEL = np.float32(0.8)
"""Share of the camera's height from which on an obstacle is tall."""
_FINE = np.float32(0.1)
"""Largest width of the bins that show that no static obstacle is in a cell, metres."""
_UNIT, _PHASES, _MEMORY = np.int32(4), np.int32(15), np.int32(2)
"""Steps of a phase; phases after which they repeat; phases without sight after which the cell of a body is free."""
_NOT_KNOWN, _KNOWN_FREE, _BODY, _TALL = (np.int32(note) for note in (0, 1, 2, 128))
"""Values of `MovingState.notes`."""
MAX_NOTE = 128
"""Highest value of `MovingState.notes`."""


class MovingState(NamedTuple):
    """What the maps of N agents keep of moving bodies."""

    notes: torch.Tensor
    """u8 [N, CELLS]: 0: nothing is known; 1: no static obstacle is in a cell; 2 to 16: the same, and a body was seen in
    it in phase 0 to 14; 128: a tall obstacle was seen in it."""
    clock: torch.Tensor
    """i32 [N]: images since the map began."""
    left: torch.Tensor
    """i32 [N]: 1 where cells become free; 0 before and after a call."""
    bins: torch.Tensor
    """i32 [NUM_ROWS N, W], scratch, millimetres ahead of the camera: the nearest obstacle, minus the farthest point in
    sight below the agent's head, and the nearest ground."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> MovingState:
        """State of `n` agents before their first episode, without bins."""
        clock, left = (torch.zeros(n, dtype=torch.int32, device=device) for _ in range(2))
        notes = torch.zeros(n, CELLS, dtype=torch.uint8, device=device)
        return cls(notes, clock, left, torch.zeros(NUM_ROWS * n, 0, dtype=torch.int32, device=device))


@inline_function
def is_forgettable(occupancy):
    """True for the code of an obstacle with which the agent did not collide repeatedly."""
    return has_obstacle(occupancy) and occupancy <= OCCUPIED


@inline_function
def _phase(clock):
    """Phase of an image, 0 to 14."""
    return clock // _UNIT % _PHASES


@inline_function
def _note_obstacle(i, cell, is_tall, now, moving_out):
    """Note an obstacle that an image shows. All lanes write the same value to a cell, except for nothing."""
    note = np.int32(moving_out.notes[i, cell])
    if _KNOWN_FREE <= note < _TALL:
        moving_out.notes[i, cell] = np.uint8(_BODY + now)
    elif is_tall:
        moving_out.notes[i, cell] = np.uint8(_TALL)


# What an image looks past.


@inline_function
def _row(i, kind):
    """Row of agent i's bins."""
    return np.int32(NUM_ROWS) * np.int32(i) + kind


@lean_function
def _clear_bins(lane, lanes, i, moving_out):
    """Empty the bins of agent i."""
    for place in range(lane, moving_out.bins.shape[1], lanes):
        for kind in range(NUM_ROWS):
            moving_out.bins[_row(i, np.int32(kind)), place] = _NOTHING_SEEN


@inline_function
def _bin(across, ahead, scale, bins):
    """Place of a horizontal direction among the bins, f32; from 0 to `bins` within the image."""
    return _HALF * (across / (ahead * scale) + np.float32(bins))


@lean_function
def _see(lane, lanes, i, depth, eye, now, cameras, state, parameters, moving_out):
    """Fill the bins of agent i from its image, and note obstacles. The lanes share the pixels."""
    _, height, width = depth.shape
    ((rx, _, rz), _, _), scale, camera_height = eye
    x, z, bins = cameras.position[i, 0], cameras.position[i, 2], np.int32(width)
    for pixel in range(lane, height * width, lanes):
        line, column = np.int32(pixel) // bins, np.int32(pixel) % bins
        metres = depth[i, line, column]
        level, dx, dz = pixel_offset(i, line, column, depth, eye)
        ahead, across = dx * rz - dz * rx, dx * rx + dz * rz
        if not (metres > np.float32(0.0) and level < parameters.agent_height and ahead > _NEAREST):
            continue
        place = np.int32(math.floor(_bin(across, ahead, scale, bins)))
        if place < 0 or place >= bins:
            continue
        distance, kind = np.int32(ahead * _MILLIMETRES), point_class(metres, level, parameters)
        atomic_min(moving_out.bins, _row(i, _SIGHT), place, -distance)
        if is_ground(kind):
            atomic_min(moving_out.bins, _row(i, _GROUND), place, distance)
        elif is_obstacle(kind):
            atomic_min(moving_out.bins, _row(i, _OBSTACLE), place, distance)
            cell = cell_of(i, x + dx, z + dz, state.origin_and_resolution)
            if cell >= 0:
                _note_obstacle(i, cell, level > _EYE_LEVEL * camera_height, now, moving_out)


@lean_function
def _looks_past(i, cell, is_tall, eye, cameras, state, moving):
    """Distance ahead, metres, of a cell that the image looks past; 0 for other cells. `is_tall`: of its obstacle."""
    ((rx, _, rz), _, _), scale, _ = eye
    size, bins = state.origin_and_resolution[i, 2], np.int32(moving.bins.shape[1])
    half = _HALF_CELL * size
    dx = state.origin_and_resolution[i, 0] + (np.float32(cell % SIDE) + _HALF) * size - cameras.position[i, 0]
    dz = state.origin_and_resolution[i, 1] + (np.float32(cell // SIDE) + _HALF) * size - cameras.position[i, 2]
    ahead, across = dx * rz - dz * rx, dx * rx + dz * rz
    front, back, nothing = ahead - half, ahead + half, np.float32(0.0)
    if front < _NEAREST:
        return nothing
    left, right = across - half, across + half
    first = _bin(left, front if left < nothing else back, scale, bins)
    last = _bin(right, front if right > nothing else back, scale, bins)
    if first < nothing or last >= np.float32(bins):
        return nothing
    near, far = np.int32(front * _MILLIMETRES), np.int32(back * _MILLIMETRES)
    for place in range(np.int32(first), np.int32(last) + _ONE):
        if moving.bins[_row(i, _OBSTACLE), place] <= far or -moving.bins[_row(i, _SIGHT), place] <= far:
            return nothing
        if not is_tall and moving.bins[_row(i, _GROUND), place] > near:
            return nothing
    return ahead


# Cells that become free.


@lean_function
def _mark_left(lane, lanes, i, eye, now, cameras, state_out, moving_out):
    """Give LEFT to the cells of agent i's map that become free; sets `left` if there are any. Notes free cells."""
    finest = _FINE / (np.float32(2.0) * eye[1])
    for place in range(lane, state_out.occupancy.shape[1], lanes):
        cell = np.int32(place)
        occupancy, note = state_out.occupancy[i, cell], np.int32(moving_out.notes[i, cell])
        if note == _KNOWN_FREE and not has_obstacle(occupancy):
            continue
        if has_obstacle(occupancy) and not is_forgettable(occupancy):
            continue
        is_body, is_tall = _BODY <= note < _TALL, note == _TALL
        ahead = _looks_past(i, cell, is_tall and has_obstacle(occupancy), eye, cameras, state_out, moving_out)
        is_forgotten = is_body and (now - (note - _BODY) + _PHASES) % _PHASES >= _MEMORY
        if ahead > np.float32(0.0) and ahead < finest and not is_tall:
            moving_out.notes[i, cell] = np.uint8(_KNOWN_FREE)
        if has_obstacle(occupancy) and (ahead > np.float32(0.0) or is_forgotten):
            state_out.occupancy[i, cell], moving_out.left[i] = LEFT, _ONE
            moving_out.notes[i, cell] = np.uint8(_KNOWN_FREE if is_body else _NOT_KNOWN)


@lean_function
def _begin(lane, lanes, i, moving_out):
    """Forget all notes of agent i: an episode begins."""
    for cell in range(lane, moving_out.notes.shape[1], lanes):
        moving_out.notes[i, cell] = np.uint8(_NOT_KNOWN)
    if lane == 0:
        moving_out.clock[i] = np.int32(0)


@lean_function
def deflate(lane, lanes, i, state_out):
    """Free the inflated cells of agent i's map that were next to a cell with LEFT alone."""
    for cell in range(lane, state_out.occupancy.shape[1], lanes):
        if is_inflated(state_out.occupancy[i, cell]):
            c = np.int32(cell)
            if touches_codes(i, c, LEFT, LEFT, state_out) and not _touches_obstacle(i, c, state_out):
                state_out.occupancy[i, cell] = _FREE


@lean_function
def _touches_obstacle(i, cell, state):
    """True where one of the 3x3 cells around a cell has an obstacle."""
    return touches_codes(i, cell, TRAVERSED_OBSTACLE, MAX_OCCUPIED, state)


@lean_function
def replace_left(lane, lanes, i, state_out):
    """Replace LEFT by the code of a free or an inflated cell, and clear the quadrants of these cells.

    A lane has all cells of a word of quadrants.
    """
    for word in range(lane, state_out.quadrants.shape[1], lanes):
        for k in range(CELLS_PER_WORD):
            cell = np.int32(word) * np.int32(CELLS_PER_WORD) + np.int32(k)
            if state_out.occupancy[i, cell] == LEFT:
                near = _touches_obstacle(i, cell, state_out)
                state_out.occupancy[i, cell] = np.uint8(INFLATED) if near else _FREE
                state_out.quadrants[i, word] &= ~(np.int32(15) << np.int32(4 * k))


@kernel(over="blocks")
def free_cells(lane, lanes, i, depth, cameras, agents, parameters, state_out, moving_out):
    """Free the cells of agent i's map that moving bodies left, before the image is integrated.

    No cell becomes free where an episode begins: its map is still empty.
    """
    if state_out.episode[i] != agents.episode[i]:
        _begin(lane, lanes, i, moving_out)
        return
    eye, now = eye_of(i, cameras, depth.shape[2]), _phase(moving_out.clock[i] + _ONE)
    _clear_bins(lane, lanes, i, moving_out)
    sync_lanes()
    if lane == 0:
        moving_out.clock[i] += _ONE
    _see(lane, lanes, i, depth, eye, now, cameras, state_out, parameters, moving_out)
    sync_lanes()
    _mark_left(lane, lanes, i, eye, now, cameras, state_out, moving_out)
    sync_lanes()
    if moving_out.left[i] == 0:
        return
    deflate(lane, lanes, i, state_out)
    sync_lanes()
    replace_left(lane, lanes, i, state_out)
    sync_lanes()
    if lane == 0:
        moving_out.left[i] = np.int32(0)
        # A shorter path may have become possible, and a new prediction is due.
        state_out.path_length[i], state_out.dirty[i] = np.int32(0), _ONE
