"""Goals that are one object which an image shows, as in Instance ImageNav: cameras around each object, and episodes.

Distances, heights, angles, fields of view and coverages are those measured on the HM3D v3 files (Krantz et al.,
"Instance-specific image goal navigation", 2022): a camera stands 0.5 to 2 m from the object's centre, 0.8 to 1.5 m
above the floor, and looks at the centre within 5 degrees.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.data.formats.dataset import EpisodeDataset
from batchnav.data.formats.instance_imagenav import (
    IMAGE_GOALS,
    InstanceEpisode,
    image_goal,
    images_of_goal,
    instance_key,
    of_scene,
)
from batchnav.data.formats.objectnav import FROM_FILE, FileGoal, ObjectNavEpisode
from batchnav.data.goals.category import CategoryGoals, category_episodes, in_turn
from batchnav.data.goals.rules import labels_named, rules_named
from batchnav.data.goals.view_points import (
    SceneObject,
    cache_file,
    load_goals,
    navigable,
    objects_of,
    save_goals,
    with_goals,
)
from batchnav.errors import EpisodeError
from batchnav.geometry.pose import tan_half
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.console import number_of, progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.scene.bvh import build_bvh
from batchnav.scene.goals import NO_IMAGES, ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.sensors.object_pixels import ObjectRays, Objects, Views, faces_of

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


class InstanceGoals(CategoryGoals):
    """One object. Each object of a scene that has images is a category of its own (`SceneGoals.instances`)."""

    name, task, plays, title = "instance", "instance_imagenav", ("instance",), "Instance ImageNav"
    format = "instance_imagenav"
    habitat_names = {"imagegoal": "instance_imagegoal"}  # noqa: RUF012

    def made_goals(self, scenes: Sequence[Scene], rules: str, labels: str, device: str | torch.device) -> list[Scene]:
        """The scenes with goals made by rules and labels, with images."""
        return with_image_goals(scenes, rules, labels, device)

    def scene_goals(self, dataset: EpisodeDataset, scene_id: str) -> SceneGoals:
        """The goals of one scene in a file: instances with view points and images, by object id."""
        mine = [goal for goal in of_scene(dataset.goals, scene_id).values() if len(goal.points)]
        found = [goal.as_goal(str(goal.number))._replace(images=images_of_goal(goal, scene_id)) for goal in mine]
        return SceneGoals(FROM_FILE, tuple(sorted(found, key=lambda goal: goal.object_id))).instances

    def completed(self, dataset: EpisodeDataset, scene_id: str, goals: SceneGoals) -> SceneGoals:
        """Goals that were made anew for a scene, as `scene_goals` returns them: with the images of the file."""
        mine = of_scene(dataset.goals, scene_id).values()
        images = {goal.number: images_of_goal(goal, scene_id) for goal in mine}
        pictured = (goal._replace(images=images.get(goal.object_id, NO_IMAGES)) for goal in goals.objects)
        return goals._replace(objects=tuple(pictured)).instances

    def _bare(self, dataset: EpisodeDataset) -> EpisodeDataset:
        """The dataset without view points, and only those images that episodes show, at least one of each goal."""
        shown: dict[str, list[int]] = {key: [] for key in dataset.goals}
        episodes = []
        for episode in dataset.episodes:
            used = shown[instance_key(episode.scene_id, episode.goal_object_id)]
            if episode.goal_image_id not in used:
                used.append(episode.goal_image_id)
            episodes.append(replace(episode, goal_image_id=used.index(episode.goal_image_id)))
        goals = {}
        for key, goal in dataset.goals.items():
            images = [goal.other[IMAGE_GOALS][number] for number in shown[key] or (0,)]
            goals[key] = replace(goal.without_view_points, other={**goal.other, IMAGE_GOALS: images})
        return replace(dataset, episodes=episodes, goals=goals)

    def generate(self, scenes: Sequence[Scene], per_scene: int, seed: int, config: Any) -> EpisodeDataset:
        """Sample Instance ImageNav episodes in scenes with goals, by the rules of the task's configuration."""
        return generate_instances(scenes, per_scene, seed, config.rules)

    def goal_name(self, episode: Any) -> str:
        """Id of the object."""
        return episode.goal_object_id

    def image_number(self, episode: Any) -> int:
        """Number of the image that shows the goal."""
        return episode.goal_image_id


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
    box = np.array([(*thing.low, *thing.high)], np.float32)
    objects = Objects(np.zeros(1, np.int32), np.array([thing.object_id], np.int32), box)
    seen = _count(ObjectRays([source], objects, device), cameras, 1)
    large, outline = seen >= FRAME_COVERAGE[0] * SIZE**2, np.zeros(len(seen), np.int64)
    if large.any():
        alone = ObjectRays([_alone(source, thing.object_id)], objects, device)
        outline[large] = _count(alone, _Cameras(*(column[large] for column in cameras)), _WIDER)
    return seen / SIZE**2, np.where(outline > 0, seen / np.maximum(outline, 1), 0.0)


