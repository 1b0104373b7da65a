"""Small scenes and episode files for tests."""

import gzip
import json

import numpy as np
import trimesh

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh

FLOOR = (6.0, 0.2, 8.0)
"""Size in x, y, z of the floor that `write_floor` makes around the origin, metres."""
TOP = FLOOR[1] / 2


def as_mesh(shape, **fields):
    """A `TriangleMesh` of a mesh of trimesh, with further fields."""
    return TriangleMesh(np.asarray(shape.vertices, np.float32), np.asarray(shape.faces, np.int32), **fields)


def boxes(*bounds, **fields):
    """The mesh of boxes (lowest corner, highest corner), metres."""
    return as_mesh(trimesh.util.concatenate([trimesh.creation.box(bounds=pair) for pair in bounds]), **fields)


def slab(name, side):
    """The scene of a square slab around the origin, 0.2 m thick; `side` in metres."""
    return make_scene(name, as_mesh(trimesh.creation.box((side, 0.2, side))))


def write_packed(path, data):
    """Write data as a packed JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


def read_packed(path):
    """The data of a packed JSON file."""
    return json.loads(gzip.decompress(path.read_bytes()))


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
