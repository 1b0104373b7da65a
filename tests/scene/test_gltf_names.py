"""Objects of glTF files by the names of their nodes."""

import numpy as np
import pytest
import trimesh

from batchnav.scene.mesh import load_mesh


def write(path, *names):
    """A GLB file of one box for each name, two metres apart."""
    scene = trimesh.Scene()
    for k, name in enumerate(names):
        box = trimesh.creation.box((1, 1, 1))
        scene.add_geometry(
            box, node_name=name, geom_name=f"g{k}", transform=trimesh.transformations.translation_matrix([2 * k, 0, 0])
        )
    scene.export(path)
    return path


def found(path):
    """Object id and category by the place of each box along x."""
    mesh = load_mesh(path)
    surface = mesh.surface
    place = np.round(mesh.vertices[mesh.faces].mean(1)[:, 0] / 2).astype(int)
    rows = zip(place, surface.object_id, surface.category, strict=True)
    return {int(k): (int(thing), surface.categories[row]) for k, thing, row in rows}


def test_names_of_nodes_tell_category_and_instance(tmp_path):
    path = write(tmp_path / "room.glb", "office chair_12", "walls", "tv_monitor_3", "office chair_4")
    assert found(path) == {0: (12, "office chair"), 1: (0, ""), 2: (3, "tv_monitor"), 3: (4, "office chair")}


@pytest.mark.parametrize("names", [("chunk_1", "chunk_2"), ("chair_1", "table_1"), ("Cube", "Sphere"), ("a_0", "b_0")])
def test_other_names_tell_nothing(tmp_path, names):
    """A single category is a numbered part, and equal numbers are no instances."""
    surface = load_mesh(write(tmp_path / "room.glb", *names)).surface
    assert surface is None or (surface.object_id is None and surface.category is None)
