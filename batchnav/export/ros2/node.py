"""The ROS 2 node `batchnav_policy`: messages, TF and the action `navigate_to_pose` around `core.Driver`.

    batchnav export runs/mine --out policy.onnx
    python -m batchnav.export.ros2.node --ros-args -p policy:=policy.onnx -r depth:=/camera/depth/image_rect_raw ...
    python -m batchnav.export.ros2.node --launch-file      # prints the path of the launch file beside this module

`docs/howto/ros2.md` describes topics and parameters. It is a lifecycle node that configures and activates itself,
unless the parameter `autostart` is false.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from batchnav.errors import BatchnavError
from batchnav.export.ros2.conversions import (
    camera_place,
    color_of,
    depth_of,
    grid_of,
    planar,
    pose_of,
    seconds,
)
from batchnav.export.ros2.core import (
    CATEGORY,
    COLOR,
    IMAGE,
    PARAMETERS,
    SCAN,
    SUCCEEDED,
    Command,
    Driver,
    Settings,
    named_detector,
)

try:
    import rclpy
    from builtin_interfaces.msg import Time
    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
    from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
    from nav2_msgs.action import NavigateToPose
    from nav_msgs.msg import OccupancyGrid, Odometry
    from nav_msgs.msg import Path as PathMessage
    from rclpy.action import ActionServer, CancelResponse, GoalResponse
    from rclpy.callback_groups import ReentrantCallbackGroup
    from rclpy.duration import Duration
    from rclpy.executors import MultiThreadedExecutor
    from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
    from rclpy.qos import qos_profile_sensor_data
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import CameraInfo, Image, LaserScan
    from std_msgs.msg import String
    from tf2_ros import Buffer, TransformException, TransformListener
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    sys.exit(
        f"error: found no Python package {error.name}, expected ROS 2 with nav2_msgs: run the setup file of ROS first "
        "(. /opt/ros/DISTRO/setup.sh), and install batchnav into the Python of ROS"
    )

FEEDBACK_SECONDS = 0.2
"""Time between two feedbacks of the action."""


class PolicyNode(LifecycleNode):
    """Drives to goals of the topics `goal_pose` and `goal_category`, and of the action `navigate_to_pose`."""

    def __init__(self):
        super().__init__("batchnav_policy")
        own = {"policy": "policy.onnx", "detector": "", "base_frame": "base_link", "stamped": True}
        for name, value in (own | PARAMETERS).items():
            self.declare_parameter(name, value)
        self.lock = threading.RLock()  # the action and the timer run on threads of their own
        self.driver: Driver  # made by `on_configure`
        self.active = False
        self.reason = ""

    def on_configure(self, state):
        """Load the policy, and make subscriptions, publishers and the action."""
        try:
            settings = Settings(**{name: self.get_parameter(name).value for name in PARAMETERS})
            detector = named_detector(self.get_parameter("detector").value)
            self.driver = Driver.load(self.get_parameter("policy").value, settings, detector)
        except (BatchnavError, OSError) as error:
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.FAILURE
        self.base, self.stamped = self.get_parameter("base_frame").value, self.get_parameter("stamped").value
        self.camera_frame = ""
        self.buffer = Buffer()
        self.listener = TransformListener(self.buffer, self)
        group, sensor = ReentrantCallbackGroup(), qos_profile_sensor_data
        subscribed = [
            (Odometry, "odom", self.on_odometry, sensor), (PoseStamped, "goal_pose", self.on_goal, 1),
            (CameraInfo, "camera_info", self.on_camera_info, sensor),
        ]  # fmt: skip
        if IMAGE in self.driver.inputs:
            subscribed.append((Image, "depth", lambda message: self.on_image(message, IMAGE), sensor))
        if COLOR in self.driver.inputs:
            subscribed.append((Image, "rgb", lambda message: self.on_image(message, COLOR), sensor))
        if CATEGORY in self.driver.policy.names:
            subscribed.append((String, "goal_category", self.on_category, 1))
        if SCAN in self.driver.inputs:
            subscribed.append((LaserScan, "scan", self.on_scan, sensor))
        self.readers = [self.create_subscription(*each, callback_group=group) for each in subscribed]
        self.velocity = self.create_publisher(TwistStamped if self.stamped else Twist, "cmd_vel", 1)
        self.grid = self.create_publisher(OccupancyGrid, "ego_map", 1)
        self.path = self.create_publisher(PathMessage, "driven_path", 1)
        self.diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 1)
        self.action = ActionServer(
            self, NavigateToPose, "navigate_to_pose", self.execute, goal_callback=lambda goal: self.accepts(),
            cancel_callback=lambda goal: CancelResponse.ACCEPT, callback_group=group,
        )  # fmt: skip
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state):
        """Begin to step."""
        group = ReentrantCallbackGroup()
        self.timers_running = [
            self.create_timer(self.driver.period, self.step, callback_group=group),
            self.create_timer(1.0, self.publish_diagnostics, callback_group=group),
        ]
        self.active = True
        return super().on_activate(state)

    def on_deactivate(self, state):
        """Cancel the goal, and stop the robot."""
        self.active = False
        for timer in self.timers_running:
            timer.cancel()
        with self.lock:
            self.driver.cancel()
        self.publish_velocity(Command(0.0, 0.0, "idle", "deactivated"))
        return super().on_deactivate(state)

    # Inputs

    def now(self) -> float:
        """Time of the node's clock, seconds: simulation time with `use_sim_time`."""
        return self.get_clock().now().nanoseconds * 1e-9

    def on_camera_info(self, message):
        """Read the camera matrix."""
        self.camera_frame = message.header.frame_id
        with self.lock:
            self.driver.receive_camera_info(message)

    def on_image(self, message, kind: str):
        """Take an image."""
        self.receive(
            lambda now: self.driver.receive_image(
                now, seconds(message.header.stamp), (depth_of if kind == IMAGE else color_of)(message), kind
            )
        )

    def on_scan(self, message):
        """Take a laser scan."""
        self.receive(lambda now: self.driver.receive_scan(now, seconds(message.header.stamp), message))

    def on_odometry(self, message):
        """Take odometry."""
        pose, header = pose_of(message.pose.pose), message.header
        self.receive(lambda now: self.driver.receive_odometry(now, seconds(header.stamp), header.frame_id, pose))

    def receive(self, take) -> None:
        """Take a message of a sensor; errors are logged."""
        with self.lock:
            try:
                take(self.now())
            except BatchnavError as error:
                self.get_logger().error(str(error), throttle_duration_sec=5.0)

    def on_goal(self, message):
        """Drive to a pose's place."""
        with self.lock:
            if refused := self.begin(message):
                self.get_logger().error(refused)

    def on_category(self, message):
        """Search for an object of a category."""
        with self.lock:
            refused = "goal: found a node that is not active, expected an active one"
            if self.active:
                refused = self.driver.set_category(self.now(), message.data)
            if refused:
                self.get_logger().error(refused)

    def begin(self, goal) -> str:
        """Set a goal: geometry_msgs/PoseStamped. Returns why it is refused."""
        if not self.active:
            return "goal: found a node that is not active, expected an active one"
        return self.driver.set_goal(self.now(), goal.header.frame_id, pose_of(goal.pose)[:2])

    def look_up(self, target: str, source: str):
        """The last transform from `source` to `target`; None where TF has none."""
        try:
            return self.buffer.lookup_transform(target, source, rclpy.time.Time(), Duration(seconds=0.0))
        except TransformException:
            return None

    def read_transforms(self, now: float) -> None:
        """Pass the camera's place and the goal's frame from TF to the driver."""
        if self.camera_frame and (found := self.look_up(self.base, self.camera_frame)) is not None:
            self.driver.receive_camera_place(camera_place(found.transform))
        frame, odometry = self.driver.goal_frame, self.driver.odometry_frame
        if frame and odometry and frame != odometry and (found := self.look_up(odometry, frame)) is not None:
            self.driver.receive_goal_frame(now, seconds(found.header.stamp), frame, planar(found.transform))

    # Outputs

    def step(self):
        """One tick: command, path and map."""
        with self.lock:
            if not self.active:
                return
            now = self.now()
            self.read_transforms(now)
            steps = len(self.driver.path)
            command = self.driver.step(now)
            self.publish_velocity(command)
            if command.reason != self.reason:
                self.reason = command.reason
                self.get_logger().info(f"{command.state}: {command.reason}" if command.reason else command.state)
            if len(self.driver.path) > steps or (self.driver.path and steps == 0):
                self.publish_path()
                if self.driver.ego_map is not None:
                    self.publish_map(self.driver.ego_map)

    def publish_velocity(self, command: Command) -> None:
        """Publish speeds."""
        message = TwistStamped() if self.stamped else Twist()
        twist = message.twist if self.stamped else message
        twist.linear.x, twist.angular.z = float(command.linear), float(command.angular)
        if self.stamped:
            message.header.stamp, message.header.frame_id = self.time(), self.base
        self.velocity.publish(message)

    def time(self) -> Time:
        """Time of the node's clock as a message."""
        return self.get_clock().now().to_msg()

    def publish_path(self) -> None:
        """Publish the poses of the policy's steps."""
        message = PathMessage()
        message.header.stamp, message.header.frame_id = self.time(), self.driver.odometry_frame
        for x, y, yaw in self.driver.path:
            pose = PoseStamped()
            pose.header = message.header
            pose.pose.position.x, pose.pose.position.y = x, y
            pose.pose.orientation.z, pose.pose.orientation.w = math.sin(yaw / 2), math.cos(yaw / 2)
            message.poses.append(pose)
        self.path.publish(message)

    def publish_map(self, ego_map: np.ndarray) -> None:
        """Publish the map around the robot."""
        grid, message = grid_of(ego_map), OccupancyGrid()
        message.header.stamp, message.header.frame_id = self.time(), self.base
        message.info.width = message.info.height = grid.size
        message.info.resolution = grid.resolution
        message.info.origin.position.x, message.info.origin.position.y = grid.origin
        message.info.origin.orientation.w = 1.0
        message.data = grid.data.tolist()
        self.grid.publish(message)

    def publish_diagnostics(self) -> None:
        """Publish state, ages of inputs and refused messages."""
        with self.lock:
            found = self.driver.status(self.now())
        waiting = found["state"] == "waiting"
        status = DiagnosticStatus(
            level=DiagnosticStatus.WARN if waiting else DiagnosticStatus.OK, name="batchnav_policy",
            message=f"{found['state']}: {found['reason']}" if found["reason"] else found["state"],
            values=[KeyValue(key=key, value=value) for key, value in found.items()],
        )  # fmt: skip
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.time()
        self.diagnostics.publish(message)

    # The action

    def accepts(self) -> GoalResponse:
        """Accept goals while the node is active."""
        return GoalResponse.ACCEPT if self.active else GoalResponse.REJECT

    def execute(self, handle):
        """Drive to the goal of an action until it ends."""
        result = NavigateToPose.Result()
        with self.lock:
            refused = self.begin(handle.request.pose)
            number = self.driver.goal_number
        if refused:
            self.get_logger().error(refused)
            handle.abort()
            return result
        while number not in self.driver.outcomes and rclpy.ok():
            with self.lock:
                if number in self.driver.outcomes:
                    break
                if handle.is_cancel_requested:
                    self.driver.cancel()
                    break
                handle.publish_feedback(self.feedback())
            time.sleep(FEEDBACK_SECONDS)
        outcome = self.driver.outcomes.get(number)
        if handle.is_cancel_requested:
            handle.canceled()
        elif outcome is not None and outcome.state == SUCCEEDED:
            handle.succeed()
        else:
            handle.abort()
        return result

    def feedback(self):
        """Progress of the running goal."""
        found, message = self.driver.feedback(self.now()), NavigateToPose.Feedback()
        message.distance_remaining = found.distance if math.isfinite(found.distance) else 0.0
        message.navigation_time = Duration(seconds=found.elapsed).to_msg()
        if self.driver.path:
            x, y, yaw = self.driver.path[-1]
            message.current_pose.header.stamp = self.time()
            message.current_pose.header.frame_id = self.driver.odometry_frame
            message.current_pose.pose.position.x, message.current_pose.pose.position.y = x, y
            message.current_pose.pose.orientation.z = math.sin(yaw / 2)
            message.current_pose.pose.orientation.w = math.cos(yaw / 2)
        return message


def main() -> None:
    """Run the node until it is interrupted; the last command is a stop."""
    if "--launch-file" in sys.argv:
        print(Path(__file__).with_name("policy.launch.py"))
        return
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # its handlers end publishing before the stop below
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    node, executor = PolicyNode(), MultiThreadedExecutor()
    executor.add_node(node)
    node.declare_parameter("autostart", True)
    if node.get_parameter("autostart").value:
        node.trigger_configure()
        node.trigger_activate()
    try:
        executor.spin()
    except KeyboardInterrupt:
        pass
    finally:
        if node.active:
            node.trigger_deactivate()  # it publishes zeros
        node.destroy_node()
        rclpy.shutdown()


if __name__ == "__main__":
    main()
