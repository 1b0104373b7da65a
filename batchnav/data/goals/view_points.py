"""View points: places on the navmesh from which an object is visible, found by rendering object ids.

Candidates lie on a grid around the object; each is rendered, facing the object's centre, and kept where the object
covers enough pixels (`rules.py`). The goals of a scene are kept in the disk cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import ConvexHull, QhullError

from batchnav.data.goals.rules import LabelMap, Rules, ViewPointRules, labels_named, rules_named
from batchnav.errors import ArgumentError, MeshError
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.cache import versioned_cache_folder
from batchnav.runtime.console import progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing
from batchnav.runtime.parallel import SCENES_PER_WORKER, in_parallel, num_threads
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.sensors.object_pixels import ObjectRays, make_views
from batchnav.types import TriangleMesh

_DECIMALS = 5
"""Decimals of coordinates and scores, as in Habitat's files."""
_AT_ONCE = 65536
"""Number of views that are rendered together."""
_MANY_CORES, _MANY_SCENES = 8, 2 * SCENES_PER_WORKER
"""From these numbers on, processes share the scenes. A house takes 2.4 s of one core; on a GPU that nothing else uses,
one process needs 0.4 s."""
_GPU_PROCESSES = 8
"""Largest number of processes that render on one GPU."""
_LOWER, _LOWERINGS = 0.05, 39
"""Metres by which a candidate off the navmesh is lowered, and how often. Habitat's generator lowers 40 times and
ignores the last result."""
_FAR_BELOW, _BELOW = 2.0, 0.5
"""Tolerance in height of the first test and of those of lowered candidates, metres."""
_ARRAYS = ("view_points", "headings", "iou")
"""Arrays of `ObjectGoal`; the file holds those of all objects, one after another."""


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
            "procedural", "all"), a .yaml file of patterns, or another mapping; None: that of the rules.
        device: "cpu", "cuda" or "auto": device that renders the candidates; see `make_goals`.

    Returns the scenes with `Scene.goals`. The goals are cached. A scene without objects of these categories has no
    goals. ArgumentError for an unknown name.
    """
    scenes = check_scenes(scenes)
    return [
        scene._replace(goals=goals)
        for scene, goals in zip(scenes, make_goals(scenes, rules, labels, device), strict=True)
    ]


def check_scenes(scenes: Any) -> list[Scene]:
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
        labels: a map of `rules.LABELS`, a file of patterns, or another map, from the scene's labels to categories;
            None: that of the rules.
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
        goals = SceneGoals(rules.name, tuple(search_goals(scene, rules.view_points, label_map, device)))
        save_goals(goals, file)
    return goals


def search_goals(scene: Scene, rules: ViewPointRules, labels: LabelMap, device: torch.device) -> list[ObjectGoal]:
    """Objects of a scene with at least one view point, without the cache."""
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


# Objects and candidates.


class SceneObject(NamedTuple):
    """One object of a scene."""

    object_id: int
    label: str
    """Category in the scene's annotations."""
    low: np.ndarray
    """f64 [3]: lowest corner of the axis-aligned bounding box, metres."""
    high: np.ndarray
    """f64 [3]: highest corner."""
    rectangle: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Rectangle of least area around the object as seen from above: centre f64 [2] (x, z), unit vector of the first
    side f64 [2], half sizes f64 [2]."""

    @property
    def centre(self) -> np.ndarray:
        """f64 [3]: centre of the axis-aligned bounding box, metres."""
        return (self.low + self.high) / 2.0


def objects_of(mesh: TriangleMesh) -> list[SceneObject]:
    """The objects of a mesh with object ids and categories, in the order of their ids; id 0 is no object."""
    surface = mesh.surface
    if surface is None or surface.object_id is None or surface.category is None:
        return []
    order = np.argsort(surface.object_id, kind="stable")
    ids, first = np.unique(surface.object_id[order], return_index=True)
    found = []
    for object_id, faces in zip(ids.tolist(), np.split(order, first[1:]), strict=True):
        if object_id <= 0:
            continue
        labels, counts = np.unique(surface.category[faces], return_counts=True)
        label = surface.categories[labels[counts.argmax()]]
        points = mesh.vertices[np.unique(mesh.faces[faces])].astype(np.float64)
        found.append(SceneObject(object_id, label, points.min(0), points.max(0), least_rectangle(points[:, [0, 2]])))
    return found


def least_rectangle(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rectangle of least area around points f64 [n, 2]: centre, unit vector of the first side, half sizes.

    One side lies on an edge of the convex hull (Freeman and Shapira, CACM 18(7), 1975).
    """
    try:
        hull = points[ConvexHull(points).vertices]
        sides = np.roll(hull, -1, 0) - hull
    except QhullError:  # all points on a line
        hull = np.unique(points, axis=0)[[0, -1]]
        sides = hull[1:] - hull[:1]
    length = np.linalg.norm(sides, axis=1)
    sides = sides[length > 0] / length[length > 0, None] if (length > 0).any() else np.array([[1.0, 0.0]])
    frames = np.stack([sides, np.stack([-sides[:, 1], sides[:, 0]], -1)], 1)  # [k, 2 axes, 2]
    along = np.einsum("kad,nd->kan", frames, hull)
    low, high = along.min(2), along.max(2)
    best = int(np.prod(high - low, 1).argmin())
    return (low[best] + high[best]) / 2.0 @ frames[best], frames[best, 0], (high[best] - low[best]) / 2.0


