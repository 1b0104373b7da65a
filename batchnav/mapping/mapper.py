"""Two sensors of an agent that maps what it sees: "ego_map", a picture of it from above, and "waypoint", the way to the goal.

They know no more than the agent: depth, its own pose, what stops it, and what the goal sensor tells. Nothing of the
navmesh. A pose that is told exactly is what makes them simple; Chaplot et al., "Learning to explore using active neural
SLAM" (ICLR 2020), map and plan so for agents that learn, with learned mapping and localisation.

The map is made in `mapping/integrate.py`, what is not on it yet may be guessed by `mapping/predictor.py`, and the way
is found by `mapping/shortest_path.py` and kept by `mapping/path.py`; here are the sensors, the picture, and the kernels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numba import prange

from batchnav.errors import ConfigError
from batchnav.geometry.pose import forward
from batchnav.mapping.integrate import (
    ALL_AROUND,
    BESIDE,
    CELLS,
    EVERY,
    LONGEST,
    OBSTACLE,
    WALKED,
    Known,
    Sight,
    begin_around,
    begin_look,
    cell_at,
    look,
    walk,
    widen,
)
from batchnav.mapping.path import (
    Walkers,
    arrive,
    begin_bend,
    check_way,
    find_bend,
    find_on_way,
    is_kept,
    is_on_way,
    least_way,
    looks_around,
    mark_way,
    place_map,
    renew,
    tell,
    trace,
    where,
)
from batchnav.mapping.predictor import MOST_ADDED, Anticipation, MapConfig, Placed, memory_needed
from batchnav.mapping.shortest_path import Search, bound_of, clear_lines, find_ways, is_done, next_slack
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, lean_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.runtime.kernels.synchronization import sync_lanes
from batchnav.runtime.threads import num_threads
from batchnav.sensors.camera import MAIN
from batchnav.sensors.depth import DepthConfig, MeasuredDepth
from batchnav.sensors.sensor import Cameras
from batchnav.types import Frame, ObservationSource, Requirements, Spec

EGO_MAP, WAYPOINT = "ego_map", "waypoint"
MAPPER = "mapper"
"""Key of the mapper among the resources of a frame, and of its update among the shared results."""
_ROWS = 4096
"""Searches at a time on CUDA, at most."""
_BLOCK, _REGISTERS = 512, 64
"""CUDA: threads that work for one agent, and registers of each. Few searches are long, and a step waits for those."""
_PIXELS, _PIXEL = 48, np.float32(0.25)
"""The picture's sides in pixels, and a pixel's in metres."""
_LEVELS = 10
_UNKNOWN, _GROUND, _BESIDE, _OBSTACLE, _WALKED, _WAY, _GOAL = (
    np.float32((level + 0.5) / _LEVELS) for level in range(7)
)
"""What a pixel shows: each in the middle of one of the ten equal ranges that the policy's encoder tells apart."""
_HALF = np.float32(0.5)

MAP_SPECS = {
    EGO_MAP: Spec(EGO_MAP, (1, _PIXELS, _PIXELS), torch.float32, 0.0, 1.0, torch.bfloat16),
    WAYPOINT: Spec(WAYPOINT, (2,), torch.float32, -np.inf, np.inf, torch.float32),
}
"""By sensor. "ego_map": the 12 m around the agent, which looks up from the middle: 0.05 unknown, 0.15 ground, 0.25 beside
an obstacle, 0.35 an obstacle, 0.45 where it was, 0.55 the way, 0.65 the goal (without one, itself). "waypoint": metres of
the way that is left, and the angle to where it first bends, radians, positive to the left; while an agent is to look
around, the goal sensor's metres, and a quarter turn to the left."""


class Walking(Placed, Protocol):
    """Of the simulator's bodies, what a map depends on."""

    @property
    def collisions(self) -> torch.Tensor:
        """i32 [N]: in its episode, so far."""
        ...


class Build(Protocol):
    """Of the simulator's `BodyConfig`, likewise."""

    @property
    def agent_height(self) -> float:
        """Metres."""
        ...

    @property
    def longest_step(self) -> float:
        """Metres."""
        ...

    @property
    def widest_turn_deg(self) -> float:
        """Degrees."""
        ...


class Looks(NamedTuple):
    """A batch of cameras, as kernels read them."""

    position: Any
    heading: Any
    pitch: Any
    tan_half_hfov: Any
    ground: Any
    """f32 [N, 3]: where the bodies stand that carry them."""


