"""ObjectNav episodes in Habitat's format: HM3D v1 and v2, Matterport3D, HSSD and OVON.

A split is a gzipped JSON file. The folder `content` has a file of episodes and goals for each scene. In older files
each episode has its goals. Habitat's loaders ignore the ids of a scene's episodes and number them from 0, and so does
this one: scene and id together identify an episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.data.episodes import Episode, Vector, heading_of, rotation_of
from batchnav.data.files import is_number
from batchnav.data.formats.dataset import (
    ROTATION_TOLERANCE,
    EpisodeDataset,
    EpisodeFile,
    Format,
    common_fields,
    in_scenes,
    names_of,
    numbered,
    numbers_of,
    plain_fields,
    read_parts,
    write_split,
)
from batchnav.errors import EpisodeError, shortened
from batchnav.scene.goals import ObjectGoal

TASK_IDS = "category_to_task_category_id"
"""Field with the id of each category that the goal sensor shows."""
ANNOTATION_IDS = ("category_to_scene_annotation_category_id", "category_to_mp3d_category_id")
"""Names of the field with the id of each category in the scenes' annotations; the second is Matterport3D's."""
_GOAL_KEYS = ("position", "object_id", "object_category", "object_name", "view_points")
_UNUSED_OF_GOALS: dict[str, Any] = {"radius": None, "object_name_id": None, "room_id": None, "room_name": None}
"""Keys of goals that are kept but unused, with the values that Habitat's generator writes."""
_MOST_DIGITS = 9
"""Largest number of digits of an object's number, which arrays hold as int32."""


FROM_FILE = "file"
"""`SceneGoals.rules` of goals that were read from a file."""


@dataclass(frozen=True)
class ObjectNavEpisode(Episode):
    """One ObjectNav episode. `goals` is empty: the goals of a category belong to the dataset."""

    goals: tuple = ()
    object_category: str = ""
    """Category to find."""
    children_object_categories: tuple[str, ...] | None = None
    """Further categories whose goals count, as in OVON; None: the file has no such field."""

    @property
    def goal_name(self) -> str:
        """Name of the goal among those of the scene."""
        return self.object_category

    @property
    def goal_categories(self) -> tuple[str, ...]:
        """All categories whose goals count."""
        return (self.object_category, *(self.children_object_categories or ()))


@dataclass(frozen=True, eq=False)
class FileGoal:
    """One object of an episode file, with its V view points."""

    position: Vector
    """Centre of the object, metres."""
    object_id: int | str
    """Number of the object; in OVON its name and number, as "chair_12"."""
    object_category: str | None
    object_name: str | None
    points: np.ndarray
    """f64 [V, 3]: places on the navmesh, metres."""
    rotations: np.ndarray
    """f64 [V, 4]: quaternions [x, y, z, w] that face the object."""
    iou: np.ndarray
    """f64 [V]: coverage scores; NaN where the file has none."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Values of further keys of the file."""

    def __eq__(self, other: object) -> bool:
        """True for equal values in all fields; two scores of NaN are equal."""
        if not isinstance(other, FileGoal):
            return NotImplemented
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return all(
            np.array_equal(a, b, equal_nan=True) if isinstance(a, np.ndarray) else bool(a == b) for a, b in pairs
        )

    @property
    def number(self) -> int:
        """Number of the object."""
        return int(str(self.object_id).rpartition("_")[2])

    @property
    def without_view_points(self) -> FileGoal:
        """The goal without view points."""
        return replace(self, points=self.points[:0], rotations=self.rotations[:0], iou=self.iou[:0])

    def as_goal(self, category: str) -> ObjectGoal:
        """The goal in the form that scenes hold."""
        headings = np.array([heading_of(rotation) for rotation in self.rotations.tolist()], np.float32)
        name = self.object_name or f"{category}_{self.number}"
        points = self.points.astype(np.float32).reshape(-1, 3)
        return ObjectGoal(category, self.number, name, self.position, points, headings, self.iou.astype(np.float32))

    @classmethod
    def of(cls, goal: ObjectGoal) -> FileGoal:
        """The goal of a scene in the form that files hold; float32 numbers get the shortest decimals."""
        rotations = np.array([rotation_of(float(heading)) for heading in goal.headings], np.float32).reshape(-1, 4)
        return cls(
            goal.position, goal.object_id, goal.category, goal.name, shortest(goal.view_points), shortest(rotations),
            shortest(goal.iou),
        )  # fmt: skip


