"""The ROS 2 example of the docs over stub modules: messages in, observations as in the simulator, speeds out."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.export import export_policy
from batchnav.sim.bodies import BodyConfig
from tests.export.onnx_beside import SMALL, policy

NODE = Path(__file__).parents[2] / "docs" / "howto" / "ros2_node.py"
TOLERANCE = 1e-3
"""Of speeds and observations; images are in millimetres, as from a robot's camera."""
ENV = NavConfig(body=BodyConfig(control="velocity"))


class Node:
    """`rclpy.node.Node` as far as the example uses it."""

    def __init__(self, name):
        self.called, self.published, self.errors = {}, [], []

    def declare_parameter(self, name, value):
        return SimpleNamespace(value=str(Node.policy))

    def create_subscription(self, kind, topic, called, depth):
        self.called[topic] = called

    def create_publisher(self, kind, topic, depth):
        assert (kind.__name__, topic) == ("Twist", "cmd_vel")
        return SimpleNamespace(publish=self.published.append)

    def create_timer(self, seconds, called):
        self.seconds = seconds

    def get_logger(self):
        return SimpleNamespace(error=self.errors.append, info=self.errors.append)


def twist():
    return SimpleNamespace(linear=SimpleNamespace(x=0.0, y=0.0, z=0.0), angular=SimpleNamespace(x=0.0, y=0.0, z=0.0))


twist.__name__ = "Twist"


