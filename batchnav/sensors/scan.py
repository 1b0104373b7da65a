"""LiDAR and full-circle depth: ranges along a table of directions around the agent.

`lidar`: f32 [rows, beams], ranges in the order of sensor_msgs/LaserScan: counter-clockwise, from `angle_min` on, with 0
straight ahead; row 0 is the lowest. A value is the range divided by `range_max`. A beam without a hit within
`range_max`, +inf in a LaserScan (ROS REP 117), is 1; a hit nearer than `range_min`, -inf, is 0. `laser_ranges` turns an
observation into metres with infinities.

`depth360`: f32 [1, H, W], a cylindrical image: columns from the left edge, behind the agent, over straight ahead in the
middle to the right; rows as in a camera. A value is the horizontal distance divided by `range_max`, 1 without a hit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from batchnav.config import bounded, in_range
from batchnav.errors import ConfigError
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.renderers.rays import RayCaster
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import DEPTH, normal_quantile
from batchnav.sensors.camera import CameraConfig, MountedCamera
from batchnav.sensors.noise import checked_noise, pixel_uniforms
from batchnav.sensors.sensor import Cameras

if TYPE_CHECKING:
    from batchnav.envs.config import NavConfig

LIDAR, DEPTH360 = "lidar", "depth360"
_NUMBERS = {LIDAR: 1000, DEPTH360: 1001}
"""Numbers of the sensors' mounts, which select their random numbers; cameras count from 0."""
SCANNERS: dict[str, dict[str, Any]] = {
    "rplidar_a1": {"beams": 360, "range_min": 0.15, "range_max": 12.0, "range_noise_share": 0.01},
    "hokuyo_ust10": {"beams": 1081, "fov_deg": 270.0, "range_min": 0.06, "range_max": 10.0, "range_noise": 0.03},
    "vlp16": {
        "rows": 16, "vertical_fov_deg": 30.0, "beams": 900, "range_min": 0.4, "range_max": 100.0, "range_noise": 0.03,
    },
}  # fmt: skip
"""Settings of `LidarConfig.scanner` by name, from the data sheets of RPLIDAR A1, Hokuyo UST-10LX and Velodyne VLP-16
(at 10 Hz its beams are 0.2 degrees apart; here 0.4)."""


@dataclass(frozen=True)
class LidarConfig:
    """A LiDAR on the agent: beams, range, noise and mount. Defaults: 360 beams of a planar scanner, without noise."""

    scanner: Literal["", "rplidar_a1", "hokuyo_ust10", "vlp16"] = ""
    """Scanner whose beams, fields of view, range and noise are used: rplidar_a1, hokuyo_ust10 or vlp16; "": the
    settings below. A setting that differs from its default replaces the scanner's."""
    beams: int = bounded(360, 8, 4096)
    """Beams of a row."""
    fov_deg: float = bounded(360.0, 1.0, 360.0)
    """Horizontal field of view, degrees. 360: the last beam is next to the first; else both ends have a beam."""
    rows: int = bounded(1, 1, 128)
    """Rows of beams; 1: a planar scanner."""
    vertical_fov_deg: float = bounded(0.0, 0.0, 170.0)
    """Angle between the lowest and the highest row, degrees, centred on the horizon."""
    range_min: float = bounded(0.05, 0.0, 1e3)
    """Shortest range, metres; a nearer surface is 0."""
    range_max: float = bounded(12.0, 0.1, 1e3)
    """Longest range, metres; a beam without a hit within it is 1."""
    range_noise: float = bounded(0.0, 0.0, 10.0)
    """Standard deviation of the range, metres."""
    range_noise_share: float = bounded(0.0, 0.0, 1.0)
    """Standard deviation as a share of the range, added to `range_noise`."""
    lidar_height: float = bounded(0.2, 0.0, 10.0)
    """Height above the navmesh, metres."""
    lidar_forward: float = bounded(0.0, -10.0, 10.0)
    """Offset in front of the agent's position, metres."""
    lidar_left: float = bounded(0.0, -10.0, 10.0)
    """Offset to the left of the agent's position, metres."""
    lidar_heading_deg: float = bounded(0.0, -360.0, 360.0)
    """Direction of the beam at angle 0, degrees to the left of the agent's heading."""

    def validate(self) -> None:
        """ConfigError where settings contradict each other."""
        own = self.resolved
        in_range(own, "range_max", own.range_min + 1e-3, 1e3)
        if own.rows > 1 and not own.vertical_fov_deg:
            raise ConfigError(f"vertical_fov_deg: found 0 with {own.rows} rows, expected degrees above 0")

    @property
    def resolved(self) -> LidarConfig:
        """The settings with those of the scanner filled in."""
        default = LidarConfig()
        given = SCANNERS.get(self.scanner, {}).items()
        taken = {name: value for name, value in given if getattr(self, name) == getattr(default, name)}
        return replace(self, scanner="", **taken)

    @property
    def angles(self) -> np.ndarray:
        """f64 [beams]: angle of each beam, radians, counter-clockwise from -fov / 2, as a LaserScan's."""
        own = self.resolved
        whole = math.radians(own.fov_deg)
        return -whole / 2 + whole / (own.beams if own.fov_deg == 360.0 else own.beams - 1) * np.arange(own.beams)

    @property
    def directions(self) -> np.ndarray:
        """f64 [rows, beams, 3]: unit vectors ahead, to the left and up."""
        own, angles = self.resolved, self.angles
        half = math.radians(own.vertical_fov_deg) / 2
        climb = np.linspace(-half, half, own.rows)[:, None] if own.rows > 1 else np.zeros((1, 1))
        parts = np.cos(climb) * np.cos(angles), np.cos(climb) * np.sin(angles), np.sin(climb) + 0 * angles
        return np.stack(parts, -1)


