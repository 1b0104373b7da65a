"""ObjectNav episodes in Habitat's format: HM3D v1 and v2, Matterport3D, HSSD and OVON.

A split is a gzipped JSON file; each scene's episodes and goals are in a file of the folder `content`. Older files have
the goals in every episode. Loaders of Habitat number a scene's episodes from 0, whatever the file says, so do these
functions: (scene, id) identifies an episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.data.episodes.fields import (
    ALL_SCENES,
    ROTATION_TOLERANCE,
    UNUSED,
    common_fields,
    in_scenes,
    names_of,
    numbers_of,
    read_parts,
    read_split,
    readers_of,
    write_split,
)
from batchnav.data.files import is_number
from batchnav.data.objectnav.episode import FileGoal, ObjectNavDataset, ObjectNavEpisode, goals_key
from batchnav.errors import EpisodeError, shortened
from batchnav.runtime.files import as_path

_TASK_IDS = "category_to_task_category_id"
_ANNOTATION_IDS = ("category_to_scene_annotation_category_id", "category_to_mp3d_category_id")
_GOAL_KEYS = ("position", "object_id", "object_category", "object_name", "view_points")
_UNUSED_OF_GOALS: dict[str, Any] = {"radius": None, "object_name_id": None, "room_id": None, "room_name": None}
"""Keys of goals that are kept but unused, with the values that Habitat's generator writes."""
_MOST_DIGITS = 9
"""Largest number of digits of an object's number, which arrays hold as int32."""


def is_objectnav(path: str | Path) -> bool:
    """True for an ObjectNav file, recognised by its keys. EpisodeError for a file that `read_split` refuses."""
    data = read_split(as_path(path))
    first = data["episodes"][0] if data["episodes"] else {}
    return "goals_by_category" in data or _TASK_IDS in data or (isinstance(first, dict) and "object_category" in first)


def load_objectnav(path: str | Path, content_scenes: Sequence[str] = (ALL_SCENES,)) -> ObjectNavDataset:
    """Read a `.json.gz` file of ObjectNav episodes, and the files in its folder `content`.

    HM3D v1 and v2, Matterport3D, HSSD and OVON have such files.

    Args:
        path: the split's file.
        content_scenes: short names of the scenes to read, as `TEEsavR23oF`; "*" reads all.

    Returns the episodes in the order of the files, and the goals of their scenes: metres, and quaternions [x, y, z, w].
    Episodes of a scene are numbered from 0, as by Habitat's loader.

    Raises EpisodeError with file, episode or goal, and field for: a file that is not gzipped JSON, or is truncated; a
    field that is missing, not finite or of the wrong length; a rotation that is not a unit quaternion; an episode whose
    category has no id or no goals; episodes of another task.
    """
    path = as_path(path)
    folder = str(path.absolute().parent)
    episodes: list[ObjectNavEpisode] = []
    goals: dict[str, list[FileGoal]] = {}
    ids: dict[str, dict[str, int]] = {}
    for file, part in read_parts(path, content_scenes):
        for key, values in _category_ids(part, file).items():
            ids[key] = ids.get(key) or values
            if values and ids[key] != values:
                raise EpisodeError(f"{file}: field {key!r}: found other ids than in {path}, expected equal ids")
        found = _episodes(part, file, folder)
        goals |= _goals_by_category(part, found, file)
        episodes += found
    episodes = in_scenes(episodes, content_scenes, path)
    annotation_key = next((key for key in _ANNOTATION_IDS if key in ids), _ANNOTATION_IDS[0])
    dataset = ObjectNavDataset(
        _numbered(episodes), goals, ids.get(_TASK_IDS, {}), ids.get(annotation_key, {}), annotation_key
    )
    _check_categories(dataset, path)
    return dataset


def save_objectnav(dataset: ObjectNavDataset, path: str | Path, content: bool = True) -> None:
    """Write a dataset in Habitat's format, atomically; equal datasets give equal bytes.

    `load_objectnav` reads an equal dataset back, if the episodes are in the order of the files and numbered from 0 in
    each scene.

    Args:
        dataset: at least one episode, and the goals of all episodes.
        path: the split's file, `NAME.json.gz`.
        content: True to write each scene's episodes and goals to content/SCENE.json.gz, as Habitat does; they are read
            in the order of these names, and goals of scenes without episodes are left out. False: all go to `path`.

    Raises EpisodeError for two scenes with one short name and for a folder `content` with files of other scenes.
    """
    maps = {_TASK_IDS: dataset.category_ids, dataset.annotation_key: dataset.annotation_ids}

    def rows(episodes: Sequence[ObjectNavEpisode], scene_id: str) -> dict[str, Any]:
        prefix = goals_key(scene_id, "") if scene_id else ""
        goals = {key: list(map(plain_goal, some)) for key, some in dataset.goals.items() if key.startswith(prefix)}
        held = {"goals_by_category": goals} if episodes else {}
        return {**held, "episodes": list(map(plain_episode, episodes)), **maps}

    write_split(dataset.episodes, Path(path), content, rows)


