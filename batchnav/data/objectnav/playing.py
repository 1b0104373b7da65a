"""ObjectNav episodes against their scenes: which cannot be played, and which goals and view points no agent can use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from batchnav.data.episodes.episode import Episode
from batchnav.data.episodes.playing import is_near, off_navmesh
from batchnav.data.objectnav.episode import ObjectNavEpisode
from batchnav.runtime.console import number_of
from batchnav.scene.goals import ObjectGoal
from batchnav.scene.scene import Scene


def unplayable_searches(episodes: Sequence[Episode], scene: Scene) -> Iterator[tuple[Episode, str]]:
    """Episodes of one scene that cannot be played, each with the reason. Positions are in the scene's frame."""
    starts = np.array([episode.start_position for episode in episodes], np.float32)
    snapped = scene.navmesh.snap(starts)
    islands = scene.navmesh.island(snapped)
    goals = scene.goals.objects if scene.goals else ()
    reached = {name: _islands(scene, [g for g in goals if g.category == name]) for name in _categories(goals)}
    for episode, start, place, island in zip(episodes, starts, snapped, islands.tolist(), strict=True):
        where = f"episode {episode.episode_id!r} of scene {scene.name!r}"
        category = getattr(episode, "goal_name", "")
        if problem := off_navmesh("start_position", start, place):
            yield episode, f"{where}: {problem}"
        elif category not in reached:
            yield episode, f"{where}: found no view point of {category!r}, expected goals of that category"
        elif island not in reached[category]:
            yield (
                episode,
                f"{where}: found view points of {category!r} on other islands of the navmesh only, expected one on the "
                f"start's island {island}",
            )


def unusable_goals(episodes: Sequence[ObjectNavEpisode], scene: Scene) -> Iterator[str]:
    """One line for each category with view points off the navmesh, and for each with goals that no start reaches."""
    goals = scene.goals.objects if scene.goals else ()
    _, starts = _on_navmesh(scene, np.array([episode.start_position for episode in episodes], np.float32))
    for category in _categories(goals):
        mine = [goal for goal in goals if goal.category == category]
        points = np.concatenate([goal.view_points for goal in mine])
        near, _ = _on_navmesh(scene, points)
        where = f"scene {scene.name!r}: category {category!r}"
        if not near.all():
            first = np.round(points[~near][0].astype(float), 3).tolist()
            off, count = int((~near).sum()), number_of(len(points), "view point")
            yield f"{where}: {off} of {count} are off the navmesh, such as {first}"
        apart = [goal.name for goal in mine if not _islands(scene, [goal]) & set(starts.tolist())]
        if apart:
            count = number_of(len(mine), "goal")
            yield f"{where}: {len(apart)} of {count} cannot be reached from any start, such as {apart[0]!r}"


def _categories(goals: Iterable[ObjectGoal]) -> list[str]:
    return sorted({goal.category for goal in goals})


def _islands(scene: Scene, goals: Iterable[ObjectGoal]) -> set[int]:
    """Islands of the navmesh on which goals have view points."""
    _, islands = _on_navmesh(scene, np.concatenate([goal.view_points for goal in goals]))
    return set(islands[islands >= 0].tolist())


def _on_navmesh(scene: Scene, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bool [N]: the navmesh is near enough to points f32 [N, 3] to move them onto it; i32 [N]: its islands there."""
    snapped = scene.navmesh.snap(points)
    return is_near(points, snapped), scene.navmesh.island(snapped)