@dataclass(frozen=True)
class Depth360Config:
    """Full-circle depth: size, range and height of the cylindrical image."""

    panorama_rows: int = bounded(32, 4, 1024)
    """Rows of the image."""
    panorama_columns: int = bounded(128, 8, 4096)
    """Columns of the image, which cover 360 degrees."""
    elevation_deg: float = bounded(35.0, 1.0, 85.0)
    """Angle between the horizon and the upper or the lower edge, degrees."""
    panorama_range: float = bounded(10.0, 0.1, 1e3)
    """Horizontal distance that is 1, metres."""
    panorama_height: float = bounded(1.25, 0.0, 10.0)
    """Height above the navmesh, metres."""

    @property
    def directions(self) -> np.ndarray:
        """f64 [rows, columns, 3]: directions ahead, to the left and up, whose horizontal part has length 1."""
        angle = math.pi * (1 - (2 * np.arange(self.panorama_columns) + 1) / self.panorama_columns)
        top = math.tan(math.radians(self.elevation_deg))
        up = (top * (1 - (2 * np.arange(self.panorama_rows) + 1) / self.panorama_rows))[:, None]
        return np.stack([np.cos(angle) + 0 * up, np.sin(angle) + 0 * up, up + 0 * angle], -1)


class RangeSensor(ObservationSource):
    """Ranges along a table of directions, as a share of the longest range.

    Args:
        spec: spec of the observation.
        directions: f64 [rows, columns, 3], as `RayCaster` takes them.
        limits: shortest and longest range, metres.
        noise: standard deviation of a range: metres, and share of the range.
        mount: pose of the sensor on the agent.
    """

    def __init__(
        self, spec: Spec, directions: np.ndarray, limits: tuple[float, float], noise: tuple[float, float],
        mount: CameraConfig,
    ):  # fmt: skip
        self.spec, self.requires = spec, Requirements()
        self._directions, self._limits, self._mount_config = directions, limits, mount
        self._noise = tuple(map(np.float32, noise))

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the ranges in metres."""
        return {f"ranges of {self.spec.name}": 4 * num_envs * math.prod(self.spec.shape)}

    def bind(self, frame: Frame) -> None:
        """Make the caster and the mount. ConfigError for a frame without scenes."""
        if frame.bank is None:
            raise ConfigError(f"sensors: found {self.spec.name!r} with given images, expected a frame with scenes")
        self.caster = RayCaster(frame.bank, frame.num_envs, self._directions, self._limits[1])
        mounted = self._mount_config, _NUMBERS[self.spec.name], frame.seeds
        self._mount = self._estimated = MountedCamera(frame.bodies, *mounted)
        if frame.odometry is not frame.bodies:
            self._estimated = MountedCamera(frame.odometry, *mounted)

    @property
    def estimated_cameras(self) -> Cameras:
        """Poses by odometry at the last `metres`; the pitch and the field of view have no effect."""
        if self._estimated is not self._mount:
            self._estimated.move()
        return self._estimated.cameras

    def metres(self, frame: Frame) -> torch.Tensor:
        """Measured ranges f32 [N, rows, columns] of this step, metres; 0 below the shortest, at most the longest.

        Other sources of the frame share the result.
        """
        self._mount.move()
        return frame.shared((self.spec.name, "metres"), lambda: self._measure(frame))

    def _measure(self, frame: Frame) -> torch.Tensor:
        cameras = self._mount.cameras
        ranges = self.caster.cast(cameras.scene, cameras.position, cameras.heading, frame.seen)
        near, far = map(np.float32, self._limits)
        if any(self._noise):
            counters = view(checked_noise(self.spec.name, cameras.noise))
            add_range_noise(tuple(ranges.shape), counters, *self._noise, near, far, view(ranges))
        elif near > 0:
            ranges.masked_fill_(ranges < float(near), 0.0)
        return ranges

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the ranges as a share of the longest."""
        torch.mul(self.metres(frame).view(out.shape), 1.0 / self._limits[1], out=out)