class Mapper:
    """Maps what the main camera of N agents sees since their episodes began, and plans on that.

    Args:
        names: of MAP_SPECS, which of the two are told.
        depth: the main camera's range and noise.
        config: what is taken for granted.
        build: of the agents.
        bodies: where they are.
        goal: f32 [N, 2]: what the goal sensor tells them; None: they have none.
    """

    def __init__(
        self,
        names: frozenset[str],
        depth: DepthConfig,
        config: MapConfig,
        build: Build,
        bodies: Walking,
        goal: torch.Tensor | None,
    ):
        n, device = len(bodies.heading), bodies.heading.device
        goal = torch.zeros(n, 2, device=device) if goal is None else goal
        levels = NavMeshSettings().agent_max_climb, build.agent_height
        turn = math.radians(build.widest_turn_deg)
        around = ALL_AROUND if config.look_around else 0.0
        self._sight = Sight(*map(np.float32, (depth.max_depth, *levels, build.longest_step / 2, turn / 2, around)))
        self._rows, weights = self.searches(n, device), config.anticipation
        self._anticipation = Anticipation(weights, n, device, turn) if weights else None
        self.known, self._search, self.told = self.arrays(names, n, self._rows, device, bool(weights))
        self._walkers = view(Walkers(bodies.position, bodies.heading, bodies.episode, bodies.collisions, goal))
        self._bodies, self._goal = bodies, goal
        self._run: tuple[Cameras, Callable[[torch.Tensor], None]] | None = None

    @staticmethod
    def arrays(
        names: frozenset[str], n: int, searches: int, device: torch.device, anticipates: bool
    ) -> tuple[Known, Search, dict[str, torch.Tensor]]:
        """All that it keeps of `n` agents: the map, memory for so many searches at a time, and what is told."""
        rows = {WAYPOINT: n, EGO_MAP: n if EGO_MAP in names else 0}
        told = {name: torch.zeros(rows[name], *spec.shape, device=device) for name, spec in MAP_SPECS.items()}
        return Known.empty(n, device, anticipates), Search.empty(searches, device), told

    @staticmethod
    def searches(n: int, device: torch.device) -> int:
        """How many there are at a time: on the CPU one a thread."""
        return min(n, num_threads() if device.type == "cpu" else _ROWS)

    def forget(self) -> None:
        """Begin all maps anew, whichever episodes they are of."""
        self.known.episode.fill_(-1)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The live tensors that the next observation depends on."""
        left_out = set() if self._anticipation else {"guessed", "news", "anticipated"}
        left_out |= set() if self._sight.around > 0 else {"around"}
        return {f"known_{name}": tensor for name, tensor in self.known._asdict().items() if name not in left_out}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest values of `state` that kernels can go on from, by name, where not all are good."""
        return {
            "known_way": (0, CELLS - 1), "known_length": (0, LONGEST), "known_anticipated": (0, MOST_ADDED),
            "known_guessed": (1 - EVERY, torch.iinfo(torch.int32).max), "known_around": (0.0, float(ALL_AROUND)),
        }  # fmt: skip

    def update(self, depth: torch.Tensor, cameras: Cameras) -> None:
        """Integrate measured depth f32 [N, H, W] in metres into the map, and plan."""
        if self._run is None or self._run[0] is not cameras:
            self._run = cameras, self._bind(depth, cameras)
        if self._anticipation is not None:
            self._anticipation.guess(self.known, self._bodies, self._goal)
        self._run[1](depth)

    def _bind(self, depth: torch.Tensor, cameras: Cameras) -> Callable[[torch.Tensor], None]:
        """A kernel as a function of images."""
        position, heading, pitch, lens = map(view, cameras.poses[1:])
        looks = Looks(position, heading, pitch, lens, self._walkers.position)
        search, known = view(self._search), view(self.known)
        written = search, known, view(self.told[WAYPOINT]), view(self.told[EGO_MAP])
        if not depth.is_cuda:
            return lambda depth: map_cpu(depth.numpy(), looks, self._walkers, self._sight, self._rows, *written)
        kernel = BoundKernel(
            map_cuda, (self._rows, 1, 1), view(depth), looks, self._walkers, self._sight, *written, block=_BLOCK
        )

        def run(depth: torch.Tensor) -> None:
            kernel.change(0, depth.data_ptr())
            kernel()

        return run


