"""Observations "ego_map" and "waypoint" for a single agent outside of this package's environments."""

from __future__ import annotations

import math

import torch

from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError
from batchnav.mapping.mapper import Mapper
from batchnav.mapping.observations import EGO_MAP, WAYPOINT
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.sensors.camera import FreeBodies, MountedCamera
from batchnav.sim.bodies import FORWARD, LEFT, LOOK_DOWN, LOOK_UP, RIGHT, collided
from batchnav.tasks.pointnav import PointNavConfig


class RobotMapper:
    """Mapper of one agent in another simulator or on a robot: observations of `mapping` from depth, goal and turns.

    The goal is the origin of the map. The position relative to the goal follows from the goal sensor and the heading;
    the heading follows from the executed turns, or from a compass. The map's axes are those of the agent at its start.
    In an environment they are the world's axes, so the same walls fill different cells and waypoints differ slightly.

    Args:
        names: observations to compute.
        config: training environment of the policy. ArgumentError unless its goal sensor uses GPS and compass.
    """

    @torch.inference_mode(False)
    def __init__(self, names: frozenset[str], config: NavConfig):
        if not (isinstance(config.task, PointNavConfig) and config.task.gps_compass):
            raise ArgumentError(
                f"policy: found the sensors {', '.join(sorted(names))} in a task without GPS and compass, expected a "
                "policy trained with gps_compass: true"
            )
        self._names, self._config = names, config
        self._body, self._goal = (
            FreeBodies.at_origin(1, torch.device("cpu")),
            torch.zeros(1, 2, dtype=torch.float32, device="cpu"),
        )
        self._camera = MountedCamera(self._body, config.camera)
        self._intended = 0.0
        """Commanded translation of the last action, metres."""
        self._mapper = Mapper(
            config.depth.max_depth, config.map, config.body, self._body, self._goal,
            max_climb=NavMeshSettings().agent_max_climb, with_ego_map=EGO_MAP in names,
        )  # fmt: skip

    def reset(self) -> None:
        """Start an episode with an empty map."""
        self._mapper.reset()
        for values in (self._body.heading, self._body.tilt, self._body.collisions, self._body.steps):
            values.zero_()
        self._intended = 0.0

    def observe(self, depth: torch.Tensor, goal: torch.Tensor, compass: float | None) -> dict[str, torch.Tensor]:
        """Update the map from one step's observations; returns the map observations [1, ...] by name.

        Args:
            depth: f32 [1, H, W], 0..1 over the range of the configuration; holes are 0.
            goal: f32 [2], PointGoal sensor with GPS and compass: distance in metres, angle in radians.
            compass: heading since the start, radians to the left; None: the sum of the executed turns.

        ArgumentError for wrong shapes, and without a compass for a body with actuation noise.
        """
        body, limits, camera = self._body, self._config.depth, self._config.camera
        check_tensor("depth", depth, (1, camera.height, camera.width), torch.float32, body.heading.device)
        check_tensor("goal", goal, (2,), torch.float32, body.heading.device)
        if compass is not None:
            body.heading.fill_(compass)
        elif self._config.body.actuation_noise:
            raise ArgumentError(
                "observations: found no 'compass', expected one: with actuation noise, turns do not give the heading"
            )
        self._goal.copy_(goal)
        distance, angle = float(goal[0]), float(body.heading + goal[1])
        place = [distance * math.sin(angle), 0.0, distance * math.cos(angle)]
        position = torch.tensor([place], dtype=torch.float32, device="cpu")
        moved = float((position - body.position).square().sum())
        body.collisions.add_(int(collided(moved, self._intended**2)))
        body.position.copy_(position)
        self._camera.move()
        metres = depth * (limits.max_depth - limits.min_depth) + limits.min_depth
        self._mapper.update(metres.masked_fill(depth == 0.0, 0.0), self._camera.cameras)
        observed = {EGO_MAP: self._mapper.ego_map, WAYPOINT: self._mapper.waypoint}
        return {name: observed[name].clone() for name in self._names}

    def move(self, action: int) -> None:
        """Apply the turn or tilt of an action; the next `observe` measures its translation and detects collisions."""
        body, turn = self._config.body, math.radians(self._config.body.turn_angle_deg)
        tilt, limit = math.radians(body.tilt_angle_deg), math.radians(body.max_tilt_deg)
        self._intended = body.forward_step if action == FORWARD else 0.0
        self._body.steps.add_(1)
        self._body.heading.add_({LEFT: turn, RIGHT: -turn}.get(action, 0.0))
        self._body.tilt.add_({LOOK_UP: tilt, LOOK_DOWN: -tilt}.get(action, 0.0)).clamp_(-limit, limit)
