"""`batchnav export`: write a policy for a robot: an ONNX file, and a JSON file with its inputs and actions.

    batchnav export pointnav_waypoint_small --out policy.onnx
    batchnav export runs/mine --out robot/policy.onnx --camera-height 0.6 --hfov-deg 87

`docs/howto/deploy_on_a_robot.md` describes both files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from batchnav.cli.console import show
from batchnav.cli.interrupts import interrupted_with
from batchnav.runtime.bundled import find_policy
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import next_command
from batchnav.runtime.garbage_collection import collection_paused


@dataclass(frozen=True)
class Options:
    """Options of `batchnav export`."""

    policy: tyro.conf.Positional[str]
    """Policy file, run folder, or name of a bundled policy."""
    out: Path
    """The .onnx file to write. The .json file has the same name."""
    camera_height: float | None = None
    """Height of the robot's camera above the floor, metres. Default: the height in training."""
    hfov_deg: float | None = None
    """Horizontal field of view of the robot's camera, degrees. Default: the field of view in training."""
    camera_info: Path | None = None
    """Calibration file of the robot's camera (YAML of ROS's camera_calibration), resized to the policy's image.
    Default: the lens in training."""
    static: bool = False
    """Fix the batch size at 1, so that all shapes are constants, as TensorRT needs. Default: any batch size."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav export`."""
    options = parse_options(Options, "batchnav export", arguments, __doc__)
    find_policy(options.policy)  # raises before imports that take seconds
    with collection_paused():
        from batchnav.export.onnx_policy import export_policy
    with interrupted_with(lambda: f"{options.out} was not written"):
        described = export_policy(
            options.policy, options.out, options.camera_height, options.hfov_deg, options.static, options.camera_info
        )
    show(f"{options.out}, {described}")
    camera = (("--camera-height", options.camera_height), ("--hfov-deg", options.hfov_deg))
    given = [word for name, value in camera if value is not None for word in (name, f"{value:g}")]
    given += [] if options.camera_info is None else ["--camera-info", str(options.camera_info)]
    show(next_command("evaluate it with this camera", "batchnav", "evaluate", options.policy, *given))
