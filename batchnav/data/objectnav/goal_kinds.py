"""Goals that are objects, by `Task.goal_kind`: how scenes get them, how episodes are sampled and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from batchnav.data.objectnav.episode import ObjectNavDataset
from batchnav.data.objectnav.episode_file import load_objectnav, save_objectnav
from batchnav.data.objectnav.generate import generate_objectnav
from batchnav.data.objectnav.image_goals import with_image_goals
from batchnav.data.objectnav.instance_file import (
    InstanceDataset,
    generate_instances,
    load_instance_imagenav,
    save_instance_imagenav,
)
from batchnav.data.objectnav.view_points import with_goals
from batchnav.scene.scene import Scene


class ObjectGoals(NamedTuple):
    """Functions for one kind of goals. Rules and labels are names, as the task's configuration has them."""

    dataset: type[Any]
    """Class of a file's episodes and goals."""

    with_goals: Callable[..., list[Scene]]
    """The scenes with goals, from (scenes, rules, labels, device)."""
    generate: Callable[..., Any]
    """A dataset of sampled episodes, from (scenes, episodes per scene, seed, rules, labels)."""
    load: Callable[..., Any]
    """Reads a dataset from a path."""
    save: Callable[..., None]
    """Writes a dataset, given (dataset, path, content)."""


OBJECT_GOALS: Mapping[str, ObjectGoals] = {
    "category": ObjectGoals(ObjectNavDataset, with_goals, generate_objectnav, load_objectnav, save_objectnav),
    "instance": ObjectGoals(
        InstanceDataset,
        with_image_goals,
        lambda scenes, per_scene, seed, rules, labels: generate_instances(scenes, per_scene, seed, rules),
        load_instance_imagenav,
        save_instance_imagenav,
    ),
}
"""By kind. Other kinds of goals need nothing of a scene but its navmesh."""