def grid_around(thing: SceneObject, step: float, max_distance: float) -> np.ndarray:
    """Candidates f64 [n, 3] at the height of the object's centre, within `max_distance` metres of both of its boxes."""
    x, z = (
        np.arange(-(size / 2.0 + max_distance), size / 2.0 + max_distance + 1e-5, step) + centre
        for size, centre in zip((thing.high - thing.low)[[0, 2]], thing.centre[[0, 2]], strict=True)
    )
    points = np.stack(np.meshgrid(x, z, indexing="ij"), -1).reshape(-1, 2)
    low, high = thing.low[[0, 2]], thing.high[[0, 2]]
    to_box = np.maximum(np.maximum(low - points, points - high), 0.0)
    centre, side, half = thing.rectangle
    across = points - centre
    local = np.abs(np.stack([across @ side, across @ np.array([-side[1], side[0]])], -1))
    to_rectangle = np.maximum(local - half, 0.0)
    near = (np.hypot(*to_box.T) <= max_distance) & (np.hypot(*to_rectangle.T) <= max_distance)
    points = points[near]
    return np.insert(points, 1, thing.centre[1], axis=1)


def navigable(navmesh: NavMesh, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Candidates that are above the navmesh, lowered until they are near it: their rows, and the points f64 [m, 3]."""
    points = points.copy()
    found = navmesh.is_navigable(points, _FAR_BELOW)
    waiting = np.flatnonzero(~found)
    for _ in range(_LOWERINGS):
        if not len(waiting):
            break
        points[waiting, 1] -= _LOWER
        now = navmesh.is_navigable(points[waiting], _BELOW)
        found[waiting[now]] = True
        waiting = waiting[~now]
    rows = np.flatnonzero(found)
    return rows, points[rows]


# Goals in a file of the disk cache.


def save_goals(goals: SceneGoals, path: Path) -> None:
    """Write goals; a lost file is made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [[getattr(goal, field) for field in ("category", "object_id", "name", "position")] for goal in goals.objects]
    counts = [len(goal.iou) for goal in goals.objects]
    images = [len(goal.images) for goal in goals.objects]
    text = json.dumps({"rules": goals.rules, "objects": rows, "counts": counts, "images": images})
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(goal, name) for goal in goals.objects]) for name in _ARRAYS if rows
    }
    if rows:
        arrays["images"] = np.concatenate([goal.images for goal in goals.objects])
    arrays["objects"] = np.frombuffer(text.encode(), np.uint8)
    packed: Any = io.BytesIO()
    np.savez(packed, **arrays)
    with replacing(path, MeshError, durable=False) as part:
        part.write_bytes(packed.getvalue())


def load_goals(path: Path) -> SceneGoals | None:
    """The goals in a file; None where there is no file or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = json.loads(file["objects"].tobytes())
            ends = np.cumsum(stored["counts"])[:-1]
            columns = [np.split(file[name], ends) for name in _ARRAYS if len(stored["objects"])]
            if columns:
                columns.append(np.split(file["images"], np.cumsum(stored["images"])[:-1]))
        objects = [
            ObjectGoal(category, object_id, name, tuple(position), *arrays)
            for (category, object_id, name, position), *arrays in zip(stored["objects"], *columns, strict=True)
        ]
        return SceneGoals(stored["rules"], tuple(objects))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
