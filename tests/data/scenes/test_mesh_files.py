"""Folders of scans: one scene for each, whatever lies next to it; formats that are not read."""

import json
import logging

import numpy as np
import pytest
import trimesh

import batchnav
from batchnav.data.procthor import import_houses
from batchnav.data.scenes.datasets import find_sources, load_dataset
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.source import mesh_files_in
from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh

HM3D = ("X.basis.glb", "X.glb", "X.semantic.glb", "X.semantic.txt", "X.basis.navmesh")
GIBSON = ("Adrian.glb", "Adrian_semantic.ply", "Adrian.scn", "Adrian.navmesh")


def fill(folder, names):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("scan.glb", "._scan.glb", ".DS_Store", ".hidden.ply"), ["scan.glb"]),
        (HM3D, ["X.basis.glb"]),
        (("X.glb", "X.semantic.glb", "X.semantic.txt"), ["X.glb"]),
        (GIBSON, ["Adrian.glb"]),
        (("mesh.ply", "mesh_semantic.ply", "info_semantic.json"), ["mesh.ply"]),
        (("mesh_semantic.ply", "info_semantic.json"), ["mesh_semantic.ply"]),
        (("X.semantic.glb", "Y.glb"), ["X.semantic.glb", "Y.glb"]),
        (("a.obj", "a.mtl", "b.ply"), ["a.obj", "b.ply"]),
    ],
)
def test_a_scene_counts_once(tmp_path, names, kept, caplog):
    folder = fill(tmp_path / "scans", names)
    assert [file.name for file in mesh_files_in(folder)] == kept
    assert scene_ids([str(folder)]) == [str(folder / name) for name in kept]
    assert [source.parts[0].asset.path.name for source in find_sources(folder)] == kept
    assert not caplog.records


def test_copies_in_other_formats_are_named(tmp_path, caplog):
    folder = fill(tmp_path / "scans", ("a.glb", "a.obj", "a.ply", "b.obj"))
    assert [file.name for file in mesh_files_in(folder)] == ["a.glb", "b.obj"]
    assert "left out a.obj, a.ply: a mesh file of the same name" in caplog.text


def test_data_sets_with_hidden_files(tmp_path):
    fill(tmp_path / "hm3d" / "val" / "00800-X", (*HM3D, "._X.basis.glb", "._X.glb"))
    fill(tmp_path / "hm3d" / "val" / "._00800-X", ("X.glb",))
    fill(tmp_path / "gibson", (*GIBSON, "._Adrian.glb", "._gibson.scene_dataset_config.json"))
    assert load_dataset(tmp_path / "hm3d", "val").scene_names == ("hm3d/val/00800-X/X.basis.glb",)
    assert load_dataset(tmp_path / "gibson").scene_names == ("gibson/Adrian.glb",)
    (tmp_path / "own").mkdir()
    fill(tmp_path / "own" / "stages", ("a.glb", "._a.glb"))
    config = tmp_path / "own" / "own.scene_dataset_config.json"
    config.write_text(json.dumps({"stages": {"paths": {".glb": ["stages"]}}}))
    assert [name.rpartition("/")[2] for name in load_dataset(config).scene_names] == ["a.glb"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("office.fbx", "a format that is not read; convert it to GLB"), ("office.world", "a world of Gazebo"),
        ("scan.pcd", "a point cloud, expected a mesh of triangles; mesh it first"), ("scan.LAS", "a point cloud"),
        ("scan.abc", "another kind"),
    ],
)  # fmt: skip
def test_formats_that_are_not_read_are_named(tmp_path, name, what, caplog):
    folder = fill(tmp_path / "scans", (name, "room.glb"))
    with pytest.raises(MeshError, match=f"{name}: found .*{what}.*(.glb, .gltf, .obj)?"):
        find_sources(folder / name)
    with caplog.at_level(logging.WARNING):
        assert [file.name for file in mesh_files_in(folder)] == ["room.glb"]
    if name != "scan.abc":
        assert f"left out {name}" in caplog.text and what in caplog.text
        with pytest.raises(MeshError, match=what):
            batchnav.load_scene(folder / name)


@pytest.mark.parametrize("suffix", [".ply", ".obj"])
def test_points_without_faces_are_a_point_cloud(tmp_path, suffix):
    path = tmp_path / f"scan{suffix}"
    if suffix == ".ply":
        trimesh.PointCloud(np.random.default_rng(0).random((50, 3))).export(path)
    else:
        path.write_text("v 0 0 0\n" * 50)
    with pytest.raises(MeshError, match=r"holds no triangles: its 50 points are a point cloud.*Poisson"):
        load_mesh(path)


def procthor(path, assets):
    floor = [{"x": x, "y": 0, "z": z} for x, z in ((0, 0), (0, 4), (4, 4), (4, 0))]
    place = {"position": {"x": 2, "y": 0.2, "z": 2}, "rotation": {"y": 0}}
    objects = [{"assetId": asset, **place} for asset in assets]
    objects[0]["children"] = [{"assetId": "Cup", **place}]
    walls = [{"id": "a", "polygon": [{"x": x, "y": y, "z": 0} for y in (0, 2.5) for x in (0, 4)]}]
    house = {"rooms": [{"floorPolygon": floor}], "walls": walls, "doors": [], "objects": objects}
    path.write_text(json.dumps(house) + "\n")
    return path


def test_objects_of_unknown_size_are_counted(tmp_path):
    path = procthor(tmp_path / "train.jsonl", [f"Chair_{i}" for i in range(18)] + ["Sofa"])
    (tmp_path / "sizes.json").write_text(json.dumps({"Sofa": [1, 1, 1], "Cup": [0.1, 0.1, 0.1]}))
    _, missing = import_houses(path, tmp_path / "sizes.json", tmp_path / "out")
    text = str(missing)
    assert text.startswith("left out 18 of 20 objects (90%), unknown size: Chair_0, ") and "13 more" in text
    assert len(text) < 150
    with pytest.raises(MeshError, match=r"none\.json: found no such file, expected the sizes .* --sizes"):
        import_houses(path, tmp_path / "none.json", tmp_path / "out")
