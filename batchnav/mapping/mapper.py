"""Mapper: builds an occupancy map from what agents observe, and plans on it, for N agents at once.

Inputs are depth images, poses, collisions and the goal sensor; the mapper has no access to the navmesh. Poses are those
of odometry, exact unless it drifts (`sensors.disturbances`), so there is no localisation; Chaplot et al., "Learning to
explore using active neural SLAM" (ICLR 2020), learn both.

Data flow of one update: integrate -> inflate -> plan (keep the path or search) -> waypoint -> egocentric map. Each
phase reads what the phases before it wrote. `predictor` adds predicted costs before the update.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numba import prange

from batchnav.geometry.pose import half_width
from batchnav.mapping.config import MapConfig
from batchnav.mapping.integrate import FULL_TURN, begin_scan, integrate_depth, integrate_motion, mark_traversed
from batchnav.mapping.moving import MAX_NOTE, MovingState, free_cells
from batchnav.mapping.predictor import MAX_PREDICTED_COST, OccupancyPredictor, TrackedBodies
from batchnav.mapping.shortest_path import (
    SHARED_COUNTERS,
    SHARED_PENDING,
    SPREAD,
    SearchBuffers,
    begin_check,
    block_search,
    check_path,
    clear_worklists,
    cost_to_go,
    expected_cost,
    extract_path,
    find_position,
    goal_position,
    is_done,
    is_kept,
    is_scanning,
    locate,
    next_slack,
    upper_bound,
)
from batchnav.mapping.state import (
    CELLS,
    INFLATED,
    MAX_PATH_CELLS,
    PREDICTION_INTERVAL,
    SIDE,
    Agents,
    MapCameras,
    MappingParameters,
    MapState,
    clear_map,
    is_interpolated,
    is_near_obstacle,
    obstacle_code,
    place_map,
    quadrants_of,
)
from batchnav.mapping.waypoint import PIXELS, begin_waypoint, find_waypoint, mark_path, render_ego_map, write_waypoint
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, inline_function, lean_function, lean_kernel
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.runtime.kernels.synchronization import atomic_add, sync_lanes
from batchnav.runtime.parallel import num_threads
from batchnav.sensors.sensor import Cameras

# CUDA: the order in which blocks of threads take agents

LONG = np.int32(2048)
"""Number of cells from which on a search is long."""
_TAKEN, _ENDED, _STEP, _NUM_LONG = np.int32(0), np.int32(1), np.int32(2), np.int32(3)
_FIRST_STEP = 2
_ONE = np.int32(1)


class Schedule(NamedTuple):
    """Order of N agents."""

    counters: Any
    """i32 [1, 5]: places of the order that were taken; blocks that have ended; number of the step; and numbers of long
    searches of the last even and of the last odd step."""
    long_searches: Any
    """i32 [2, N]: agents with long searches of the last even and of the last odd step."""
    long_at: Any
    """i32 [1, N]: number of the step of each agent's last long search; 0: none."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Schedule:
        """Order of `n` agents before their first search."""
        sizes = (1, 5), (2, n), (1, n)
        schedule = cls(*(torch.zeros(size, dtype=torch.int32, device=device) for size in sizes))
        schedule.counters[0, int(_STEP)] = _FIRST_STEP
        return schedule


@inline_function
def take_agent(lane, taken_out, schedule_out):
    """The agent that this block updates next, i64; -1 if all were taken. `taken_out`: i32 [1] in shared memory."""
    if lane == 0:
        taken_out[0] = _next_agent(schedule_out)
    sync_lanes()
    return np.int64(taken_out[0])


@lean_function
def _next_agent(schedule_out):
    """The agent at the next place of the order: those with long searches in the previous step, then the others."""
    step, n = schedule_out.counters[0, _STEP], np.int32(schedule_out.long_at.shape[1])
    previous = (step + _ONE) & _ONE
    num_long = schedule_out.counters[0, _NUM_LONG + previous]
    while True:
        place = atomic_add(schedule_out.counters, np.int32(0), _TAKEN, _ONE)
        if place < num_long:
            return schedule_out.long_searches[previous, place]
        agent = place - num_long
        if agent >= n:
            return np.int32(-1)
        if schedule_out.long_at[0, agent] < step - _ONE:  # else it was among the first
            return agent


