"""Instance ImageNav episodes in Habitat's format: HM3D v3 (Krantz et al., 2022).

A split is a gzipped JSON file; each scene's episodes and goals are in a file of the folder `content`. A goal is an
object: view points as in ObjectNav, and `image_goals`, cameras that show it. An episode names its object and its image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.data.episodes.episode import rotation_of, scene_name
from batchnav.data.episodes.fields import (
    ALL_SCENES,
    ROTATION_TOLERANCE,
    content_files,
    in_scenes,
    numbers_of,
    read_parts,
    read_split,
    write_split,
)
from batchnav.data.files import is_number
from batchnav.data.objectnav.episode import FROM_FILE, FileGoal, ObjectNavEpisode
from batchnav.data.objectnav.episode_file import episode_of, goal_of, plain_episode, plain_goal
from batchnav.data.objectnav.generate import category_episodes, in_turn
from batchnav.data.objectnav.rules import rules_named
from batchnav.errors import EpisodeError, shortened
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.console import number_of
from batchnav.runtime.files import as_path
from batchnav.scene.goals import NO_IMAGES, ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene

_IMAGE_GOALS = "image_goals"
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


@dataclass(frozen=True)
class InstanceDataset:
    """Instance ImageNav episodes of a split, and the goals of all its scenes. Datasets with equal values are equal."""

    episodes: list[InstanceEpisode] = field(repr=False)
    goals: dict[str, FileGoal] = field(repr=False)
    """Objects by scene name and object id, as "TEEsavR23oF_10". `FileGoal.other["image_goals"]` holds their images."""

    def of_scene(self, scene_id: str) -> dict[str, FileGoal]:
        """The goals of one scene by key. A scene's name may begin with that of another scene."""
        name = scene_name(scene_id)
        return {key: goal for key, goal in self.goals.items() if key.rpartition("_")[0] == name}

    def scene_goals(self, scene_id: str) -> SceneGoals:
        """The goals of one scene as `Scene.goals` holds them: instances with view points and images, by object id."""
        mine = [goal for goal in self.of_scene(scene_id).values() if len(goal.points)]
        found = [goal.as_goal(str(goal.number))._replace(images=images_of_goal(goal, scene_id)) for goal in mine]
        return SceneGoals(FROM_FILE, tuple(sorted(found, key=lambda goal: goal.object_id))).instances

    def completed(self, scene_id: str, goals: SceneGoals) -> SceneGoals:
        """Goals that were made anew for a scene, as `scene_goals` returns them: with the images of the file."""
        images = {goal.number: images_of_goal(goal, scene_id) for goal in self.of_scene(scene_id).values()}
        pictured = (goal._replace(images=images.get(goal.object_id, NO_IMAGES)) for goal in goals.objects)
        return goals._replace(objects=tuple(pictured)).instances

    def without_view_points(self) -> InstanceDataset:
        """The dataset whose goals have no view points, and only those images that episodes show, at least one each."""
        shown: dict[str, list[int]] = {key: [] for key in self.goals}
        episodes = []
        for episode in self.episodes:
            used = shown[instance_key(episode.scene_id, episode.goal_object_id)]
            if episode.goal_image_id not in used:
                used.append(episode.goal_image_id)
            episodes.append(replace(episode, goal_image_id=used.index(episode.goal_image_id)))
        goals = {}
        for key, goal in self.goals.items():
            images = [goal.other[_IMAGE_GOALS][number] for number in shown[key] or (0,)]
            goals[key] = replace(goal.without_view_points, other={**goal.other, _IMAGE_GOALS: images})
        return InstanceDataset(episodes, goals)


def instance_key(scene_id: str, object_id: str) -> str:
    """Key of a goal, as "TEEsavR23oF_10"."""
    return f"{scene_name(scene_id)}_{object_id}"


def is_instance_file(path: str | Path) -> bool:
    """True for an Instance ImageNav file, recognised by its first episode. EpisodeError as `read_split`."""
    path = as_path(path)
    data = read_split(path)
    if not data["episodes"]:
        data = next((read_split(file) for file in content_files(data, path, (ALL_SCENES,))), data)
    first = data["episodes"][0] if data["episodes"] else {}
    return isinstance(first, dict) and "goal_image_id" in first


def load_instance_imagenav(path: str | Path, content_scenes: Sequence[str] = (ALL_SCENES,)) -> InstanceDataset:
    """Read a `.json.gz` file of Instance ImageNav episodes (HM3D v3), and the files in its folder `content`.

    Args:
        path: the split's file.
        content_scenes: short names of the scenes to read, as `TEEsavR23oF`; "*" reads all.

    Returns the episodes in the order of the files, and their goals: metres, and quaternions [x, y, z, w].

    Raises EpisodeError with file, episode or goal, and field for: what `load_objectnav` refuses in episodes and goals;
    an image that is no pose of a camera; an episode whose object or image is missing.
    """
    path = as_path(path)
    folder, episodes = str(path.absolute().parent), list[InstanceEpisode]()
    goals: dict[str, FileGoal] = {}
    for file, part in read_parts(path, content_scenes):
        found = part.get("goals", {})
        if not isinstance(found, dict):
            raise EpisodeError(f"{file}: field 'goals': found {shortened(found)}, expected goals by scene and object")
        goals |= {key: goal_of(goal, f"{file}: goals {key!r}") for key, goal in found.items()}
        episodes += [_episode(item, f"{file}: episode {i}", folder) for i, item in enumerate(part["episodes"])]
    episodes = in_scenes(episodes, content_scenes, path)
    counts = {key: len(images_of_goal(goal, f"{path}: goals {key!r}")) for key, goal in goals.items()}
    for episode in episodes:
        where = f"{path}: episode {episode.episode_id!r} of scene {episode.scene_id!r}"
        count = counts.get(instance_key(episode.scene_id, episode.goal_object_id), 0)
        if not 0 <= episode.goal_image_id < count:
            raise EpisodeError(
                f"{where}: field 'goal_image_id': found {episode.goal_image_id} of object {episode.goal_object_id!r}, "
                f"expected the number of one of its {count} images in the file, from 0"
            )
    return InstanceDataset(episodes, goals)


