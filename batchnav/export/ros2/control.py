"""Commands of a robot's base: speeds of velocity control, moves of discrete actions, and limits of acceleration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchnav.errors import ArgumentError
from batchnav.export.ros2.conversions import Pose

SLOWEST_FORWARD, SLOWEST_TURN = 0.03, 0.1
"""Speeds at the end of a move, m/s and radians/s: bases do not move when slower."""
ARRIVED_METRES, ARRIVED_RADIANS = 0.01, math.radians(0.5)
"""What may be left of a move."""


def speeds(action: np.ndarray, actions: Mapping[str, Any]) -> tuple[float, float]:
    """Speeds of an action in -1 to 1: m/s ahead, radians/s to the left; (0, 0) is a stop."""
    commanded, below = [], []
    for value, part in zip(np.clip(action, -1.0, 1.0), actions["components"], strict=True):
        speed = part["lowest"] + (float(value) + 1.0) / 2.0 * (part["highest"] - part["lowest"])
        commanded.append(speed)
        below.append(abs(speed) < part["minimum"])
    return (0.0, 0.0) if all(below) else (commanded[0], math.radians(commanded[1]))


def turned(yaw: float, other: float) -> float:
    """Angle from one yaw to another, radians in [-pi, pi]."""
    return math.remainder(other - yaw, 2.0 * math.pi)


class Limiter:
    """Commands whose speeds change by at most the limits of acceleration.

    Args:
        linear: m/s^2.
        angular: radians/s^2.
    """

    def __init__(self, linear: float, angular: float):
        self._limits = linear, angular
        self.stop()

    def stop(self) -> None:
        """Begin from standstill."""
        self._last: tuple[float, float] = (0.0, 0.0)
        self._time: float | None = None

    def limit(self, now: float, wanted: tuple[float, float]) -> tuple[float, float]:
        """The command at a time, seconds, on the way to the wanted speeds."""
        elapsed = 0.0 if self._time is None else max(now - self._time, 0.0)
        linear, angular = (
            max(last - most * elapsed, min(last + most * elapsed, speed))
            for last, speed, most in zip(self._last, wanted, self._limits, strict=True)
        )
        self._last, self._time = (linear, angular), now
        return self._last


@dataclass(frozen=True)
class Move:
    """One discrete action, closed on odometry: a distance ahead or an angle to the left."""

    start: Pose
    began: float
    """Time, seconds."""
    forward: float = 0.0
    """Metres."""
    turn: float = 0.0
    """Radians to the left."""

    def left(self, pose: Pose) -> tuple[float, float]:
        """What is left of distance and angle at a pose; less than 0 where the robot is beyond."""
        x, y, yaw = self.start
        ahead = math.cos(yaw) * (pose[0] - x) + math.sin(yaw) * (pose[1] - y)
        return self.forward - ahead if self.forward else 0.0, self.turn - turned(yaw, pose[2])

    def is_done(self, pose: Pose) -> bool:
        """True where nothing is left."""
        metres, radians = self.left(pose)
        if self.forward:
            return metres <= ARRIVED_METRES
        return math.copysign(1.0, self.turn) * radians <= ARRIVED_RADIANS

    def has_failed(self, pose: Pose) -> bool:
        """True where less than half of the distance ahead was made."""
        return self.forward > 0.0 and self.left(pose)[0] > self.forward / 2

    def command(self, pose: Pose, speed: float, turn_speed: float, deceleration: tuple[float, float]) -> Any:
        """Speeds at a pose: as fast as allowed, and so slow that the robot can stop at the end.

        A forward move holds its heading.
        """
        metres, radians = self.left(pose)
        if self.forward:
            ahead = max(min(speed, math.sqrt(2.0 * deceleration[0] * max(metres, 0.0))), SLOWEST_FORWARD)
            return ahead, max(-turn_speed, min(turn_speed, 2.0 * radians))
        rate = max(min(turn_speed, math.sqrt(2.0 * deceleration[1] * abs(radians))), SLOWEST_TURN)
        return 0.0, math.copysign(rate, self.turn)


def moves_of(actions: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
    """Metres ahead and radians to the left of each discrete action by index; both 0 for the stop.

    ArgumentError for actions that tilt a camera.
    """
    found = {}
    for row in actions["table"]:
        if "camera_degrees" in row:
            raise ArgumentError(
                f"policy: found the action {row['name']!r}, expected stop, forward, left and right: the node tilts no "
                "camera"
            )
        found[int(row["index"])] = float(row.get("metres", 0.0)), math.radians(row.get("degrees", 0.0))
    return found
