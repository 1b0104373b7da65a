"""URDF files: the visual meshes of an articulated object, posed by its joints."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from batchnav.data.files import read_text
from batchnav.data.scenes.asset import Asset, Part
from batchnav.errors import MeshError

_MAX_LINKS = 10_000


def read_urdf(path: Path, positions: Mapping[str, float]) -> list[Part]:
    """The meshes of all links, in the root link's frame.

    Args:
        path: the `.urdf` file; meshes are named relative to its folder.
        positions: joint positions by name, radians or metres; 0 for other joints.

    Raises MeshError where the file is not URDF, its joints form no tree, or a number cannot be read.
    """
    try:
        robot = ET.fromstring(read_text(path, MeshError))
        links = {_named(link, "name"): link for link in robot.findall("link")}
        joints = {_link(joint, "child"): joint for joint in robot.findall("joint")}
        if len(links) > _MAX_LINKS:
            raise ValueError(f"found {len(links)} links, expected at most {_MAX_LINKS}")
        parts: list[Part] = []
        poses: dict[str, np.ndarray] = {}
        for name, link in links.items():
            pose = _link_pose(name, joints, positions, poses)
            for visual in link.findall("visual"):
                mesh = visual.find("geometry/mesh")
                if mesh is None:  # boxes and spheres are collision shapes; Habitat renders meshes only
                    continue
                place = pose @ _origin(visual)
                asset = Asset(path.parent / _named(mesh, "filename"), scale=_numbers(mesh.get("scale", "1 1 1")))
                parts.append(Part(asset, place[:3, :3], place[:3, 3]))
    except (ET.ParseError, ValueError) as error:
        raise MeshError(f"{path}: is not a usable URDF file ({error})") from error
    return parts


def _link_pose(
    name: str, joints: Mapping[str, ET.Element], positions: Mapping[str, float], poses: dict[str, np.ndarray]
) -> np.ndarray:
    """f64 [4, 4]: transform from the link's frame to the root's. `poses` caches the transforms of visited links."""
    chain: dict[str, ET.Element] = {}
    while name in joints and name not in poses:
        if name in chain:
            raise ValueError(f"link {name!r} is its own ancestor")
        chain[name] = joints[name]
        name = _link(joints[name], "parent")
    pose = poses.get(name, np.eye(4))
    for link, joint in reversed(chain.items()):
        pose = poses[link] = pose @ _origin(joint) @ _motion(joint, positions.get(joint.get("name", ""), 0.0))
    return pose


def _motion(joint: ET.Element, position: float) -> np.ndarray:
    """f64 [4, 4]: motion of a joint at a position, about or along its axis."""
    motion, axis = np.eye(4), joint.find("axis")
    direction = np.array(_numbers(_named(axis, "xyz")) if axis is not None else (1.0, 0.0, 0.0))
    if joint.get("type") in ("revolute", "continuous"):
        motion[:3, :3] = Rotation.from_rotvec(direction * position).as_matrix()
    elif joint.get("type") == "prismatic":
        motion[:3, 3] = direction * position
    return motion


def _origin(element: ET.Element) -> np.ndarray:
    """f64 [4, 4]: transform of an element's <origin xyz rpy>."""
    origin, pose = element.find("origin"), np.eye(4)
    if origin is not None:
        pose[:3, 3] = _numbers(origin.get("xyz", "0 0 0"))
        pose[:3, :3] = Rotation.from_euler("xyz", _numbers(origin.get("rpy", "0 0 0"))).as_matrix()
    return pose


def _link(joint: ET.Element, end: str) -> str:
    """Name of a joint's "parent" or "child" link."""
    element = joint.find(end)
    if element is None:
        raise ValueError(f"a joint without <{end}>")
    return _named(element, "link")


def _named(element: ET.Element, name: str) -> str:
    """A required attribute of an element. ValueError where it is missing."""
    value = element.get(name)
    if value is None:
        raise ValueError(f"<{element.tag}> without {name!r}")
    return value


def _numbers(text: str) -> tuple[float, float, float]:
    """Three finite numbers from text. ValueError for anything else."""
    values = [float(word) for word in text.replace(",", " ").split()]  # published files use commas too
    if len(values) != 3 or not np.isfinite(values).all():
        raise ValueError(f"found {text!r}, expected three numbers")
    x, y, z = values
    return x, y, z
