"""Images of objects for Instance ImageNav: cameras around each object that show enough of it.

Distances, heights, angles, fields of view and coverages are those measured on the HM3D v3 files (Krantz et al.,
"Instance-specific image goal navigation", 2022): a camera stands 0.5 to 2 m from the object's centre, 0.8 to 1.5 m
above the floor, and looks at the centre within 5 degrees.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.data.objectnav.candidates import SceneObject, navigable, objects_of
from batchnav.data.objectnav.categories import labels_named
from batchnav.data.objectnav.goals_cache import load_goals, save_goals
from batchnav.data.objectnav.rules import rules_named
from batchnav.data.objectnav.view_points import cache_file, with_goals
from batchnav.geometry.camera import tan_half
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.scene.bvh import build_bvh
from batchnav.scene.goals import NO_IMAGES, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.sensors.object_pixels import ObjectRays, faces_of, make_views

DISTANCES = (0.5, 1.0, 1.5, 2.0)
"""Horizontal distances of cameras from the object's centre, metres."""
ANGLES = 36
"""Number of directions from the centre."""
HEIGHTS = (0.8, 1.5)
"""Heights of cameras above the navmesh, metres."""
OFF_CENTRE_DEG = 5.0
"""Largest angle between a camera's axis and the object's centre, in heading and in pitch, degrees."""
HFOVS_DEG = (60, 120)
"""Horizontal fields of view, whole degrees."""
FRAME_COVERAGE = (0.025, 0.75)
"""Share of the image's pixels that show the object."""
OBJECT_COVERAGE = 0.7
"""Smallest share of the object's outline that the image shows. The outline is that in an image of twice the width and
height without other objects."""
SIZE = 128
"""Rows and columns of the images in which pixels are counted."""
_FOLDER = "image_goals"
"""Folder of the disk cache."""
_WIDER = 2
"""Width and height of the image of the outline, in images."""


class _Cameras(NamedTuple):
    """Cameras around one object."""

    position: np.ndarray
    """f64 [n, 3], metres."""
    heading: np.ndarray
    """f64 [n], radians."""
    pitch: np.ndarray
    """f64 [n], radians."""
    hfov_deg: np.ndarray
    """i64 [n]: whole degrees."""


def with_image_goals(
    scenes: Iterable[Scene], rules: str = "hm3d_v2", labels: str | None = None, device: str | torch.device = "auto"
) -> list[Scene]:
    """The scenes with goals of Instance ImageNav: objects with view points and images; arguments as in `make_goals`.

    Goals that a scene has already are kept. Objects that no camera shows well enough are left out.
    """
    scenes, device = list(scenes), resolve_device(device)
    missing = [scene for scene in scenes if scene.goals is None]
    made = iter(with_goals(missing, rules, labels, device) if missing else ())
    complete = [next(made) if scene.goals is None else scene for scene in scenes]
    chosen, found = rules_named(rules), []
    label_map = labels_named(chosen.labels if labels is None else labels)
    with progress_bar("scenes with images of objects", len(complete)) as show:
        for i, scene in enumerate(complete):
            goals = scene.goals
            assert goals is not None
            if not all(len(goal.images) for goal in goals.objects):
                goals = _pictured(scene, cache_file(scene, chosen, label_map, _FOLDER, __name__), device)
            found.append(scene._replace(goals=goals.instances))
            show(i + 1)
    return found


def _pictured(scene: Scene, file: Path, device: torch.device) -> SceneGoals:
    """The goals of a scene with images of each object, from a file of the disk cache or made anew."""
    stored, goals = load_goals(file), scene.goals
    if stored is not None:
        return stored
    assert goals is not None
    things = {thing.object_id: thing for thing in objects_of((scene.semantic or scene).mesh)}
    pictured = [
        goal._replace(images=images_of(scene, things[goal.object_id], device), name=f"{goal.category}_{goal.object_id}")
        for goal in goals.objects
        if goal.object_id in things
    ]
    goals = goals._replace(objects=tuple(pictured))
    save_goals(goals, file)
    return goals


