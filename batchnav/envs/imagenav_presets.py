"""Presets of ImageNav: sensors, and options that differ from the defaults, by name."""

from __future__ import annotations

from typing import Any

_ZER = {"turn_angle_deg": 30.0, "reward": "zer", "slack_reward": -0.01, "success_reward": 10.0}
"""Turns and reward of "Zero Experience Required"."""
_NEAR = {"closest_goal": 1.5, "furthest_goal": 10.0, "min_detour_ratio": 1.0}
"""Sampled episodes as in NRNS, and in the first three levels of Mezghani et al., 2021: straight paths are kept."""

IMAGENAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "imagenav_houses": (("rgb",), _ZER | _NEAR | {"max_steps": 500}),
    "imagenav_gibson": (("rgb",), {"height": 256, "width": 256}),
    "imagenav_zer": (("rgb",), _ZER | _NEAR | {"height": 128, "width": 128, "sliding": False, "furthest_goal": 15.0}),
    "imagenav_nrns": (
        ("rgb", "depth"),
        _NEAR | {"height": 480, "width": 640, "hfov_deg": 120.0, "turn_angle_deg": 15.0, "max_steps": 500},
    ),
}
"""By name of the preset. "imagenav_houses": 64x64 images in procedural houses. "imagenav_gibson": Habitat's
`ddppo_imagenav_gibson`. "imagenav_zer": Al-Halah et al., 2022. "imagenav_nrns": Hahn et al., 2021, whose
success is measured by Euclidean distance."""
