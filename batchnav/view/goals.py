"""Goals of an episode as pictures show them: the nearest goal, objects, view points, and the shortest path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batchnav.data.episodes.episode import Episode
from batchnav.data.objectnav.episode import ObjectNavEpisode
from batchnav.data.objectnav.generate import nearest_view_points
from batchnav.scene.scene import Scene

_NO_POINTS = np.zeros((0, 3), np.float32)


class ShownGoals(NamedTuple):
    """Goals of one episode, metres."""

    nearest: np.ndarray
    """f32 [3]: the goal, or the view point, with the shortest geodesic distance from the start."""
    path: np.ndarray
    """f32 [K, 3]: the shortest path from the start to `nearest`."""
    objects: np.ndarray = _NO_POINTS
    """f32 [G, 3]: centres of the objects that are goals; empty for goals that are places."""
    view_points: np.ndarray = _NO_POINTS
    """f32 [P, 3]: view points of these objects."""


def shown_goals(episode: Episode, scene: Scene) -> ShownGoals | None:
    """The goals of an episode in the frame of its scene; None where it has none."""
    start = np.array(episode.start_position, np.float32)
    if isinstance(episode, ObjectNavEpisode):
        objects = [g for g in scene.goals.objects if g.category == episode.goal_name] if scene.goals else []
        if not objects:
            return None
        places = np.concatenate([goal.view_points for goal in objects])
        row = int(nearest_view_points(scene.navmesh, start[None].astype(np.float64), places.astype(np.float64)).row[0])
        centres = np.array([goal.position for goal in objects], np.float32)
        return ShownGoals(places[row], scene.navmesh.shortest_path(start, places[row]), centres, places)
    places = np.array([goal.position for goal in episode.goals], np.float32).reshape(-1, 3)
    if not len(places):
        return None
    row = int(np.argmin(scene.navmesh.geodesic_distance(np.repeat(start[None], len(places), axis=0), places)))
    return ShownGoals(places[row], scene.navmesh.shortest_path(start, places[row]))
