"""Instance ImageNav episodes in Habitat's format: HM3D v3 (Krantz et al., 2022).

A split is a gzipped JSON file; each scene's episodes and goals are in a file of the folder `content`. A goal is an
object: view points as in ObjectNav, and `image_goals`, cameras that show it. An episode names its object and its image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.data.episodes import rotation_of, scene_name
from batchnav.data.files import is_number
from batchnav.data.formats.dataset import (
    ROTATION_TOLERANCE,
    EpisodeDataset,
    EpisodeFile,
    Format,
    in_scenes,
    numbers_of,
    read_parts,
    write_split,
)
from batchnav.data.formats.objectnav import FileGoal, ObjectNavEpisode, episode_of, goal_of, plain_episode, plain_goal
from batchnav.errors import EpisodeError, shortened
from batchnav.scene.goals import NO_IMAGES

IMAGE_GOALS = "image_goals"
"""Key of the images of a goal."""
_IMAGE_SIZE = [512, 512]
"""Rows and columns of Habitat's images of goals."""
_HFOVS_DEG = 1.0, 170.0
"""Smallest and largest field of view of an image, degrees."""


@dataclass(frozen=True)
class InstanceEpisode(ObjectNavEpisode):
    """One Instance ImageNav episode."""

    goal_object_id: str = ""
    """Id of the object to find."""
    goal_image_id: int = 0
    """Number of the image among the object's `image_goals`."""

    @property
    def goal_name(self) -> str:
        """Name of the goal among those of the scene (`SceneGoals.instances`)."""
        return self.goal_object_id


def instance_key(scene_id: str, object_id: str) -> str:
    """Key of a goal, as "TEEsavR23oF_10"."""
    return f"{scene_name(scene_id)}_{object_id}"


def of_scene(goals: Mapping[str, FileGoal], scene_id: str) -> dict[str, FileGoal]:
    """The goals of one scene by key. A scene's name may begin with that of another scene."""
    name = scene_name(scene_id)
    return {key: goal for key, goal in goals.items() if key.rpartition("_")[0] == name}


def detect(file: EpisodeFile) -> bool:
    """True for an Instance ImageNav file, recognised by its first episode."""
    return "goal_image_id" in file.first


def read(file: EpisodeFile, content_scenes: Sequence[str]) -> EpisodeDataset:
    """The episodes of a split, and its goals by `instance_key`; see `load_episodes`."""
    episodes: list[InstanceEpisode] = []
    goals: dict[str, FileGoal] = {}
    for part in read_parts(file, content_scenes):
        found = part.data.get("goals", {})
        if not isinstance(found, dict):
            raise EpisodeError(
                f"{part.path}: field 'goals': found {shortened(found)}, expected goals by scene and object"
            )
        goals |= {key: goal_of(goal, f"{part.path}: goals {key!r}") for key, goal in found.items()}
        rows = enumerate(part.data["episodes"])
        episodes += [_episode(item, f"{part.path}: episode {i}", file.folder) for i, item in rows]
    episodes = in_scenes(episodes, content_scenes, file.path)
    counts = {key: len(images_of_goal(goal, f"{file.path}: goals {key!r}")) for key, goal in goals.items()}
    for episode in episodes:
        where = f"{file.path}: episode {episode.episode_id!r} of scene {episode.scene_id!r}"
        count = counts.get(instance_key(episode.scene_id, episode.goal_object_id), 0)
        if not 0 <= episode.goal_image_id < count:
            raise EpisodeError(
                f"{where}: field 'goal_image_id': found {episode.goal_image_id} of object {episode.goal_object_id!r}, "
                f"expected the number of one of its {count} images in the file, from 0"
            )
    return EpisodeDataset(episodes, "instance", goals)


def write(dataset: EpisodeDataset, path: Path, content: bool | None) -> None:
    """Write Instance ImageNav episodes in Habitat's format; see `EpisodeDataset.save`."""

    def rows(episodes: Sequence[InstanceEpisode], scene_id: str) -> dict[str, Any]:
        mine = of_scene(dataset.goals, scene_id) if scene_id else dataset.goals
        held = {"goals": {key: plain_goal(goal) for key, goal in mine.items()}} if episodes else {}
        return {**held, "episodes": list(map(_plain, episodes))}

    write_split(dataset.episodes, path, content is not False, rows)


