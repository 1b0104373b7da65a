"""Rooms and corridors with objects whose view points are placed by hand."""

import math

import numpy as np
import torch
from worlds import boxes

from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import make_scene
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.types import Material, Surface
from tests.tasks.rooms import make_room

CATEGORIES = ("chair", "bed")
BOX = 12
"""Number of triangles of a box."""

IMAGES = {
    1: [(1.25, 1.2, 2.5, 0.0, -0.4, 1.2), (2.5, 0.9, 1.25, math.pi / 2, 0.0, 1.6)],
    2: [(4.25, 1.4, 2.4, 0.1, -0.5, 1.3)],
}
"""Cameras of the images of chair 1 and bed 2 in `furnished`."""


def object_goal(scene, category, object_id, points, heading=0.0):
    """A goal with view points at (x, z) or (x, y, z), on the navmesh."""
    given = np.array([p if len(p) == 3 else (p[0], 0.0, p[1]) for p in points], np.float32)
    snapped = scene.navmesh.snap(given)
    headings = np.full(len(snapped), heading, np.float32)
    return ObjectGoal(category, object_id, f"{category}_{object_id}", (0.0, 0.0, 0.0), snapped, headings, headings + 1)


def with_objects(scene, *goals):
    """A scene with goals of (category, object id, points)."""
    return scene._replace(goals=SceneGoals("test", tuple(object_goal(scene, *goal) for goal in goals)))


def object_room():
    """The room of `rooms.make_room` with its wall: two chairs on the left side, a bed on the right."""
    chairs = ("chair", 1, [(1.0, 1.0), (1.1, 1.0)]), ("chair", 2, [(1.0, 5.5)])
    return with_objects(make_room(wall=True), *chairs, ("bed", 3, [(5.0, 1.0)]))


def corridor(length=12.0):
    """An empty floor, 1 m wide, along x from 0 to `length` metres."""
    return make_scene("corridor", boxes(((0.0, -0.2, 0.0), (length, 0.0, 1.0))))


def furnished():
    """A floor with two boxes on it, a chair (object 1) and a bed (object 2), as a mesh with ids; goals by hand."""
    ids = np.repeat(np.arange(3, dtype=np.int32), BOX)
    surface = Surface(
        np.zeros(len(ids), np.int32), (Material(),), object_id=ids, category=ids, categories=("", *CATEGORIES)
    )
    mesh = boxes(
        ((0.0, -0.2, 0.0), (6.0, 0.0, 6.0)), ((1.0, 0.0, 1.0), (1.5, 1.0, 1.5)), ((4.0, 0.0, 1.0), (4.5, 1.0, 1.5)),
        surface=surface,
    )  # fmt: skip
    return with_objects(make_scene("furnished", mesh), ("chair", 1, [(1.25, 2.0)]), ("bed", 2, [(4.25, 2.0)]))


def imaged_room():
    """Two coloured boxes, each with images, as instances."""
    scene = furnished()
    objects = [goal._replace(images=np.array(IMAGES[goal.object_id], np.float32)) for goal in scene.goals.objects]
    colours = np.repeat(np.array([(90, 90, 90, 255), (200, 30, 30, 255), (30, 30, 200, 255)], np.uint8), 12, axis=0)
    surface = scene.mesh.surface._replace(color=np.repeat(colours[:, None], 3, axis=1))
    goals = scene.goals._replace(objects=tuple(objects)).instances
    return scene._replace(mesh=scene.mesh._replace(surface=surface), goals=goals)


def table(scene, rows, device="cpu"):
    """Episodes that begin at `rows` of (x, z, heading, category)."""
    points = scene.navmesh.snap(np.array([(x, 0.0, z) for x, z, *_ in rows], np.float32))
    point = torch.from_numpy(points).to(device)
    heading, category = (torch.tensor([row[k] for row in rows], device=device) for k in (2, 3))
    scenes = torch.zeros(len(rows), dtype=torch.int32, device=device)
    return EpisodeTable(scenes, point, heading.float(), point, category.long())