def save_instance_imagenav(dataset: InstanceDataset, path: str | Path, content: bool = True) -> None:
    """Write a dataset in Habitat's format, atomically; equal datasets give equal bytes.

    `load_instance_imagenav` reads an equal dataset back, if the episodes are in the order of the files.

    Args:
        dataset: at least one episode, and the goals of all episodes.
        path: the split's file, `NAME.json.gz`.
        content: True to write each scene's episodes and goals to content/SCENE.json.gz, as Habitat does; they are read
            in the order of these names, and goals of scenes without episodes are left out. False: all go to `path`.

    Raises EpisodeError for two scenes with one short name and for a folder `content` with files of other scenes.
    """

    def rows(episodes: Sequence[InstanceEpisode], scene_id: str) -> dict[str, Any]:
        mine = dataset.of_scene(scene_id) if scene_id else dataset.goals
        held = {"goals": {key: plain_goal(goal) for key, goal in mine.items()}} if episodes else {}
        return {**held, "episodes": list(map(_plain, episodes))}

    write_split(dataset.episodes, Path(path), content, rows)


def images_of_goal(goal: FileGoal, where: str) -> np.ndarray:
    """Cameras f32 [G, 6] of a goal's images (`ObjectGoal.images`). EpisodeError, which begins with `where`."""
    rows = goal.other.get(_IMAGE_GOALS) or []
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
    if abs(length - 1.0) > ROTATION_TOLERANCE or abs(roll) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field 'rotation': found {list(rotation)}, expected a unit quaternion [x, y, z, w] without roll"
        )
    pitch = math.asin(max(-1.0, min(1.0, 2.0 * (w * x - y * z))))
    heading = math.atan2(2.0 * (x * z + w * y), 1.0 - 2.0 * (x * x + y * y))
    return *position, heading, pitch, math.radians(hfov)


def _image_goal(camera: np.ndarray) -> dict[str, Any]:
    """A camera as a JSON value of `image_goals`."""
    x, y, z, heading, pitch, hfov = (float(str(value)) for value in camera.astype(np.float32))
    _, sine, _, cosine = rotation_of(heading)
    tilt = math.sin(pitch / 2.0), math.cos(pitch / 2.0)
    rotation = [cosine * tilt[0], sine * tilt[1], -sine * tilt[0], cosine * tilt[1]]
    return {
        "position": [x, y, z], "rotation": rotation, "hfov": round(math.degrees(hfov), 3),
        "image_dimensions": _IMAGE_SIZE,
    }  # fmt: skip


def generate_instances(
    scenes: Sequence[Scene], per_scene: int, seed: int = 0, rules: str = "hm3d_v2"
) -> InstanceDataset:
    """Sample Instance ImageNav episodes, shared equally over the objects of each scene.

    Args:
        scenes: scenes of `image_goals.with_image_goals`.
        per_scene: number of episodes per scene; fewer where its objects do not offer as many.
        seed: seed for sampling.
        rules: name of the rules of starts and distances.

    Raises EpisodeError where no scene offers an episode.
    """
    per_scene, seed = check_int("per_scene", per_scene, 1, 2**24), check_seed(seed)
    limits, episodes = rules_named(rules).episodes, list[InstanceEpisode]()
    goals: dict[str, FileGoal] = {}
    for scene in scenes:
        objects = {goal.category: goal for goal in scene.goals.objects} if scene.goals else {}
        streams = [category_episodes(scene, name, seed, limits) for name in objects]
        taken = [episode for episode, _ in zip(in_turn(streams), range(per_scene), strict=False)]
        episodes += [
            _with_image(episode, objects[episode.object_category], number) for number, episode in enumerate(taken)
        ]
        for goal in objects.values() if taken else ():
            goals[instance_key(scene.name, goal.category)] = _file_goal(goal)
    if not episodes:
        raise EpisodeError(
            f"Instance ImageNav: found no episodes in {number_of(len(scenes), 'scene')}, expected objects with images"
        )
    return InstanceDataset(episodes, goals)


def _with_image(episode: ObjectNavEpisode, goal: ObjectGoal, number: int) -> InstanceEpisode:
    """An episode of an instance, with the next of its images."""
    given = {**vars(episode), "episode_id": str(number), "object_category": _category(goal)}
    return InstanceEpisode(**given, goal_object_id=goal.category, goal_image_id=number % len(goal.images))


def _category(goal: ObjectGoal) -> str:
    """Category of an instance, whose name is "CATEGORY_ID"."""
    return goal.name.rpartition("_")[0]


def _file_goal(goal: ObjectGoal) -> FileGoal:
    """An instance in the form that files hold."""
    made = replace(FileGoal.of(goal), object_category=_category(goal))
    return replace(made, other={_IMAGE_GOALS: list(map(_image_goal, goal.images))})


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
