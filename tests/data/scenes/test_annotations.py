"""Annotations beside mesh files, on small files in the datasets' formats."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image

from batchnav.data.scenes.annotations import annotation_file
from batchnav.data.scenes.source import mesh_source
from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh

sys.path.append(str(Path(__file__).resolve().parents[2] / "scene"))
from files import Gltf, ktx2

IDS = (3, 5, 5, -1)
"""Of the four faces of the file, the second of which is a square."""


def write_ply(path, ids=IDS, kind="int"):
    """Three triangles and a square, each face with an id."""
    points = [(0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (1, 1, 0)]
    faces = [(0, 2, 1), (0, 1, 5, 4), (0, 3, 2), (0, 4, 3)]
    lines = ["ply", "format ascii 1.0", f"element vertex {len(points)}"]
    lines += [f"property float {axis}" for axis in "xyz"] + [f"element face {len(faces)}"]
    lines += ["property list uchar int vertex_indices", f"property {kind} object_id", "end_header"]
    lines += [" ".join(map(str, point)) for point in points]
    lines += [f"{len(f)} {' '.join(map(str, f))} {i}" for f, i in zip(faces, ids, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def by_thing(mesh):
    """Category by id, and triangles by id."""
    surface = mesh.surface
    names = np.array(surface.categories)[surface.category]
    things = {int(i): set(names[surface.object_id == i].tolist()) for i in np.unique(surface.object_id)}
    assert all(len(found) == 1 for found in things.values())
    return {i: found.pop() for i, found in things.items()}, np.bincount(surface.object_id).tolist()


def load(path):
    return mesh_source(path).load_mesh()


def test_object_ids_of_faces_are_those_of_their_triangles(tmp_path):
    mesh = load_mesh(write_ply(tmp_path / "mesh.ply"))
    ids = mesh.surface.object_id
    assert ids.dtype == np.int32 and sorted(ids.tolist()) == [0, 3, 5, 5, 5]
    up = mesh.vertices[mesh.faces[ids == 3]][..., 1]
    assert (up == 0).all()
    square = mesh.vertices[mesh.faces[ids == 5]]
    assert ((square[..., 2] == 0).all(1)).sum() == 2  # the square's two triangles
    assert load_mesh(tmp_path / "mesh.ply", appearance=False).surface is None


def test_replica(tmp_path):
    path = write_ply(tmp_path / "mesh_semantic.ply")
    objects = [{"id": 3, "class_name": "floor"}, {"id": 5, "class_name": "wall"}, {"id": 9, "class_name": "lamp"}]
    (tmp_path / "info_semantic.json").write_text(json.dumps({"objects": objects, "classes": []}))
    assert by_thing(load(path)) == ({0: "", 3: "floor", 5: "wall"}, [1, 0, 0, 1, 0, 3])
    assert tmp_path / "info_semantic.json" in mesh_source(path).files


def test_gibson(tmp_path):
    path = write_ply(tmp_path / "Adrian_semantic.ply")
    (tmp_path / "Adrian.scn").write_text(json.dumps({"objects": [{"id": 5, "class_": "oven", "location": [0, 0, 0]}]}))
    assert by_thing(load(path))[0] == {0: "", 3: "", 5: "oven"}


def test_matterport3d(tmp_path):
    path = write_ply(tmp_path / "17DRP5sb8fy_semantic.ply")
    lines = [
        "ASCII 1.1", "C  0  1  wall  1  wall  0 0 0 0 0", "C  7  11  office#chair  3  chair  0 0 0 0 0",
        "O  3 0 0  1 1 1  1 0 0  0 1 0  1 1 1  0 0 0 0 0 0 0 0",
        "O  5 0 7  1 1 1  1 0 0  0 1 0  1 1 1  0 0 0 0 0 0 0 0",
    ]  # fmt: skip
    (tmp_path / "17DRP5sb8fy.house").write_text("\n".join(lines))
    assert by_thing(load(path))[0] == {0: "", 3: "wall", 5: "chair"}


def write_hm3d(folder, colors=((255, 0, 0), (0, 10, 200), (9, 9, 9))):
    """Three triangles, each on one texel of a texture of four."""
    pixels = np.zeros((1, 4, 3), np.uint8)
    pixels[0, : len(colors)] = colors
    points = np.array([[x + dx, 0, dz] for x in range(3) for dx, dz in ((0, 0), (0, 1), (1, 0))], float)
    uv = np.repeat([[(x + 0.5) / 4, 0.5] for x in range(3)], 3, axis=0)
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.fromarray(pixels))
    visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    mesh = trimesh.Trimesh(points, np.arange(9).reshape(3, 3), visual=visual, process=False)
    path = folder / "TEEsavR23oF.semantic.glb"
    path.write_bytes(trimesh.Scene(mesh).export(file_type="glb"))
    return path


def test_hm3d(tmp_path):
    path = write_hm3d(tmp_path)
    rows = ["HM3D Semantic Annotations", '1,FF0000,"door frame",0', '7,000AC8,"chair, armchair",2', '8,00FF00,"bed",2']
    (tmp_path / "TEEsavR23oF.semantic.txt").write_text("\n".join(rows) + "\n")
    assert by_thing(load(path)) == ({0: "", 1: "door frame", 7: "chair, armchair"}, [1, 1, 0, 0, 0, 0, 0, 1])


@pytest.mark.parametrize(("off", "exact"), [(0, True), (3, False), (9, True), (60, True)])
def test_colours_of_hm3d_in_a_ktx2_texture_are_read_exactly_or_refused(tmp_path, off, exact):
    """Basis Universal keeps a block of one colour exactly; where it did not, ids would be lost or mistaken."""
    things = np.uint8([[(200, 0, 0, 255), (200, 0, 0, 255), (0, 10, 120, 255), (0, 10, 120, 255)]])
    stored = things + np.uint8([off, 0, 0, 0]) * np.uint8([[[1], [1], [0], [0]]])
    gltf = Gltf(ktx2(stored))  # 16 x 4 texels, a colour for either triangle of the square
    gltf.tree["textures"] = [{"extensions": {"KHR_texture_basisu": {"source": 0}}}]
    gltf.tree["extensionsUsed"] = gltf.tree["extensionsRequired"] = ["KHR_texture_basisu"]
    path = tmp_path / "TEEsavR23oF.semantic.glb"
    path.write_bytes(gltf.data())
    (tmp_path / "TEEsavR23oF.semantic.txt").write_text(_HEADER + '1,C80000,"wall",0\n2,000A78,"chair",0\n')
    if not exact:
        with pytest.raises(MeshError, match=r"semantic\.glb: 1 of 2 .* found CB0000, expected C80000 exactly"):
            load(path)
    else:
        assert np.bincount(load(path).surface.object_id, minlength=3).tolist() == ([0, 1, 1] if off == 0 else [1, 0, 1])


_HEADER = "HM3D Semantic Annotations\n"
_ROWS = ("", "1,GG,x,0", "1,FF0000", "-1,0,x,0", "1,FF0000," + 200_000 * "x" + ",0", "9" * 5000 + ",FF0000,x,0")


@pytest.mark.parametrize("text", ["", "1,FF0000,wall,0", *(_HEADER + row for row in _ROWS)])
def test_broken_annotations_of_hm3d_are_named(tmp_path, text):
    path = write_hm3d(tmp_path)
    (tmp_path / "TEEsavR23oF.semantic.txt").write_text(text)
    with pytest.raises(MeshError, match=r"TEEsavR23oF\.semantic\.txt"):
        load(path)


@pytest.mark.parametrize(
    "data", [3, {}, {"objects": 3}, {"objects": [{"id": 1}]}, {"objects": [{"id": "1", "class_name": "x"}]}]
)
def test_broken_lists_of_objects_are_named(tmp_path, data):
    path = write_ply(tmp_path / "mesh_semantic.ply")
    (tmp_path / "info_semantic.json").write_text(json.dumps(data))
    with pytest.raises(MeshError, match=r"info_semantic\.json: field 'objects'"):
        load(path)


@pytest.mark.parametrize("line", ["O", "O x 0 0", "C 1 2"])
def test_broken_house_files_are_named(tmp_path, line):
    path = write_ply(tmp_path / "x_semantic.ply")
    (tmp_path / "x.house").write_text(line)
    with pytest.raises(MeshError, match=r"x\.house: line 1"):
        load(path)


@pytest.mark.parametrize("ids", [(0.5, 1, 1, 1), (float("nan"), 1, 1, 1), (1e12, 0, 0, 0)])
def test_ids_that_are_no_whole_numbers_are_refused(tmp_path, ids):
    with pytest.raises(MeshError, match="object_id"):
        load_mesh(write_ply(tmp_path / "mesh.ply", ids, "double"))


def test_without_annotations_a_mesh_is_what_it_was(tmp_path):
    path = write_ply(tmp_path / "mesh.ply")
    assert annotation_file(path) is None
    assert load(path).surface.category is None


def test_rows_that_contradict_each_other_and_ids_without_a_row_are_named(tmp_path, caplog):
    path = write_ply(tmp_path / "Adrian_semantic.ply")
    rows = [(3, "floor"), (3, "oven"), (9, "lamp"), (9, "lamp")]
    objects = [{"id": number, "class_": name} for number, name in rows]
    (tmp_path / "Adrian.scn").write_text(json.dumps({"objects": objects}))
    assert by_thing(load(path))[0] == {0: "", 3: "oven", 5: ""}
    assert "Adrian.scn: several rows, of which the last counts, for 1 object id: 3: 'floor' and 'oven'" in caplog.text
    assert "3 of 5 triangles have object ids without a row, which belong to no object: 5 (3 triangles)" in caplog.text


def test_colours_of_two_objects_and_colours_without_a_row_are_named(tmp_path, caplog):
    path, rows = write_hm3d(tmp_path), tmp_path / "TEEsavR23oF.semantic.txt"
    rows.write_text(_HEADER + '1,FF0000,"door",0\n2,FF0000,"chair",0\n3,000AC8,"bed",0\n')
    load(path)
    assert f"{rows}: several rows, of which the last counts, for 1 colour: FF0000: 1 and 2" in caplog.text
    assert "1 of 3 triangles have colours without a row, which belong to no object: 090909 (1 triangle)" in caplog.text
    caplog.clear()
    rows.write_text(_HEADER + '1,FF0000,"door",0\n3,000AC8,"bed",0\n4,090909,"lamp",0\n')
    load(path)
    assert "row" not in caplog.text