@pytest.fixture
def ros(monkeypatch):
    """The example as a module, over stub modules of ROS."""
    names = {
        "rclpy": {}, "rclpy.node": {"Node": Node}, "geometry_msgs": {},
        "rclpy.signals": {"SignalHandlerOptions": SimpleNamespace(NO="no handlers")}, "nav_msgs": {}, "sensor_msgs": {},
        "geometry_msgs.msg": {"Twist": twist, "PoseStamped": object}, "nav_msgs.msg": {"Odometry": object},
        "sensor_msgs.msg": {"CameraInfo": object, "Image": object},
    }  # fmt: skip
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("ros2_node", NODE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def image(depth: np.ndarray, encoding="16UC1", pad=6):
    """A message with rows of more bytes than pixels."""
    values = np.round(depth * 1000.0).astype("<u2") if encoding == "16UC1" else depth.astype("<f4")
    rows = np.pad(values.view(np.uint8).reshape(len(depth), -1), ((0, 0), (0, pad)))
    height, width = depth.shape
    return SimpleNamespace(
        encoding=encoding, is_bigendian=0, height=height, width=width, step=rows.shape[1], data=rows.tobytes()
    )


def pose(x, y, yaw, frame="odom"):
    placed = SimpleNamespace(
        position=SimpleNamespace(x=x, y=y, z=0.0),
        orientation=SimpleNamespace(x=0.0, y=0.0, z=math.sin(yaw / 2), w=math.cos(yaw / 2)),
    )
    return SimpleNamespace(header=SimpleNamespace(frame_id=frame), pose=placed)


def odometry(*values):
    found = pose(*values)
    found.pose = SimpleNamespace(pose=found.pose)
    return found


@pytest.mark.parametrize("sensors", [("depth", "gps", "compass"), ("depth", "waypoint")])
def test_the_node_commands_what_the_policy_does_in_the_simulator(ros, sensors, tmp_path):
    config = replace(ENV, sensors=sensors)
    agent = policy(config, replace(SMALL, encoder="simple_cnn"))
    Node.policy = tmp_path / "policy.onnx"
    export_policy(agent, Node.policy)
    env = NavEnv([load_scene("house:3")], 1, "cpu", seed=2, config=config)
    node, bodies, velocity = ros.PolicyNode(), env.sim.bodies, ENV.body.velocity
    assert node.seconds == velocity.time_step
    k = [32.0, 0.0, 31.5, 0.0, 32.0, 31.5, 0.0, 0.0, 1.0]  # 90 degrees; the first pixel's centre is at 0
    node.called["camera_info"](SimpleNamespace(k=k))
    seen, _ = env.reset()
    agent.reset(1)
    for t in range(30):
        x, _, z = bodies.position[0].tolist()
        node.called["odom"](odometry(-z, -x, float(bodies.heading[0])))
        node.called["depth"](image(seen["depth"][0, 0].numpy() * 10.0))
        if t == 0:
            distance, bearing = seen["pointgoal"][0].tolist()
            angle = float(bodies.heading[0]) + bearing
            node.called["goal_pose"](pose(-z + distance * math.cos(angle), -x + distance * math.sin(angle), 0.0))
        for name, value in node.observe().items() if "waypoint" not in sensors else ():
            if name in seen:
                np.testing.assert_allclose(value, seen[name].numpy(), atol=TOLERANCE, err_msg=name)
        node.step()
        action = agent.act(seen, deterministic=True)
        command, expected = node.published[-1], action[0].clamp(-1.0, 1.0).tolist()
        assert command.linear.x == pytest.approx((expected[0] + 1) / 2 * velocity.lin_vel_range[1], abs=0.01)
        assert math.degrees(command.angular.z) == pytest.approx(10.0 * expected[1], abs=0.5)
        seen, *_ = env.step(action)
    env.close()


def test_images_are_read_and_resampled(ros):
    depth = np.float32([[0.5, 2.0, 0.0], [1.0, np.nan, np.inf]])
    np.testing.assert_allclose(ros.metres(image(depth, "32FC1")), [[0.5, 2.0, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(ros.metres(image(np.nan_to_num(depth, posinf=0.0))), [[0.5, 2.0, 0.0], [1.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="found encoding 'rgb8', expected 32FC1 or 16UC1"):
        ros.metres(SimpleNamespace(encoding="rgb8"))
    # Columns of a camera of 640 pixels and 60 degrees hold the tangent of their ray.
    focal = 320 / math.tan(math.radians(30.0))
    tangents = np.broadcast_to(np.float32((np.arange(640) - 319.5) / focal), (480, 640))
    camera = {"width": 64, "height": 64, "focal_length_pixels": 32.0}
    found = ros.resampled(tangents, [focal, 0, 319.5, 0, focal, 239.5, 0, 0, 1], camera)
    wanted = (np.arange(64) - 31.5) / 32.0
    inside = np.abs(wanted) < math.tan(math.radians(30.0))
    np.testing.assert_allclose(found[32, inside], wanted[inside], atol=0.6 / focal)
    assert not found[:, ~inside].any() and not found[0].any()


def test_an_interrupted_node_stops_the_robot(ros, monkeypatch):
    """The last command is published while ROS still runs, which its signal handlers would end."""
    calls = []

    def spin(node):
        calls.append("spin")
        raise KeyboardInterrupt

    velocity = SimpleNamespace(publish=lambda command: calls.append((command.linear.x, command.angular.z)))
    node = SimpleNamespace(velocity=velocity, destroy_node=lambda: calls.append("destroy"))
    ros.rclpy.init = lambda signal_handler_options: calls.append(signal_handler_options)
    ros.rclpy.spin, ros.rclpy.shutdown = spin, lambda: calls.append("shutdown")
    monkeypatch.setattr(ros, "PolicyNode", lambda: node)
    monkeypatch.setattr(ros.signal, "signal", lambda number, handler: calls.append(number))
    ros.main()
    assert calls == ["no handlers", ros.signal.SIGTERM, "spin", (0.0, 0.0), "destroy", "shutdown"]


def test_goals_in_other_frames_and_stops(ros, tmp_path):
    actions = {
        "components": [
            {"lowest": 0.0, "highest": 0.25, "minimum": 0.025},
            {"lowest": -10.0, "highest": 10.0, "minimum": 1.0},
        ]
    }
    assert ros.speeds(np.float32([-1.0, 0.05]), actions) == (0.0, 0.0)
    assert ros.speeds(np.float32([3.0, 0.5]), actions) == pytest.approx((0.25, math.radians(5.0)))
    np.testing.assert_allclose(ros.goal_observation((1.0, 2.0, math.pi / 2), (1.0, 5.0)), [[3.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(ros.goal_observation((0.0, 0.0, 0.0), (0.0, 2.0)), [[2.0, math.pi / 2]], atol=1e-6)
    np.testing.assert_array_equal(
        ros.depth_observation(np.float32([[0.0, 0.5, 9.0]]), {"min_depth": 0.5, "max_depth": 4.5, "hole_value": 1.0}),
        np.float32([[[[1.0, 0.0, 1.0]]]]),
    )
    agent = policy(ENV, replace(SMALL, encoder="simple_cnn"))
    Node.policy = tmp_path / "policy.onnx"
    export_policy(agent, Node.policy)
    node = ros.PolicyNode()
    node.called["goal_pose"](pose(1.0, 0.0, 0.0))
    node.called["odom"](odometry(0.0, 0.0, 0.0))
    node.called["goal_pose"](pose(1.0, 0.0, 0.0, "map"))
    assert node.errors == [
        "goal: found frame 'odom', expected that of odometry: no odometry",
        "goal: found frame 'map', expected that of odometry: odom",
    ]
    node.step()
    assert not node.published  # without an image
    discrete = policy(NavConfig(), replace(SMALL, encoder="simple_cnn"))
    export_policy(discrete, Node.policy)
    with pytest.raises(ValueError, match="found discrete actions, expected velocity control"):
        ros.PolicyNode()
    assert torch.is_grad_enabled()
