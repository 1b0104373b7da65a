"""Field of view of the goal's image in Instance ImageNav, as habitat-lab's InstanceImageGoalHFOVSensor."""

from __future__ import annotations

import math

import torch

from batchnav.errors import ConfigError
from batchnav.observation import Frame, ObservationSource, Requirements, Spec

GOAL_HFOV = "goal_hfov"
"""Name of the observation."""
_COLUMN = 5
"""Column of the field of view in `task.goal_camera`."""


class GoalHfov(ObservationSource):
    """f32 [N, 1]: horizontal field of view of the camera that took the goal's image, radians."""

    spec = Spec(GOAL_HFOV, (1,), torch.float32, 0.0, math.pi, torch.float32)
    requires = Requirements(goal=frozenset({"goal_camera"}))

    def bind(self, frame: Frame) -> None:
        """ConfigError for a task whose goal images have no cameras of their own."""
        if not hasattr(frame.task, "goal_camera"):
            raise ConfigError(
                f"sensors: found {GOAL_HFOV!r} with a task without cameras of goal images, expected instance_imagenav; "
                "leave the sensor out"
            )

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the field of view of every agent's goal image."""
        out.copy_(frame.task.goal_camera[:, _COLUMN : _COLUMN + 1])
