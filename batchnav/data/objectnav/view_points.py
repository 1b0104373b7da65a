"""View points: places on the navmesh from which an object is visible, found by rendering object ids.

Candidates lie on a grid around the object (`candidates.py`); each is rendered, facing the object's centre, and kept
where the object covers enough pixels (`rules.py`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.data.objectnav.candidates import SceneObject, grid_around, navigable, objects_of
from batchnav.data.objectnav.categories import LabelMap, labels_named
from batchnav.data.objectnav.goals_cache import load_goals, save_goals
from batchnav.data.objectnav.rules import Rules, ViewPointRules, rules_named
from batchnav.data.parallel import SCENES_PER_WORKER, in_parallel
from batchnav.errors import ArgumentError
from batchnav.navmesh import file as navmesh_file
from batchnav.runtime.cache import versioned_cache_folder
from batchnav.runtime.console import progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.runtime.threads import num_threads
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.sensors.object_pixels import ObjectRays, make_views

_DECIMALS = 5
"""Decimals of coordinates and scores, as in Habitat's files."""
_AT_ONCE = 65536
"""Number of views that are rendered together."""
_MANY_CORES, _MANY_SCENES = 8, 2 * SCENES_PER_WORKER
"""From these numbers on, processes share the scenes. A house takes 2.4 s of one core; on a GPU that nothing else uses,
one process needs 0.4 s."""
_GPU_PROCESSES = 8
"""Largest number of processes that render on one GPU."""


class _Candidates(NamedTuple):
    """Candidates of all objects of a scene."""

    thing: np.ndarray
    """i64 [C]: index of the object."""
    point: np.ndarray
    """f32 [C, 3]: place on the navmesh."""
    heading: np.ndarray
    """f32 [C]: heading that faces the object's centre."""


def with_goals(
    scenes: Iterable[Scene],
    rules: str | Rules = "hm3d_v2",
    labels: str | LabelMap | None = None,
    device: str | torch.device = "auto",
) -> list[Scene]:
    """Scenes with goals for ObjectNav: objects, and the view points from which each is visible.

    Args:
        scenes: scenes with object ids, loaded with appearance; their navmeshes are used unchanged.
        rules: rules for view points, by name ("hm3d_v2", "hssd", "ovon", "procthor"), or other rules.
        labels: mapping from the scenes' labels to categories, by name ("hm3d", "mp3d", "hssd", "procthor",
            "procedural", "all"), or another mapping; None: that of the rules.
        device: "cpu", "cuda" or "auto": device that renders the candidates; see `make_goals`.

    Returns the scenes with `Scene.goals`. The goals are cached. A scene without objects of these categories has no
    goals. ArgumentError for an unknown name.
    """
    scenes = check_scenes(scenes)
    return [
        scene._replace(goals=goals)
        for scene, goals in zip(scenes, make_goals(scenes, rules, labels, device), strict=True)
    ]


def check_scenes(scenes: Iterable[Scene]) -> list[Scene]:
    """The scenes as a list. ArgumentError for names or paths in place of scenes."""
    listed: list[Any] = [scenes] if isinstance(scenes, Scene) else list(scenes)
    for i, scene in enumerate(listed):
        if not isinstance(scene, Scene):
            raise ArgumentError(f"scenes[{i}]: found {type(scene).__name__}, expected a Scene (see load_scenes)")
    return listed


def make_goals(
    scenes: Iterable[Scene],
    rules: str | Rules = "hm3d_v2",
    labels: str | LabelMap | None = None,
    device: str | torch.device = "auto",
) -> list[SceneGoals]:
    """Goals of scenes with object ids and categories, from the disk cache or made anew, with progress.

    Args:
        scenes: scenes that were loaded with appearance; their navmeshes are used unchanged.
        rules: a preset of `rules.RULES`, or other rules.
        labels: a map of `categories.LABELS`, or another map, from the scene's labels to categories; None: that of the
            rules.
        device: torch device that renders; for many scenes, in several processes if there are many cores. Devices round
            differently, so at an object's outline a view may have a pixel more or less.

    A scene without objects of these categories has no goals. ArgumentError for an unknown name.
    """
    scenes, rules = check_scenes(scenes), rules_named(rules)
    label_map, device = labels_named(rules.labels if labels is None else labels), resolve_device(device)
    found = [load_goals(cache_file(scene, rules, label_map)) for scene in scenes]
    new = [scene for scene, goals in zip(scenes, found, strict=True) if goals is None]
    made = iter(_make_new(new, rules, label_map, device))
    return [next(made) if goals is None else goals for goals in found]