def images_of_goal(goal: FileGoal, where: str) -> np.ndarray:
    """Cameras f32 [G, 6] of a goal's images (`ObjectGoal.images`). EpisodeError, which begins with `where`."""
    rows = goal.other.get(IMAGE_GOALS) or []
    if not isinstance(rows, list):
        raise EpisodeError(f"{where}: field 'image_goals': found {shortened(rows)}, expected a list")
    cameras = [_camera_of(row, f"{where}: image {i}") for i, row in enumerate(rows)]
    return np.array(cameras, np.float32) if cameras else NO_IMAGES


def _camera_of(row: Any, where: str) -> tuple[float, ...]:
    """Position, heading, pitch and field of view of a camera. EpisodeError, which begins with `where`."""
    if not isinstance(row, dict):
        raise EpisodeError(f"{where}: found {shortened(row)}, expected an object")
    position, rotation = numbers_of(row, "position", 3, where), numbers_of(row, "rotation", 4, where)
    hfov = row.get("hfov")
    low, high = _HFOVS_DEG
    if not is_number(hfov) or not low <= hfov <= high:
        raise EpisodeError(f"{where}: field 'hfov': found {shortened(hfov)}, expected {low:g} to {high:g} degrees")
    x, y, z, w = rotation
    length, roll = math.sqrt(x * x + y * y + z * z + w * w), 2.0 * (x * y + w * z)
    is_upside_down = 1.0 - 2.0 * (x * x + z * z) < -ROTATION_TOLERANCE
    if abs(length - 1.0) > ROTATION_TOLERANCE or abs(roll) > ROTATION_TOLERANCE or is_upside_down:
        raise EpisodeError(
            f"{where}: field 'rotation': found {list(rotation)}, expected a unit quaternion [x, y, z, w] without roll"
        )
    pitch = math.asin(max(-1.0, min(1.0, 2.0 * (w * x - y * z))))
    heading = math.atan2(2.0 * (x * z + w * y), 1.0 - 2.0 * (x * x + y * y))
    return *position, heading, pitch, math.radians(hfov)


def image_goal(camera: np.ndarray) -> dict[str, Any]:
    """A camera as a JSON value of `image_goals`."""
    x, y, z, heading, pitch, hfov = (float(str(value)) for value in camera.astype(np.float32))
    _, sine, _, cosine = rotation_of(heading)
    tilt = math.sin(pitch / 2.0), math.cos(pitch / 2.0)
    rotation = [cosine * tilt[0], sine * tilt[1], -sine * tilt[0], cosine * tilt[1]]
    return {
        "position": [x, y, z], "rotation": rotation, "hfov": round(math.degrees(hfov), 3),
        "image_dimensions": _IMAGE_SIZE,
    }  # fmt: skip


def _episode(data: Any, where: str, folder: str) -> InstanceEpisode:
    """One episode from its JSON value; error messages begin with `where`."""
    episode = episode_of(data, where, folder)
    thing, image = data.get("goal_object_id"), data.get("goal_image_id")
    if isinstance(thing, bool) or not isinstance(thing, (str, int)) or not str(thing).isdigit():
        raise EpisodeError(f"{where}: field 'goal_object_id': found {shortened(thing)}, expected the id of an object")
    if isinstance(image, bool) or not isinstance(image, int):
        raise EpisodeError(f"{where}: field 'goal_image_id': found {shortened(image)}, expected a number from 0")
    return InstanceEpisode(**vars(episode), goal_object_id=str(thing), goal_image_id=image)


def _plain(episode: InstanceEpisode) -> dict:
    """An episode as JSON values."""
    ids = {"goal_object_id": episode.goal_object_id, "goal_image_id": episode.goal_image_id}
    return {**plain_episode(episode), **ids}


FORMAT = Format(detect, read, write)
