"""Mapper of agents that search for an object: the map of `mapper`, goal cells, and the path to the nearest target.

Data flow of one update: integrate -> inflate -> evidence of goals -> plan to the nearest target -> waypoint ->
egocentric map. `search` defines goal cells and targets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from numba import prange

from batchnav.errors import ConfigError
from batchnav.mapping.config import MapConfig
from batchnav.mapping.evidence import object_cells
from batchnav.mapping.mapper import (
    BLOCK,
    REGISTERS,
    MappedBodies,
    MappedBodyConfig,
    Mapper,
    begin_map,
    check_kept_path,
    end_agent,
    end_block,
    integrate_map,
    take_agent,
    update_waypoint,
)
from batchnav.mapping.search import (
    ANY_FRONTIER,
    KIND,
    NONE,
    STOP,
    GoalMap,
    add_targets,
    clear_goals,
    clear_nearest,
    first_kind,
    has_target,
    integrate_goals,
    render_search_map,
    store_target,
    update_goal,
)
from batchnav.mapping.shortest_path import (
    SHARED_COUNTERS,
    SHARED_PENDING,
    SPREAD,
    UNREACHED,
    block_search,
    clear_search,
    is_kept,
    is_scanning,
    locate,
    spread,
)
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, inline_function, lean_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.runtime.kernels.synchronization import sync_lanes
from batchnav.sensors.sensor import Cameras


class SearchMapper(Mapper):
    """Maps and waypoints of N agents that search for an object, from depth images and masks of the goal's pixels.

    Args:
        max_depth: depths from here on are ignored, metres.
        config: settings of the map. ConfigError for occupancy anticipation.
        body: height, longest step and widest turn of the agents.
        bodies: poses, episodes and collisions of the agents; live tensors.
        max_climb: height of the highest step that the agents climb, metres.
        with_ego_map: True to render the egocentric map.
    """

    _mask: torch.Tensor
    """Goal masks u8 [N, H, W] of the current update."""

    def __init__(
        self,
        max_depth: float,
        config: MapConfig,
        body: MappedBodyConfig,
        bodies: MappedBodies,
        max_climb: float,
        with_ego_map: bool = True,
    ):
        if config.anticipation:
            raise ConfigError(
                f"anticipation: found {config.anticipation!r} with a search for objects, expected '' (no predictor)"
            )
        super().__init__(max_depth, config, body, bodies, None, max_climb, with_ego_map)
        self.goal_map = GoalMap.empty(len(bodies.heading), bodies.heading.device)

    @property
    def arrived(self) -> torch.Tensor:
        """i32 [N]: 1 where the agent is next to a goal that it has seen."""
        return self.goal_map.counters[:, STOP]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors to save for resuming, by name."""
        return super().state | {f"map_{name}": tensor for name, tensor in self.goal_map._asdict().items()}

    def goal_cells(self, i: int) -> torch.Tensor:
        """bool [CELLS]: cells in which agent i has seen its goal."""
        return object_cells(self.goal_map.evidence[i])

    def search(self, depth: torch.Tensor, mask: torch.Tensor, cameras: Cameras) -> None:
        """Integrate depth f32 [N, H, W], metres, and goal masks u8 [N, H, W], and plan. Call once per observation."""
        self._mask = mask
        self.update(depth, cameras)

    def _bind(self, depth: torch.Tensor, cameras: Cameras) -> Callable[[torch.Tensor], None]:
        """The map kernel with all arguments bound except the depth images and the goal masks."""
        read = self._poses(cameras), self._agents, self._parameters
        written = view(self._search), view(self.map_state), view(self.goal_map), view(self.waypoint), view(self.ego_map)
        if not depth.is_cuda:
            return lambda depth: search_cpu(depth.numpy(), self._mask.numpy(), *read, *written)
        kernel = BoundKernel(
            search_cuda, (self._searches, 1, 1), view(depth), view(self._mask), read, view(self._schedule),
            *written, block=BLOCK,
        )  # fmt: skip

        def run(depth: torch.Tensor) -> None:
            kernel.change(0, depth.data_ptr())
            kernel.change(1, self._mask.data_ptr())
            kernel()

        return run


# Phases of one agent's update. The lanes share the work of a phase.


@inline_function
def _begin(worker, i, cameras, parameters, agents_out, state_out, goals_out):
    """Start a new map where an episode began."""
    lane, lanes, _ = worker
    if state_out.episode[i] != agents_out.episode[i]:
        clear_goals(lane, lanes, i, agents_out, goals_out)
    begin_map(worker, i, cameras, agents_out, parameters, state_out)
    if lane == 0:
        clear_nearest(i, goals_out)
    sync_lanes()


