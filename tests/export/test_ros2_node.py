"""The ROS 2 node over stub modules, and simulated drives as bags through its core."""

import importlib
import math
import runpy
import sys
from collections import defaultdict
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from rosbags.rosbag2 import Reader

from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.evaluation.play import record
from batchnav.export import export_policy
from batchnav.export.ros2.bag import play_bag, write_bag
from batchnav.export.ros2.core import ABORTED, CANCELED, PARAMETERS, SUCCEEDED, Driver, Settings
from batchnav.runtime.bundled import find_episodes
from batchnav.sensors.camera import CameraConfig
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks.explore import ExploreConfig
from batchnav.tasks.pointnav import PointNavConfig
from tests.export.onnx_beside import SMALL, policy

SMALL_CNN = replace(SMALL, encoder="simple_cnn")
TASK = PointNavConfig(max_steps=40)
VELOCITY = NavConfig(body=BodyConfig(control="velocity"), camera=CameraConfig(32, 32), task=TASK)
BAGS = {
    "velocity": (replace(VELOCITY, sensors=("depth", "gps", "compass", "heading")), SMALL_CNN),
    "velocity, waypoint": (replace(VELOCITY, sensors=("depth", "waypoint")), SMALL_CNN),
    "discrete, rgb, another lens": (
        NavConfig(
            sensors=("rgb", "depth"), task=TASK,
            camera=CameraConfig(
                32, 40, fx=22.0, fy=25.0, cx=17.0, cy=15.0, camera_height=0.6, camera_forward=0.1, camera_left=-0.05,
                camera_pitch_deg=-15.0, camera_heading_deg=10.0,
            ),
        ),
        SMALL_CNN,
    ),
}  # fmt: skip


class Steps:
    """A policy's most probable actions, as `batchnav evaluate --deterministic` takes them."""

    def __init__(self, agent):
        self.agent = agent

    def reset(self, num_envs):
        self.agent.reset(num_envs)

    def act(self, observations, episode_start):
        return self.agent.act(observations, episode_start, deterministic=True)


@pytest.mark.parametrize("case", BAGS)
def test_the_core_acts_on_a_bag_as_the_simulator_did(case, tmp_path):
    """Actions step by step, from messages that went through a file.

    The drive touches no wall: odometry shows only collisions that halve a move, and the simulator's map knows all.
    """
    agent = policy(*BAGS[case])
    export_policy(agent, tmp_path / "policy.onnx")
    config = BAGS[case][0]
    env = NavEnv([load_scene("house:3")], 1, "cpu", seed=2, config=config, copy=False)
    (drive,) = record(Steps(agent), env, seed=2)
    write_bag(drive, config, tmp_path / "drive.mcap")
    env.close()
    driver = Driver.load(tmp_path / "policy.onnx", Settings(max_linear_acceleration=100.0))
    steps = list(play_bag(tmp_path / "drive.mcap", driver))
    assert len(steps) == len(drive.actions) >= 5
    for number, step in enumerate(steps):
        assert step.action is not None, (number, step.command)
        np.testing.assert_allclose(step.recorded, np.atleast_1d(drive.actions[number]))
        np.testing.assert_allclose(step.action, step.recorded, atol=2e-3, err_msg=str(number))
    with Reader(tmp_path / "drive.mcap") as reader:
        types = {connection.topic: connection.msgtype for connection in reader.connections}
    assert types["/odom"] == "nav_msgs/msg/Odometry" and types["/depth"] == "sensor_msgs/msg/Image"


def test_evaluate_writes_a_bag(run, tmp_path):
    few = tmp_path / "few.json.gz"
    EpisodeDataset(load_episodes(find_episodes("val"))[:2]).save(few)
    run(
        "evaluate", "pointnav_waypoint_small", "--episodes", few, "--out", tmp_path / "results", "--bag",
        tmp_path / "out.mcap", "--deterministic",
    )  # fmt: skip
    export_policy("pointnav_waypoint_small", tmp_path / "policy.onnx")
    found = list(play_bag(tmp_path / "out.mcap", Driver.load(tmp_path / "policy.onnx")))
    same = [step.action is not None and step.action[0] == step.recorded[0] for step in found]
    assert len(found) > 10 and np.mean(same) > 0.9  # the simulator knows collisions that odometry does not show


def test_bags_that_cannot_be_written_or_read_are_refused(tmp_path):
    env = NavEnv([load_scene("house:3")], 1, "cpu", config=NavConfig(camera=CameraConfig(8, 8), task=TASK), copy=False)
    stops = SimpleNamespace(reset=lambda n: None, act=lambda seen, start: env.sim.bodies.scene.long() * 0)
    (drive,) = record(stops, env)
    with pytest.raises(ArgumentError, match=r"found suffix '\.bag', expected \.mcap"):
        write_bag(drive, env.config, tmp_path / "drive.bag")
    with pytest.raises(ArgumentError, match="found the task explore, expected one whose goal is a place"):
        write_bag(drive._replace(goal=None), NavConfig(task=ExploreConfig()), tmp_path / "drive.mcap")
    (tmp_path / "damaged.mcap").write_bytes(b"no bag")
    with pytest.raises(ArgumentError, match=r"damaged\.mcap: cannot be read"):
        list(play_bag(tmp_path / "damaged.mcap", None))
    env.close()


