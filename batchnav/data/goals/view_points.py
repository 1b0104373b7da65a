"""View points: places on the navmesh from which an object is visible, found by rendering object ids.

Candidates lie on a grid around the object; each is rendered, facing the object's centre, and kept where the object
covers enough pixels (`rules.py`). The goals of a scene are kept in the disk cache.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import ConvexHull, QhullError

from batchnav.data.goals.rules import LabelMap, Rules, ViewPointRules, labels_named, rules_named
from batchnav.errors import ArgumentError, MeshError
from batchnav.geometry.pose import tan_half
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.lower import lowered
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.cache import versioned_cache_folder
from batchnav.runtime.console import progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing
from batchnav.runtime.parallel import limit_threads, num_threads
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.sensors.object_pixels import ObjectRays, Objects, Views
from batchnav.types import TriangleMesh

_DECIMALS = 5
"""Decimals of coordinates and scores, as in Habitat's files."""
_AT_ONCE = 65536
"""Number of views that are rendered together."""
_BATCH, _BATCH_TRIANGLES = 16, 4_000_000
"""Largest number of scenes, and of their triangles unless it is one scene, whose objects are rendered together."""
_THREADS = 8
"""Largest number of threads that look for goals in the cache, and that look for candidates."""
_LOWER, _LOWERINGS = 0.05, 39
"""Metres by which a candidate off the navmesh is lowered, and how often. Habitat's generator lowers 40 times and
ignores the last result."""
_FAR_BELOW, _BELOW = 2.0, 0.5
"""Tolerance in height of the first test and of those of lowered candidates, metres."""
_ARRAYS = ("view_points", "headings", "iou")
"""Arrays of `ObjectGoal`; the file holds those of all objects, one after another."""


