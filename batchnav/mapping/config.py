"""Configuration of the mapper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchnav.runtime.bundled import find_anticipation


@dataclass(frozen=True)
class MapConfig:
    """Settings of the observations "ego_map" and "waypoint". Defaults: unknown cells count as free, no initial scan."""

    anticipation: str = ""
    """Weights of the occupancy predictor, which adds a predicted cost to unexplored cells: a file that `batchnav train
    anticipation` wrote, "occupancy" (the bundled weights), or "" (no predictor). A policy file stores this string, not
    the weights."""
    initial_scan: bool = False
    """True for an initial scan: at the start of an episode "waypoint" points to the left until the main camera has seen
    360 degrees. The scan improves predictions; it costs steps but no path length."""

    localisation: bool = False
    """True to correct odometry that drifts by aligning each depth image with the one before; noisy images are left
    out. Map, waypoint, pose sensors and the goal's distance and bearing then have the corrected pose. It concerns
    simulation: a robot has its own localisation."""

    map_sensor: Literal["depth", "lidar"] = "depth"
    """Sensor whose ranges the map is made of: "depth", the main camera's, or "lidar", with the settings of the section
    `lidar`. A LiDAR sees all around, so that it needs no initial scan."""

    def validate(self) -> None:
        """ConfigError where `anticipation` is no weights file."""
        if self.anticipation:
            find_anticipation(self.anticipation)