@kernel(over="pixels", fastmath=True)
def add_range_noise(i, row, column, noise, deviation, share, near, far, ranges_out):
    """Add noise to one range; beyond `far` it is `far`, before `near` 0."""
    metres = ranges_out[i, row, column]
    if metres < far:
        u, _, _, _ = pixel_uniforms(i, np.int32(row) * np.int32(ranges_out.shape[2]) + np.int32(column), noise, DEPTH)
        metres += (deviation + share * metres) * normal_quantile(u)
    ranges_out[i, row, column] = min(metres, far) if metres >= near else np.float32(0.0)


def laser_ranges(lidar: torch.Tensor, config: LidarConfig) -> torch.Tensor:
    """Ranges of a LaserScan, metres, from an observation "lidar": +inf without a hit, -inf nearer than `range_min`."""
    metres = lidar.float() * config.resolved.range_max
    metres = metres.masked_fill(lidar >= 1.0, math.inf)
    return metres.masked_fill(lidar <= 0.0, -math.inf)


@dataclass(frozen=True)
class Lidar:
    """Maker of the sensor "lidar"."""

    Config: ClassVar = LidarConfig

    def __call__(self, config: NavConfig) -> ObservationSource:
        """The sensor of an environment."""
        return lidar_sensor(config.lidar)


@dataclass(frozen=True)
class Depth360:
    """Maker of the sensor "depth360"."""

    Config: ClassVar = Depth360Config

    def __call__(self, config: NavConfig) -> ObservationSource:
        """The sensor of an environment."""
        own = config.depth360
        spec = Spec(DEPTH360, (1, own.panorama_rows, own.panorama_columns), torch.float32, 0.0, 1.0, torch.bfloat16)
        mount = CameraConfig(camera_height=own.panorama_height)
        return RangeSensor(spec, own.directions, (0.0, own.panorama_range), (0.0, 0.0), mount)


def lidar_sensor(config: LidarConfig) -> RangeSensor:
    """The sensor "lidar" with these settings."""
    own = config.resolved
    spec = Spec(LIDAR, (own.rows, own.beams), torch.float32, 0.0, 1.0, torch.bfloat16)
    mount = CameraConfig(
        camera_height=own.lidar_height, camera_forward=own.lidar_forward, camera_left=own.lidar_left,
        camera_heading_deg=own.lidar_heading_deg,
    )  # fmt: skip
    return RangeSensor(
        spec, own.directions, (own.range_min, own.range_max), (own.range_noise, own.range_noise_share), mount
    )


SCAN_SENSORS = {LIDAR: Lidar(), DEPTH360: Depth360()}
"""Makers of the sensors of this file, by name."""
