"""Continuous control: an agent asks for two speeds at every step, as with Habitat's `VelocityAction`.

A step takes `time_step` seconds. The body goes along the heading that it has, then turns: habitat-sim's integration.
Walls stop it or let it slide as they do with steps. Speeds below both minima are a stop, which moves nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from batchnav.config import in_range, shortened
from batchnav.errors import ConfigError
from batchnav.runtime.kernels.decorators import lean_function

ACTION_SIZE = 2
"""Numbers of an action: forward, and to the left, each from -1 (the lowest speed of its range) to 1 (the highest)."""
MAX_LENGTH = 10.0
"""Metres of a step: far more than the walk on a navmesh is made for."""
_ONE, _HALF = np.float32(1.0), np.float32(0.5)


@dataclass(frozen=True)
class VelocityConfig:
    """The speeds that an agent may ask for. Names and defaults: habitat-lab's `velocity_control`."""

    lin_vel_range: tuple[float, ...] = (0.0, 0.25)
    """Metres a second along the heading: lowest, highest."""
    ang_vel_range_deg: tuple[float, ...] = (-10.0, 10.0)
    """Degrees a second to the left: lowest, highest."""
    min_abs_lin_speed: float = 0.025
    """Metres a second, and ..."""
    min_abs_ang_speed_deg: float = 1.0
    """... degrees a second: a step below both is a stop."""
    time_step: float = 1.0
    """Seconds."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "time_step", 1e-4, 1e3)
        for name, most in (("lin_vel_range", MAX_LENGTH / self.time_step), ("ang_vel_range_deg", 180 / self.time_step)):
            speeds = getattr(self, name)
            if len(speeds) != 2 or not -most <= speeds[0] < speeds[1] <= most:  # NaN fails here too
                raise ConfigError(
                    f"{name}: found {shortened(list(speeds))}, expected the lowest and the highest, within {most:g} of "
                    f"0 with time_step {self.time_step:g}"
                )
        in_range(self, "min_abs_lin_speed", 0.0, 1e4)
        in_range(self, "min_abs_ang_speed_deg", 0.0, 1e6)

    @property
    def numbers(self) -> dict[str, np.float32]:
        """What kernels need, by the names of `sim.bodies.Body`: metres, radians and seconds."""
        (low, high), (right, left) = self.lin_vel_range, map(math.radians, self.ang_vel_range_deg)
        values = {
            "linear_low": low, "linear_high": high, "angular_low": right, "angular_high": left,
            "least_linear": self.min_abs_lin_speed, "least_angular": math.radians(self.min_abs_ang_speed_deg),
            "time_step": self.time_step,
        }  # fmt: skip
        return {name: np.float32(value) for name, value in values.items()}


@lean_function
def _speed(action, low, high):
    """The speed that a number from -1 to 1 asks for; beyond it is cut off, and no number is as -1."""
    action = action if action > -_ONE else -_ONE
    action = action if action < _ONE else _ONE
    return low + _HALF * (action + _ONE) * (high - low)


@lean_function
def speeds(i, actions, body):
    """Metres a second ahead and radians a second to the left that row i of actions f32 [N, 2] asks for."""
    linear = _speed(actions[i, 0], body.linear_low, body.linear_high)
    return linear, _speed(actions[i, 1], body.angular_low, body.angular_high)


@lean_function
def is_stop(linear, angular, body):
    """Whether these speeds are a stop."""
    return abs(linear) < body.least_linear and abs(angular) < body.least_angular