@inline_function
def end_agent(lane, i, cells, schedule_out):
    """Record the number of cells that the search of an agent spread over."""
    if lane == 0 and cells >= LONG:
        _add_long(i, schedule_out)


@lean_function
def _add_long(i, schedule_out):
    """Record a long search of agent i."""
    step = schedule_out.counters[0, _STEP]
    place = atomic_add(schedule_out.counters, np.int32(0), _NUM_LONG + (step & _ONE), _ONE)
    schedule_out.long_searches[step & _ONE, place], schedule_out.long_at[0, i] = np.int32(i), step


@inline_function
def end_block(lane, blocks, schedule_out):
    """End a block; the last of all `blocks` prepares the next step."""
    if lane == 0 and atomic_add(schedule_out.counters, np.int32(0), _ENDED, _ONE) == np.int32(blocks) - _ONE:
        _begin_step(schedule_out)


@lean_function
def _begin_step(schedule_out):
    """Begin the next step: no agent is taken, and no search was long."""
    step = schedule_out.counters[0, _STEP] + _ONE
    schedule_out.counters[0, _TAKEN], schedule_out.counters[0, _ENDED] = np.int32(0), np.int32(0)
    schedule_out.counters[0, _STEP], schedule_out.counters[0, _NUM_LONG + (step & _ONE)] = step, np.int32(0)


# Obstacle inflation: cells next to an obstacle become inflated, which raises their traversal cost


@lean_function
def clear_new_obstacles(row, search_out):
    """Empty the list of new obstacles in row `row` of the worklist."""
    search_out.counters[row, 0] = np.int32(0)


@lean_function
def inflate(lane, lanes, i, row, search, state_out):
    """Mark the neighbours of the new obstacles as inflated. The lanes share the list.

    A cell in which depth showed an obstacle is no interpolated obstacle, whichever lane marked it last.
    """
    for k in range(lane, min(search.counters[row, 0], search.worklist.shape[1]), lanes):
        cell = search.worklist[row, k]
        occupancy = state_out.occupancy[i, cell]
        if is_interpolated(occupancy) and quadrants_of(i, cell, state_out) != 0:
            state_out.occupancy[i, cell] = obstacle_code(occupancy, state_out.explored[i, cell])
        r, c = cell // np.int32(SIDE), cell % np.int32(SIDE)
        for nr in range(max(r - 1, 0), min(r + 2, SIDE)):
            for nc in range(max(c - 1, 0), min(c + 2, SIDE)):
                if not is_near_obstacle(state_out.occupancy[i, nr * SIDE + nc]):
                    state_out.occupancy[i, nr * SIDE + nc] = np.uint8(INFLATED)


BLOCK, REGISTERS = 512, 64
"""CUDA: threads per agent, and registers per thread. A step waits for the few agents with long searches."""
_BLOCKS = 65_536 // (BLOCK * REGISTERS)
"""CUDA: blocks per multiprocessor, which has 65,536 registers."""


class MappedBodies(TrackedBodies, Protocol):
    """Fields of the simulator's bodies that a map depends on."""

    @property
    def collisions(self) -> torch.Tensor:
        """i32 [N]: collisions of the running episode."""
        ...


class MappedBodyConfig(Protocol):
    """Fields of the simulator's `BodyConfig` that a map depends on."""

    @property
    def agent_height(self) -> float:
        """Height of the body, metres."""
        ...

    @property
    def longest_step(self) -> float:
        """Length of the longest forward step, metres."""
        ...

    @property
    def widest_turn_deg(self) -> float:
        """Angle of the widest turn of one step, degrees."""
        ...