@inline_function
def _plan(worker, i, agents, search_out, state_out, goals_out):
    """Keep the path where it is still the shortest to a target, else search the nearest target of the best kind."""
    lane, lanes, row = worker
    check_kept_path(worker, i, agents, search_out, state_out)
    here = locate(i, agents, state_out)[4]
    kind = first_kind(i, goals_out)
    kept = is_kept(row, search_out) and has_target(i, state_out, goals_out)
    searching = not (is_scanning(i, state_out) or kept)
    sync_lanes()
    while searching:
        clear_search(lane, lanes, row, search_out)
        sync_lanes()
        if here >= 0:
            add_targets(lane, lanes, i, row, kind, state_out, goals_out, search_out)
        sync_lanes()
        spread(lane, lanes, i, row, here, UNREACHED, state_out, search_out)
        if lane == 0:
            store_target(i, row, here, kind, search_out, state_out, goals_out)
        sync_lanes()
        searching = goals_out.counters[i, KIND] == NONE and kind < ANY_FRONTIER
        kind += np.int32(1)
        sync_lanes()


@inline_function
def _observe(worker, i, agents_out, search_out, state_out, goals_out, waypoint_out, ego_map_out):
    """Write goal position, waypoint and, if enabled, the egocentric map."""
    lane, lanes, row = worker
    if lane == 0:
        update_goal(i, row, search_out, state_out, agents_out, goals_out)
    sync_lanes()
    update_waypoint(worker, i, agents_out, len(ego_map_out) > 0, search_out, state_out, waypoint_out)
    if len(ego_map_out) > 0:
        sync_lanes()
        render_search_map(lane, lanes, i, row, agents_out, state_out, goals_out, search_out, ego_map_out)


@lean_function
def search_one(i, worker, images, seen, search_out, state_out, goals_out, waypoint_out, ego_map_out):
    """One update of agent i.

    `worker`: lane, number of lanes, and row of the search buffers. `images`: depth and mask. `seen`: cameras, agents
    and parameters.
    """
    lane, lanes, _ = worker
    cameras, agents, parameters = seen
    _begin(worker, i, cameras, parameters, agents, state_out, goals_out)
    integrate_map(worker, i, images[0], cameras, agents, parameters, search_out, state_out)
    integrate_goals(lane, lanes, i, images, cameras, state_out, parameters, goals_out)
    sync_lanes()
    _plan(worker, i, agents, search_out, state_out, goals_out)
    _observe(worker, i, agents, search_out, state_out, goals_out, waypoint_out, ego_map_out)


# All agents.


@cpu_kernel
def search_cpu(depth, mask, cameras, agents, parameters, search_out, state_out, goals_out, waypoint_out, ego_map_out):
    """One update of every agent; the rows of the search buffers share them."""
    n, rows = np.int64(len(waypoint_out)), np.int64(len(search_out.counters))
    for part in prange(rows):
        row = np.int64(part)
        for i in range(row * n // rows, (row + 1) * n // rows):
            images, seen = (depth, mask), (cameras, agents, parameters)
            search_one(i, (0, 1, row), images, seen, search_out, state_out, goals_out, waypoint_out, ego_map_out)


@functools.partial(cuda_kernel, max_registers=REGISTERS)
def search_cuda(depth, mask, seen, schedule_out, search_out, state_out, goals_out, waypoint_out, ego_map_out):
    """One update of every agent; each block works for one agent at a time. `seen`: cameras, agents, parameters."""
    pending = cuda.shared.array(SHARED_PENDING, np.int32)
    counters = cuda.shared.array(SHARED_COUNTERS, np.int32)
    taken = cuda.shared.array(1, np.int32)
    own, lane = block_search(cuda.blockIdx.x, (pending, counters), search_out), cuda.threadIdx.x
    worker = lane, cuda.blockDim.x, 0
    i = take_agent(lane, taken, schedule_out)
    while i >= 0:
        search_one(i, worker, (depth, mask), seen, own, state_out, goals_out, waypoint_out, ego_map_out)
        sync_lanes()
        end_agent(lane, i, counters[0, SPREAD], schedule_out)
        i = take_agent(lane, taken, schedule_out)
    end_block(lane, cuda.gridDim.x, schedule_out)
