"""Validation of scenes, navmeshes, episode files and datasets: findings with level and text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from batchnav.data.episodes import Episode, group_by_scene, in_scene_frames
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import EpisodeDataset, is_episode_file, load_episodes
from batchnav.data.gazebo import is_world
from batchnav.data.goals import GOALS
from batchnav.data.play import load_played_scenes, success_distance_of
from batchnav.data.scenes.checks import Finding, check_mesh, check_navmesh, scene_findings
from batchnav.data.scenes.datasets import find_sources
from batchnav.data.scenes.ids import SCENE_SOURCES, prepared_in
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.prepared import SUFFIX, load_prepared
from batchnav.data.scenes.source import SceneSource
from batchnav.errors import BatchnavError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import number_of
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS

MAX_LISTED = 5
"""Largest number of names that a finding lists."""


def validate(path: Path, split: str = "train", scenes_dir: Path = SCENES_DIR) -> Iterator[Finding]:
    """Findings about a file or a dataset; no findings means that it is usable.

    Args:
        path: a `.navmesh`, an episode file, a `.scene`, a mesh file, a config, or a folder of scenes; the name decides
            which.
        split: split of a dataset.
        scenes_dir: folder of the episodes' scenes.
    """
    try:
        if path.suffix == ".navmesh":
            yield from check_navmesh(NavMesh.load(path), str(path))
        elif is_episode_file(path):
            yield from _check_episode_file(load_episodes(path), scenes_dir)
        elif path.suffix == SUFFIX:
            yield from scene_findings(load_prepared(path), str(path))
        elif path.suffix in SCENE_SOURCES or is_world(path):
            yield from scene_findings(load_scene(path), str(path))
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


def _check_episode_file(dataset: EpisodeDataset, scenes_dir: Path) -> Iterator[Finding]:
    yield from _duplicates(dataset)
    counts: dict[str, list[int]] = {}
    for mine in group_by_scene(dataset.episodes).values():
        try:
            (scene,) = load_played_scenes(dataset.with_episodes(mine), scenes_dir, appearance=False)
        except BatchnavError as error:
            yield Finding("error", f"{error}; {number_of(len(mine), 'episode')} cannot be played")
            continue
        yield from check_episodes_in(mine, scene, dataset.kind)
        for name, some in GOALS[dataset.kind].counts(mine, scene).items():
            counts[name] = [a + b for a, b in zip(counts.get(name, [0, 0, 0]), some, strict=True)]
    for name, found in sorted(counts.items()):
        words = map(number_of, found, ("episode", "goal", "view point"))
        yield Finding("note", f"{dataset.path}: category {name!r}: {', '.join(words)}")


def _duplicates(dataset: EpisodeDataset) -> Iterator[Finding]:
    """A warning about episodes of one scene with the same id."""
    seen: set[tuple[str, str]] = set()
    repeated: set[tuple[str, str]] = set()
    for episode in dataset:
        key = episode.scene_id, episode.episode_id
        (repeated if key in seen else seen).add(key)
    if repeated:
        scene_id, number = min(repeated)
        text = f"{len(repeated)} episode ids are duplicates, as {number!r} of scene {scene_id!r}"
        yield Finding("warning", f"{dataset.path}: {text}")


def check_episodes_in(episodes: list[Episode], scene: Scene, kind: str) -> Iterator[Finding]:
    """Findings about the episodes of one scene, which has its goals."""
    goals = GOALS[kind]
    episodes = in_scene_frames(episodes, {scene.name: scene.mesh.origin})
    config = TASKS[goals.task].Config() if goals.task in TASKS else None
    unplayable = list(goals.unplayable(episodes, scene))
    yield from (Finding("error", problem) for _, problem in unplayable)
    bad = {id(episode) for episode, _ in unplayable}
    good = [episode for episode in episodes if id(episode) not in bad]
    hopeless = goals.out_of_reach(good, scene, success_distance_of(config))
    yield from (Finding("warning", text) for text in hopeless)
    yield from (Finding(level, text) for level, text in goals.findings(good, episodes, scene))
