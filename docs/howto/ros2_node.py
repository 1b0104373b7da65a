"""ROS 2 node that drives a robot by a policy with velocity control: an example to copy and change.

    batchnav export runs/mine --out policy.onnx
    python ros2_node.py --ros-args -p policy:=policy.onnx -r depth:=/camera/depth/image_rect_raw ...

Packages: rclpy and messages of ROS 2, numpy, onnxruntime; batchnav only for policies that read "ego_map" or "waypoint".

Frames. Odometry and goal are in one frame that does not jump (odom): x forward, y left, z up, metres; yaw is positive
to the left, radians. Twist is in the robot's frame (base_link): linear.x is m/s forward, angular.z is radians/s to the
left. Depth images are those of a camera's optical frame: planar depth along z, row 0 at the top, column 0 on the left;
32FC1 in metres or 16UC1 in millimetres, where 0, NaN and infinity are pixels without a measurement.
"""

import json
import math
import signal
from pathlib import Path

import numpy as np
import onnxruntime
import rclpy
from geometry_msgs.msg import PoseStamped, Twist
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, Image

STOPPED_SHARE = 0.5
"""A robot that moved less than this share of its command has collided."""


def metres(image: Image) -> np.ndarray:
    """Depth of a message, f32 [H, W], metres; 0 without a measurement."""
    kinds = {"32FC1": (np.float32, 1.0), "16UC1": (np.uint16, 1e-3)}
    if image.encoding not in kinds:
        raise ValueError(f"depth: found encoding {image.encoding!r}, expected 32FC1 or 16UC1")
    kind, unit = kinds[image.encoding]
    dtype = np.dtype(kind).newbyteorder(">" if image.is_bigendian else "<")
    rows = np.frombuffer(image.data, np.uint8).reshape(image.height, image.step)[:, : image.width * dtype.itemsize]
    depth = np.ascontiguousarray(rows).view(dtype).astype(np.float32) * np.float32(unit)
    return np.where(np.isfinite(depth), depth, np.float32(0.0))


def resampled(depth: np.ndarray, k, camera: dict) -> np.ndarray:
    """The image of the policy's camera: for each of its pixels the nearest one of the robot's camera, 0 outside.

    Both are pinhole cameras at one place; k is the 3x3 matrix of CameraInfo, row by row. Planar depth needs no scaling.
    """
    focal = camera["focal_length_pixels"]
    x = (np.arange(camera["width"]) + 0.5 - camera["width"] / 2) / focal
    y = (np.arange(camera["height"]) + 0.5 - camera["height"] / 2) / focal
    column, row = np.rint(k[0] * x + k[2]).astype(int), np.rint(k[4] * y + k[5]).astype(int)
    inside = ((row >= 0) & (row < depth.shape[0]))[:, None] & ((column >= 0) & (column < depth.shape[1]))
    nearest = depth[row.clip(0, depth.shape[0] - 1)][:, column.clip(0, depth.shape[1] - 1)]
    return np.where(inside, nearest, np.float32(0.0))


def depth_observation(depth: np.ndarray, limits: dict) -> np.ndarray:
    """The observation "depth", f32 [1, 1, H, W]."""
    span = limits["max_depth"] - limits["min_depth"]
    scaled = np.clip((depth - limits["min_depth"]) / span, 0.0, 1.0)
    return np.where(depth == 0.0, limits["hole_value"], scaled).astype(np.float32)[None, None]


def goal_observation(pose: tuple[float, float, float], goal: tuple[float, float]) -> np.ndarray:
    """The observation "pointgoal", f32 [1, 2]: distance, and bearing to the left, of a goal in the pose's frame."""
    x, y, yaw = pose
    east, north = goal[0] - x, goal[1] - y
    bearing = math.remainder(math.atan2(north, east) - yaw, 2.0 * math.pi)
    return np.array([[math.hypot(east, north), bearing]], np.float32)


def speeds(action: np.ndarray, actions: dict) -> tuple[float, float]:
    """Speeds of an action in -1 to 1: m/s forward, radians/s to the left; (0, 0) is a stop."""
    commanded, below = [], []
    for value, part in zip(np.clip(action, -1.0, 1.0), actions["components"], strict=True):
        speed = part["lowest"] + (float(value) + 1.0) / 2.0 * (part["highest"] - part["lowest"])
        commanded.append(speed)
        below.append(abs(speed) < part["minimum"])
    return (0.0, 0.0) if all(below) else (commanded[0], math.radians(commanded[1]))


def yaw_of(q) -> float:
    """Yaw of a quaternion, radians."""
    return math.atan2(2.0 * (q.w * q.z + q.x * q.y), 1.0 - 2.0 * (q.y * q.y + q.z * q.z))