def goals_key(scene_id: str, category: str) -> str:
    """Key of a scene's goals of one category, as "TEEsavR23oF.basis.glb_chair"."""
    return f"{scene_id.rpartition('/')[2]}_{category}"


def shortest(values: np.ndarray) -> np.ndarray:
    """float32 values as the float64 values with the shortest decimals that parse to the same float32."""
    return np.array([float(str(value)) for value in values.ravel()], np.float64).reshape(values.shape)


def detect(file: EpisodeFile) -> bool:
    """True for an ObjectNav file, recognised by its keys."""
    named = isinstance(file.first.get("object_category"), str) and "goal_image_id" not in file.first
    return "goals_by_category" in file.data or TASK_IDS in file.data or named


def read(file: EpisodeFile, content_scenes: Sequence[str]) -> EpisodeDataset:
    """The episodes of a split, and the goals of its scenes by `goals_key`; see `load_episodes`."""
    episodes: list[ObjectNavEpisode] = []
    goals: dict[str, list[FileGoal]] = {}
    ids: dict[str, dict[str, int]] = {}
    for part in read_parts(file, content_scenes):
        for key, values in category_ids(part.data, part.path).items():
            ids[key] = ids.get(key) or values
            if values and ids[key] != values:
                raise EpisodeError(
                    f"{part.path}: field {key!r}: found other ids than in {file.path}, expected equal ids"
                )
        found = _episodes(part.data, part.path, file.folder)
        goals |= _goals_by_category(part.data, found, part.path)
        episodes += found
    episodes = in_scenes(episodes, content_scenes, file.path)
    annotation_key = next((key for key in ANNOTATION_IDS if key in ids), ANNOTATION_IDS[0])
    header = header_of(ids.get(TASK_IDS, {}), ids.get(annotation_key, {}), annotation_key)
    dataset = EpisodeDataset(numbered(episodes), "category", goals, header)
    _check_categories(dataset, file.path)
    return dataset


def header_of(
    category_ids: Mapping[str, int], annotation_ids: Mapping[str, int], annotation_key: str = ANNOTATION_IDS[0]
) -> dict[str, Any]:
    """`EpisodeDataset.header`: the ids of the categories in the goal sensor, and in the scenes' annotations."""
    return {TASK_IDS: dict(category_ids), annotation_key: dict(annotation_ids)}


def write(dataset: EpisodeDataset, path: Path, content: bool | None) -> None:
    """Write ObjectNav episodes in Habitat's format; see `EpisodeDataset.save`."""

    def rows(episodes: Sequence[ObjectNavEpisode], scene_id: str) -> dict[str, Any]:
        prefix = goals_key(scene_id, "") if scene_id else ""
        goals = {key: list(map(plain_goal, some)) for key, some in dataset.goals.items() if key.startswith(prefix)}
        held = {"goals_by_category": goals} if episodes else {}
        return {**held, "episodes": list(map(plain_episode, episodes)), **dataset.header}

    write_split(dataset.episodes, path, content is not False, rows)


def category_ids(data: dict, path: Path) -> dict[str, dict[str, int]]:
    """The maps from categories to ids that a file has."""
    found = {key: data[key] for key in (TASK_IDS, *ANNOTATION_IDS) if key in data}
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
            raise EpisodeError(f"{where}: field 'goal_image_id': found Instance ImageNav, expected ObjectNav episodes")
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
            f"{where}: field 'object_category': found none, expected the category to find, as in the other episodes "
            "of this ObjectNav file"
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


def _check_categories(dataset: EpisodeDataset, path: Path) -> None:
    """EpisodeError for an episode whose category has no id or no goals."""
    ids = dataset.header[TASK_IDS]
    for episode in dataset.episodes:
        where = f"{path}: episode {episode.episode_id!r} of scene {episode.scene_id!r}: field 'object_category'"
        if ids and episode.object_category not in ids:
            known = ", ".join(list(ids)[:8])
            raise EpisodeError(f"{where}: found {episode.object_category!r}, expected one of {known}")
        if not any(dataset.goals.get(goals_key(episode.scene_id, name)) for name in episode.goal_categories):
            raise EpisodeError(
                f"{where}: found {episode.object_category!r}, expected a category with goals in its scene"
            )


def plain_episode(episode: ObjectNavEpisode) -> dict:
    """An episode as JSON values, with every key that Habitat's generator writes."""
    children = episode.children_object_categories
    return {
        **plain_fields(episode, []),
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


FORMAT = Format(detect, read, write)
