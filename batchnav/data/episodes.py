"""Episodes as habitat-lab's `NavigationEpisode` has them, in metres and quaternions [x, y, z, w]; order and table.

An `Episode` has a point or a pose as its goal. Other kinds of goals derive their episodes from it.
"""

from __future__ import annotations

import hashlib
import math
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from batchnav.errors import EpisodeError, few, shortened
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.types import FAR

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
        """Scene id for `load_scene`: with the prefix "CONFIG:" where the scene has a dataset config."""
        if self.scene_dataset_config == DEFAULT_CONFIG:
            return self.scene_id
        return f"{self.scene_dataset_config}:{self.scene_id}"

    @property
    def label(self) -> str:
        """Name of the episode in messages."""
        return f"episode {self.episode_id!r} of scene {self.scene_id!r}"

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
    plain, mark, options = scene_id.partition("?")  # "house:7" becomes a valid file name, and its options a number
    if mark and ":" in plain:
        scene_id = f"{plain}_{zlib.crc32(options.encode()):08x}"
    stem = scene_id.replace(":", "_").replace("\\", "/").rpartition("/")[2]
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


def order_episodes(
    episodes: Sequence[Episode],
    shuffle: bool = False,
    grouped: bool = True,
    num_episode_sample: int = -1,
    rounds: int = 1,
    seed: int = 0,
) -> list[Episode]:
    """Episodes in the order of Habitat's iterator.

    Args:
        episodes: the episodes.
        shuffle: True for a random order; with `grouped`, of the scenes and of the episodes in each scene.
        grouped: True to keep the episodes of each scene together (`group_by_scene`).
        num_episode_sample: number of episodes to sample first, without replacement; -1 for all.
        rounds: number of repetitions (`cycle`), each with its own shuffle.
        seed: seed for sampling and shuffling.
    """
    if num_episode_sample > len(episodes):
        raise EpisodeError(f"num_episode_sample: found {num_episode_sample}, expected at most {len(episodes)}")
    rng = random.Random(seed)
    chosen = list(episodes) if num_episode_sample < 0 else rng.sample(list(episodes), num_episode_sample)
    ordered: list[Episode] = []
    for _ in range(rounds):
        if shuffle:
            rng.shuffle(chosen)
        ordered += [e for group in group_by_scene(chosen).values() for e in group] if grouped else chosen
    return ordered


def in_scene_frames(episodes: Sequence[AnyEpisode], origins: Mapping[str, Vector]) -> list[AnyEpisode]:
    """The episodes with positions in the frames of their scenes, from which loading subtracted `scene.origin`.

    On an axis with an origin, a coordinate beyond `FAR` is one of the scene's file, and the origin is subtracted; a
    smaller one is in the scene's frame already. `origins`: `scene.origin` by scene id; episodes of other scenes stay as
    they are.
    """
    return [
        episode if episode.scene_id not in origins else _shifted(episode, origins[episode.scene_id])
        for episode in episodes
    ]


def is_georeferenced(episode: Episode) -> bool:
    """True where a position is farther than `FAR` from the origin."""
    points = (episode.start_position, *(goal.position for goal in episode.goals))
    return any(abs(value) > FAR for point in points for value in point)


def _shifted(episode: AnyEpisode, origin: Vector) -> AnyEpisode:
    """The episode with `origin` subtracted from coordinates beyond `FAR`."""
    if not any(origin):
        return episode

    def near(point: Vector) -> Vector:
        x, y, z = (v - o if o and abs(v) > FAR else v for v, o in zip(point, origin, strict=True))
        return x, y, z

    goals = tuple(replace(goal, position=near(goal.position)) for goal in episode.goals)
    return replace(episode, start_position=near(episode.start_position), goals=goals)


def episode_table(episodes: Sequence[Episode], scene_names: Sequence[str], device: torch.device | str) -> EpisodeTable:
    """Episodes as tensors for the simulator.

    Args:
        episodes: at least one episode.
        scene_names: scene ids in the order of the bank's scenes.
        device: device of the tensors.

    Raises EpisodeError where an episode's scene is not in `scene_names`, or an episode has several goals.
    """
    if not episodes:
        raise EpisodeError("episodes: found none, expected at least one")
    rows = scene_rows(episodes, scene_names)
    for episode in episodes:
        if problem := several_goals(episode):
            raise EpisodeError(f"{episode.label}: {problem}")

    def tensor(values, dtype):
        return torch.tensor(values, dtype=dtype, device=device)

    return EpisodeTable(
        scene=tensor(rows, torch.int32),
        start=tensor([e.start_position for e in episodes], torch.float32),
        heading=tensor([e.heading for e in episodes], torch.float32),
        goal=tensor([e.goals[0].position for e in episodes], torch.float32),
        goal_heading=tensor([e.goal_heading for e in episodes], torch.float32),
    )


def several_goals(episode: Episode) -> str:
    """Error message for an episode with several goals; empty for one goal.

    In Habitat, the goal sensor shows the first of several goals but metrics use the nearest, so agents cannot know it.
    """
    if len(episode.goals) == 1:
        return ""
    tours = "the task sequence plays files whose first episode has several goals"
    return f"field 'goals': found {len(episode.goals)}, expected 1 as in the first episode; {tours}"


def scene_rows(episodes: Sequence[Episode], scene_names: Sequence[str]) -> list[int]:
    """Row of each episode's scene in `scene_names`. EpisodeError where it is not among them."""
    index = {name: k for k, name in enumerate(scene_names)}
    for episode in episodes:
        if episode.scene_id not in index:
            raise EpisodeError(
                f"{episode.label}: field 'scene_id': found {shortened(episode.scene_id)}, which is not loaded, "
                f"expected one of the scenes: {few(scene_names)}"
            )
    return [index[episode.scene_id] for episode in episodes]
