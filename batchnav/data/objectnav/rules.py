"""Rules by which view points and episodes of published ObjectNav datasets were made, as presets.

Sources: the generator of Open-Vocabulary ObjectNav (Yokoyama et al., 2024), that of HSSD (Khanna et al., 2023), the
training code of ProcTHOR (Deitke et al., 2022), and measurements on the HM3D v2 files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchnav.errors import ArgumentError, shortened


@dataclass(frozen=True)
class ViewPointRules:
    """Candidates for view points, and the coverage that they need."""

    step: float
    """Spacing of candidates along x and z, metres."""
    camera_height: float
    """Metres above the navmesh."""
    image: tuple[int, int, float]
    """Height and width of the image in pixels, and horizontal field of view in degrees."""
    pitches_deg: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Pitch of each view; coverages add up to the score. Habitat's generators render three views; in HM3D v2 all three
    are level."""
    min_iou: float = 0.0
    """A view point has a greater score than this."""
    max_distance: float = 1.0
    """Largest horizontal distance from the object's boxes, metres."""
    max_depth: float = math.inf
    """Planar depth up to which pixels of the object count, metres."""
    min_island_radius: float = 1.5
    """Smallest island of the navmesh, metres."""


@dataclass(frozen=True)
class EpisodeRules:
    """Limits of an episode: start, distance and path."""

    closest: float = 1.0
    """Shortest geodesic distance to the nearest view point, metres."""
    furthest: float = 30.0
    """Longest geodesic distance to the nearest view point, metres."""
    max_height: float = 0.05
    """Largest height difference between the start and some view point of the category, metres."""
    max_path_height: float = math.inf
    """Largest height difference along the shortest path, metres."""
    min_detour_ratio: float = 1.05
    """Ratio of geodesic to Euclidean distance below which episodes are rejected."""
    keep_some_straight: bool = True
    """True to keep an episode below the ratio r with probability 20 (r - 0.98)^2; False to reject all of them."""
    min_island_radius: float = 1.5
    """Smallest island of the navmesh, metres."""


@dataclass(frozen=True)
class Rules:
    """One preset."""

    name: str
    view_points: ViewPointRules
    episodes: EpisodeRules = EpisodeRules()
    labels: str = "hm3d"
    """Name of the label map in `categories.LABELS`."""


_TILTED = (-30.0, 0.0, 30.0)
RULES = {
    rules.name: rules
    for rules in (
        Rules("hm3d_v2", ViewPointRules(0.085, 1.31, (240, 320, 90.0))),
        Rules(
            "hssd", ViewPointRules(0.09, 0.88, (128, 128, 90.0), _TILTED, min_iou=0.001),
            EpisodeRules(max_height=0.5), "hssd",
        ),
        Rules(
            "ovon", ViewPointRules(0.25, 1.31, (512, 512, 90.0), _TILTED, min_iou=0.05),
            EpisodeRules(max_height=math.inf, max_path_height=0.25, keep_some_straight=False), "all",
        ),
        Rules(
            "procthor", ViewPointRules(0.085, 0.9, (240, 320, 90.0), _TILTED, max_depth=1.0),
            EpisodeRules(max_height=0.5), "procthor",
        ),
    )
}  # fmt: skip
"""Presets by name. "procthor" is visibility within 1 m; its camera may look up and down by 30 degrees."""


def rules_named(rules: str | Rules) -> Rules:
    """A preset by name; other rules are returned unchanged. ArgumentError for an unknown name."""
    if isinstance(rules, Rules):
        return rules
    if not isinstance(rules, str) or rules not in RULES:
        raise ArgumentError(f"rules: found {shortened(rules)}, expected one of {', '.join(RULES)}, or a Rules")
    return RULES[rules]