def _make_new(scenes: list[Scene], rules: Rules, labels: LabelMap, device: torch.device) -> list[SceneGoals]:
    """Goals of scenes that are not in the cache, with progress."""
    title = "scenes with view points"
    if num_threads() >= _MANY_CORES and len(scenes) >= _MANY_SCENES:
        work = functools.partial(goals_of_scene, rules=rules, labels=labels, device=device)
        share = SCENES_PER_WORKER if device.type == "cpu" else max(SCENES_PER_WORKER, len(scenes) // _GPU_PROCESSES)
        with contextlib.closing(in_parallel(work, scenes, title, share)) as results:
            return list(results)
    made = []
    with progress_bar(title, len(scenes)) as show:
        for i, scene in enumerate(scenes):
            made.append(goals_of_scene(scene, rules, labels, device))
            show(i + 1)
    return made


def goals_of_scene(
    scene: Scene, rules: str | Rules, labels: str | LabelMap | None, device: str | torch.device
) -> SceneGoals:
    """Goals of one scene; arguments as in `make_goals`."""
    rules, device = rules_named(rules), resolve_device(device)
    label_map = labels_named(rules.labels if labels is None else labels)
    file = cache_file(scene, rules, label_map)
    goals = load_goals(file)
    if goals is None:
        goals = SceneGoals(rules.name, tuple(_goals_of(scene, rules.view_points, label_map, device)))
        save_goals(goals, file)
    return goals


def _goals_of(scene: Scene, rules: ViewPointRules, labels: LabelMap, device: torch.device) -> list[ObjectGoal]:
    """Objects of a scene with at least one view point."""
    source = scene.semantic or scene
    named = [(thing, labels.category(thing.label)) for thing in objects_of(source.mesh)]
    wanted = [(thing, category) for thing, category in named if category is not None]
    if not wanted:
        return []
    things = [thing for thing, _ in wanted]
    found = _candidates(scene, things, rules)
    iou = _scores(source, things, found, rules, device)
    goals = []
    for k, (thing, category) in enumerate(wanted):
        rows = np.flatnonzero((found.thing == k) & (iou > rules.min_iou))
        rows = rows[np.argsort(-iou[rows], kind="stable")]
        if len(rows):
            x, y, z = (round(float(v), _DECIMALS) for v in thing.centre)
            score = np.round(iou[rows], _DECIMALS).astype(np.float32)
            name = f"{thing.label}_{thing.object_id}"
            goals.append(
                ObjectGoal(category, thing.object_id, name, (x, y, z), found.point[rows], found.heading[rows], score)
            )
    return goals


def _candidates(scene: Scene, things: list[SceneObject], rules: ViewPointRules) -> _Candidates:
    """Places on the navmesh around objects, on islands that are large enough."""
    grids = [grid_around(thing, rules.step, rules.max_distance) for thing in things]
    thing = np.repeat(np.arange(len(things)), [len(grid) for grid in grids])
    rows, points = navigable(scene.navmesh, np.concatenate(grids))
    thing, points = thing[rows], np.asarray(scene.navmesh.snap(points), np.float64)
    good = scene.navmesh.island_radius(points) >= rules.min_island_radius
    thing, points = thing[good], np.round(points[good], _DECIMALS)
    toward = np.array([each.centre for each in things])[thing] - points
    heading = np.arctan2(-toward[:, 0], -toward[:, 2])
    return _Candidates(thing, points.astype(np.float32), heading.astype(np.float32))


def _scores(
    source: Scene, things: list[SceneObject], found: _Candidates, rules: ViewPointRules, device: torch.device
) -> np.ndarray:
    """f64 [C]: coverage of each candidate's object in its image, summed over the views."""
    rays = ObjectRays(source, [thing.object_id for thing in things], device)
    corners = np.array([(thing.low, thing.high) for thing in things])
    pixels = np.zeros(len(found.thing), np.int64)
    pitches, counts = np.unique(rules.pitches_deg, return_counts=True)
    for begin in range(0, len(pixels), _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        thing, position = found.thing[rows], found.point[rows].astype(np.float64)
        position[:, 1] += rules.camera_height
        boxes = corners[thing, 0], corners[thing, 1]
        for pitch, count in zip(np.radians(pitches).tolist(), counts.tolist(), strict=True):
            views = make_views(position, found.heading[rows], pitch, thing, boxes, rules.image, rules.max_depth)
            pixels[rows] += count * rays.pixels(views, rules.image).cpu().numpy()
    return pixels / (rules.image[0] * rules.image[1])


def cache_file(scene: Scene, rules: Rules, labels: LabelMap, kind: str = "goals", module: str = __name__) -> Path:
    """Cache file of a scene's goals, named after a hash of everything they depend on."""
    mesh = (scene.semantic or scene).mesh
    digest = hashlib.sha256(f"{rules.name} {rules.view_points} {labels}".encode())
    digest.update(navmesh_file.serialise(scene.navmesh.file))
    surface = mesh.surface
    arrays = [mesh.vertices, mesh.faces]
    if surface is not None:
        digest.update("\n".join(surface.categories).encode())
        arrays += [getattr(surface, name) for name in ("object_id", "category", "tile", "tile_uv", "tiles", "tile_ids")]
    for array in arrays:
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return versioned_cache_folder(kind, module) / f"{digest.hexdigest()[:32]}.npz"
