"""Observations of an agent's map: "ego_map" and "waypoint", as sources that share one mapper.

`ego_map`: image of the 12 m around the agent, which is in the centre and faces up. Values: 0.05 unknown, 0.15 explored,
0.25 inflated, 0.35 occupied, 0.45 traversed, 0.55 path, 0.65 goal (the agent itself where there is no goal).

`waypoint`: distance and bearing. The distance is the remaining path length, metres; the bearing is that of the farthest
path cell in line of sight, radians, positive to the left. During an initial scan they are the goal sensor's distance
and a quarter turn to the left.

In ObjectNav the path leads to the nearest free cell beside one with the goal in it, or to the nearest frontier
(`search`). `ego_map` then shows 0.65 in all cells with the goal and 0.75 at frontiers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch

from batchnav.errors import ConfigError
from batchnav.mapping.config import MapConfig
from batchnav.mapping.mapper import MappedBodyConfig, Mapper
from batchnav.mapping.memory import MemoryMapper
from batchnav.mapping.moving import MovingState
from batchnav.mapping.predictor import memory_needed
from batchnav.mapping.scans import ScanMapper
from batchnav.mapping.search import GoalMap
from batchnav.mapping.search_mapper import SearchMapper
from batchnav.mapping.waypoint import PIXELS
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.sensors.camera import MAIN
from batchnav.sensors.depth import DepthConfig, MeasuredDepth
from batchnav.sensors.goal_mask import GoalCategorySensor, GoalMaskSensor
from batchnav.sensors.scan import RangeSensor

EGO_MAP, WAYPOINT = "ego_map", "waypoint"
MAPPER = "mapper"
"""Key of the mapper among the resources of a frame, and of its update among the shared results."""
GOAL_MASKS = "goal masks of the mapper"
"""Key of the mapper's goal masks, u8 [N, 1, H, W], or categories, i32 [N, 1, H, W], among the resources of a frame."""
MAP_SPECS = {
    EGO_MAP: Spec(EGO_MAP, (1, PIXELS, PIXELS), torch.float32, 0.0, 1.0, torch.bfloat16),
    WAYPOINT: Spec(WAYPOINT, (2,), torch.float32, -np.inf, np.inf, torch.float32),
}
"""Specs by name."""


