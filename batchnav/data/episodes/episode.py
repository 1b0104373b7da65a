"""One PointGoal or ImageGoal episode, as habitat-lab's `NavigationEpisode`: metres, quaternions [x, y, z, w]."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

DEFAULT_CONFIG = "default"
"""Value of `scene_dataset_config` for a scene that its path alone identifies."""
Vector = tuple[float, float, float]
Rotation = tuple[float, float, float, float]


@dataclass(frozen=True)
class Goal:
    """Goal position."""

    position: Vector
    radius: float | None = None
    """Radius in the file, metres; kept but unused: the task's `success_distance` decides success, as in Habitat."""
    rotation: Rotation | None = None
    """Quaternion [x, y, z, w] of the goal's heading in ImageNav, a rotation about +Y; None: the file has none."""


@dataclass(frozen=True)
class Episode:
    """One PointGoal or ImageGoal episode."""

    episode_id: str
    scene_id: str
    start_position: Vector
    start_rotation: Rotation
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
        """Scene id for `find_scene`: with the prefix "CONFIG:" where the scene has a dataset config."""
        if self.scene_dataset_config == DEFAULT_CONFIG:
            return self.scene_id
        return f"{self.scene_dataset_config}:{self.scene_id}"

    @property
    def heading(self) -> float:
        """Start heading, radians: 0 along -Z, positive to the left."""
        return heading_of(self.start_rotation)

    @property
    def goal_heading(self) -> float:
        """Heading of the goal in ImageNav, radians.

        Without a rotation in the file: a heading in [0, 2 pi) that follows from the episode's id and the scene's name.
        """
        rotation = self.goals[0].rotation if self.goals else None
        if rotation is not None:
            return heading_of(rotation)
        digest = hashlib.sha256(
            f"{scene_name(self.scene_id)}\n{self.episode_id}".encode("utf-8", "surrogatepass")
        ).digest()
        return 2.0 * math.pi * int.from_bytes(digest[:4], "little") / 2.0**32


def heading_of(rotation: Sequence[float]) -> float:
    """Heading in (-pi, pi] of a rotation about +Y given as a quaternion [x, y, z, w]; q and -q are one rotation."""
    _, y, _, w = rotation
    return 2.0 * math.atan2(y, w) if w > 0.0 or (w == 0.0 and y > 0.0) else 2.0 * math.atan2(-y, -w)


def rotation_of(heading: float) -> Rotation:
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
