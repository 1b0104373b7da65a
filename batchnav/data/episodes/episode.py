"""One PointGoal episode, as habitat-lab's `NavigationEpisode` has it: metres, and quaternions [x, y, z, w]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

DEFAULT_CONFIG = "default"
"""Value of `scene_dataset_config` for a scene that its path alone identifies."""
Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Goal:
    """Goal position."""

    position: Vector
    radius: float | None = None
    """Radius in the file, metres; kept but unused: the task's `success_distance` decides success, as in Habitat."""


@dataclass(frozen=True)
class Episode:
    """One PointGoal episode."""

    episode_id: str
    scene_id: str
    start_position: Vector
    start_rotation: tuple[float, float, float, float]
    """Quaternion [x, y, z, w], a rotation about +Y."""
    goals: tuple[Goal, ...]
    info: dict[str, Any] = field(default_factory=dict)
    """Further fields: `geodesic_distance` in metres, `difficulty` ..."""
    scene_dataset_config: str = DEFAULT_CONFIG
    """Path of the `*.scene_dataset_config.json` that describes the scene."""
    other: dict[str, Any] = field(default_factory=dict)
    """Values of unused keys of the file that differ from Habitat's defaults."""
    folder: str = field(default="", compare=False, repr=False)
    """Folder of the file that holds the episode, where its scene is searched too; "" for none."""

    @property
    def scene(self) -> str:
        """Scene id for `find_scene`: with the prefix "CONFIG:" where the scene has a data set config."""
        if self.scene_dataset_config == DEFAULT_CONFIG:
            return self.scene_id
        return f"{self.scene_dataset_config}:{self.scene_id}"

    @property
    def heading(self) -> float:
        """Start heading, radians: 0 along -Z, positive to the left."""
        return heading_of(self.start_rotation)


def heading_of(rotation: Sequence[float]) -> float:
    """Heading in (-pi, pi] of a rotation about +Y given as a quaternion [x, y, z, w]; q and -q are one rotation."""
    _, y, _, w = rotation
    return 2.0 * math.atan2(y, w) if w > 0.0 or (w == 0.0 and y > 0.0) else 2.0 * math.atan2(-y, -w)


def rotation_of(heading: float) -> tuple[float, float, float, float]:
    """The quaternion [x, y, z, w] of a heading in radians: [0, sin(h / 2), 0, cos(h / 2)]."""
    return 0.0, math.sin(heading / 2.0), 0.0, math.cos(heading / 2.0)


def scene_name(scene_id: str) -> str:
    """Short name of a scene: `Adrian` of gibson/Adrian.glb, `TEEsavR23oF` of hm3d/val/.../TEEsavR23oF.basis.glb."""
    stem = scene_id.replace(":", "_").replace("\\", "/").rpartition("/")[2]  # "house:7" becomes a valid file name
    for suffix in (".glb", ".gltf", ".ply", ".obj", ".scene", ".scene_instance.json", ".basis"):
        stem = stem.removesuffix(suffix)
    return stem


AnyEpisode = TypeVar("AnyEpisode", bound=Episode)


def group_by_scene(episodes: Sequence[AnyEpisode]) -> dict[str, list[AnyEpisode]]:
    """Episodes by scene id, in the given order."""
    groups: dict[str, list[AnyEpisode]] = {}
    for episode in episodes:
        groups.setdefault(episode.scene_id, []).append(episode)
    return groups