class MapObservation(ObservationSource):
    """The observation "ego_map" or "waypoint", read from a mapper that both share.

    Args:
        name: a key of MAP_SPECS.
        names: all map observations of the environment.
        depth: range and noise of the main camera.
        config: settings of the map.
        body: height, longest step and widest turn of the agents.
        mask: sensor of the goal's pixels, or of all categories, for agents that search for one object or for several;
            None: the goal is a point, or none.
        lidar: sensor whose scans the map is made of; None: the depth images of the main camera.
        with_bodies: True in worlds with moving bodies, which `memory` counts.
    """

    def __init__(
        self,
        name: str,
        names: frozenset[str],
        depth: DepthConfig,
        config: MapConfig,
        body: MappedBodyConfig,
        mask: GoalMaskSensor | GoalCategorySensor | None = None,
        lidar: RangeSensor | None = None,
        with_bodies: bool = False,
    ):
        self.spec, self._depth, self._config, self._body = MAP_SPECS[name], depth, config, body
        self._with_ego_map, self._mask, self._lidar = EGO_MAP in names, mask, lidar
        self._with_bodies = with_bodies
        goal = frozenset({"relative_goal"})
        self.requires = Requirements(MAIN, max_depth=depth.max_depth, map=True, goal=goal)
        if lidar is not None:
            self.requires = Requirements(map=True, goal=goal)
        if mask is not None:
            goal = frozenset({"goal_category"})
            self.requires = mask.requires._replace(camera=MAIN, max_depth=depth.max_depth, map=True, goal=goal)
        self._measured = MeasuredDepth(depth, semantic=self.requires.semantic)
        if lidar is None:
            self.requires = self._measured.required(self.requires)

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the map, of concurrent searches and of the predictor."""
        meta, searches = torch.device("meta"), Mapper.concurrent_searches(num_envs, device)
        with_predictor = bool(self._config.anticipation)
        state, search, *images = Mapper.arrays(num_envs, searches, meta, with_predictor, self._with_ego_map)
        goals: Iterable[torch.Tensor] = ()
        if self._mask is not None:
            pixels = math.prod(self._mask.spec.shape)
            goals = (
                *GoalMap.empty(num_envs, meta),
                torch.zeros(num_envs, pixels, dtype=self._mask.spec.dtype, device=meta),
            )
        bodies = MovingState.empty(num_envs, meta) if self._with_bodies and self._lidar is None else ()
        size = sum(tensor.nbytes for tensor in (*state, *search, *images, *goals, *bodies))
        own = {} if self._mask is None else self._mask.memory(num_envs, device)
        return {MAPPER: size + (memory_needed(num_envs, device) if with_predictor else 0), **own}

    def bind(self, frame: Frame) -> None:
        """Make the mapper of a frame, or share an existing one. ConfigError for "waypoint" without a goal."""
        self._frame = frame
        if self._mask is not None:
            self._mask.bind(frame)
            self.mapper: Mapper = frame.resource(MAPPER, lambda: self._make_search(frame))
            return
        goal = frame.task.relative_goal
        if self.spec.name == WAYPOINT and goal is None:
            raise ConfigError(
                f"sensors: found {WAYPOINT!r}, expected it only with the task objectnav, or pointnav and "
                f"gps_compass=True; remove it, or use {EGO_MAP!r}"
            )
        if self._lidar is not None:
            self._lidar.bind(frame)
        goal = None if goal is None else frame.estimated_goal(goal)
        self.mapper = frame.resource(MAPPER, lambda: self._make(frame, goal))

    def _make(self, frame: Frame, goal: torch.Tensor | None) -> Mapper:
        make = Mapper if self._lidar is None else functools.partial(ScanMapper, self._lidar)
        return make(
            self._depth.max_depth, self._config, self._body, frame.odometry, goal, max_climb=frame.max_climb,
            with_ego_map=self._with_ego_map, goal_level=frame.task.goal_position,
        )  # fmt: skip

    def _make_search(self, frame: Frame) -> SearchMapper:
        task, make = frame.task, cast(Any, SearchMapper)
        if isinstance(self._mask, GoalCategorySensor):
            make = functools.partial(
                MemoryMapper, task.goal_number, task.goal_category, len(frame.bank.goal_categories)
            )
        return make(
            self._depth.max_depth, self._config, self._body, frame.odometry, max_climb=frame.max_climb,
            with_ego_map=self._with_ego_map,
        )  # fmt: skip

    def reset(self) -> None:
        """Discard all maps."""
        self.mapper.reset()

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """Live tensors of the map, by name."""
        if self._lidar is None and self._frame.seen is not None:
            self.mapper.keep_bodies()
        return {**self.mapper.state, **({} if self._mask is None else self._mask.state)}

    @property
    def capturable(self) -> bool:
        """True where the depth and the sensor of the goal's pixels are."""
        depth = self._lidar is not None or self._measured.capturable
        return depth and (self._mask is None or self._mask.capturable)

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Valid values of the tensors of `state` whose range is limited."""
        return self.mapper.ranges

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Update the map once per frame, and copy the observation to `out`."""
        frame.shared(MAPPER, lambda: self._update(frame))
        out.copy_(self.mapper.ego_map if self.spec.name == EGO_MAP else self.mapper.waypoint)

    def _update(self, frame: Frame) -> None:
        if self._lidar is not None:
            moving = frame.seen is not None
            cast(ScanMapper, self.mapper).scan(self._lidar.metres(frame), self._lidar.estimated_cameras, moving)
            return
        depth, cameras = self._measured.read(frame), frame.estimated_cameras(MAIN)
        if frame.seen is not None:
            self.mapper.free_cells(depth, cameras)
        if self._mask is None:
            self.mapper.update(depth, cameras)
            return
        n, height, width = depth.shape
        shape = n, 1, height, width
        dtype = self._mask.spec.dtype
        images = frame.resource(GOAL_MASKS, lambda: torch.zeros(shape, dtype=dtype, device=frame.device))
        self._mask.write(frame, images)
        if isinstance(self.mapper, MemoryMapper):
            self.mapper.search_objects(depth, images, cameras)
        else:
            cast(SearchMapper, self.mapper).search(depth, images[:, 0], cameras)
