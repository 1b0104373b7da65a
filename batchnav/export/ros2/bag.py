"""Simulated drives as bags of ROS 2 (MCAP), and bags through the node's core, step by step. Package: rosbags, no ROS.

Topics of a bag: `depth`, `rgb` (sensor_msgs/Image), `camera_info`, `odom`, `tf_static`, `goal_pose`, and `action`
(std_msgs/Float32MultiArray): the simulator's action at this step. The frame "odom" is that of the scene. All messages
of a step have one time; steps are the policy's time step apart, MOVE_SECONDS for discrete actions.
"""

from __future__ import annotations

import importlib.util
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError, MissingPackageError
from batchnav.evaluation.play import Recording
from batchnav.export.ros2.conversions import camera_place, color_of, depth_of, pose_of, seconds
from batchnav.export.ros2.core import COLOR, IMAGE, Command, Driver
from batchnav.runtime.files import check_target
from batchnav.runtime.imports import install_command
from batchnav.sensors.camera import CameraConfig

MOVE_SECONDS = 5.0
"""Seconds between the steps of discrete actions: longer than the node waits for a blocked move."""
FIRST_SECOND = 100.0
"""Time of the first step."""
FRAMES = "odom", "base_link", "camera_optical_frame"
_TOPICS = {
    "depth": "sensor_msgs/msg/Image", "rgb": "sensor_msgs/msg/Image", "camera_info": "sensor_msgs/msg/CameraInfo",
    "odom": "nav_msgs/msg/Odometry", "tf_static": "tf2_msgs/msg/TFMessage",
    "goal_pose": "geometry_msgs/msg/PoseStamped",
    "action": "std_msgs/msg/Float32MultiArray",
}  # fmt: skip


class Played(NamedTuple):
    """One step of a bag."""

    time: float
    """Seconds."""
    recorded: np.ndarray
    """Action of the simulator's agent, f32 [A]; [1] for a discrete one."""
    action: np.ndarray | None
    """Action of the driver's policy; None where it did not act."""
    command: Command


