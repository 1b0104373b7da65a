"""Episode files without view points: a scene's view points are made anew by the file's rules, and checked.

View points are most of an ObjectNav file. In such a file the goals have none, and each episode's `info` has the names
of the rules and of the label map, and a hash of its scene's view points.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging

import numpy as np
import torch

from batchnav.data.objectnav.episode import ObjectNavDataset, ObjectNavEpisode
from batchnav.data.objectnav.generate import nearest_view_points
from batchnav.data.objectnav.view_points import make_goals
from batchnav.errors import EpisodeError
from batchnav.scene.goals import SceneGoals
from batchnav.scene.scene import Scene

_RULES, _LABELS, _HASH = "view_point_rules", "labels", "view_points_sha256"
"""Keys of an episode's `info`."""
_TOLERANCE = 0.02
"""Metres by which a distance may differ where the hash does: processors round differently at an object's outline."""
log = logging.getLogger(__name__)


def without_view_points(dataset: ObjectNavDataset, rules: str, labels: str) -> ObjectNavDataset:
    """The dataset without view points.

    Args:
        dataset: generated episodes and their goals.
        rules: name of the rules that made the view points.
        labels: name of the label map.
    """
    hashes = {scene_id: view_point_hash(dataset.scene_goals(scene_id)) for scene_id in _scene_ids(dataset)}
    episodes = [
        dataclasses.replace(e, info={**e.info, _RULES: rules, _LABELS: labels, _HASH: hashes[e.scene_id]})
        for e in dataset.episodes
    ]
    goals = {
        key: [
            dataclasses.replace(goal, points=goal.points[:0], rotations=goal.rotations[:0], iou=goal.iou[:0])
            for goal in some
        ]
        for key, some in dataset.goals.items()
    }
    return dataclasses.replace(dataset, episodes=episodes, goals=goals)


def goals_in(dataset: ObjectNavDataset, scene: Scene, device: str | torch.device = "auto") -> SceneGoals:
    """The goals of a scene in a dataset, whose view points are made anew where the file has none.

    Args:
        dataset: episodes and goals of a file.
        scene: the scene, named by its scene id.
        device: torch device that renders.

    Raises EpisodeError where the view points differ from those of the file: the scene is another one.
    """
    stored = dataset.scene_goals(scene.name)
    episodes = [episode for episode in dataset.episodes if episode.scene_id == scene.name]
    rules = next((episode.info[_RULES] for episode in episodes if _RULES in episode.info), None)
    if stored.objects or rules is None:
        return stored
    (goals,) = make_goals([scene], rules, episodes[0].info.get(_LABELS), device)
    if view_point_hash(goals) != episodes[0].info.get(_HASH):
        log.info("%s: its view points differ from those of the episode file in some places", scene.name)
        _check_distances(scene, goals, episodes)
    return goals


def view_point_hash(goals: SceneGoals) -> str:
    """Hash of the objects of a scene and of the places of their view points."""
    digest = hashlib.sha256()
    for goal in goals.objects:
        digest.update(f"{goal.category} {goal.object_id} {len(goal.view_points)}\n".encode())
        order = np.lexsort(goal.view_points.T)
        digest.update(np.ascontiguousarray(goal.view_points[order]).tobytes())
    return digest.hexdigest()[:16]


def _check_distances(scene: Scene, goals: SceneGoals, episodes: list[ObjectNavEpisode]) -> None:
    """EpisodeError for an episode whose distance to the nearest view point is not that of the file."""
    for episode in episodes:
        points = goals.view_points(episode.object_category).astype(np.float64)
        start, expected = np.array([episode.start_position]), episode.info.get("geodesic_distance", np.nan)
        found = float(nearest_view_points(scene.navmesh, start, points).distance[0]) if len(points) else np.inf
        if abs(found - expected) > _TOLERANCE:
            where = f"episode {episode.episode_id!r} of scene {scene.name!r}"
            raise EpisodeError(
                f"{where}: found {found:.3f} m to the nearest view point of {episode.object_category!r}, expected "
                f"{expected:.3f} m as in the file; the scene or the rules have changed"
            )


def _scene_ids(dataset: ObjectNavDataset) -> list[str]:
    return list(dict.fromkeys(episode.scene_id for episode in dataset.episodes))