def images_of(scene: Scene, thing: SceneObject, device: torch.device) -> np.ndarray:
    """Cameras that show an object, `ObjectGoal.images`. Equal scenes and objects have equal cameras."""
    cameras = _cameras_around(scene.navmesh, thing)
    if not len(cameras.heading):
        return NO_IMAGES
    frame, outline = coverages(scene, thing, cameras, device)
    low, high = FRAME_COVERAGE
    good = (frame >= low) & (frame <= high) & (outline >= OBJECT_COVERAGE)
    columns = *cameras.position.T, cameras.heading, cameras.pitch, np.radians(cameras.hfov_deg)
    return np.stack(columns, axis=1)[good].astype(np.float32)


def _cameras_around(navmesh: NavMesh, thing: SceneObject) -> _Cameras:
    """Cameras above the navmesh around an object, with random heights, angles and fields of view."""
    angle = np.arange(ANGLES) * (2.0 * math.pi / ANGLES)
    ring = np.stack([np.sin(angle), np.zeros(ANGLES), np.cos(angle)], axis=1)
    places = thing.centre + np.concatenate([distance * ring for distance in DISTANCES])
    rows, ground = navigable(navmesh, places)
    snapped = navmesh.snap(ground.astype(np.float32)).astype(np.float64)
    key = int.from_bytes(
        hashlib.sha256(f"image goals {thing.object_id}".encode("utf-8", "surrogatepass")).digest()[:8], "little"
    )
    u = np.random.Generator(np.random.Philox(key=[key, 0])).random((len(places), 4))[rows]
    height = HEIGHTS[0] + u[:, 0] * (HEIGHTS[1] - HEIGHTS[0])
    position = np.column_stack([ground[:, 0], snapped[:, 1] + height, ground[:, 2]])
    toward, off = thing.centre - position, math.radians(OFF_CENTRE_DEG)
    heading = np.arctan2(-toward[:, 0], -toward[:, 2]) + (2.0 * u[:, 1] - 1.0) * off
    pitch = np.arctan2(toward[:, 1], np.hypot(toward[:, 0], toward[:, 2])) + (2.0 * u[:, 2] - 1.0) * off
    low, high = HFOVS_DEG
    return _Cameras(position, heading, pitch, low + (u[:, 3] * (high - low + 1)).astype(np.int64))


def coverages(
    scene: Scene, thing: SceneObject, cameras: _Cameras, device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """Shares f64 [n] of each image's pixels that show the object, and of the object's outline that the image shows.

    The second is 0 where the first is below its bound.
    """
    source = scene.semantic or scene
    scenes = source, _alone(source, thing.object_id)
    in_scene, alone = (ObjectRays(each, [thing.object_id], device) for each in scenes)
    seen, outline = np.zeros((2, len(cameras.heading)), np.int64)
    for k in range(len(cameras.heading)):
        seen[k] = _count(in_scene, thing, cameras, k, 1)
        if seen[k] >= FRAME_COVERAGE[0] * SIZE**2:
            outline[k] = _count(alone, thing, cameras, k, _WIDER)
    return seen / SIZE**2, np.where(outline > 0, seen / np.maximum(outline, 1), 0.0)


def _count(rays: ObjectRays, thing: SceneObject, cameras: _Cameras, k: int, scale: int) -> int:
    """Pixels of camera k that show the object, in an image of `scale` times the width and height."""
    hfov = 2.0 * math.degrees(math.atan(scale * float(tan_half(float(cameras.hfov_deg[k])))))
    image = SIZE * scale, SIZE * scale, hfov
    place, row = cameras.position[k : k + 1], np.zeros(1, np.int64)
    boxes = thing.low[None], thing.high[None]
    views = make_views(place, cameras.heading[k : k + 1], float(cameras.pitch[k]), row, boxes, image)
    return int(rays.pixels(views, image)[0])


def _alone(source: Scene, object_id: int) -> Scene:
    """A scene with the triangles of one object."""
    mesh, own = source.mesh, faces_of(source.mesh, object_id)
    assert mesh.surface is not None
    by_face = ("material", "uv", "color", "object_id", "category", "tile", "tile_uv")
    given = {name: getattr(mesh.surface, name) for name in by_face}
    own_rows: dict[str, Any] = {name: None if rows is None else rows[own] for name, rows in given.items()}
    surface = mesh.surface._replace(**own_rows)
    mesh = mesh._replace(faces=np.ascontiguousarray(mesh.faces[own]), surface=surface)
    return source._replace(mesh=mesh, bvh=build_bvh(mesh), semantic=None)