def write_bag(recording: Recording, config: NavConfig, path: Path) -> None:
    """Write a recorded episode as a bag.

    Args:
        recording: the episode, with the images of the main camera.
        config: environment of the episode.
        path: the .mcap file to write; an existing one is replaced.

    ArgumentError for another suffix, a task without a goal's place, and where the file cannot be written;
    MissingPackageError without the extra `ros2`.
    """
    if path.suffix != ".mcap":
        raise ArgumentError(f"{path}: found suffix {path.suffix!r}, expected .mcap")
    if recording.goal is None:
        raise ArgumentError(f"{path}: found the task {config.task_name}, expected one whose goal is a place")
    check_target(path, ArgumentError)
    store = _typestore()
    from rosbags.rosbag2 import StoragePlugin, Writer

    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            with Writer(Path(folder) / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
                connections = {t: writer.add_connection(f"/{t}", kind, typestore=store) for t, kind in _TOPICS.items()}
                for time, topic, message in _messages(recording, config, store.types):
                    writer.write(connections[topic], time, store.serialize_cdr(message, _TOPICS[topic]))
            (written,) = (Path(folder) / "bag").glob("*.mcap")
            os.replace(written, path)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be written ({error})") from error


def play_bag(path: Path, driver: Driver) -> Iterator[Played]:
    """Play a bag of `write_bag` through a driver: all messages of a step, then one step of the driver.

    ArgumentError where the file cannot be read or lacks a topic.
    """
    store = _typestore()
    from rosbags.rosbag2 import Reader
    from rosbags.rosbag2.errors import ReaderError

    try:
        with Reader(path) as reader:
            if missing := _TOPICS.keys() - {connection.topic.strip("/") for connection in reader.connections}:
                raise ArgumentError(
                    f"{path}: found no topic {min(missing)}, expected a bag of `batchnav evaluate --bag`"
                )
            for connection, time, data in reader.messages():
                topic = connection.topic.strip("/")
                message, now = store.deserialize_cdr(data, connection.msgtype), time / 1e9
                if topic == "action":
                    steps = driver.policy.steps
                    command = driver.step(now)
                    acted = driver.policy.steps > steps
                    yield Played(now, message.data, driver.policy.last if acted else None, command)
                else:
                    _receive(driver, now, topic, message)
    except (OSError, ReaderError) as error:
        raise ArgumentError(f"{path}: cannot be read ({error}), expected a bag") from error


def _receive(driver: Driver, now: float, topic: str, message: Any) -> None:
    """Pass a message of a bag to a driver."""
    if topic == "tf_static":
        driver.receive_camera_place(camera_place(message.transforms[0].transform))
    elif topic == "camera_info":
        driver.receive_camera_info(message)
    elif topic == "odom":
        stamp = seconds(message.header.stamp)
        driver.receive_odometry(now, stamp, message.header.frame_id, pose_of(message.pose.pose))
    elif topic == "depth":
        driver.receive_image(now, seconds(message.header.stamp), depth_of(message), IMAGE)
    elif topic == "rgb":
        driver.receive_image(now, seconds(message.header.stamp), color_of(message), COLOR)
    elif refused := driver.set_goal(now, message.header.frame_id, pose_of(message.pose)[:2]):
        raise ArgumentError(refused)


def _typestore() -> Any:
    """Definitions of ROS 2's messages. MissingPackageError without rosbags."""
    if importlib.util.find_spec("rosbags") is None:
        raise MissingPackageError(f"bag: found no package rosbags, expected it: {install_command('ros2', 'rosbags')}")
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def _messages(recording: Recording, config: NavConfig, types: Any) -> Iterator[tuple[int, str, Any]]:
    """Time in nanoseconds, topic and message of an episode, in order."""
    make, camera = _Maker(types), config.camera
    period = config.body.velocity.time_step if not config.body.is_discrete else MOVE_SECONDS
    assert recording.goal is not None
    for step, position in enumerate(recording.positions):
        time = round((FIRST_SECOND + step * period) * 1e9)
        stamp = make("builtin_interfaces/msg/Time", sec=time // 10**9, nanosec=time % 10**9)
        odom, base, optical = (make("std_msgs/msg/Header", stamp=stamp, frame_id=frame) for frame in FRAMES)
        if step == 0:
            yield time, "tf_static", make.camera_transform(camera, base)
            yield time, "camera_info", make.camera_info(camera, optical)
        yield time, "odom", make.odometry(odom, -position[2], -position[0], float(recording.headings[step]))
        for name in ("depth", "rgb"):
            if name in recording.images:
                yield time, name, make.image(optical, name, recording.images[name].values[step], config)
        if step == 0:
            goal = make.pose(-recording.goal[2], -recording.goal[0], 0.0)
            yield time, "goal_pose", make("geometry_msgs/msg/PoseStamped", header=odom, pose=goal)
        action = np.atleast_1d(recording.actions[step]).astype(np.float32)
        layout = make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0)
        yield time, "action", make("std_msgs/msg/Float32MultiArray", layout=layout, data=action)


class _Maker:
    """Makes messages by their names and fields."""

    def __init__(self, types: Any):
        self._types = types

    def __call__(self, name: str, **fields: Any) -> Any:
        return self._types[name](**fields)

    def pose(self, x: float, y: float, yaw: float) -> Any:
        """A geometry_msgs/Pose on the floor."""
        return self(
            "geometry_msgs/msg/Pose",
            position=self("geometry_msgs/msg/Point", x=float(x), y=float(y), z=0.0),
            orientation=self("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=math.sin(yaw / 2), w=math.cos(yaw / 2)),
        )

    def odometry(self, header: Any, x: float, y: float, yaw: float) -> Any:
        """A nav_msgs/Odometry without speeds."""
        still = self("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        twist = self("geometry_msgs/msg/Twist", linear=still, angular=still)
        covariance = np.zeros(36)
        return self(
            "nav_msgs/msg/Odometry", header=header, child_frame_id="base_link",
            pose=self("geometry_msgs/msg/PoseWithCovariance", pose=self.pose(x, y, yaw), covariance=covariance),
            twist=self("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=covariance),
        )  # fmt: skip

    def camera_transform(self, camera: CameraConfig, header: Any) -> Any:
        """A tf2_msgs/TFMessage with the camera's optical frame on the body."""
        place = dict(zip("xyz", camera.extrinsics[:3, 3].tolist(), strict=True))
        rotation = dict(zip("xyzw", _camera_rotation(camera), strict=True))
        transform = self(
            "geometry_msgs/msg/Transform",
            translation=self("geometry_msgs/msg/Vector3", **place),
            rotation=self("geometry_msgs/msg/Quaternion", **rotation),
        )
        stamped = self(
            "geometry_msgs/msg/TransformStamped", header=header, child_frame_id=FRAMES[2], transform=transform
        )
        return self("tf2_msgs/msg/TFMessage", transforms=[stamped])

    def camera_info(self, camera: CameraConfig, header: Any) -> Any:
        """A sensor_msgs/CameraInfo."""
        region = self("sensor_msgs/msg/RegionOfInterest", x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
        matrix = camera.intrinsics
        return self(
            "sensor_msgs/msg/CameraInfo", header=header, height=camera.height, width=camera.width,
            distortion_model="plumb_bob", d=np.array((*camera.distortion, *[0.0] * 5)[:5]), k=matrix.reshape(-1),
            r=np.eye(3).reshape(-1), p=np.column_stack([matrix, np.zeros(3)]).reshape(-1), binning_x=0, binning_y=0,
            roi=region,
        )  # fmt: skip

    def image(self, header: Any, kind: str, values: np.ndarray, config: NavConfig) -> Any:
        """A sensor_msgs/Image of an observation [C, H, W]: depth as 32FC1, or colours as rgb8."""
        if kind == "depth":
            limits = config.depth
            metres = values[0] * (limits.max_depth - limits.min_depth) + limits.min_depth
            pixels, encoding = np.where(values[0] == limits.hole_value, 0.0, metres).astype("<f4"), "32FC1"
        else:
            pixels, encoding = values.transpose(1, 2, 0), "rgb8"
        height, width = pixels.shape[:2]
        data = np.frombuffer(np.ascontiguousarray(pixels).tobytes(), np.uint8)
        return self(
            "sensor_msgs/msg/Image", header=header, height=height, width=width, encoding=encoding, is_bigendian=0,
            step=len(data) // height, data=data,
        )  # fmt: skip


_OPTICAL = -0.5, 0.5, -0.5, 0.5
"""Rotation of an optical frame on a frame with x ahead and z up, as x, y, z and w."""


def _product(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    """Product of two quaternions (x, y, z, w): first b, then a."""
    (ax, ay, az, aw), (bx, by, bz, bw) = a, b
    return (
        aw * bx + ax * bw + ay * bz - az * by, aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw, aw * bw - ax * bx - ay * by - az * bz,
    )  # fmt: skip


def _camera_rotation(camera: CameraConfig) -> tuple[float, ...]:
    """Rotation of a camera's optical frame on the body, as x, y, z and w."""
    turn, dip = math.radians(camera.camera_heading_deg) / 2, -math.radians(camera.camera_pitch_deg) / 2
    heading, pitch = (0.0, 0.0, math.sin(turn), math.cos(turn)), (0.0, math.sin(dip), 0.0, math.cos(dip))
    return _product(heading, _product(pitch, _OPTICAL))
