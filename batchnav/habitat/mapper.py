"""Observations "ego_map" and "waypoint" for an agent in Habitat, whose pose follows from the goal sensor."""

from __future__ import annotations

import math

import numpy as np
import torch

from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError
from batchnav.export.robot_mapper import RobotMapper
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.sim.bodies import FORWARD, LEFT, LOOK_DOWN, LOOK_UP, RIGHT, collided


class HabitatMapper:
    """Mapper of one agent in Habitat: observations of `mapping` from depth, goal and turns.

    The goal is the origin of the map. The position relative to the goal follows from the goal sensor and the heading;
    the heading follows from the executed turns, or from a compass. The map's axes are those of the agent at its start.

    Args:
        names: observations to compute.
        config: training environment of the policy. ArgumentError unless its goal sensor uses GPS and compass.
    """

    def __init__(self, names: frozenset[str], config: NavConfig):
        self._mapper, self._config = RobotMapper(names, config), config
        if not self._mapper.has_goal:
            raise ArgumentError(
                f"policy: found the sensors {', '.join(sorted(names))} in a task without GPS and compass, expected a "
                "policy trained with gps_compass: true"
            )
        self.reset()

    def reset(self) -> None:
        """Start an episode with an empty map."""
        self._mapper.reset()
        self._position, self._heading, self._tilt = np.zeros(2, np.float32), np.float32(0.0), 0.0
        self.collisions = 0
        """Collisions of the episode so far."""
        self._intended = 0.0
        """Commanded translation of the last action, metres."""

    def observe(self, depth: torch.Tensor, goal: torch.Tensor, compass: float | None) -> dict[str, torch.Tensor]:
        """Update the map from one step's observations; returns the map observations [1, ...] by name.

        Args:
            depth: f32 [1, H, W], 0..1 over the range of the configuration; holes are 0.
            goal: f32 [2], PointGoal sensor with GPS and compass: distance in metres, angle in radians.
            compass: heading since the start, radians to the left; None: the sum of the executed turns.

        ArgumentError for wrong shapes, and without a compass for a body with actuation noise.
        """
        limits, camera, cpu = self._config.depth, self._config.camera, torch.device("cpu")
        check_tensor("depth", depth, (1, camera.height, camera.width), torch.float32, cpu)
        check_tensor("goal", goal, (2,), torch.float32, cpu)
        if compass is not None:
            self._heading = np.float32(compass)
        elif self._config.body.actuation_noise:
            raise ArgumentError(
                "observations: found no 'compass', expected one: with actuation noise, turns do not give the heading"
            )
        distance, angle = float(goal[0]), float(self._heading + np.float32(goal[1]))
        position = np.array([-distance * math.cos(angle), -distance * math.sin(angle)], np.float32)
        moved = float(np.square(position - self._position).sum())
        stopped = bool(collided(moved, self._intended**2))
        self.collisions, self._position = self.collisions + stopped, position
        metres = depth * (limits.max_depth - limits.min_depth) + limits.min_depth
        measured = metres.masked_fill(depth == 0.0, 0.0)[0].numpy()
        pose = float(position[0]), float(position[1]), float(self._heading)
        found = self._mapper.observe(measured, pose, goal.numpy(), stopped, self._tilt)
        return {name: torch.from_numpy(value) for name, value in found.items()}

    def move(self, action: int) -> None:
        """Apply the turn or tilt of an action; the next `observe` measures its translation and detects collisions."""
        body, turn = self._config.body, math.radians(self._config.body.turn_angle_deg)
        tilt, limit = math.radians(body.tilt_angle_deg), math.radians(body.max_tilt_deg)
        self._intended = body.forward_step if action == FORWARD else 0.0
        self._heading += np.float32({LEFT: turn, RIGHT: -turn}.get(action, 0.0))
        self._tilt = min(max(self._tilt + {LOOK_UP: tilt, LOOK_DOWN: -tilt}.get(action, 0.0), -limit), limit)