class Mapper:
    """Maps and waypoints of N agents, from the depth images of their main cameras.

    Args:
        max_depth: depths from here on are ignored, metres.
        config: settings of the map.
        body: height, longest step and widest turn of the agents.
        bodies: poses, episodes and collisions of the agents; live tensors.
        goal: f32 [N, 2]: the goal sensor's distance, metres, and bearing, radians; a live tensor. None: no goal.
        max_climb: height of the highest step that the agents climb, metres, as their navmeshes are baked for.
        with_ego_map: True to render the egocentric map.
        goal_level: f32 [N, 3]: points at the height of the goals, metres; a live tensor. None: goals are level with
            the agents.
    """

    def __init__(
        self,
        max_depth: float,
        config: MapConfig,
        body: MappedBodyConfig,
        bodies: MappedBodies,
        goal: torch.Tensor | None,
        max_climb: float,
        with_ego_map: bool = True,
        goal_level: torch.Tensor | None = None,
    ):
        n, device = len(bodies.heading), bodies.heading.device
        goal = torch.zeros(n, 2, dtype=torch.float32, device=device) if goal is None else goal
        turn, scan_angle = math.radians(body.widest_turn_deg), FULL_TURN if config.initial_scan else 0.0
        values = max_depth, max_climb, body.agent_height, body.longest_step / 2, turn / 2, scan_angle
        self._parameters = MappingParameters(*map(np.float32, values))
        weights = config.anticipation
        self._predictor = OccupancyPredictor(weights, n, device, turn) if weights else None
        self._searches = self.concurrent_searches(n, device)
        self.map_state, self._search, self.waypoint, self.ego_map = self.arrays(
            n, self._searches, device, bool(weights), with_ego_map
        )
        level = bodies.position if goal_level is None else goal_level
        self._agents = view(Agents(bodies.position, bodies.heading, bodies.episode, bodies.collisions, goal, level))
        self._bodies, self._goal = bodies, goal
        self._schedule = Schedule.empty(n, device)
        self._run: tuple[Cameras, Callable[[torch.Tensor], None]] | None = None
        self._freeing: tuple[Cameras, Callable[[torch.Tensor], None]] | None = None
        self._moving: MovingState | None = None

    @staticmethod
    def arrays(
        n: int, searches: int, device: torch.device, with_predictor: bool, with_ego_map: bool
    ) -> tuple[MapState, SearchBuffers, torch.Tensor, torch.Tensor]:
        """Tensors of `n` agents: map state, buffers of concurrent searches, waypoints f32 [N, 2], egocentric maps."""
        waypoint = torch.zeros(n, 2, dtype=torch.float32, device=device)
        ego_map = torch.zeros(n if with_ego_map else 0, 1, PIXELS, PIXELS, dtype=torch.float32, device=device)
        return MapState.empty(n, device, with_predictor), SearchBuffers.empty(searches, device), waypoint, ego_map

    @staticmethod
    def concurrent_searches(n: int, device: torch.device) -> int:
        """Number of concurrent searches for `n` agents: on the CPU one per thread, on CUDA one per block."""
        if device.type == "cpu":
            return min(n, num_threads())
        return min(n, _BLOCKS * torch.cuda.get_device_properties(device).multi_processor_count)

    def reset(self) -> None:
        """Discard all maps; the next update begins new ones, even if the episode numbers are unchanged."""
        self.map_state.episode.fill_(-1)

    def goal_cells(self, i: int) -> torch.Tensor | None:
        """bool [CELLS]: cells in which agent i has seen its goal; None for mappers whose goal is a point."""
        return None

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors to save for resuming, by name. Tensors of disabled features are left out."""
        left_out = set() if self._predictor else {"predicted_at", "dirty", "predicted_cost"}
        left_out |= set() if self._parameters.scan_angle > 0 else {"remaining_scan"}
        kept = {f"map_{name}": tensor for name, tensor in self.map_state._asdict().items() if name not in left_out}
        bodies = {} if self._moving is None else {"map_notes": self._moving.notes, "map_images": self._moving.clock}
        return kept | bodies

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest valid values of the tensors of `state` whose range is limited."""
        return {
            "map_path": (0, CELLS - 1), "map_path_length": (0, MAX_PATH_CELLS),
            "map_predicted_cost": (0, MAX_PREDICTED_COST), "map_remaining_scan": (0.0, float(FULL_TURN)),
            "map_predicted_at": (1 - PREDICTION_INTERVAL, torch.iinfo(torch.int32).max),
            "map_notes": (0, MAX_NOTE), "map_images": (0, torch.iinfo(torch.int32).max),
        }  # fmt: skip

    def update(self, depth: torch.Tensor, cameras: Cameras) -> None:
        """Integrate measured depth images f32 [N, H, W], metres, and plan. Call once per observation."""
        if self._run is None or self._run[0] is not cameras:
            self._run = cameras, self._bind(depth, cameras)
        if self._predictor is not None:
            self._predictor.predict(self.map_state, self._bodies, self._goal)
        self._run[1](depth)
        if self._predictor is not None:
            self._predictor.date_changes(self.map_state, self._bodies)

    def keep_bodies(self) -> MovingState:
        """What the maps keep of moving bodies; from the first call on it is part of `state`."""
        if self._moving is None:
            self._moving = MovingState.empty(len(self.map_state.episode), self.map_state.episode.device)
        return self._moving

    def free_cells(self, depth: torch.Tensor, cameras: Cameras) -> None:
        """Free the cells that moving bodies left (`mapping.moving`). Call before `update`, with its arguments."""
        if self._freeing is None or self._freeing[0] is not cameras:
            read = view(depth), self._poses(cameras), self._agents, self._parameters
            n, _, width = depth.shape
            moving = self.keep_bodies()
            moving = moving._replace(bins=moving.bins.new_zeros(len(moving.bins), width))
            run = free_cells.bind(n, *read, view(self.map_state), view(moving), live=(0,))
            self._freeing = cameras, run
        self._freeing[1](depth)

    def _bind(self, depth: torch.Tensor, cameras: Cameras) -> Callable[[torch.Tensor], None]:
        """The map kernel with all arguments bound except the depth images."""
        read = self._poses(cameras), self._agents, self._parameters
        written = view(self._search), view(self.map_state), view(self.waypoint), view(self.ego_map)
        if not depth.is_cuda:
            return lambda depth: map_cpu(depth.numpy(), *read, *written)
        kernel = BoundKernel(
            map_cuda, (self._searches, 1, 1), view(depth), *read, view(self._schedule), *written, block=BLOCK
        )

        def run(depth: torch.Tensor) -> None:
            kernel.change(0, depth.data_ptr())
            kernel()

        return run

    def _poses(self, cameras: Cameras) -> MapCameras:
        """The main cameras as kernels read them."""
        position, heading, pitch, tan_half_hfov = map(view, cameras.poses[1:])
        return MapCameras(position, heading, pitch, tan_half_hfov, self._agents.position)


