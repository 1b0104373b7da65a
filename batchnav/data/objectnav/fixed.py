"""Episode files without view points: a scene's view points are made anew by the file's rules, and checked.

View points are most of a file of ObjectNav or Instance ImageNav. In such a file the goals have none, and each episode's
`info` has the names of the rules and of the label map, and a hash of its scene's view points.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from batchnav.data.episodes.episode import group_by_scene
from batchnav.data.files import is_number
from batchnav.data.objectnav.categories import LABELS
from batchnav.data.objectnav.episode import ObjectNavDataset, ObjectNavEpisode
from batchnav.data.objectnav.generate import nearest_view_points
from batchnav.data.objectnav.instance_file import InstanceDataset
from batchnav.data.objectnav.rules import RULES
from batchnav.data.objectnav.view_points import make_goals
from batchnav.errors import EpisodeError, shortened
from batchnav.scene.goals import SceneGoals
from batchnav.scene.scene import Scene

_RULES, _LABELS, _HASH = "view_point_rules", "labels", "view_points_sha256"
"""Keys of an episode's `info`."""
_TOLERANCE = 0.02
"""Metres by which a distance may differ where the hash does: processors round differently at an object's outline."""
GoalDataset = ObjectNavDataset | InstanceDataset
AnyDataset = TypeVar("AnyDataset", ObjectNavDataset, InstanceDataset)
log = logging.getLogger(__name__)


def without_view_points(dataset: AnyDataset, rules: str, labels: str) -> AnyDataset:
    """The dataset without view points.

    Args:
        dataset: generated episodes and their goals.
        rules: name of the rules that made the view points.
        labels: name of the label map.
    """
    hashes = {scene_id: view_point_hash(dataset.scene_goals(scene_id)) for scene_id in group_by_scene(dataset.episodes)}
    few = dataset.without_view_points()
    episodes: list[Any] = [
        dataclasses.replace(e, info={**e.info, _RULES: rules, _LABELS: labels, _HASH: hashes[e.scene_id]})
        for e in few.episodes
    ]
    return dataclasses.replace(few, episodes=episodes)


def with_goals_of(dataset: GoalDataset, scenes: Sequence[Scene], device: str | torch.device = "auto") -> list[Scene]:
    """The scenes with their goals in a dataset; arguments and errors as in `goals_in`.

    Goals of an episode's child categories count as goals of its category too.
    """
    by_scene, goals = group_by_scene(dataset.episodes), goals_in(dataset, scenes, device)
    return [
        scene._replace(goals=_with_children(found, by_scene.get(scene.name, ())))
        for scene, found in zip(scenes, goals, strict=True)
    ]


def _with_children(goals: SceneGoals, episodes: Sequence[ObjectNavEpisode]) -> SceneGoals:
    """The goals of a scene, where those of an episode's child categories count as goals of its category too."""
    children = {(e.object_category, child) for e in episodes for child in e.goal_categories[1:]}
    known = {(goal.category, goal.object_id) for goal in goals.objects}
    further = [
        goal._replace(category=category)
        for category, child in sorted(children)
        for goal in goals.objects
        if goal.category == child and (category, goal.object_id) not in known
    ]
    return goals._replace(objects=(*goals.objects, *further))


def goals_in(dataset: GoalDataset, scenes: Sequence[Scene], device: str | torch.device = "auto") -> list[SceneGoals]:
    """The goals of scenes in a dataset, with view points made anew where the file has none.

    Args:
        dataset: episodes and goals of a file.
        scenes: the scenes, named by their scene ids; those without an episode have only the goals that the file has.
        device: torch device that renders.

    Raises EpisodeError for unknown rules or labels, and where new view points differ from those of the file: the scene
    is another one.
    """
    stored = {scene.name: dataset.scene_goals(scene.name) for scene in scenes}
    by_scene = group_by_scene(dataset.episodes)
    missing: dict[tuple[str, str], list[Scene]] = {}
    for scene in scenes:
        info = by_scene[scene.name][0].info if scene.name in by_scene else {}
        if not stored[scene.name].objects and _RULES in info:
            missing.setdefault(_names(info, scene.name), []).append(scene)
    for (rules, labels), some in missing.items():
        for scene, goals in zip(some, make_goals(some, rules, labels, device), strict=True):
            goals, episodes = dataset.completed(scene.name, goals), by_scene[scene.name]
            if view_point_hash(goals) != episodes[0].info.get(_HASH):
                log.info("%s: some view points differ from those of the episode file", scene.name)
                _check_distances(scene, goals, episodes)
            stored[scene.name] = goals
    return [stored[scene.name] for scene in scenes]


def _names(info: dict[str, Any], scene_id: str) -> tuple[str, str]:
    """Names of the rules and of the label map in an episode's `info`. EpisodeError for unknown ones."""
    for key, known in ((_RULES, RULES), (_LABELS, LABELS)):
        if not isinstance(info.get(key), str) or info[key] not in known:
            raise EpisodeError(
                f"episodes of scene {scene_id!r}: field 'info': {key}: found {shortened(info.get(key))}, expected one "
                f"of {', '.join(known)}"
            )
    return info[_RULES], info[_LABELS]


def lacks_view_points(dataset: GoalDataset) -> bool:
    """True where view points of the dataset are to be made anew."""
    return any(_RULES in episode.info for episode in dataset.episodes)


def view_point_hash(goals: SceneGoals) -> str:
    """Hash of the objects of a scene and of the places of their view points."""
    digest = hashlib.sha256()
    for goal in goals.objects:
        digest.update(f"{goal.category} {goal.object_id} {len(goal.view_points)}\n".encode())
        order = np.lexsort(goal.view_points.T)
        digest.update(np.ascontiguousarray(goal.view_points[order]).tobytes())
    return digest.hexdigest()[:16]


def _check_distances(scene: Scene, goals: SceneGoals, episodes: Sequence[ObjectNavEpisode]) -> None:
    """EpisodeError for an episode whose distance to the nearest view point is not that of the file."""
    for episode in episodes:
        points = goals.view_points(episode.goal_name).astype(np.float64)
        start, stored = np.array([episode.start_position]), episode.info.get("geodesic_distance")
        expected = stored if is_number(stored) else np.nan
        found = float(nearest_view_points(scene.navmesh, start, points).distance[0]) if len(points) else np.inf
        if not abs(found - expected) <= _TOLERANCE:  # also for a distance that is not a number
            where = f"episode {episode.episode_id!r} of scene {scene.name!r}"
            raise EpisodeError(
                f"{where}: found {found:.3f} m to the nearest view point of {episode.goal_name!r}, expected "
                f"{expected:.3f} m as in the file; the scene, its body or the rules have changed"
            )
