"""Messages of ROS 2 as arrays and numbers, and back. Messages are read by their fields, so that no ROS is needed.

Frames are those of REP 103: x ahead, y to the left, z up, metres; yaw to the left, radians; optical frames have x to
the right, y down, z ahead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import ArgumentError
from batchnav.sensors.distortion import distort, undistort

Pose = tuple[float, float, float]
"""x and y, metres, and yaw, radians."""
_DEPTHS = {"32FC1": ("f4", 1.0), "16UC1": ("u2", 1e-3), "mono16": ("u2", 1e-3)}
"""Types and units of depth images by encoding."""
_COLORS = {"rgb8": (3, (0, 1, 2)), "bgr8": (3, (2, 1, 0)), "rgba8": (4, (0, 1, 2)), "bgra8": (4, (2, 1, 0))}
"""Number of channels, and those of red, green and blue, of colour images by encoding."""
_GRID = {0.05: -1, 0.25: 50, 0.35: 100}
"""Occupancy of a nav_msgs/OccupancyGrid by the value of "ego_map": unknown, inflated, occupied. Others are free: 0."""
_GRID_METRES = 12.0
"""Side of "ego_map", metres."""


def seconds(stamp: Any) -> float:
    """Seconds of a builtin_interfaces/Time."""
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)


def _rows(image: Any, dtype: np.dtype, channels: int) -> np.ndarray:
    """Pixels [H, W * channels] of an image message, whose rows may be longer than their pixels."""
    used, data = image.width * channels * dtype.itemsize, np.frombuffer(image.data, np.uint8)
    if image.step < used or len(data) < image.height * image.step or min(image.height, image.width) < 1:
        raise ArgumentError(
            f"image: found {len(data)} bytes in rows of {image.step}, expected {image.height} rows of {used} or more"
        )
    rows = data[: image.height * image.step].reshape(image.height, image.step)[:, :used]
    return np.ascontiguousarray(rows).view(dtype)


def depth_of(image: Any) -> np.ndarray:
    """Depth of a sensor_msgs/Image, f32 [H, W], metres; 0 without a measurement. ArgumentError for other encodings."""
    if image.encoding not in _DEPTHS:
        raise ArgumentError(f"depth: found encoding {image.encoding!r}, expected {', '.join(_DEPTHS)}")
    kind, unit = _DEPTHS[image.encoding]
    dtype = np.dtype(kind).newbyteorder(">" if image.is_bigendian else "<")
    depth = _rows(image, dtype, 1).astype(np.float32) * np.float32(unit)
    return np.where(np.isfinite(depth) & (depth > 0.0), depth, np.float32(0.0))


def color_of(image: Any) -> np.ndarray:
    """Colours of a sensor_msgs/Image, u8 [H, W, 3]. ArgumentError for other encodings."""
    if image.encoding not in _COLORS:
        raise ArgumentError(f"rgb: found encoding {image.encoding!r}, expected {', '.join(_COLORS)}")
    channels, order = _COLORS[image.encoding]
    rows = _rows(image, np.dtype(np.uint8), channels)
    return np.ascontiguousarray(rows.reshape(image.height, image.width, channels)[..., list(order)])


class Resampler:
    """Images of a robot's camera as those of the policy's camera, which is at the same place.

    For each pixel of the policy's camera it takes the nearest pixel of the robot's. Planar depth needs no scaling.

    Args:
        info: sensor_msgs/CameraInfo of the robot's images; `k` and `d` are used, so raw images are rectified too.
        camera: the camera of a `policy.json`.

    ArgumentError for another distortion model than plumb_bob, and for a matrix that is not finite.
    """

    def __init__(self, info: Any, camera: Mapping[str, Any]):
        self.size = int(info.height), int(info.width)
        k, d = [float(value) for value in info.k], [float(value) for value in info.d]
        if not all(map(math.isfinite, (*k, *d))) or k[0] <= 0.0 or k[4] <= 0.0:
            raise ArgumentError(f"camera_info: found k {k}, expected focal lengths above 0")
        if any(d) and (info.distortion_model != "plumb_bob" or len(d) not in (4, 5)):
            raise ArgumentError(
                f"camera_info: found distortion model {info.distortion_model!r} with {len(d)} numbers, expected "
                "plumb_bob; use rectified images"
            )
        rows, columns = np.indices((camera["height"], camera["width"]))
        x, y = (columns - camera["cx"]) / camera["fx"], (rows - camera["cy"]) / camera["fy"]
        if camera["distortion"]:
            x, y = undistort(x, y, camera["distortion"])
        if any(d):
            x, y = distort(x, y, d)
        columns, rows = np.rint(k[0] * x + k[2]), np.rint(k[4] * y + k[5])
        self._inside = (rows >= 0) & (rows < self.size[0]) & (columns >= 0) & (columns < self.size[1])
        self._rows = rows.clip(0, self.size[0] - 1).astype(np.int64)
        self._columns = columns.clip(0, self.size[1] - 1).astype(np.int64)
        self.coverage = float(self._inside.mean())
        """Share of the policy's pixels that the robot's camera sees."""

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """The image [H, W] or [H, W, C] of the policy's camera; 0 outside. ArgumentError for another size."""
        if image.shape[:2] != self.size:
            raise ArgumentError(
                f"image: found {image.shape[0]} rows of {image.shape[1]} pixels, expected {self.size[0]} of "
                f"{self.size[1]} as camera_info says"
            )
        found = image[self._rows, self._columns]
        found[~self._inside] = 0
        return found


