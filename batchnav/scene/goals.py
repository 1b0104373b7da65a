"""Objects of a scene that ObjectNav asks for, with the view points from which each is seen.

`batchnav.data.goals` makes them from a scene's annotations and reads them from episode files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

IMAGE_COLUMNS = 6
"""Columns of `ObjectGoal.images`."""
NO_IMAGES = np.zeros((0, IMAGE_COLUMNS), np.float32)


class ObjectGoal(NamedTuple):
    """One object and its view points, sorted by coverage, largest first. Coordinates are those of the scene."""

    category: str
    """Name of the category, such as "chair"."""
    object_id: int
    """Number of the object in the scene: its value in an image of object ids."""
    name: str
    """Label of the object in the source, such as "office chair_10"."""
    position: tuple[float, float, float]
    """Centre of the axis-aligned bounding box, metres."""
    view_points: np.ndarray
    """f32 [V, 3]: places on the navmesh from which the object is visible, metres."""
    headings: np.ndarray
    """f32 [V]: heading that faces the centre at each view point, radians."""
    iou: np.ndarray
    """f32 [V]: coverage score of each view point, as in Habitat's files."""
    images: np.ndarray = NO_IMAGES
    """f32 [G, 6]: cameras of images of the object, for Instance ImageNav: x, y, z, metres; heading, pitch and
    horizontal field of view, radians."""


class SceneGoals(NamedTuple):
    """All goals of one scene."""

    rules: str
    """Name of the rules by which the view points were made, or "file"."""
    objects: tuple[ObjectGoal, ...]
    """Objects with at least one view point, in the order of their object ids."""

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories that have a goal, sorted."""
        return tuple(sorted({goal.category for goal in self.objects}))

    def view_points(self, category: str) -> np.ndarray:
        """f32 [P, 3]: view points of all objects of a category, metres."""
        points = [goal.view_points for goal in self.objects if goal.category == category]
        return np.concatenate(points) if points else np.zeros((0, 3), np.float32)

    @property
    def instances(self) -> SceneGoals:
        """The objects that have images. Each is a category of its own, named by its object id."""
        shown = [goal for goal in self.objects if len(goal.images)]
        return self._replace(objects=tuple(goal._replace(category=str(goal.object_id)) for goal in shown))

    def numbers(self, categories: Sequence[str]) -> dict[int, int]:
        """1 + number of the category by object id, of the objects of these categories."""
        number = {category: k + 1 for k, category in enumerate(categories)}
        return {goal.object_id: number[goal.category] for goal in self.objects if goal.category in number}