class _Search(NamedTuple):
    """Objects of a scene and their candidates, which lie object by object."""

    source: Scene
    """Scene with the object ids."""
    things: list[SceneObject]
    categories: list[str]
    """Category of each object."""
    ends: np.ndarray
    """i64 [O + 1]: candidates of object k are those from ends[k] to ends[k + 1] - 1."""
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
        device: torch device that renders. Devices round differently, so at an object's outline a view may have a pixel
            more or less.

    A scene without objects of these categories has no goals. ArgumentError for an unknown name.
    """
    scenes, rules = check_scenes(scenes), rules_named(rules)
    label_map, device = labels_named(rules.labels if labels is None else labels), resolve_device(device)
    with ThreadPoolExecutor(min(num_threads(), _THREADS)) as pool:  # hashes release Python's lock
        files = list(pool.map(lambda scene: cache_file(scene, rules, label_map), scenes))
        found: list[Any] = list(pool.map(load_goals, files))
    new = [k for k, goals in enumerate(found) if goals is None]
    if new:
        made = search_goals([scenes[k] for k in new], rules.view_points, label_map, device)
        with progress_bar("scenes with view points", len(new)) as show:
            for done, (k, objects) in enumerate(zip(new, made, strict=True), 1):
                found[k] = SceneGoals(rules.name, tuple(objects))
                save_goals(found[k], files[k])
                show(done)
    return found


def search_goals(
    scenes: Iterable[Scene], rules: ViewPointRules, labels: LabelMap, device: torch.device
) -> Iterator[list[ObjectGoal]]:
    """Objects of each scene with at least one view point, in the order of the scenes, without the cache.

    Several scenes are rendered together. Threads prepare them; on a GPU the scenes before are rendered meanwhile.
    """
    waiting: tuple[list[_Search], torch.Tensor] | None = None
    threads = min(num_threads(), _THREADS)
    with ThreadPoolExecutor(threads, initializer=limit_threads, initargs=(num_threads() // threads,)) as pool:
        for batch in _batches(scenes):
            searches = list(pool.map(lambda scene: _search(scene, rules, labels), batch))
            rendered = searches, _pixels(searches, rules, device)
            if waiting is not None:
                yield from _goals(*waiting, rules)
            waiting = rendered
    if waiting is not None:
        yield from _goals(*waiting, rules)


def _batches(scenes: Iterable[Scene]) -> Iterator[list[Scene]]:
    """Scenes that are rendered together."""
    batch, triangles = list[Scene](), 0
    for scene in scenes:
        count = len((scene.semantic or scene).mesh.faces)
        if batch and (len(batch) == _BATCH or triangles + count > _BATCH_TRIANGLES):
            yield batch
            batch, triangles = [], 0
        batch.append(scene)
        triangles += count
    if batch:
        yield batch


def _search(scene: Scene, rules: ViewPointRules, labels: LabelMap) -> _Search:
    """Objects of the categories, and places on the navmesh around them, on islands that are large enough."""
    source = scene.semantic or scene
    things = objects_of(source.mesh, lambda label: labels.category(label) is not None)
    categories = [labels.category(thing.label) or "" for thing in things]
    grids = [np.zeros((0, 3)), *(grid_around(thing, rules.step, rules.max_distance) for thing in things)]
    thing = np.repeat(np.arange(len(things)), [len(grid) for grid in grids[1:]])
    rows, points = navigable(scene.navmesh, np.concatenate(grids))
    thing, points = thing[rows], np.asarray(scene.navmesh.snap(points), np.float64)
    good = scene.navmesh.island_radius(points) >= rules.min_island_radius
    thing, points = thing[good], np.round(points[good], _DECIMALS)
    toward = np.array([each.centre for each in things]).reshape(-1, 3)[thing] - points
    heading = np.arctan2(-toward[:, 0], -toward[:, 2])
    ends = np.searchsorted(thing, np.arange(len(things) + 1))
    return _Search(source, things, categories, ends, points.astype(np.float32), heading.astype(np.float32))


def _pixels(searches: Sequence[_Search], rules: ViewPointRules, device: torch.device) -> torch.Tensor:
    """Pixels i64 [C] that show each candidate's object, summed over the views; the device may still render."""
    searches = [search for search in searches if search.things]
    pixels = torch.zeros(sum(len(search.heading) for search in searches), dtype=torch.int64, device=device)
    if not len(pixels):
        return pixels
    things = [(row, thing) for row, search in enumerate(searches) for thing in search.things]
    objects = Objects(
        np.array([row for row, _ in things], np.int32), np.array([thing.object_id for _, thing in things], np.int32),
        np.array([(*thing.low, *thing.high) for _, thing in things], np.float32),
    )  # fmt: skip
    rays = ObjectRays([search.source for search in searches], objects, device)
    position = np.concatenate([search.point for search in searches]).astype(np.float64)
    position[:, 1] += rules.camera_height
    heading = np.concatenate([search.heading for search in searches])
    row = np.repeat(np.arange(len(things)), np.concatenate([np.diff(search.ends) for search in searches]))
    height, width, hfov_deg = rules.image
    pitches, counts = np.unique(rules.pitches_deg, return_counts=True)
    for begin in range(0, len(pixels), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        number = len(heading[part])
        for pitch, count in zip(np.radians(pitches).tolist(), counts.tolist(), strict=True):
            views = Views(
                position[part].astype(np.float32), heading[part], np.full(number, pitch, np.float32),
                np.full(number, tan_half(hfov_deg)), row[part].astype(np.int32),
            )  # fmt: skip
            pixels[part] += count * rays.pixels(views, (height, width), rules.max_depth)
    return pixels


def _goals(searches: Sequence[_Search], pixels: torch.Tensor, rules: ViewPointRules) -> Iterator[list[ObjectGoal]]:
    """The goals of each scene: candidates from which enough of the object is visible, the best first."""
    all_iou, begin = pixels.cpu().numpy() / (rules.image[0] * rules.image[1]), 0
    for search in searches:
        iou, goals = all_iou[begin : begin + len(search.heading)], []
        begin += len(search.heading)
        for thing, category, (a, b) in zip(
            search.things, search.categories, itertools.pairwise(search.ends.tolist()), strict=True
        ):
            rows = a + np.flatnonzero(iou[a:b] > rules.min_iou)
            rows = rows[np.argsort(-iou[rows], kind="stable")]
            if not len(rows):
                continue
            x, y, z = (round(float(v), _DECIMALS) for v in thing.centre)
            score = np.round(iou[rows], _DECIMALS).astype(np.float32)
            name = f"{thing.label}_{thing.object_id}"
            places = search.point[rows], search.heading[rows]
            goals.append(ObjectGoal(category, thing.object_id, name, (x, y, z), *places, score))
        yield goals


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


def objects_of(mesh: TriangleMesh, wanted: Callable[[str], bool] | None = None) -> list[SceneObject]:
    """The objects of a mesh with object ids and categories, in the order of their ids; id 0 is no object.

    `wanted`: True for the labels of the objects to return; None: all.
    """
    surface = mesh.surface
    if surface is None or surface.object_id is None or surface.category is None:
        return []
    order = np.argsort(surface.object_id, kind="stable")
    ids, first = np.unique(surface.object_id[order], return_index=True)
    labels = _most_frequent(surface.category[order], first)
    chosen = np.array([wanted is None or wanted(label) for label in surface.categories], bool)
    found = []
    for object_id, label, a, b in zip(
        ids.tolist(), labels.tolist(), first.tolist(), [*first[1:].tolist(), len(order)], strict=True
    ):
        if object_id <= 0 or not chosen[label]:
            continue
        points = mesh.vertices[np.unique(mesh.faces[order[a:b]])].astype(np.float64)
        rectangle = least_rectangle(points[:, [0, 2]])
        found.append(SceneObject(object_id, surface.categories[label], points.min(0), points.max(0), rectangle))
    return found


def _most_frequent(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The most frequent value of each group of neighbours, whose groups begin at `first`; of several the least one."""
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(values))))
    most = int(values.max(initial=0)) + 1
    pairs, counts = np.unique(group * most + values, return_counts=True)
    group, value = np.divmod(pairs, most)
    best = np.lexsort((value, -counts, group))
    return value[best[np.searchsorted(group, np.arange(len(first)))]]


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
    return lowered(navmesh, points, _FAR_BELOW, _BELOW, _LOWER, _LOWERINGS)


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
