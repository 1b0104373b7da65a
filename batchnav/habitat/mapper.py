"""The sensors "ego_map" and "waypoint" of one agent elsewhere: from its depth, its goal sensor and its turns."""

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


class OwnMap:
    """What the sensors of `sensors.mapper` tell, for one agent.

    The goal is the origin, and the agent begins with heading 0. Where it is relative to the goal follows from the goal
    sensor and its heading, and that from what it has turned, or from a compass. The map lies as the agent stood at its
    start, where the environment's lies along the world's axes: plans differ by what other cells make of the same walls.

    Args:
        names: the sensors.
        config: what the agent was trained in. ArgumentError where its goal sensor knows no GPS and compass.
    """

    def __init__(self, names: frozenset[str], config: NavConfig):
        if not (isinstance(config.task, PointNavConfig) and config.task.gps_compass):
            raise ArgumentError(
                f"policy: found the sensors {', '.join(sorted(names))} without GPS and compass, expected gps_compass"
            )
        self._names, self._config = names, config
        self._body, self._goal = FreeBodies.at_origin(1, torch.device("cpu")), torch.zeros(1, 2)
        self._camera = MountedCamera(self._body, config.camera)
        self._wanted = 0.0
        """Metres that the last action was to go ahead."""
        self._mapper = Mapper(
            config.depth.max_depth, config.map, config.body, self._body, self._goal,
            max_climb=NavMeshSettings().agent_max_climb, draws_ego_map=EGO_MAP in names,
        )  # fmt: skip

    def begin(self) -> None:
        """Begin an episode."""
        self._mapper.reset()
        for values in (self._body.heading, self._body.tilt, self._body.collisions, self._body.steps):
            values.zero_()
        self._wanted = 0.0

    def observe(self, depth: torch.Tensor, goal: torch.Tensor, compass: float | None) -> dict[str, torch.Tensor]:
        """What the sensors tell, [1, ...] by name.

        Args:
            depth: f32 [1, H, W], 0..1 over the range of the configuration, holes 0.
            goal: f32 [2]: metres and radians, as of a PointGoal sensor with GPS and compass.
            compass: radians to the left since the start; None: what was turned.

        ArgumentError without a compass for a body whose turns are not exact, and for other shapes.
        """
        body, limits, camera = self._body, self._config.depth, self._config.camera
        check_tensor("depth", depth, (1, camera.height, camera.width), torch.float32, body.heading.device)
        check_tensor("goal", goal, (2,), torch.float32, body.heading.device)
        if compass is not None:
            body.heading.fill_(compass)
        elif self._config.body.actuation_noise:
            raise ArgumentError("observations: found no 'compass', expected it too: turns with noise tell no heading")
        self._goal.copy_(goal)
        away, angle = float(goal[0]), float(body.heading + goal[1])
        place = torch.tensor([[away * math.sin(angle), 0.0, away * math.cos(angle)]])
        moved = float((place - body.position).square().sum())
        body.collisions.add_(int(collided(moved, self._wanted**2)))
        body.position.copy_(place)
        self._camera.move()
        metres = depth * (limits.max_depth - limits.min_depth) + limits.min_depth
        self._mapper.update(metres.masked_fill(depth == 0.0, 0.0), self._camera.cameras)
        observed = {EGO_MAP: self._mapper.ego_map, WAYPOINT: self._mapper.waypoint}
        return {name: observed[name].clone() for name in self._names}

    def act(self, action: int) -> None:
        """Turn or tilt as an action does; how far it is to go ahead is known, and whether it did is seen next."""
        body, turn = self._config.body, math.radians(self._config.body.turn_angle_deg)
        tilt, most = math.radians(body.tilt_angle_deg), math.radians(body.max_tilt_deg)
        self._wanted = body.forward_step if action == FORWARD else 0.0
        self._body.steps.add_(1)
        self._body.heading.add_({LEFT: turn, RIGHT: -turn}.get(action, 0.0))
        self._body.tilt.add_({LOOK_UP: tilt, LOOK_DOWN: -tilt}.get(action, 0.0)).clamp_(-most, most)
