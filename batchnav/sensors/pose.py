"""Pose sensors: GPS, compass and heading, as in habitat-lab, and the goal's true place as a label for training.

The first three have no error, even with actuation noise, unless odometry drifts (`sensors.disturbances`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from batchnav.errors import ConfigError
from batchnav.geometry.pose import goal_in_agent_frame, point_at, sin_cos, wrapped
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.launch import kernel

_GPS, _COMPASS, _HEADING = range(3)
TRUE_GOAL = "true_goal"
"""Name of the observation of `TrueGoal`."""


class PosedBodies(Protocol):
    """N bodies with current pose and start pose: the tensors of `sim.bodies.Bodies` that pose sensors read."""

    @property
    def position(self) -> torch.Tensor:
        """f32 [N, 3], metres."""
        ...

    @property
    def heading(self) -> torch.Tensor:
        """f32 [N], radians."""
        ...

    @property
    def start(self) -> torch.Tensor:
        """f32 [N, 3]: position at the start of the episode, metres."""
        ...

    @property
    def start_heading(self) -> torch.Tensor:
        """f32 [N]: heading at the start of the episode, radians."""
        ...


class BodyPoses(NamedTuple):
    """The arrays of `PosedBodies` in kernels."""

    position: Any
    heading: Any
    start: Any
    start_heading: Any


class PoseSensor(ObservationSource):
    """A function of the current pose and the start pose of N bodies.

    Args:
        kind: one of _GPS, _COMPASS and _HEADING.
        spec: spec of the observation.
    """

    def __init__(self, kind: int, spec: Spec):
        self.spec, self.requires, self._kind = spec, Requirements(pose=True), np.int32(kind)
        self._bound: tuple[PosedBodies, Callable[[torch.Tensor], None]] | None = None

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write f32 [N, size]."""
        bodies = frame.odometry
        if self._bound is None or self._bound[0] is not bodies:
            self._bound = bodies, self._bind(bodies, out)
        self._bound[1](out)

    def _bind(self, bodies: PosedBodies, example: torch.Tensor) -> Callable[[torch.Tensor], None]:
        """A kernel as a function of its output; `example` has the shape of the output."""
        poses = BodyPoses(*map(view, (bodies.position, bodies.heading, bodies.start, bodies.start_heading)))
        return read_pose.bind(len(example), self._kind, poses, view(example), live=(2,))


def _number(name: str, size: int, low: float, high: float) -> Spec:
    return Spec(name, (size,), torch.float32, low, high, torch.float32)


POSE_SENSORS = {
    "compass": partial(PoseSensor, _COMPASS, _number("compass", 1, -math.pi, math.pi)),
    "gps": partial(PoseSensor, _GPS, _number("gps", 2, -math.inf, math.inf)),
    "heading": partial(PoseSensor, _HEADING, _number("heading", 1, -math.pi, math.pi)),
}
"""Pose sensors by name. "gps": f32 [N, 2], metres ahead and to the right of the start pose. "compass": f32 [N, 1],
radians to the left of the start heading, in (-pi, pi]. "heading": f32 [N, 1], radians to the left of the world's -Z
axis, in (-pi, pi]."""


class TrueGoal(ObservationSource):
    """f32 [N, 2]: distance of the goal, metres, and its bearing, radians to the left, from the agent's true pose.

    A label for training, from which the auxiliary loss `place` learns. The place of an object is that of its nearest
    view point.
    """

    spec = Spec(TRUE_GOAL, (2,), torch.float32, -math.inf, math.inf, torch.float32)
    requires = Requirements(goal=frozenset({"goal_position"}))

    def __init__(self) -> None:
        self._bound: tuple[PosedBodies, Callable[[torch.Tensor], None]] | None = None

    def bind(self, frame: Frame) -> None:
        """ConfigError for a task whose goal has no place."""
        if frame.task.goal_position is None:
            raise ConfigError(
                f"sensors: found {TRUE_GOAL!r} with a task without goals, expected one with goals, such as imagenav; "
                "leave the sensor out"
            )

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write f32 [N, 2]."""
        bodies = frame.bodies
        if self._bound is None or self._bound[0] is not bodies:
            arrays = map(view, (bodies.position, bodies.heading, frame.task.goal_position, out))
            self._bound = bodies, read_goal.bind(len(out), *arrays, live=(3,))
        self._bound[1](out)


@kernel()
def read_goal(i, position, heading, goal, values_out):
    """Write the goal's distance and bearing from body i."""
    rho, bearing = goal_in_agent_frame(point_at(i, position), heading[i], point_at(i, goal))
    values_out[i, 0], values_out[i, 1] = rho, bearing


@kernel(fastmath=True)
def read_pose(i, kind, poses, values_out):
    """Write the values of body i."""
    if kind == _HEADING:
        values_out[i, 0] = wrapped(poses.heading[i])
        return
    if kind == _COMPASS:
        values_out[i, 0] = wrapped(poses.heading[i] - poses.start_heading[i])
        return
    dx, dz = poses.position[i, 0] - poses.start[i, 0], poses.position[i, 2] - poses.start[i, 2]
    sine, cosine = sin_cos(poses.start_heading[i])
    values_out[i, 0], values_out[i, 1] = -dx * sine - dz * cosine, dx * cosine - dz * sine