def _category_ids(data: dict, path: Path) -> dict[str, dict[str, int]]:
    """The maps from categories to ids that a file has."""
    found = {key: data[key] for key in (_TASK_IDS, *_ANNOTATION_IDS) if key in data}
    for key, ids in found.items():
        if not isinstance(ids, dict) or not all(isinstance(v, int) and not isinstance(v, bool) for v in ids.values()):
            raise EpisodeError(f"{path}: field {key!r}: found {shortened(ids)}, expected an integer by category")
    return found


def _episodes(data: dict, path: Path, folder: str) -> list[ObjectNavEpisode]:
    episodes = []
    for i, item in enumerate(data["episodes"]):
        where = f"{path}: episode {i}"
        episodes.append(episode_of(item, where, folder))
        if "goal_image_id" in item:
            raise EpisodeError(
                f"{where}: field 'goal_image_id': found episodes of Instance ImageNav, expected ObjectNav episodes; "
                f"{readers_of('instance_imagenav')}"
            )
    return episodes


def episode_of(data: Any, where: str, folder: str) -> ObjectNavEpisode:
    """One episode from its JSON value; error messages begin with `where`. `folder`: folder of the episode file."""
    names, where = names_of(data, where)
    goals = data.get("goals")
    if not isinstance(goals, list):
        raise EpisodeError(f"{where}: field 'goals': found {shortened(goals)}, expected a list")
    first = goals[0].get("object_category") if goals and isinstance(goals[0], dict) else None
    category = data.get("object_category", first)
    if category is None:
        raise EpisodeError(
            f"{where}: field 'object_category': found none, expected the category to find; episodes without one are "
            f"those of PointNav and ImageNav, which the tasks pointnav and imagenav play, batchnav.load_episodes reads"
        )
    if not isinstance(category, str) or not category:
        raise EpisodeError(f"{where}: field 'object_category': found {shortened(category)}, expected a category")
    children = data.get("children_object_categories")
    if children is not None and not (isinstance(children, list) and all(isinstance(name, str) for name in children)):
        raise EpisodeError(
            f"{where}: field 'children_object_categories': found {shortened(children)}, expected a list of categories"
        )
    return ObjectNavEpisode(
        **names,
        **common_fields(data, where),
        folder=folder,
        object_category=category,
        children_object_categories=None if children is None else tuple(children),
    )


def _goals_by_category(data: dict, episodes: list[ObjectNavEpisode], path: Path) -> dict[str, list[FileGoal]]:
    """The goals of a file by `goals_key`; older files have them in the episodes."""
    groups, places = data.get("goals_by_category"), dict[str, str]()
    if groups is None:
        groups = {}
        for i, (item, episode) in enumerate(zip(data["episodes"], episodes, strict=True)):
            key = goals_key(episode.scene_id, episode.object_category)
            if item["goals"] and key not in groups:
                groups[key], places[key] = item["goals"], f"{path}: episode {i}"
    if not isinstance(groups, dict):
        raise EpisodeError(f"{path}: field 'goals_by_category': found {shortened(groups)}, expected lists by category")
    found = {}
    for key, goals in groups.items():
        where = places.get(key, f"{path}: goals {key!r}")
        if not isinstance(goals, list):
            raise EpisodeError(f"{where}: found {shortened(goals)}, expected a list")
        found[key] = [goal_of(goal, f"{where}, goal {i}") for i, goal in enumerate(goals)]
    return found


def goal_of(data: Any, where: str) -> FileGoal:
    """One goal from its JSON value; error messages begin with `where`."""
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {shortened(data)}, expected an object")
    object_id = data.get("object_id")
    number = str(object_id).rpartition("_")[2]
    if (
        isinstance(object_id, bool)
        or not isinstance(object_id, (int, str))
        or not number.isascii()
        or not number.isdigit()
        or len(number) > _MOST_DIGITS
    ):
        expected = f"a number of at most {_MOST_DIGITS} digits"
        raise EpisodeError(f"{where}: field 'object_id': found {shortened(object_id)}, expected {expected}")
    for name in ("object_category", "object_name"):
        if not isinstance(data.get(name), (str, type(None))):
            raise EpisodeError(f"{where}: field {name!r}: found {shortened(data[name])}, expected a name")
    points, rotations, iou = _view_points(data.get("view_points") or [], where)
    usual = _UNUSED_OF_GOALS
    other = {k: v for k, v in data.items() if k not in _GOAL_KEYS and not (k in usual and v == usual[k])}
    return FileGoal(
        numbers_of(data, "position", 3, where), object_id, data.get("object_category"), data.get("object_name"),
        points, rotations, iou, other,
    )  # fmt: skip


