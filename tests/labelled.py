"""Scenes of boxes with object ids and categories."""

import numpy as np
import trimesh

from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.scene import make_scene
from batchnav.types import Material, Surface, TriangleMesh


def labelled_scene(things, floor=8.0, settings=None, name="boxes"):
    """Boxes on a square floor at y = 0 around the origin.

    Args:
        things: label, lowest and highest corner of each box; box k has object id k + 2, the floor has 1.
        floor: side of the floor, metres.
        settings: of the navmesh.
        name: of the scene.
    """
    half = floor / 2
    boxes = [trimesh.creation.box(bounds=[(-half, -0.2, -half), (half, 0.0, half)])]
    boxes += [trimesh.creation.box(bounds=[low, high]) for _, low, high in things]
    return scene_of_meshes(["floor", *(label for label, *_ in things)], boxes, settings, name)


def scene_of_meshes(labels, meshes, settings=None, name="meshes"):
    """A scene of trimesh meshes with labels; their object ids count from 1."""
    names = ("", *dict.fromkeys(labels))
    counts = [len(mesh.faces) for mesh in meshes]
    merged = trimesh.util.concatenate(meshes)
    surface = Surface(
        np.zeros(len(merged.faces), np.int32), (Material(),),
        object_id=np.repeat(np.arange(1, len(meshes) + 1), counts).astype(np.int32),
        category=np.repeat([names.index(label) for label in labels], counts).astype(np.int32), categories=names,
    )  # fmt: skip
    mesh = TriangleMesh(
        merged.vertices.astype(np.float32), np.ascontiguousarray(merged.faces, np.int32), surface=surface
    )
    return make_scene(name, mesh, settings=settings or NavMeshSettings())


def write_named(path, things, floor=8.0):
    """A GLB file with the boxes and the floor of `labelled_scene`; its nodes have names such as "chair_2"."""
    half = floor / 2
    named = [("floor_1", [-half, -0.2, -half], [half, 0.0, half])]
    named += [(f"{label}_{k}", low, high) for k, (label, low, high) in enumerate(things, 2)]
    scene = trimesh.Scene()
    for name, low, high in named:
        box = trimesh.creation.box(bounds=[low, high])
        scene.add_geometry(box, node_name=name, geom_name=name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(scene.export(file_type="glb"))
    return path