class MapSensor(ObservationSource):
    """One of MAP_SPECS, read from a mapper that all map sensors of a frame share.

    Args:
        name: of MAP_SPECS.
        names: of all map sensors of the agent.
        depth: range and noise of the main camera.
        config: settings of the map.
        build: the agents' body.
    """

    def __init__(self, name: str, names: frozenset[str], depth: DepthConfig, config: MapConfig, build: Build):
        self.spec, self._names, self._depth, self._config, self._build = MAP_SPECS[name], names, depth, config, build
        goal = frozenset({"relative_goal"})
        self.requires = Requirements(MAIN, max_depth=depth.max_depth, pose=True, map=True, goal=goal)
        self._measured = MeasuredDepth(depth)

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the map, of the searches and of occupancy anticipation."""
        meta, anticipates = torch.device("meta"), bool(self._config.anticipation)
        known, search, told = Mapper.arrays(self._names, num_envs, Mapper.searches(num_envs, device), meta, anticipates)
        size = sum(tensor.nbytes for tensor in (*known, *search, *told.values()))
        return {"map": size + (memory_needed(num_envs, device) if anticipates else 0)}

    def bind(self, frame: Frame) -> None:
        """Make the mapper, or share it. ConfigError for a waypoint without a goal to plan for."""
        goal = frame.task.relative_goal
        if self.spec.name == WAYPOINT and goal is None:
            raise ConfigError(f"sensors: found {WAYPOINT!r}, expected it with the task pointnav and gps_compass alone")
        make = lambda: Mapper(self._names, self._depth, self._config, self._build, frame.bodies, goal)  # noqa: E731
        self.mapper: Mapper = frame.resource(MAPPER, make)

    def reset(self) -> None:
        """Forget the maps: episodes are counted from 0 again."""
        self.mapper.forget()

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The mapper's."""
        return self.mapper.state

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The mapper's."""
        return self.mapper.ranges

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Map and plan, once a moment, and copy the result."""
        frame.shared(MAPPER, lambda: self.mapper.update(self._measured.read(frame), frame.cameras(MAIN)))
        out.copy_(self.mapper.told[self.spec.name])


# One agent.


@lean_function
def draw(lane, lanes, i, row, walkers, known, search, map_out):
    """The picture; every lane does its share."""
    fx, fz = forward(walkers.heading[i])
    u, v, goal_u, goal_v, _, _ = where(i, walkers, known)
    pixels, scale = np.int32(_PIXELS), _PIXEL / known.frame[i, 2]
    for pixel in range(lane, _PIXELS * _PIXELS, lanes):
        r, c = np.int32(pixel) // pixels, np.int32(pixel) % pixels
        ahead = (np.float32(pixels // 2 - r) - _HALF) * scale
        right = (np.float32(c - pixels // 2) + _HALF) * scale
        at_u, at_v = u + ahead * fx - right * fz, v + ahead * fz + right * fx
        cell, shown = cell_at(at_u, at_v), _UNKNOWN
        if abs(at_u - goal_u) < scale and abs(at_v - goal_v) < scale:
            shown = _GOAL
        elif cell >= 0:
            if is_on_way(row, cell, search):
                shown = _WAY
            elif known.stands[i, cell] >= OBSTACLE:
                shown = _OBSTACLE
            elif known.ground[i, cell] >= WALKED:
                shown = _WALKED
            elif known.stands[i, cell] == BESIDE:
                shown = _BESIDE
            elif known.ground[i, cell]:
                shown = _GROUND
        map_out[i, 0, r, c] = shown


@lean_function
def map_one(i, worker, depth, looks, walkers, sight, search_out, known_out, plan_out, map_out):
    """All of it; every lane does its share. `worker`: which lane of how many it is, and the search's row."""
    lane, lanes, row = worker
    fresh = renew(lane, lanes, i, walkers, known_out)
    sync_lanes()
    if lane == 0:
        if fresh:
            place_map(i, walkers, known_out)
            begin_around(i, looks.tan_half_hfov[i], sight, known_out)
        begin_look(row, search_out)
        walk(i, row, walkers, sight, search_out, known_out)
    sync_lanes()
    look(lane, lanes, i, row, depth, looks, sight, search_out, known_out)
    sync_lanes()
    widen(lane, lanes, i, row, search_out, known_out)
    sync_lanes()
    if lane == 0:
        arrive(i, row, walkers, known_out, search_out)
    sync_lanes()
    find_on_way(lane, lanes, i, row, walkers, known_out, search_out)
    sync_lanes()
    check_way(lane, lanes, i, row, known_out, search_out)
    sync_lanes()
    _, _, _, _, here, there = where(i, walkers, known_out)
    least, slack = least_way(i, walkers, known_out), np.int32(0)
    searching = not (looks_around(i, known_out) or is_kept(row, search_out))
    while searching:
        slack = next_slack(slack)
        bound = bound_of(row, least, slack, search_out)
        find_ways(lane, lanes, i, row, (here, there), bound, known_out, search_out)
        searching = not is_done(row, here, bound, search_out)
        if not searching and lane == 0:
            trace(i, row, here, search_out, known_out)
    sync_lanes()
    if lane == 0:
        begin_bend(row, search_out)
    if len(map_out) > 0:
        clear_lines(lane, lanes, row, search_out)
    sync_lanes()
    find_bend(lane, lanes, i, row, walkers, known_out, search_out)
    sync_lanes()
    if lane == 0:
        tell(i, row, walkers, search_out, known_out, plan_out)
        if len(map_out) > 0:
            mark_way(i, row, known_out, search_out)
    if len(map_out) > 0:
        sync_lanes()
        draw(lane, lanes, i, row, walkers, known_out, search_out, map_out)


# All agents.


@cpu_kernel
def map_cpu(depth, looks, walkers, sight, rows, search_out, known_out, plan_out, map_out):
    """Map, plan and picture of every agent."""
    n = np.int64(len(plan_out))
    for part in prange(rows):
        row = np.int64(part)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // rows, (row + 1) * n // rows):
            map_one(i, (0, 1, row), depth, looks, walkers, sight, search_out, known_out, plan_out, map_out)


@functools.partial(cuda_kernel, max_registers=_REGISTERS)
def map_cuda(depth, looks, walkers, sight, search_out, known_out, plan_out, map_out):
    """As `map_cpu`; a block works for an agent."""
    lane, lanes, row = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    for i in range(row, len(plan_out), cuda.gridDim.x):
        map_one(i, (lane, lanes, row), depth, looks, walkers, sight, search_out, known_out, plan_out, map_out)
        sync_lanes()
