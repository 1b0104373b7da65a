"""Start the node: `ros2 launch $(python -m batchnav.export.ros2.node --launch-file) policy:=policy.onnx`.

Arguments: `policy`, the exported file; `parameters`, a YAML file; `depth`, `camera_info`, `odom`, `cmd_vel`: topics.
"""

import sys
from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration

TOPICS = {
    "depth": "/camera/depth/image_rect_raw", "rgb": "/camera/color/image_raw",
    "camera_info": "/camera/depth/camera_info", "odom": "/odom", "scan": "/scan", "goal_pose": "/goal_pose",
    "goal_category": "/goal_category", "cmd_vel": "/cmd_vel",
}  # fmt: skip


def generate_launch_description():
    """The node as a process of this Python, so that it finds the packages of its environment."""
    defaults = {"policy": "policy.onnx", "parameters": str(Path(__file__).with_name("policy.yaml")), **TOPICS}
    remaps = [word for topic in TOPICS for word in ("-r", [topic, ":=", LaunchConfiguration(topic)])]
    command = [
        sys.executable, "-m", "batchnav.export.ros2.node", "--ros-args",
        "--params-file", LaunchConfiguration("parameters"), "-p", ["policy:=", LaunchConfiguration("policy")], *remaps,
    ]  # fmt: skip
    arguments = [DeclareLaunchArgument(name, default_value=value) for name, value in defaults.items()]
    return LaunchDescription([*arguments, ExecuteProcess(cmd=command, output="screen")])
