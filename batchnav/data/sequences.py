"""Episodes with a sequence of goals, as in GOAT-Bench and MultiON, and tours: PointNav with several goals.

Every subtask has a goal of its own kind. All formats read sequences into these classes, and write them from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchnav.data.episodes import Episode, Goal
from batchnav.tasks.sequence import INSTANCE_PREFIX

POINT, CATEGORY, INSTANCE, DESCRIPTION = "point", "category", "instance", "description"
SUBTASK_KINDS = (POINT, CATEGORY, INSTANCE, DESCRIPTION)
"""Kinds of the goals of subtasks, by number: a place; any object of a category; the object that an image shows; the
object that words describe."""


@dataclass(frozen=True)
class Subtask:
    """One goal of a sequence."""

    kind: str
    """One of `SUBTASK_KINDS`. A place is the next of `SequenceEpisode.goals`."""
    category: str = ""
    """Category of the object; for a place: of the cylinder that stands there, as in MultiON, "" for none."""
    object_id: str = ""
    """Number of the object, as "12", for an instance or a description; "" otherwise."""
    image: int = 0
    """Number of the image among those of the object, for an instance."""
    children_object_categories: tuple[str, ...] = ()
    """Further categories whose objects count, for a category."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Values of further keys of the file."""

    @property
    def goal_name(self) -> str:
        """Name of the goal among those of the scene bank; "" for a place without a cylinder."""
        return instance_name(self.object_id) if self.kind in (INSTANCE, DESCRIPTION) else self.category


def instance_name(object_id: int | str) -> str:
    """Name of one object among the goals of a scene, beside the names of categories."""
    return f"{INSTANCE_PREFIX}{object_id}"


@dataclass(frozen=True)
class SequenceEpisode(Episode):
    """One episode with goals that are to be found one after another.

    `goals` holds the places of those subtasks whose kind is "point", in their order. The goals of objects belong to the
    dataset, by `formats.objectnav.goals_key`, with the images in `FileGoal.other`.
    """

    goals: tuple[Goal, ...] = ()
    subtasks: tuple[Subtask, ...] = ()
    """At least one."""

    @property
    def goal_name(self) -> str:
        """Name of the first goal among those of the scene."""
        return self.subtasks[0].goal_name

    @property
    def places(self) -> list[Goal | None]:
        """The place of each subtask; None for objects."""
        places = iter(self.goals)
        return [next(places) if subtask.kind == POINT else None for subtask in self.subtasks]