# Phases of one agent's update. The lanes share the work of a phase.


@lean_function
def _place_new_map(i, agents, state_out):
    """Place the map of a new episode around start and goal."""
    goal_x, goal_z = goal_position(i, agents)
    pose = agents.position[i, 0], agents.position[i, 2], agents.heading[i]
    place_map(i, agents.episode[i], pose, goal_x, goal_z, state_out)
    state_out.collisions[i] = agents.collisions[i]  # earlier collisions do not count


@inline_function
def begin_map(worker, i, cameras, agents, parameters, state_out):
    """Start a new map where an episode began."""
    lane, lanes, _ = worker
    is_new = state_out.episode[i] != agents.episode[i]
    if is_new:
        clear_map(lane, lanes, i, state_out)
    sync_lanes()
    if lane == 0 and is_new:
        _place_new_map(i, agents, state_out)
        begin_scan(i, half_width(i, cameras.tan_half_hfov), parameters, state_out)


@inline_function
def integrate_map(worker, i, depth, cameras, agents, parameters, search_out, state_out):
    """Integrate motion, collisions and the depth image, and inflate new obstacles."""
    lane, lanes, row = worker
    if lane == 0:
        clear_new_obstacles(row, search_out)
        integrate_motion(i, row, agents, parameters, search_out, state_out)
    sync_lanes()
    integrate_depth(lane, lanes, i, row, depth, cameras, parameters, search_out, state_out)
    sync_lanes()
    inflate(lane, lanes, i, row, search_out, state_out)
    sync_lanes()


@lean_function
def _arrive(i, row, agents, state_out, search_out):
    """Mark the agent's cell as traversed, and initialise the check of the kept path."""
    here = locate(i, agents, state_out)[4]
    if here >= 0:
        mark_traversed(i, here, state_out)
    begin_check(row, search_out)


@inline_function
def check_kept_path(worker, i, agents, search_out, state_out):
    """Mark the agent's cell as traversed, and check the kept path for `is_kept`."""
    lane, lanes, row = worker
    if lane == 0:
        _arrive(i, row, agents, state_out, search_out)
    sync_lanes()
    find_position(lane, lanes, i, row, agents, state_out, search_out)
    sync_lanes()
    check_path(lane, lanes, i, row, state_out, search_out)
    sync_lanes()