class PolicyNode(Node):
    """Drives to each goal that arrives, until the policy stops."""

    def __init__(self):
        super().__init__("batchnav_policy")
        path = Path(self.declare_parameter("policy", "policy.onnx").value)
        self.description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        self.actions = self.description["actions"]
        if self.actions["kind"] != "velocity":
            raise ValueError(f"policy: found {self.actions['kind']} actions, expected velocity control")
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [value.name for value in self.session.get_inputs()]
        self.mapper = None
        if {"ego_map", "waypoint"} & set(names):
            from batchnav.export import RobotMapper

            self.mapper = RobotMapper.load(path.with_suffix(".json"))
        self.image = self.camera_matrix = self.pose = self.goal = None
        self.create_subscription(Image, "depth", self.on_depth, 1)
        self.create_subscription(CameraInfo, "camera_info", self.on_camera, 1)
        self.create_subscription(Odometry, "odom", self.on_odometry, 1)
        self.create_subscription(PoseStamped, "goal_pose", self.on_goal, 1)
        self.velocity = self.create_publisher(Twist, "cmd_vel", 1)
        self.create_timer(self.actions["time_step"], self.step)

    def on_depth(self, message):
        """Keep the last depth image."""
        self.image = message

    def on_camera(self, message):
        """Keep the intrinsic matrix of the camera."""
        self.camera_matrix = message.k

    def on_odometry(self, message):
        """Keep the pose and its frame."""
        place, turned = message.pose.pose.position, message.pose.pose.orientation
        self.pose, self.frame = (place.x, place.y, yaw_of(turned)), message.header.frame_id

    def on_goal(self, message):
        """Begin an episode; the goal must be in the frame of odometry."""
        if self.pose is None or message.header.frame_id != self.frame:
            known = self.frame if self.pose else "no odometry"
            self.get_logger().error(
                f"goal: found frame {message.header.frame_id!r}, expected that of odometry: {known}"
            )
            return
        self.goal = message.pose.position.x, message.pose.position.y
        self.start, self.before, self.forward = self.pose, self.pose, 0.0
        self.memory = {
            value["name"]: np.zeros([1 if size == "batch" else size for size in value["shape"]], value["dtype"])
            for value in self.description["inputs"]
        }
        self.memory["episode_start"] = np.array([True])
        if self.mapper:
            self.mapper.reset()

    def observe(self) -> dict:
        """The observations that the policy reads, from the last messages."""
        depth = resampled(metres(self.image), self.camera_matrix, self.description["cameras"]["main"])
        goal = goal_observation(self.pose, self.goal)
        (x, y, yaw), (x0, y0, yaw0) = self.pose, self.start
        cos, sin = math.cos(yaw0), math.sin(yaw0)
        ahead, left = cos * (x - x0) + sin * (y - y0), cos * (y - y0) - sin * (x - x0)
        found = {
            "depth": depth_observation(depth, self.description["depth"]),
            "pointgoal": goal,
            "gps": np.array([[ahead, -left]], np.float32),
            "compass": np.array([[math.remainder(yaw - yaw0, 2.0 * math.pi)]], np.float32),
        }
        if self.mapper:
            moved = math.dist(self.pose[:2], self.before[:2])
            found |= self.mapper.observe(depth, self.pose, goal[0], moved < STOPPED_SHARE * self.forward)
        return found

    def step(self):
        """One step of the policy: observe, act, publish the speeds."""
        if self.goal is None or self.image is None or self.camera_matrix is None:
            return
        inputs = self.memory | self.observe()
        names = [value.name for value in self.session.get_outputs()]
        run = {value.name: inputs[value.name] for value in self.session.get_inputs()}
        outputs = dict(zip(names, self.session.run(None, run), strict=True))
        for name in self.memory:
            if name.startswith("state"):
                self.memory[name] = outputs[f"next_{name}"]
        self.memory |= {"previous_action": outputs["mean"], "episode_start": np.array([False])}
        command = Twist()
        command.linear.x, command.angular.z = speeds(outputs["mean"][0], self.actions)
        self.velocity.publish(command)
        self.before, self.forward = self.pose, max(command.linear.x, 0.0) * self.actions["time_step"]
        if command.linear.x == command.angular.z == 0.0:
            self.get_logger().info(f"stopped {math.dist(self.pose[:2], self.goal):.2f} m from the goal")
            self.goal = None


def main():
    """Run the node until it is interrupted."""
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # its handlers end publishing before the stop below
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    node = PolicyNode()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.velocity.publish(Twist())  # zeros: the robot stops
        node.destroy_node()
        rclpy.shutdown()


if __name__ == "__main__":
    main()
