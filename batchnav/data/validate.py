"""Validation of scenes, navmeshes, episode files and data sets: findings with level and text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from batchnav.data.episodes.episode import Episode
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.episodes.playing import unplayable_episodes
from batchnav.data.find_sources import find_sources
from batchnav.data.prepared.scene_file import SUFFIX, load_prepared
from batchnav.data.scene_ref import prepared_in
from batchnav.data.scenes import find_scene
from batchnav.data.sources.scene_source import SCENES_DIR, SceneSource
from batchnav.errors import BatchnavError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console.announce import number_of
from batchnav.scene.scene import Scene
from batchnav.types import TriangleMesh

DISTANCE_TOLERANCE = 0.01
"""Tolerance between an episode's stated geodesic distance and the navmesh's, metres: files have fewer decimals."""
LARGEST, SMALLEST = 300.0, 1.0
"""Range of a building's longest side, metres; outside it the unit is probably not metres."""
SMALL_ISLAND = 1.5
"""Smallest radius of an island for sampling episodes, metres (Habitat's ISLAND_RADIUS_LIMIT)."""
EDGE = 1.0
"""Distance by which a navmesh may exceed its mesh, metres: baked navmeshes have a border, and headroom above."""
_FACING = 0.9
"""Smallest cosine between a triangle's normal and the axis that it faces."""
MAX_LISTED = 5
"""Largest number of names that a finding lists."""


class Finding(NamedTuple):
    """One problem: `error` where the file is unusable, `warning` where it is suspicious."""

    level: Literal["error", "warning"]
    text: str


def validate(path: Path, split: str = "train", scenes_dir: Path = SCENES_DIR) -> Iterator[Finding]:
    """Findings about a file or a data set; no findings means that it is usable.

    Args:
        path: a `.navmesh`, a `.json.gz` of episodes, a `.scene`, a mesh file, a config, or a folder of scenes; the name
            decides which.
        split: split of a data set.
        scenes_dir: folder of the episodes' scenes.
    """
    try:
        if path.suffix == ".navmesh":
            yield from check_navmesh(NavMesh.load(path), str(path))
        elif path.name.endswith(".json.gz"):
            yield from _check_episode_file(path, scenes_dir)
        elif path.suffix == SUFFIX:
            scene = load_prepared(path)
            yield from check_mesh(scene.mesh, str(path))
            yield from check_navmesh(scene.navmesh, str(path), scene.mesh)
        elif path.is_dir() and (prepared := prepared_in(path)):
            for file in prepared:
                yield from validate(file)
        else:
            for source in find_sources(path, split):
                yield from _check_source(source)
    except BatchnavError as error:
        yield Finding("error", str(error))


def check_mesh(mesh: TriangleMesh, name: str) -> Iterator[Finding]:
    """Warnings about a mesh that loads."""
    if mesh.num_dropped:
        share = mesh.num_dropped / (mesh.num_dropped + len(mesh.faces))
        dropped = f"{number_of(mesh.num_dropped, 'triangle')} ({share:.1%})"
        yield Finding("warning", f"{name}: {dropped} without area, or with a corner that is not finite")
    extent = np.ptp(mesh.vertices[np.unique(mesh.faces)], axis=0)
    size = float(extent.max())
    yield from _check_up(mesh, extent, name)
    if not SMALLEST <= size <= LARGEST:
        yield Finding(
            "warning", f"{name}: is {size:.3g} m long, expected {SMALLEST:g} to {LARGEST:g}: is it in metres?"
        )


def _check_up(mesh: TriangleMesh, extent: np.ndarray, name: str) -> Iterator[Finding]:
    """A warning where the wrong axis is up: the mesh is taller than wide, and most of its area faces sideways."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    normal = np.abs(np.cross(b - a, c - a))
    facing = normal * (normal > _FACING * np.linalg.norm(normal, axis=1, keepdims=True))
    along = facing.sum(0) / 2
    if extent[1] > min(extent[0], extent[2]) and along[1] < max(along[0], along[2]):
        yield Finding(
            "warning", f"{name}: is {extent[0]:.3g} x {extent[2]:.3g} m wide and {extent[1]:.3g} m tall, and "
            f"{along[1]:.3g} m² of it face up or down, {max(along[0], along[2]):.3g} m² one side: is +Y up?"
        )  # fmt: skip


def check_navmesh(navmesh: NavMesh, name: str, mesh: TriangleMesh | None = None) -> Iterator[Finding]:
    """Errors of a navmesh that loads: no usable island, or, where `mesh` is given, another extent than the mesh."""
    radii = navmesh.data.island_radius
    if not len(radii):
        yield Finding("error", f"{name}: has no walkable polygon")
    elif radii.max() < SMALL_ISLAND:
        largest = f"its largest island has a radius of {radii.max():.2f} m"
        yield Finding("error", f"{name}: {largest}, expected {SMALL_ISLAND:g} or more, else no episode can be sampled")
    if mesh is not None:
        used = mesh.vertices[np.unique(mesh.faces)]
        walls, floor = np.stack([used.min(0), used.max(0)]), navmesh.bounds
        # A navmesh covers floors only, so only an extent beyond the mesh is suspicious.
        if (floor[0] < walls[0] - EDGE).any() or (floor[1] > walls[1] + np.array([EDGE, 2 * EDGE, EDGE])).any():
            spans = f"the navmesh spans {_box(floor)}, the mesh {_box(walls)}"
            yield Finding("error", f"{name}: {spans}: are they of one scene, and is the same axis up?")


def _check_source(source: SceneSource) -> Iterator[Finding]:
    if source.missing:
        names = ", ".join(source.missing[:MAX_LISTED])
        yield Finding("warning", f"{source.name}: {len(source.missing)} assets are missing: {names}")
    try:
        mesh = source.load_mesh()
        yield from check_mesh(mesh, source.name)
        yield from check_navmesh(source.load_navmesh(mesh), source.name, mesh)
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
    for name in dict.fromkeys(episode.scene for episode in episodes):
        mine = [episode for episode in episodes if episode.scene == name]
        try:
            scene = find_scene(name, scenes_dir, appearance=False)
        except BatchnavError as error:
            yield Finding("error", f"{path}: {number_of(len(mine), 'episode')}: {error}")
            continue
        yield from _check_episodes(mine, scene)


def _check_episodes(episodes: list[Episode], scene: Scene) -> Iterator[Finding]:
    unplayable = list(unplayable_episodes(episodes, dict.fromkeys((e.scene_id for e in episodes), scene)))
    yield from (Finding("error", problem) for _, problem in unplayable)
    bad = {id(episode) for episode, _ in unplayable}
    good = [episode for episode in episodes if id(episode) not in bad]
    if good:
        starts = np.array([episode.start_position for episode in good], np.float32)
        goals = np.array([episode.goals[0].position for episode in good], np.float32)
        for text in distance_mismatches(good, scene.navmesh.geodesic_distance(starts, goals)):
            yield Finding("warning", text)


def distance_mismatches(episodes: list[Episode], distances: np.ndarray) -> list[str]:
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


def _box(bounds: np.ndarray) -> str:
    return " to ".join(str([round(float(v), 2) for v in corner]) for corner in bounds)