def yaw_of(q: Any) -> float:
    """Yaw of a quaternion, radians."""
    return math.atan2(2.0 * (q.w * q.z + q.x * q.y), 1.0 - 2.0 * (q.y * q.y + q.z * q.z))


def pose_of(pose: Any) -> Pose:
    """A geometry_msgs/Pose in the plane."""
    return float(pose.position.x), float(pose.position.y), yaw_of(pose.orientation)


def planar(transform: Any) -> Pose:
    """A geometry_msgs/Transform in the plane."""
    return float(transform.translation.x), float(transform.translation.y), yaw_of(transform.rotation)


def transformed(point: tuple[float, float], frame: Pose) -> tuple[float, float]:
    """A point of a frame with this pose, in the frame that the pose is given in."""
    (x, y, yaw), (ahead, left) = frame, point
    cos, sin = math.cos(yaw), math.sin(yaw)
    return x + cos * ahead - sin * left, y + sin * ahead + cos * left


class CameraPlace(NamedTuple):
    """Pose of a camera on the body."""

    height: float
    """Metres above the origin of the body's frame."""
    forward: float
    left: float
    """Metres."""
    heading: float
    """Radians to the left."""
    pitch: float
    """Radians, up is positive."""


def camera_place(transform: Any) -> CameraPlace:
    """Place of a camera from the transform of its optical frame to the body's frame."""
    t, q = transform.translation, transform.rotation
    # the optical frame's z axis, in the body's frame
    ahead = (2.0 * (q.x * q.z + q.w * q.y), 2.0 * (q.y * q.z - q.w * q.x), 1.0 - 2.0 * (q.x * q.x + q.y * q.y))
    pitch = math.asin(max(-1.0, min(1.0, ahead[2])))
    return CameraPlace(float(t.z), float(t.x), float(t.y), math.atan2(ahead[1], ahead[0]), pitch)


def lidar_observation(scan: Any, lidar: Mapping[str, Any], beams: int) -> np.ndarray:
    """The observation "lidar" f32 [1, 1, beams] of a sensor_msgs/LaserScan; `lidar`: that of a `policy.json`."""
    angles = lidar["angle_min"] + lidar["angle_increment"] * np.arange(beams)
    metres = scan_of(scan, angles, lidar["range_max"])
    return np.where(metres < lidar["range_min"], 0.0, metres / lidar["range_max"]).astype(np.float32)[None, None]


def scan_of(scan: Any, angles: np.ndarray, max_range: float) -> np.ndarray:
    """Ranges f32 [len(angles)] of a sensor_msgs/LaserScan, metres: the nearest beam of each angle, radians to the left.

    `max_range` where nothing is measured, and outside of the scanner's field of view. ArgumentError for an empty scan.
    """
    ranges = np.asarray(scan.ranges, np.float32)
    if len(ranges) == 0 or not math.isfinite(scan.angle_increment) or scan.angle_increment == 0.0:
        raise ArgumentError(f"scan: found {len(ranges)} ranges {scan.angle_increment!r} apart, expected a scan")
    with np.errstate(invalid="ignore"):
        valid = np.isfinite(ranges) & (ranges >= scan.range_min) & (ranges <= scan.range_max)
    turn = 2.0 * math.pi
    steps = ((np.asarray(angles) - scan.angle_min) * np.sign(scan.angle_increment)) % turn / abs(scan.angle_increment)
    beam = np.rint(steps).astype(np.int64)
    beam = np.where(turn / abs(scan.angle_increment) - steps < 0.5, 0, beam)  # just before the first beam
    seen = beam < len(ranges)
    index = np.where(seen, beam, 0)
    return np.where(seen & valid[index], ranges[index].clip(0.0, max_range), max_range).astype(np.float32)


class Grid(NamedTuple):
    """Fields of a nav_msgs/OccupancyGrid in the body's frame."""

    data: np.ndarray
    """i8 [H * W]: -1 unknown, 0 free to 100 occupied; along x first."""
    size: int
    """Cells of a side."""
    resolution: float
    """Metres of a cell."""
    origin: tuple[float, float]
    """x and y of the corner of cell 0, metres."""


def grid_of(ego_map: np.ndarray) -> Grid:
    """The observation "ego_map" [1, 1, H, H], on which the agent faces up, as a grid around the body."""
    image = np.asarray(ego_map, np.float32)[0, 0]
    values = np.zeros(image.shape, np.int8)
    for value, occupancy in _GRID.items():
        values[np.abs(image - value) < 0.02] = occupancy
    size, side = len(image), _GRID_METRES
    return Grid(np.ascontiguousarray(values[::-1, ::-1].T).reshape(-1), size, side / size, (-side / 2, -side / 2))
