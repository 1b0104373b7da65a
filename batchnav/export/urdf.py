"""URDF of an agent's body: a cylinder that stands on the floor, and a link for each camera.

Links and axes are those of ROS: base_link is on the floor at the agent's position, x forward, y left, z up. A camera's
link NAME_link looks along its x; NAME_optical_frame has z forward, x right, y down (REP 103). The main camera's NAME is
"camera".
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path

from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError
from batchnav.runtime.files.atomic import replacing
from batchnav.sensors.camera import MAIN, CameraConfig

_OPTICAL = (-math.pi / 2, 0.0, -math.pi / 2)
"""Roll, pitch and yaw of an optical frame in its camera's frame, radians."""


def body_urdf(config: NavConfig) -> str:
    """The URDF of the body and the cameras of a configuration."""
    body, robot = config.body, ET.Element("robot", name="batchnav_body")
    base = ET.SubElement(robot, "link", name="base_link")
    for kind in ("visual", "collision"):
        part = ET.SubElement(base, kind)
        ET.SubElement(part, "origin", xyz=_listed(0.0, 0.0, body.agent_height / 2), rpy=_listed(0.0, 0.0, 0.0))
        cylinder = {"radius": _listed(body.agent_radius), "length": _listed(body.agent_height)}
        ET.SubElement(ET.SubElement(part, "geometry"), "cylinder", cylinder)
    for name, camera in config.all_cameras.items():
        _add_camera(robot, "camera" if name == MAIN else name, camera)
    ET.indent(robot)
    return '<?xml version="1.0"?>\n' + ET.tostring(robot, encoding="unicode") + "\n"


def save_urdf(config: NavConfig, path: str | Path) -> None:
    """Write `body_urdf` to a file. ArgumentError where that fails."""
    path = Path(path)
    if path.suffix.lower() != ".urdf":
        raise ArgumentError(f"{path}: found suffix {path.suffix!r}, expected .urdf")
    with replacing(path, ArgumentError) as part:
        part.write_text(body_urdf(config), encoding="utf-8")


def _add_camera(robot: ET.Element, name: str, camera: CameraConfig) -> None:
    """Add a camera's link, its optical frame, and their joints."""
    heading, pitch = math.radians(camera.camera_heading_deg), math.radians(camera.camera_pitch_deg)
    place = camera.camera_forward, camera.camera_left, camera.camera_height
    frames = (
        ("base_link", f"{name}_link", place, (0.0, -pitch, heading)),  # a positive pitch of URDF looks down
        (f"{name}_link", f"{name}_optical_frame", (0.0, 0.0, 0.0), _OPTICAL),
    )
    for parent, child, xyz, rpy in frames:
        ET.SubElement(robot, "link", name=child)
        joint = ET.SubElement(robot, "joint", name=f"{child}_joint", type="fixed")
        ET.SubElement(joint, "parent", link=parent)
        ET.SubElement(joint, "child", link=child)
        ET.SubElement(joint, "origin", xyz=_listed(*xyz), rpy=_listed(*rpy))


def _listed(*values: float) -> str:
    return " ".join(f"{value + 0.0:.9g}" for value in values)
