"""Observations "ego_map" and "waypoint" for one robot, outside of this package's environments, from NumPy arrays.

Poses are those of ROS: x and y in metres, yaw in radians, positive to the left; at yaw 0 the robot looks along x. The
frame is one that does not jump, such as "odom".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from batchnav.envs.config import NavConfig, config_of
from batchnav.errors import ArgumentError
from batchnav.export.onnx_policy import read_description
from batchnav.mapping.mapper import Mapper
from batchnav.mapping.observations import EGO_MAP, MAP_SPECS, WAYPOINT
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.checks import check_number
from batchnav.sensors.camera import FreeBodies, MountedCamera
from batchnav.tasks import TASKS
from batchnav.tasks.pointnav import PointNavConfig

MOST = 1e6
"""Largest coordinate and angle of a pose, metres or radians."""


class RobotMapper:
    """Mapper of one robot: the same map and plans as in an environment, from depth images, poses and the goal.

        mapper = RobotMapper.load("policy.json")
        mapper.reset()                                             # at the start of an episode
        observations |= mapper.observe(depth, (x, y, yaw), goal)   # at every step

    The map's axes are those of the poses' frame. In an environment they are the world's axes, so the same walls may
    fill other cells and waypoints differ slightly.

    Args:
        names: observations to compute: "ego_map", "waypoint" or both.
        config: training environment of the policy, with the robot's camera. ArgumentError for "waypoint" unless its
            task is PointNav with GPS and compass, and for tasks whose goals are objects: their maps also show goals and
            frontiers.
    """

    @torch.inference_mode(False)
    def __init__(self, names: frozenset[str], config: NavConfig):
        self.names, self.config = names, config
        self.has_goal = isinstance(config.task, PointNavConfig) and config.task.gps_compass
        """True where the map needs the goal sensor."""
        if TASKS[config.task_name].goal_categories(config.task) is not None:
            raise ArgumentError(
                f"policy: found the sensors {', '.join(sorted(names))} of the task {config.task_name}, expected "
                "another task: its map with goals and frontiers is computed only in environments"
            )
        if config.map.map_sensor != "depth":
            raise ArgumentError(
                f"policy: found a map of the sensor {config.map.map_sensor}, expected depth: maps of scans exist "
                "only in environments"
            )
        if WAYPOINT in names and not self.has_goal:
            raise ArgumentError(
                f"policy: found the sensor {WAYPOINT} in a task without GPS and compass, expected pointnav with "
                "gps_compass: true"
            )
        cpu = torch.device("cpu")
        self._body, self._goal = FreeBodies.at_origin(1, cpu), torch.zeros(1, 2, dtype=torch.float32, device=cpu)
        self._camera = MountedCamera(self._body, config.camera)
        self._is_new = True
        self._mapper = Mapper(
            config.depth.max_depth, config.map, config.body, self._body, self._goal if self.has_goal else None,
            max_climb=NavMeshSettings().agent_max_climb, with_ego_map=EGO_MAP in names,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | Path) -> RobotMapper:
        """The mapper for a policy that `batchnav export` wrote; `path`: its JSON file.

        ArgumentError where the file cannot be read, or the policy reads neither map nor waypoint.
        """
        found = read_description(path)
        try:
            names, environment = {entry["name"] for entry in found["inputs"]} & MAP_SPECS.keys(), found["environment"]
        except (KeyError, TypeError) as error:
            raise ArgumentError(
                f"{path}: found no inputs with names or no environment ({error}), expected the file that "
                "`batchnav export` wrote"
            ) from error
        if not names:
            raise ArgumentError(f"{path}: found a policy without a map, expected one that reads ego_map or waypoint")
        return cls(frozenset(names), config_of({"env": environment}))

    def reset(self) -> None:
        """Start an episode with an empty map."""
        self._mapper.reset()
        self._is_new = True

    def observe(
        self,
        depth: np.ndarray,
        pose: tuple[float, float, float],
        goal: np.ndarray | None = None,
        collided: bool = False,
        camera_tilt: float = 0.0,
    ) -> dict[str, np.ndarray]:
        """Update the map from one step's measurements; call once per step.

        Args:
            depth: f32 [H, W], planar depth in metres, 0 where nothing is measured; size and field of view are those
                of the main camera.
            pose: x and y, metres, and yaw, radians, of the robot's base.
            goal: f32 [2], the observation "pointgoal": distance, metres, and bearing, radians to the left; None for
                tasks without one.
            collided: True if an obstacle stopped the robot since the step before.
            camera_tilt: upward tilt of the camera beyond its configured pitch, radians.

        Returns:
            The observations f32 [1, ...] by name.

        Raises:
            ArgumentError: wrong shapes, or a pose or goal that is not finite.
        """
        camera, body = self.config.camera, self._body
        depth = _array("depth", depth, (camera.height, camera.width))
        if self.has_goal:
            if goal is None:
                raise ArgumentError("goal: found None, expected the observation pointgoal: f32 [2]")
            goal = _array("goal", goal, (2,))
            if not np.isfinite(goal).all():
                raise ArgumentError(f"goal: found {goal.tolist()}, expected finite numbers")
            self._goal[0] = torch.from_numpy(goal)
        if len(pose) != 3:
            raise ArgumentError(f"pose: found {len(pose)} numbers, expected x, y and yaw")
        x, y, yaw = (check_number("pose", value, -MOST, MOST) for value in pose)
        body.position[0] = torch.tensor([-y, 0.0, -x], dtype=torch.float32, device="cpu")
        body.heading.fill_(yaw)
        body.tilt.fill_(check_number("camera_tilt", camera_tilt, -MOST, MOST))
        if self._is_new:
            body.collisions.zero_()
            body.steps.zero_()
        else:
            body.collisions.add_(int(collided))
            body.steps.add_(1)
        self._is_new = False
        self._camera.move()
        measured = torch.from_numpy(np.where(np.isfinite(depth), depth, np.float32(0.0)))[None]
        self._mapper.update(measured, self._camera.cameras)
        observed = {EGO_MAP: self._mapper.ego_map, WAYPOINT: self._mapper.waypoint}
        return {name: observed[name].numpy().copy() for name in self.names}


def _array(name: str, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array in float32. ArgumentError for another shape or type."""
    found = np.asarray(value)
    if found.shape != shape or found.dtype.kind != "f":
        raise ArgumentError(f"{name}: found {found.dtype} {list(found.shape)}, expected floats {list(shape)}")
    return np.ascontiguousarray(found, np.float32)
