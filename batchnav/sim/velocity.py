"""Velocity control: an agent commands a linear and an angular speed at every step, as with Habitat's `VelocityAction`.

A step takes `time_step` seconds. The body moves along its heading, then turns: habitat-sim's integration. Walls stop it
or let it slide, as with discrete steps. If both speeds are below their minima the action is a stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from batchnav.config import bounded, shortened
from batchnav.errors import ConfigError
from batchnav.runtime.kernels.decorators import lean_function

ACTION_SIZE = 2
"""Components of an action: forward, and to the left, each from -1 (lowest speed of its range) to 1 (highest)."""
MAX_LENGTH = 10.0
"""Maximum length of a step, metres."""
_ONE, _HALF = np.float32(1.0), np.float32(0.5)


@dataclass(frozen=True)
class VelocityConfig:
    """Ranges of the speeds. Names and defaults: habitat-lab's `velocity_control`."""

    lin_vel_range: tuple[float, ...] = (0.0, 0.25)
    """Lowest and highest speed along the heading, m/s."""
    ang_vel_range_deg: tuple[float, ...] = (-10.0, 10.0)
    """Lowest and highest angular speed to the left, degrees/s."""
    min_abs_lin_speed: float = bounded(0.025, 0.0, 1e4)
    """Forward speed, m/s, below which an action is a stop if its angular speed is below `min_abs_ang_speed_deg`."""
    min_abs_ang_speed_deg: float = bounded(1.0, 0.0, 1e6)
    """Angular speed, degrees/s, below which an action is a stop if its forward speed is below `min_abs_lin_speed`."""
    time_step: float = bounded(1.0, 1e-4, 1e3)
    """Duration of a step, seconds."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        for name, most in (("lin_vel_range", MAX_LENGTH / self.time_step), ("ang_vel_range_deg", 180 / self.time_step)):
            speeds = getattr(self, name)
            if len(speeds) != 2 or not -most <= speeds[0] < speeds[1] <= most:  # NaN fails here too
                raise ConfigError(
                    f"{name}: found {shortened(list(speeds))}, expected the lowest and a larger highest speed, within "
                    f"-{most:g} and {most:g} with time_step {self.time_step:g}"
                )

    @property
    def numbers(self) -> dict[str, np.float32]:
        """Fields of `sim.bodies.Body` for kernels, by name, in metres, radians and seconds."""
        (low, high), (right, left) = self.lin_vel_range, map(math.radians, self.ang_vel_range_deg)
        values = {
            "linear_low": low, "linear_high": high, "angular_low": right, "angular_high": left,
            "least_linear": self.min_abs_lin_speed, "least_angular": math.radians(self.min_abs_ang_speed_deg),
            "time_step": self.time_step,
        }  # fmt: skip
        return {name: np.float32(value) for name, value in values.items()}


@lean_function
def _speed(action, low, high):
    """The speed of a command from -1 to 1. Commands outside are clipped; NaN counts as -1."""
    action = action if action > -_ONE else -_ONE
    action = action if action < _ONE else _ONE
    return low + _HALF * (action + _ONE) * (high - low)


@lean_function
def speeds(i, actions, body):
    """Commanded speeds of row i of actions f32 [N, 2]: m/s forward, radians/s to the left."""
    linear = _speed(actions[i, 0], body.linear_low, body.linear_high)
    return linear, _speed(actions[i, 1], body.angular_low, body.angular_high)


@lean_function
def is_stop(linear, angular, body):
    """True where both speeds are below their minima."""
    return abs(linear) < body.least_linear and abs(angular) < body.least_angular
