"""ObjectNav episodes and their goals, as Habitat's files have them: metres, and quaternions [x, y, z, w]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from batchnav.data.episodes.episode import Episode, Vector, heading_of, rotation_of
from batchnav.scene.goals import ObjectGoal, SceneGoals

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


@dataclass(frozen=True)
class ObjectNavDataset:
    """ObjectNav episodes of a split, and the goals of all its scenes. Datasets with equal values are equal."""

    episodes: list[ObjectNavEpisode] = field(repr=False)
    goals: dict[str, list[FileGoal]] = field(repr=False)
    """Objects of each scene and category; the key is scene file and category, as "TEEsavR23oF.basis.glb_chair"."""
    category_ids: dict[str, int]
    """Id of each category that the goal sensor shows: `category_to_task_category_id`."""
    annotation_ids: dict[str, int]
    """Id of each category in the scenes' annotations."""
    annotation_key: str = "category_to_scene_annotation_category_id"
    """Name of the field of `annotation_ids`; in Matterport3D "category_to_mp3d_category_id"."""

    def scene_goals(self, scene_id: str) -> SceneGoals:
        """The goals of one scene as `Scene.goals` holds them, in the order of their object ids.

        Objects without a view point are left out. A scene that is not in the dataset has no goals.
        """
        prefix = goals_key(scene_id, "")
        found = [
            goal.as_goal(key.removeprefix(prefix))
            for key, goals in self.goals.items()
            for goal in goals
            if key.startswith(prefix) and len(goal.points)
        ]
        return SceneGoals(FROM_FILE, tuple(sorted(found, key=lambda goal: (goal.object_id, goal.category))))

    def completed(self, scene_id: str, goals: SceneGoals) -> SceneGoals:
        """Goals that were made anew for a scene, as `scene_goals` returns them."""
        return goals

    def without_view_points(self) -> ObjectNavDataset:
        """The dataset whose goals have no view points."""
        goals = {key: [goal.without_view_points for goal in some] for key, some in self.goals.items()}
        return replace(self, goals=goals)


def goals_key(scene_id: str, category: str) -> str:
    """Key of a scene's goals of one category, as "TEEsavR23oF.basis.glb_chair"."""
    return f"{scene_id.rpartition('/')[2]}_{category}"


def shortest(values: np.ndarray) -> np.ndarray:
    """float32 values as the float64 values with the shortest decimals that parse to the same float32."""
    return np.array([float(str(value)) for value in values.ravel()], np.float64).reshape(values.shape)
