"""Small scenes and episode files for tests."""

import json

import numpy as np
import trimesh

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset

FLOOR = (6.0, 0.2, 8.0)
"""Size in x, y, z of the floor that `write_floor` makes around the origin, metres."""
TOP = FLOOR[1] / 2


def write_floor(path, up="y"):
    """Write a floor slab as a mesh file; up "z" stores it as in Gibson, MP3D and HM3D files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    slab = trimesh.creation.box(FLOOR)
    if up == "z":  # world (x, y, z) is (x, -z, y) in the file
        slab.vertices = np.stack([slab.vertices[:, 0], -slab.vertices[:, 2], slab.vertices[:, 1]], axis=1)
    slab.export(path)
    return path


def write_box(path, low, high):
    """Write a box between two corners as a mesh file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    box = trimesh.creation.box(bounds=[low, high])
    box.export(path)
    return path


def write_json(path, data):
    """Write data as a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def episodes_on(scene_id, number=3, **changes):
    """Episodes with straight paths of 1, 1.5, 2 ... metres on the floor."""
    return [
        Episode(
            str(k), scene_id, (0.0, TOP, 3.0), rotation_of(0.0), (Goal((0.0, TOP, 2.0 - 0.5 * k), 0.2),),
            {"geodesic_distance": 1.0 + 0.5 * k}, **changes,
        )
        for k in range(number)
    ]  # fmt: skip


def write_episodes(path, scene_ids, content=False):
    """Write an episode file with a few episodes in each scene."""
    EpisodeDataset([e for scene_id in scene_ids for e in episodes_on(scene_id)]).save(path, content)
    return path