# The node, over stub modules of ROS


class Message:
    """A message with any fields: numbers by default."""

    def __init__(self, **fields):
        vars(self).update(fields)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        plain = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 0.0, "poses": [], "data": [], "frame_id": ""}
        value = plain.get(name)
        value = Message() if value is None else (list(value) if isinstance(value, list) else value)
        setattr(self, name, value)
        return value


class Twist(Message):
    pass


class TwistStamped(Message):
    pass


class Node:
    """`rclpy.lifecycle.LifecycleNode` as far as the node uses it."""

    parameters: dict = {}  # noqa: RUF012
    time = 0.0

    def __init__(self, name):
        self.declared, self.called, self.published = {}, {}, defaultdict(list)
        self.timers_made, self.logged = [], []

    def declare_parameter(self, name, value):
        self.declared[name] = Node.parameters.get(name, value)

    def get_parameter(self, name):
        return SimpleNamespace(value=self.declared[name])

    def create_subscription(self, kind, topic, called, qos, callback_group=None):
        self.called[topic] = called

    def create_publisher(self, kind, topic, depth):
        return SimpleNamespace(publish=self.published[topic].append)

    def create_timer(self, seconds, called, callback_group=None):
        timer = SimpleNamespace(seconds=seconds, called=called, canceled=False)
        timer.cancel = lambda: setattr(timer, "canceled", True)
        self.timers_made.append(timer)
        return timer

    def get_logger(self):
        return SimpleNamespace(
            error=lambda text, **_: self.logged.append(text), info=lambda text: self.logged.append(text)
        )

    def get_clock(self):
        return SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=int(Node.time * 1e9), to_msg=Message))

    def on_activate(self, state):
        return "success"

    on_deactivate = on_activate


class Buffer:
    """TF: transforms by (target, source)."""

    known: dict = {}  # noqa: RUF012

    def lookup_transform(self, target, source, *_):
        if (target, source) not in Buffer.known:
            raise LookupError
        return Buffer.known[target, source]


class NavigateToPose:
    class Result(Message):
        pass

    class Feedback(Message):
        pass


class Handle:
    """A goal of an action."""

    def __init__(self, pose, cancel_after=None):
        self.request, self.ended, self.feedback = SimpleNamespace(pose=pose), None, []
        self._cancel_after = cancel_after

    @property
    def is_cancel_requested(self):
        return self._cancel_after is not None and len(self.feedback) >= self._cancel_after

    def publish_feedback(self, message):
        self.feedback.append(message)

    def succeed(self):
        self.ended = SUCCEEDED

    def abort(self):
        self.ended = ABORTED

    def canceled(self):
        self.ended = CANCELED


@pytest.fixture
def ros(monkeypatch):
    """The node's module, over stub modules of ROS."""
    any_message = lambda *names: dict.fromkeys(names, Message)  # noqa: E731
    status = type("DiagnosticStatus", (Message,), {"OK": 0, "WARN": 1})
    names = {
        "rclpy": {"ok": lambda: True, "time": SimpleNamespace(Time=lambda: None)},
        "rclpy.action": {
            "ActionServer": lambda *args, **options: SimpleNamespace(), "CancelResponse": SimpleNamespace(ACCEPT="yes"),
            "GoalResponse": SimpleNamespace(ACCEPT="yes", REJECT="no"),
        },
        "rclpy.callback_groups": {"ReentrantCallbackGroup": object},
        "rclpy.duration": {"Duration": lambda seconds: SimpleNamespace(to_msg=lambda: seconds)},
        "rclpy.executors": {"MultiThreadedExecutor": object},
        "rclpy.lifecycle": {
            "LifecycleNode": Node, "TransitionCallbackReturn": SimpleNamespace(SUCCESS="success", FAILURE="failure"),
        },
        "rclpy.qos": {"qos_profile_sensor_data": 10},
        "rclpy.signals": {"SignalHandlerOptions": SimpleNamespace(NO="no handlers")},
        "builtin_interfaces": {}, "builtin_interfaces.msg": any_message("Time"),
        "diagnostic_msgs": {},
        "diagnostic_msgs.msg": {**any_message("DiagnosticArray", "KeyValue"), "DiagnosticStatus": status},
        "geometry_msgs": {},
        "geometry_msgs.msg": {**any_message("PoseStamped"), "Twist": Twist, "TwistStamped": TwistStamped},
        "nav2_msgs": {}, "nav2_msgs.action": {"NavigateToPose": NavigateToPose},
        "nav_msgs": {}, "nav_msgs.msg": any_message("OccupancyGrid", "Odometry", "Path"),
        "sensor_msgs": {}, "sensor_msgs.msg": any_message("CameraInfo", "Image", "LaserScan"),
        "std_msgs": {}, "std_msgs.msg": any_message("String"),
        "tf2_ros": {"Buffer": Buffer, "TransformException": LookupError, "TransformListener": lambda *_: None},
    }  # fmt: skip
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["rclpy"].time = SimpleNamespace(Time=lambda: None)
    monkeypatch.setattr(Node, "parameters", {})
    monkeypatch.setattr(Buffer, "known", {})
    monkeypatch.delitem(sys.modules, "batchnav.export.ros2.node", raising=False)
    yield importlib.import_module("batchnav.export.ros2.node")
    sys.modules.pop("batchnav.export.ros2.node", None)