@inline_function
def _plan(worker, i, agents, search_out, state_out):
    """Keep the path where it is still the shortest, else search for a new one."""
    lane, lanes, row = worker
    check_kept_path(worker, i, agents, search_out, state_out)
    _, _, _, _, here, goal = locate(i, agents, state_out)
    expected, slack = expected_cost(i, agents, state_out), np.int32(0)
    searching = not (is_scanning(i, state_out) or is_kept(row, search_out))
    while searching:
        slack = next_slack(slack)
        bound = upper_bound(row, expected, slack, search_out)
        cost_to_go(lane, lanes, i, row, (here, goal), bound, state_out, search_out)
        searching = not is_done(row, here, bound, search_out)
        if not searching and lane == 0:
            extract_path(i, row, here, search_out, state_out)
    sync_lanes()


@inline_function
def update_waypoint(worker, i, agents, with_path, search_out, state_out, waypoint_out):
    """Write the waypoint. `with_path`: True to mark the next path cells for the egocentric map."""
    lane, lanes, row = worker
    if lane == 0:
        begin_waypoint(row, search_out)
    if with_path:
        clear_worklists(lane, lanes, row, search_out)
    sync_lanes()
    find_waypoint(lane, lanes, i, row, agents, state_out, search_out)
    sync_lanes()
    if lane == 0:
        write_waypoint(i, row, agents, search_out, state_out, waypoint_out)
        if with_path:
            mark_path(i, row, state_out, search_out)


@inline_function
def observe_map(worker, i, agents, search_out, state_out, waypoint_out, ego_map_out):
    """Write the waypoint and, if enabled, the egocentric map."""
    lane, lanes, row = worker
    update_waypoint(worker, i, agents, len(ego_map_out) > 0, search_out, state_out, waypoint_out)
    if len(ego_map_out) > 0:
        sync_lanes()
        render_ego_map(lane, lanes, i, row, agents, state_out, search_out, ego_map_out)


@lean_function
def map_one(i, worker, depth, cameras, agents, parameters, search_out, state_out, waypoint_out, ego_map_out):
    """One update of agent i. `worker`: lane, number of lanes, and row of the search buffers."""
    begin_map(worker, i, cameras, agents, parameters, state_out)
    integrate_map(worker, i, depth, cameras, agents, parameters, search_out, state_out)
    _plan(worker, i, agents, search_out, state_out)
    observe_map(worker, i, agents, search_out, state_out, waypoint_out, ego_map_out)


# All agents.


@lean_kernel
def map_cpu(depth, cameras, agents, parameters, search_out, state_out, waypoint_out, ego_map_out):
    """One update of every agent; the rows of the search buffers share them."""
    n, rows = np.int64(len(waypoint_out)), np.int64(len(search_out.counters))
    for part in prange(rows):
        row = np.int64(part)  # prange counts in unsigned integers, for which every callee would be compiled again
        for i in range(row * n // rows, (row + 1) * n // rows):
            worker = 0, 1, row
            map_one(i, worker, depth, cameras, agents, parameters, search_out, state_out, waypoint_out, ego_map_out)


@functools.partial(cuda_kernel, max_registers=REGISTERS)
def map_cuda(depth, cameras, agents, parameters, schedule_out, search_out, state_out, waypoint_out, ego_map_out):
    """One update of every agent; each block works for one agent at a time."""
    pending = cuda.shared.array(SHARED_PENDING, np.int32)
    counters = cuda.shared.array(SHARED_COUNTERS, np.int32)
    taken = cuda.shared.array(1, np.int32)
    own, lane = block_search(cuda.blockIdx.x, (pending, counters), search_out), cuda.threadIdx.x
    worker = lane, cuda.blockDim.x, 0
    i = take_agent(lane, taken, schedule_out)
    while i >= 0:
        map_one(i, worker, depth, cameras, agents, parameters, own, state_out, waypoint_out, ego_map_out)
        sync_lanes()
        end_agent(lane, i, counters[0, SPREAD], schedule_out)
        i = take_agent(lane, taken, schedule_out)
    end_block(lane, cuda.gridDim.x, schedule_out)
