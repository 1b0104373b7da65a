"""Integration of LiDAR scans into the map: obstacles where beams end, explored ground where they pass.

A horizontal beam marks the cells before its hit as explored, and the quarter of the cell of the hit as an obstacle. A
beam of another row marks the cell of its hit: as an obstacle between climb height and head, as explored on the ground.
With moving bodies, cells with an obstacle that a horizontal beam passes, and in which no beam of the scan ends, become
free (`mapping.moving`). Beams along a wall pass its cells and end in them, so walls stay, and with them the kept path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from batchnav.mapping.integrate import mark_explored
from batchnav.mapping.mapper import Mapper, begin_map
from batchnav.mapping.moving import LEFT, deflate, is_forgettable, replace_left
from batchnav.mapping.state import (
    CELLS,
    INFLATED,
    SIDE,
    cell_at,
    cell_of,
    has_obstacle,
    is_interpolated,
    is_near_obstacle,
    is_occupied,
    obstacle_code,
    quadrant_bit,
    quadrants_in,
    to_map,
    word_of,
)
from batchnav.renderers.rays import ray_of
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import atomic_or, sync_lanes
from batchnav.sensors.scan import RangeSensor
from batchnav.sensors.sensor import Cameras

_LEVEL = np.float32(0.02)
"""Greatest vertical part of the direction of a horizontal beam."""
_NEAR = np.float32(0.25)
"""Length of a beam before its hit that frees no cell, metres."""
_ZERO, _ONE = np.float32(0.0), np.int32(1)
_BITS, _WORD, _BIT = 32, np.int32(5), np.int32(31)
"""Cells of a word of hits; shift from a cell to its word; mask of its bit."""


class ScanMapper(Mapper):
    """Maps and waypoints of N agents, from the scans of their LiDARs.

    Args:
        lidar: the sensor, bound to a frame.
        arguments: arguments of `Mapper`.
    """

    def __init__(self, lidar: RangeSensor, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._lidar = lidar
        episode = self.map_state.episode
        self._left = torch.zeros_like(episode)
        self._hits = episode.new_zeros(len(episode), CELLS // _BITS)
        self._no_depth = torch.zeros(len(episode), 0, 0, dtype=torch.float32, device=episode.device)
        self._integrate: tuple[tuple[Cameras, bool], Callable[[torch.Tensor], None]] | None = None

    def scan(self, ranges: torch.Tensor, cameras: Cameras, moving: bool) -> None:
        """Integrate scans f32 [N, rows, beams], metres, and plan. Call once per observation.

        Args:
            ranges: of `RangeSensor.metres`.
            cameras: poses of the LiDARs.
            moving: True in worlds with moving bodies.
        """
        key = cameras, moving
        if self._integrate is None or self._integrate[0][0] is not cameras or self._integrate[0][1] != moving:
            caster = self._lidar.caster
            read = view(ranges), view(caster.table), self._poses(cameras), self._agents, moving, self._parameters
            written = view(self._left), view(self._hits), view(self.map_state)
            self._integrate = key, integrate_scan.bind(len(ranges), *read, caster.far, *written, live=(0,))
        self._integrate[1](ranges)
        self.update(self._no_depth, cameras)


@inline_function
def _beam(i, beam, ranges, table, cameras):
    """Range of a beam, its world direction, and the position of the sensor."""
    columns = np.int32(ranges.shape[2])
    row, column = np.int32(beam) // columns, np.int32(beam) % columns
    place = cameras.position[i, 0], cameras.position[i, 1], cameras.position[i, 2]
    return ranges[i, row, column], ray_of(row, column, cameras.heading[i], table), place


@inline_function
def _is_obstacle(dy, level, parameters):
    """True where the hit of a beam is an obstacle. `dy`: vertical part of its direction; `level`: height of the hit."""
    return level < parameters.agent_height and (abs(dy) <= _LEVEL or level > parameters.max_climb)


@lean_function
def _note_hits(lane, lanes, i, ranges, table, cameras, state, parameters, far, hits_out):
    """Set the bits of the cells in which beams end at obstacles."""
    for beam in range(lane, ranges.shape[1] * ranges.shape[2], lanes):
        metres, (dx, dy, dz), (x, y, z) = _beam(i, beam, ranges, table, cameras)
        level = y + metres * dy - cameras.ground[i, 1]
        if _ZERO < metres < far and _is_obstacle(dy, level, parameters):
            cell = cell_of(i, x + metres * dx, z + metres * dz, state.origin_and_resolution)
            if cell >= 0:
                atomic_or(hits_out, i, cell >> _WORD, _ONE << (cell & _BIT))


@lean_function
def _clear_hits(lane, lanes, i, hits_out):
    """Clear the bits of all cells."""
    for word in range(lane, hits_out.shape[1], lanes):
        hits_out[i, word] = np.int32(0)


@lean_function
def _mark_left(lane, lanes, i, ranges, table, cameras, hits, left_out, state_out):
    """Give LEFT to the cells with obstacles that horizontal beams pass and in which no beam ends."""
    size = state_out.origin_and_resolution[i, 2]
    for beam in range(lane, ranges.shape[1] * ranges.shape[2], lanes):
        metres, (dx, dy, dz), (x, _, z) = _beam(i, beam, ranges, table, cameras)
        if abs(dy) > _LEVEL:
            continue
        for k in range(np.int32((metres - _NEAR) / size)):
            t = np.float32(k) * size
            cell = cell_of(i, x + t * dx, z + t * dz, state_out.origin_and_resolution)
            if cell < 0 or (hits[i, cell >> _WORD] >> (cell & _BIT)) & _ONE != 0:
                continue
            if is_forgettable(state_out.occupancy[i, cell]):
                state_out.occupancy[i, cell], left_out[i] = LEFT, _ONE


@inline_function
def _mark_obstacle(i, x, z, state_out):
    """Mark the quarter of a cell at world x and z as an obstacle; `_inflate` marks its neighbours."""
    u, v = to_map(i, x, z, state_out.origin_and_resolution)
    cell = cell_at(u, v)
    if cell < 0:
        return
    before = atomic_or(state_out.quadrants, i, word_of(cell), quadrant_bit(cell, u, v))
    if quadrants_in(cell, before) != 0:
        return
    code = state_out.occupancy[i, cell]
    state_out.occupancy[i, cell], state_out.dirty[i] = obstacle_code(code, state_out.explored[i, cell]), _ONE
    if is_occupied(code) and not is_interpolated(code):  # known from a collision: it may get a gap
        state_out.path_length[i] = np.int32(0)


@lean_function
def _mark(lane, lanes, i, ranges, table, cameras, parameters, far, state_out):
    """Mark obstacles and explored ground of a scan."""
    size, ground = state_out.origin_and_resolution[i, 2], cameras.ground[i, 1]
    for beam in range(lane, ranges.shape[1] * ranges.shape[2], lanes):
        metres, (dx, dy, dz), (x, y, z) = _beam(i, beam, ranges, table, cameras)
        is_hit, is_level = _ZERO < metres < far, abs(dy) <= _LEVEL
        if is_level:
            for k in range(np.int32(metres / size)):
                t = np.float32(k) * size
                mark_explored(i, x + t * dx, z + t * dz, state_out)
        level = y + metres * dy - ground
        if is_hit and level < parameters.agent_height:
            if _is_obstacle(dy, level, parameters):
                _mark_obstacle(i, x + metres * dx, z + metres * dz, state_out)
            else:
                mark_explored(i, x + metres * dx, z + metres * dz, state_out)


@lean_function
def _inflate(lane, lanes, i, ranges, table, cameras, far, state_out):
    """Mark the neighbours of the cells in which beams end as inflated."""
    for beam in range(lane, ranges.shape[1] * ranges.shape[2], lanes):
        metres, (dx, _, dz), (x, _, z) = _beam(i, beam, ranges, table, cameras)
        cell = cell_of(i, x + metres * dx, z + metres * dz, state_out.origin_and_resolution)
        if not _ZERO < metres < far or cell < 0 or not has_obstacle(state_out.occupancy[i, cell]):
            continue
        r, c = cell // np.int32(SIDE), cell % np.int32(SIDE)
        for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
            for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
                if not is_near_obstacle(state_out.occupancy[i, nr * SIDE + nc]):
                    state_out.occupancy[i, nr * SIDE + nc] = np.uint8(INFLATED)


@kernel(over="blocks")
def integrate_scan(
    lane, lanes, i, ranges, table, cameras, agents, moving, parameters, far, left_out, hits_out, state_out
):  # fmt: skip
    """Integrate the scan of agent i, f32 [N, rows, beams] in metres, along the directions of `table`.

    Begins a new map where an episode began. `moving`: True in worlds with moving bodies. `far`: range of beams without
    a hit, metres. `left_out`: i32 [N], and `hits_out`: i32 [N, CELLS / 32], a bit a cell: 0 before and after a call.
    """
    begin_map((lane, lanes, 0), i, cameras, agents, parameters, state_out)
    sync_lanes()
    if moving:
        _note_hits(lane, lanes, i, ranges, table, cameras, state_out, parameters, far, hits_out)
        sync_lanes()
        _mark_left(lane, lanes, i, ranges, table, cameras, hits_out, left_out, state_out)
        sync_lanes()
        _clear_hits(lane, lanes, i, hits_out)
        if left_out[i] != 0:
            deflate(lane, lanes, i, state_out)
            sync_lanes()
            replace_left(lane, lanes, i, state_out)
            sync_lanes()
            if lane == 0:
                left_out[i], state_out.path_length[i], state_out.dirty[i] = np.int32(0), np.int32(0), _ONE
            sync_lanes()
    _mark(lane, lanes, i, ranges, table, cameras, parameters, far, state_out)
    sync_lanes()
    _inflate(lane, lanes, i, ranges, table, cameras, far, state_out)