def _count(rays: ObjectRays, cameras: _Cameras, scale: int) -> np.ndarray:
    """Pixels i64 [n] of each camera that show the object, in an image of `scale` times the width and height."""
    hfov = [2.0 * math.degrees(math.atan(scale * float(tan_half(each)))) for each in cameras.hfov_deg.tolist()]
    views = Views(
        cameras.position.astype(np.float32), cameras.heading.astype(np.float32), cameras.pitch.astype(np.float32),
        np.array([tan_half(each) for each in hfov], np.float32), np.zeros(len(hfov), np.int32),
    )  # fmt: skip
    return rays.pixels(views, (SIZE * scale, SIZE * scale)).cpu().numpy().astype(np.int64)


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


def generate_instances(
    scenes: Sequence[Scene], per_scene: int, seed: int = 0, rules: str = "hm3d_v2"
) -> EpisodeDataset:
    """Sample Instance ImageNav episodes, shared equally over the objects of each scene.

    Args:
        scenes: scenes of `with_image_goals`.
        per_scene: number of episodes per scene; fewer where its objects do not offer as many.
        seed: seed for sampling.
        rules: name of the rules of starts and distances.

    Raises EpisodeError where no scene offers an episode.
    """
    per_scene, seed = check_int("per_scene", per_scene, 1, 2**24), check_seed(seed)
    limits, episodes = rules_named(rules).episodes, list[InstanceEpisode]()
    goals: dict[str, FileGoal] = {}
    for scene in scenes:
        objects = {goal.category: goal for goal in scene.goals.objects} if scene.goals else {}
        streams = [category_episodes(scene, name, seed, limits) for name in objects]
        taken = [episode for episode, _ in zip(in_turn(streams), range(per_scene), strict=False)]
        episodes += [
            _with_image(episode, objects[episode.object_category], number) for number, episode in enumerate(taken)
        ]
        for goal in objects.values() if taken else ():
            goals[instance_key(scene.name, goal.category)] = _file_goal(goal)
    if not episodes:
        raise EpisodeError(
            f"Instance ImageNav: found no episodes in {number_of(len(scenes), 'scene')}, expected objects with images"
        )
    return EpisodeDataset(episodes, "instance", goals, format="instance_imagenav")


def _with_image(episode: ObjectNavEpisode, goal: ObjectGoal, number: int) -> InstanceEpisode:
    """An episode of an instance, with the next of its images."""
    given = {**vars(episode), "episode_id": str(number), "object_category": _category(goal)}
    return InstanceEpisode(**given, goal_object_id=goal.category, goal_image_id=number % len(goal.images))


def _category(goal: ObjectGoal) -> str:
    """Category of an instance, whose name is "CATEGORY_ID"."""
    return goal.name.rpartition("_")[0]


def _file_goal(goal: ObjectGoal) -> FileGoal:
    """An instance in the form that files hold."""
    made = replace(FileGoal.of(goal), object_category=_category(goal))
    return replace(made, other={IMAGE_GOALS: list(map(image_goal, goal.images))})
