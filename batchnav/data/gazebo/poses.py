"""Poses of SDF: position and rotation of an element in the frame that it names."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

import numpy as np
from scipy.spatial.transform import Rotation

_OWN = ("", "__model__", "__root__", "world")
"""Names of a scope's own frame."""


class Scope:
    """The frames of a world or a model: links, joints, models and frames by name.

    Args:
        elements: elements with names and poses.
    """

    def __init__(self, elements: Iterable[ET.Element]):
        self._elements = {name_of(element): element for element in elements}
        self._open: set[str] = set()

    def pose(self, element: ET.Element) -> np.ndarray:
        """f64 [4, 4]: an element's pose in the scope's frame. ValueError for an unknown frame or one in itself."""
        pose = element.find("pose")
        base = "" if pose is None else pose.get("relative_to", "")
        if not base and element.tag == "frame":
            base = element.get("attached_to", "")
        if not base and element.tag == "joint":
            base = (element.findtext("child") or "").strip()
        return self.frame(base) @ matrix_of(pose)

    def frame(self, name: str) -> np.ndarray:
        """f64 [4, 4]: a frame in the scope's frame."""
        if name in _OWN:
            return np.eye(4)
        if name not in self._elements or name in self._open:
            raise ValueError(f"frame {name[:60]!r} {'is its own base' if name in self._open else 'is unknown'}")
        self._open.add(name)
        try:
            return self.pose(self._elements[name])
        finally:
            self._open.discard(name)


def name_of(element: ET.Element) -> str:
    """Name of an element: its attribute, or the child <name> of an <include>."""
    return element.get("name") or (element.findtext("name") or "").strip()


def matrix_of(pose: ET.Element | None) -> np.ndarray:
    """f64 [4, 4] of a <pose>: x y z, then roll pitch yaw (radians, or degrees) or a quaternion x y z w."""
    matrix = np.eye(4)
    text = "" if pose is None or pose.text is None else pose.text.strip()
    if pose is None or not text:
        return matrix
    is_quaternion = pose.get("rotation_format") == "quat_xyzw"
    values = numbers(text, 7 if is_quaternion else 6)
    matrix[:3, 3] = values[:3]
    if is_quaternion:
        matrix[:3, :3] = Rotation.from_quat(values[3:]).as_matrix()
    else:
        degrees = pose.get("degrees", "false").strip().lower() in ("true", "1")
        matrix[:3, :3] = Rotation.from_euler("xyz", values[3:], degrees=degrees).as_matrix()
    return matrix


def numbers(text: str | None, count: int) -> np.ndarray:
    """f64 [count]: finite numbers of a text. ValueError for anything else."""
    values = np.array([float(word) for word in (text or "").split()])
    if len(values) != count or not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > 1e9:
        raise ValueError(f"found {(text or '')[:60]!r}, expected {count} numbers")
    return values
