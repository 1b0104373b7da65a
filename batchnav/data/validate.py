"""Validation of scenes, navmeshes, episode files and datasets: findings with level and text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from batchnav.data.episodes.episode import Episode, group_by_scene
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.episodes.playing import in_scene_frames, unplayable_episodes
from batchnav.data.find_sources import find_sources
from batchnav.data.folders import SCENES_DIR
from batchnav.data.objectnav.episode import ObjectNavEpisode
from batchnav.data.objectnav.episode_file import is_objectnav
from batchnav.data.objectnav.generate import nearest_view_points
from batchnav.data.objectnav.instance_file import is_instance_file
from batchnav.data.objectnav.playing import unplayable_searches, unusable_goals
from batchnav.data.played_file import load_played
from batchnav.data.prepared.scene_file import SUFFIX, load_prepared
from batchnav.data.scene_findings import Finding, check_mesh, check_navmesh, scene_findings
from batchnav.data.scene_ref import prepared_in
from batchnav.data.scenes import find_scene, played_scene
from batchnav.data.sources.scene_source import SceneSource
from batchnav.errors import BatchnavError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import number_of
from batchnav.scene.scene import Scene

DISTANCE_TOLERANCE = 0.01
"""Tolerance between an episode's stated geodesic distance and the navmesh's, metres, since files round distances."""
MAX_LISTED = 5
"""Largest number of names that a finding lists."""


def validate(path: Path, split: str = "train", scenes_dir: Path = SCENES_DIR) -> Iterator[Finding]:
    """Findings about a file or a dataset; no findings means that it is usable.

    Args:
        path: a `.navmesh`, a `.json.gz` of episodes, a `.scene`, a mesh file, a config, or a folder of scenes; the name
            decides which.
        split: split of a dataset.
        scenes_dir: folder of the episodes' scenes.
    """
    try:
        if path.suffix == ".navmesh":
            yield from check_navmesh(NavMesh.load(path), str(path))
        elif path.name.endswith(".json.gz"):
            searches = is_objectnav(path) or is_instance_file(path)
            yield from (_check_objectnav_file if searches else _check_episode_file)(path, scenes_dir)
        elif path.suffix == SUFFIX:
            yield from scene_findings(load_prepared(path), str(path))
        elif path.is_dir() and (prepared := prepared_in(path)):
            for file in prepared:
                yield from validate(file)
        else:
            for source in find_sources(path, split):
                yield from _check_source(source)
    except BatchnavError as error:
        yield Finding("error", str(error))


def _check_source(source: SceneSource) -> Iterator[Finding]:
    if source.missing:
        names = ", ".join(source.missing[:MAX_LISTED])
        yield Finding("warning", f"{source.name}: {len(source.missing)} assets are missing: {names}")
    try:
        mesh = source.load_mesh()
        yield from check_mesh(mesh, source.name, source.frame)
        scene, misfits = source.make(mesh)
        yield from (Finding("warning", text) for text in misfits)
        yield from scene_findings(scene._replace(name=source.name), source.name, with_mesh=False)
    except BatchnavError as error:
        yield Finding("error", str(error))


def _check_episode_file(path: Path, scenes_dir: Path) -> Iterator[Finding]:
    episodes = load_episodes(path)
    seen: set[tuple[str, str]] = set()
    repeated: set[tuple[str, str]] = set()
    for episode in episodes:
        key = episode.scene_id, episode.episode_id
        (repeated if key in seen else seen).add(key)
    if repeated:
        scene_id, number = min(repeated)
        text = f"{len(repeated)} episode ids are duplicates, as {number!r} of scene {scene_id!r}"
        yield Finding("warning", f"{path}: {text}")
    scenes = {episode.scene: played_scene(episode, scenes_dir) for episode in episodes}
    for scene_id, name in scenes.items():
        mine = [episode for episode in episodes if episode.scene == scene_id]
        try:
            scene = find_scene(name, scenes_dir, appearance=False)
        except BatchnavError as error:
            yield Finding("error", f"{path}: {error}; {number_of(len(mine), 'episode')} cannot be played")
            continue
        yield from _check_episodes(mine, scene)


def _check_episodes(episodes: list[Episode], scene: Scene) -> Iterator[Finding]:
    episodes = in_scene_frames(episodes, {episode.scene_id: scene.mesh.origin for episode in episodes})
    unplayable = list(unplayable_episodes(episodes, dict.fromkeys((e.scene_id for e in episodes), scene)))
    yield from (Finding("error", problem) for _, problem in unplayable)
    bad = {id(episode) for episode, _ in unplayable}
    good = [episode for episode in episodes if id(episode) not in bad]
    if good:
        starts = np.array([episode.start_position for episode in good], np.float32)
        goals = np.array([episode.goals[0].position for episode in good], np.float32)
        for text in distance_mismatches(good, scene.navmesh.geodesic_distance(starts, goals)):
            yield Finding("warning", text)


def _check_objectnav_file(path: Path, scenes_dir: Path) -> Iterator[Finding]:
    file = load_played(path, ())
    assert file.dataset is not None
    counts: dict[str, list[int]] = {}
    for mine in group_by_scene(file.episodes).values():
        try:
            (scene,) = file.scenes(mine, scenes_dir, appearance=False)
        except BatchnavError as error:
            yield Finding("error", f"{error}; {number_of(len(mine), 'episode')} cannot be played")
            continue
        yield from _check_searches(mine, scene)
        for category in sorted({episode.goal_name for episode in mine}):
            goals = [goal for goal in scene.goals.objects if goal.category == category] if scene.goals else []
            of_scene = sum(e.goal_name == category for e in mine), len(goals), sum(len(g.iou) for g in goals)
            counts[category] = [a + b for a, b in zip(counts.get(category, [0, 0, 0]), of_scene, strict=True)]
    for category, found in sorted(counts.items()):
        words = map(number_of, found, ("episode", "goal", "view point"))
        yield Finding("note", f"{path}: category {category!r}: {', '.join(words)}")


def _check_searches(episodes: list[ObjectNavEpisode], scene: Scene) -> Iterator[Finding]:
    """Findings about the ObjectNav episodes of one scene, which has its goals."""
    episodes = in_scene_frames(episodes, {scene.name: scene.mesh.origin})
    unplayable = list(unplayable_searches(episodes, scene))
    yield from (Finding("error", problem) for _, problem in unplayable)
    yield from (Finding("warning", text) for text in unusable_goals(episodes, scene))
    bad = {id(episode) for episode, _ in unplayable}
    for category in sorted({episode.goal_name for episode in episodes}):
        good = [e for e in episodes if id(e) not in bad and e.goal_name == category]
        if good and scene.goals is not None:
            starts = np.array([episode.start_position for episode in good])
            points = scene.goals.view_points(category).astype(np.float64)
            for text in distance_mismatches(good, nearest_view_points(scene.navmesh, starts, points).distance):
                yield Finding("warning", text)


def distance_mismatches(episodes: Sequence[Episode], distances: np.ndarray) -> list[str]:
    """One line for each episode whose stated geodesic distance differs from `distances` f32 [N], metres."""
    lines = []
    for episode, distance in zip(episodes, distances, strict=True):
        stated = episode.info.get("geodesic_distance")
        if isinstance(stated, (int, float)) and not abs(stated - distance) <= DISTANCE_TOLERANCE:
            lines.append(
                f"episode {episode.episode_id!r} of scene {episode.scene_id!r}: its file states a geodesic distance of "
                f"{stated:.3f} m, found {distance:.3f} m on the navmesh"
            )
    return lines