def _view_points(rows: Any, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places f64 [V, 3], rotations f64 [V, 4] and scores f64 [V] of a goal's view points."""
    if not isinstance(rows, list):
        raise EpisodeError(f"{where}: field 'view_points': found {shortened(rows)}, expected a list")
    good = np.array([_is_view_point(row) for row in rows], np.bool_)
    if good.all():
        states = [row["agent_state"] for row in rows]
        points = np.array([state["position"] for state in states], np.float64).reshape(-1, 3)
        rotations = np.array([state["rotation"] for state in states], np.float64).reshape(-1, 4)
        iou = np.array([np.nan if row.get("iou") is None else row["iou"] for row in rows], np.float64)
        good = np.abs(np.linalg.norm(rotations, axis=1) - 1.0) <= ROTATION_TOLERANCE
    if not good.all():
        i = int(np.argmin(good))
        raise EpisodeError(
            f"{where}: view point {i}: found {shortened(rows[i])}, expected an agent_state with a position of three "
            "finite numbers and a unit quaternion [x, y, z, w], and an iou"
        )
    return points, rotations, iou


def _is_view_point(row: Any) -> bool:
    """True for an object with the fields of a view point."""
    state = row.get("agent_state") if isinstance(row, dict) else None
    if not isinstance(state, dict) or not (row.get("iou") is None or is_number(row["iou"])):
        return False
    return all(
        isinstance(state.get(name), list) and len(state[name]) == size and all(map(is_number, state[name]))
        for name, size in (("position", 3), ("rotation", 4))
    )


def _numbered(episodes: list[ObjectNavEpisode]) -> list[ObjectNavEpisode]:
    """The episodes with the ids that Habitat's loader gives them: numbers from 0 in each scene."""
    counts: dict[str, int] = {}
    numbered = []
    for episode in episodes:
        number = counts.get(episode.scene_id, 0)
        counts[episode.scene_id] = number + 1
        numbered.append(dataclasses.replace(episode, episode_id=str(number)))
    return numbered


def _check_categories(dataset: ObjectNavDataset, path: Path) -> None:
    """EpisodeError for an episode whose category has no id or no goals."""
    for episode in dataset.episodes:
        where = f"{path}: episode {episode.episode_id!r} of scene {episode.scene_id!r}: field 'object_category'"
        if dataset.category_ids and episode.object_category not in dataset.category_ids:
            known = ", ".join(list(dataset.category_ids)[:8])
            raise EpisodeError(f"{where}: found {episode.object_category!r}, expected one of {known}")
        if not any(dataset.goals.get(goals_key(episode.scene_id, name)) for name in episode.goal_categories):
            raise EpisodeError(
                f"{where}: found {episode.object_category!r}, expected a category with goals in its scene"
            )


def plain_episode(episode: ObjectNavEpisode) -> dict:
    """An episode as JSON values, with every key that Habitat's generator writes."""
    children = episode.children_object_categories
    return {
        "episode_id": episode.episode_id,
        "scene_id": episode.scene_id,
        "scene_dataset_config": episode.scene_dataset_config,
        "start_position": list(episode.start_position),
        "start_rotation": list(episode.start_rotation),
        "info": episode.info,
        "goals": [],
        **UNUSED,
        **episode.other,
        "object_category": episode.object_category,
        **({} if children is None else {"children_object_categories": list(children)}),
    }


def plain_goal(goal: FileGoal) -> dict:
    """A goal as JSON values, with every key that Habitat's generator writes."""
    return {
        "position": list(goal.position),
        "object_id": goal.object_id,
        "object_name": goal.object_name,
        "object_category": goal.object_category,
        **_UNUSED_OF_GOALS,
        **goal.other,
        "view_points": [
            {"agent_state": {"position": point, "rotation": rotation}, "iou": None if np.isnan(iou) else iou}
            for point, rotation, iou in zip(
                goal.points.tolist(), goal.rotations.tolist(), goal.iou.tolist(), strict=True
            )
        ],
    }
