"""Presets of ObjectNav: sensors, and options that differ from the defaults, by name."""

from __future__ import annotations

from typing import Any

from batchnav.data.goals.rules import LABELS

_RGBD = ("rgb", "depth", "gps", "compass")
_ACTIONS = {
    "control": "v1", "turn_angle_deg": 30.0, "tilt_angle_deg": 30.0, "max_tilt_deg": 90.0, "sliding": False,
    "max_steps": 500,
}  # fmt: skip
"""Six actions, as in Habitat's ObjectNav."""
_LOCOBOT = _ACTIONS | {
    "agent_radius": 0.18, "agent_height": 0.88, "height": 480, "width": 640, "hfov_deg": 79.0, "camera_height": 0.88,
    "min_depth": 0.5, "max_depth": 5.0,
}  # fmt: skip
"""Robot and camera of the Habitat challenges 2020 to 2022."""
_STRETCH = _ACTIONS | {
    "agent_radius": 0.17, "agent_height": 1.41, "height": 640, "width": 360, "hfov_deg": 42.0, "camera_height": 1.31,
    "min_depth": 0.5, "max_depth": 5.0,
}  # fmt: skip

INSTANCE_IMAGENAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "instance_imagenav_hm3d": (_RGBD, _STRETCH | {"max_steps": 1000}),
}
"""By name of the preset, for Instance ImageNav. "instance_imagenav_hm3d": Habitat challenge 2023, except that depth has
the field of view of colour."""

OBJECTNAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "objectnav_houses": (("depth", "goal_mask", "gps", "compass"), {"turn_angle_deg": 30.0}),
    "objectnav_hm3d": (_RGBD, _LOCOBOT | {"categories": LABELS["hm3d"].categories}),
    "objectnav_mp3d": (_RGBD, _LOCOBOT | {"categories": LABELS["mp3d"].categories, "labels": "mp3d"}),
    "objectnav_hssd": (
        _RGBD,
        _LOCOBOT | {
            "height": 256, "width": 256, "categories": LABELS["hssd"].categories, "rules": "hssd", "labels": "hssd",
        },
    ),
    "ovon": (
        _RGBD, _STRETCH | {"success_distance": 0.25, "categories": (), "rules": "ovon", "labels": "all"}
    ),
    "objectnav_procthor": (
        _RGBD,
        _ACTIONS | {
            "agent_radius": 0.18, "agent_height": 0.9, "height": 224, "width": 224, "hfov_deg": 63.45,
            "camera_height": 0.9, "max_depth": 5.0, "slack_reward": -0.01, "success_reward": 10.0,
            "success_angle_deg": 63.45 / 2, "categories": LABELS["procthor"].categories, "rules": "procthor",
            "labels": "procthor",
        },
    ),
}  # fmt: skip
"""By name of the preset. "objectnav_houses": 64x64 depth and goal masks in procedural houses, four actions.
"objectnav_hm3d" and "objectnav_mp3d": Habitat challenges 2020 to 2022. "objectnav_hssd": Khanna et al., 2023. "ovon":
Yokoyama et al., 2024. "objectnav_procthor": Deitke et al., 2022; an object must be within 1 m, unoccluded and in the
image when the agent stops: view points by these rules, and a heading within half the field of view of the object."""