def stamped(frame="", **fields):
    whole = int(Node.time)
    stamp = SimpleNamespace(sec=whole, nanosec=round((Node.time - whole) * 1e9))
    return SimpleNamespace(header=SimpleNamespace(frame_id=frame, stamp=stamp), **fields)


def pose(x, y, yaw):
    turn = SimpleNamespace(x=0.0, y=0.0, z=math.sin(yaw / 2), w=math.cos(yaw / 2))
    return SimpleNamespace(position=SimpleNamespace(x=x, y=y, z=0.0), orientation=turn)


def transform(x, y, z, q):
    rotation = SimpleNamespace(**dict(zip("xyzw", q, strict=True)))
    return stamped(transform=SimpleNamespace(translation=SimpleNamespace(x=x, y=y, z=z), rotation=rotation))


def send(node, place=(0.0, 0.0, 0.0)):
    """Messages of all sensors at this time."""
    node.called["odom"](stamped("odom", pose=SimpleNamespace(pose=pose(*place))))
    depth = np.full((32, 32), 2.0, np.float32)
    node.called["depth"](
        stamped("optical", encoding="32FC1", is_bigendian=0, height=32, width=32, step=128, data=depth.tobytes())
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A policy with velocity control and a map."""
    path = tmp_path_factory.mktemp("exported") / "policy.onnx"
    export_policy(policy(replace(VELOCITY, sensors=("depth", "ego_map")), SMALL_CNN), path)
    return path


@pytest.fixture
def node(ros, exported):
    """An active node of the policy."""
    Node.parameters, Node.time = {"policy": str(exported)}, 50.0
    made = ros.PolicyNode()
    assert set(PARAMETERS) < set(made.declared)
    assert made.on_configure(None) == "success"
    made.on_activate(None)
    Buffer.known["base_link", "optical"] = transform(0.0, 0.0, 1.25, (-0.5, 0.5, -0.5, 0.5))
    k = [16.0, 0, 15.5, 0, 16.0, 15.5, 0, 0, 1]
    info = {"height": 32, "width": 32, "k": k, "d": [], "distortion_model": "plumb_bob"}
    made.called["camera_info"](stamped("optical", **info))
    return made


def test_the_node_drives_to_a_goal_of_its_topic(node):
    assert node.timers_made[0].seconds == VELOCITY.body.velocity.time_step
    node.step()
    assert node.published["cmd_vel"][-1].twist.linear.x == 0.0 and node.logged == ["idle: no goal"]
    node.called["goal_pose"](stamped("odom", pose=pose(2.0, 1.0, 0.0)))
    node.step()
    assert node.logged[-1] == "waiting: depth: found none yet" or "odometry: found none yet" in node.logged[-1]
    for _ in range(3):
        Node.time += 1.0
        send(node)
        node.step()
    command = node.published["cmd_vel"][-1]
    assert type(command) is TwistStamped and command.header.frame_id == "base_link"
    assert command.twist.linear.x > 0.0 and node.logged[-1] == "driving"
    path, grid = node.published["driven_path"][-1], node.published["ego_map"][-1]
    assert len(path.poses) == 3 and path.header.frame_id == "odom"
    assert len(grid.data) == 48 * 48 and grid.info.resolution == 0.25
    node.publish_diagnostics()
    (status,) = node.published["/diagnostics"][-1].status
    assert status.level == 0 and {value.key for value in status.values} >= {"state", "depth age", "odometry age"}
    Node.time += 2.0
    node.step()
    command = node.published["cmd_vel"][-1].twist
    assert (command.linear.x, command.angular.z) == (0.0, 0.0) and "found nothing for 2.00 s" in node.logged[-1]
    node.publish_diagnostics()
    assert node.published["/diagnostics"][-1].status[0].level == 1


def test_the_node_reads_the_goals_frame_from_tf(node):
    send(node)
    node.called["goal_pose"](stamped("map", pose=pose(1.0, 0.0, 0.0)))
    node.step()
    assert "goal frame: found none yet (from 'map' to 'odom')" in node.logged[-1]
    Buffer.known["odom", "map"] = transform(0.5, 0.0, 0.0, (0.0, 0.0, 0.0, 1.0))
    node.step()
    assert node.logged[-1] == "driving"
    assert node.driver.feedback(Node.time).distance == pytest.approx(1.5)


def test_the_action_sends_feedback_and_can_be_canceled(node, ros, monkeypatch):
    send(node)
    monkeypatch.setattr(ros.time, "sleep", lambda _: node.step())
    handle = Handle(stamped("odom", pose=pose(2.0, 0.0, 0.0)), cancel_after=2)
    node.execute(handle)
    assert handle.ended == CANCELED and node.driver.outcomes[1].state == CANCELED
    assert [message.distance_remaining for message in handle.feedback] == [2.0, 2.0]
    node.step()
    assert node.published["cmd_vel"][-1].twist.linear.x == 0.0


def test_the_action_ends_as_its_goal_does(node, ros, monkeypatch):
    send(node)
    monkeypatch.setattr(ros.time, "sleep", lambda _: node.driver.set_goal(Node.time, "odom", (0.0, 1.0)))
    preempted = Handle(stamped("odom", pose=pose(2.0, 0.0, 0.0)))
    node.execute(preempted)
    assert preempted.ended == ABORTED
    node.driver.policy.act = lambda observations: np.float32([-1.0, 0.0])  # a stop
    monkeypatch.setattr(ros.time, "sleep", lambda _: node.step())
    arrived = Handle(stamped("odom", pose=pose(2.0, 0.0, 0.0)))
    node.execute(arrived)
    assert arrived.ended == SUCCEEDED
    refused = Handle(stamped("odom", pose=pose(math.nan, 0.0, 0.0)))
    node.execute(refused)
    assert refused.ended == ABORTED and "expected finite numbers" in node.logged[-1]


def test_a_node_that_is_not_active_refuses_goals_and_stands(node):
    assert node.accepts() == "yes"
    node.on_deactivate(None)
    assert node.accepts() == "no" and all(timer.canceled for timer in node.timers_made)
    assert node.published["cmd_vel"][-1].twist.linear.x == 0.0
    node.called["goal_pose"](stamped("odom", pose=pose(1.0, 0.0, 0.0)))
    assert "found a node that is not active" in node.logged[-1]


def test_bad_messages_and_policies_are_logged(node, ros, tmp_path):
    node.called["depth"](stamped("optical", encoding="jpeg", height=1, width=1, step=1, data=b""))
    assert "found encoding 'jpeg'" in node.logged[-1]
    Node.parameters = {"policy": str(tmp_path / "missing.onnx")}
    other = ros.PolicyNode()
    assert other.on_configure(None) == "failure" and "missing" in other.logged[-1]
    Node.parameters |= {"image_timeout": -1.0}
    other = ros.PolicyNode()
    assert other.on_configure(None) == "failure" and "image_timeout: found -1" in other.logged[-1]


def test_without_ros_the_node_says_what_is_missing():
    with pytest.raises(SystemExit, match=r"^error: found no Python package rclpy, expected ROS 2 with nav2_msgs"):
        runpy.run_module("batchnav.export.ros2.node", run_name="__main__")


def test_an_interrupted_node_stops_the_robot(ros, monkeypatch):
    """The last command is published while ROS still runs, which its signal handlers would end."""
    calls = []

    class Executor:
        def add_node(self, node):
            calls.append("add")

        def spin(self):
            calls.append("spin")
            raise KeyboardInterrupt

    names = "trigger_configure", "trigger_activate", "trigger_deactivate", "destroy_node"
    stub = SimpleNamespace(
        active=True, declare_parameter=lambda *_: None, get_parameter=lambda name: SimpleNamespace(value=True),
        **{name: lambda name=name: calls.append(name) for name in names},
    )  # fmt: skip
    ros.rclpy.init = lambda signal_handler_options: calls.append(signal_handler_options)
    ros.rclpy.shutdown = lambda: calls.append("shutdown")
    monkeypatch.setattr(ros, "PolicyNode", lambda: stub)
    monkeypatch.setattr(ros, "MultiThreadedExecutor", Executor)
    monkeypatch.setattr(ros.signal, "signal", lambda number, handler: calls.append(number))
    monkeypatch.setattr(sys, "argv", ["node"])
    ros.main()
    assert calls == [
        "no handlers", ros.signal.SIGTERM, "add", "trigger_configure", "trigger_activate", "spin",
        "trigger_deactivate", "destroy_node", "shutdown",
    ]  # fmt: skip
