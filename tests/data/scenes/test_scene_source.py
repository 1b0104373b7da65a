import json
import logging

import numpy as np
import pytest
import trimesh
from worlds import write_box, write_floor, write_json

import batchnav
from batchnav.data.procthor import import_houses
from batchnav.data.scenes.asset import Asset, FileAxes, Part
from batchnav.data.scenes.datasets import find_sources, load_dataset
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.source import file_source, mesh_files_in, mesh_source, read_asset, scene_id_of, stage_source
from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh


def box_of(mesh):
    used = mesh.vertices[np.unique(mesh.faces)]
    return used.min(0).tolist(), used.max(0).tolist()


def test_z_up_is_habitats_turn():
    frame = FileAxes((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
    assert (frame.rotation @ [1.0, 2.0, 3.0]).tolist() == [1.0, 3.0, -2.0]
    assert (FileAxes().rotation @ [1.0, 2.0, 3.0]).tolist() == [1.0, 2.0, 3.0]


def test_a_bare_stage_glb_is_z_up_and_a_file_of_ones_own_is_y_up(tmp_path):
    stage = write_floor(tmp_path / "stage.glb", up="z")
    own = write_floor(tmp_path / "own.glb")
    upright = ([-3.0, -0.1, -4.0], [3.0, 0.1, 4.0])
    for mesh in (stage_source(stage).load_mesh(), mesh_source(own).load_mesh()):
        low, high = box_of(mesh)
        assert low == pytest.approx(upright[0]) and high == pytest.approx(upright[1])
    assert box_of(mesh_source(stage).load_mesh())[1] == pytest.approx([3.0, 4.0, 0.1])
    assert box_of(stage_source(write_floor(tmp_path / "stage.ply")).load_mesh())[1] == pytest.approx([3.0, 0.1, 4.0])


def test_a_file_in_habitats_folders_is_habitats(tmp_path):
    own = write_floor(tmp_path / "own.glb")
    stage = write_floor(tmp_path / "scene_datasets" / "own.glb", up="z")
    for path in (own, stage):
        assert box_of(file_source(path).load_mesh())[1] == pytest.approx([3.0, 0.1, 4.0])


def test_a_stage_config_beside_the_mesh_counts(tmp_path):
    write_box(tmp_path / "s.glb", [0, 0, 0], [1, 2, 3])
    write_json(tmp_path / "s.stage_config.json", {"render_asset": "s.glb", "up": [0, 1, 0], "front": [0, 0, -1]})
    assert box_of(stage_source(tmp_path / "s.glb").load_mesh())[1] == [1.0, 2.0, 3.0]
    # Scaled along Habitat's axes, after the turn: x, then what was z, then minus what was y.
    config = {"render_asset": "s.glb", "up": [0, 0, 1], "front": [0, 1, 0], "scale": [2, 3, 5]}
    write_json(tmp_path / "s.stage_config.json", config)
    assert box_of(stage_source(tmp_path / "s.glb").load_mesh()) == ([0.0, 0.0, -10.0], [2.0, 9.0, 0.0])


def test_the_pivot_is_the_centre_the_centre_of_mass_or_the_origin(tmp_path):
    mesh = load_mesh(write_box(tmp_path / "o.ply", [0, 0, 0], [1, 2, 4]))
    asset = Asset(tmp_path / "o.ply", scale=(2.0, 1.0, 1.0))
    there = np.array([10.0, 0.0, 0.0])
    assert box_of(Part(asset, translation=there).place(mesh)) == ([10.0, 0.0, 0.0], [12.0, 2.0, 4.0])
    centred = Part(asset, translation=there, at_centre=True)
    assert box_of(centred.place(mesh)) == ([9.0, -1.0, -2.0], [11.0, 1.0, 2.0])
    massive = Part(Asset(asset.path, scale=asset.scale, centre=(1.0, 0.0, 0.0)), translation=there, at_centre=True)
    assert box_of(massive.place(mesh)) == ([8.0, 0.0, 0.0], [10.0, 2.0, 4.0])


def test_a_mirrored_part_keeps_its_front_outside(tmp_path):
    mesh = load_mesh(write_box(tmp_path / "o.ply", [0, 0, 0], [1, 2, 4]))

    def volume(mesh):
        a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(float) for i in range(3))
        return float((a * np.cross(b, c)).sum() / 6)

    assert volume(mesh) == pytest.approx(8.0)
    assert volume(Part(Asset(tmp_path, scale=(-1.0, 1.0, 1.0))).place(mesh)) == pytest.approx(8.0)


@pytest.mark.parametrize(
    "config, message",
    [
        ({}, "'render_asset': found None"),
        ({"render_asset": 7}, "'render_asset'"),
        ({"render_asset": "a.glb", "up": [0, 0, 0]}, "up"),
        ({"render_asset": "a.glb", "up": [0, 0]}, "'up': found .*expected 3 finite"),
        ({"render_asset": "a.glb", "up": [0, 1, 0], "front": [0, 2, 0]}, "right angle"),
        ({"render_asset": "a.glb", "scale": [1, "a", 1]}, "'scale'"),
        ({"render_asset": "a.glb", "scale": [1, 1e39, 1]}, "'scale'"),
        ([], "found list, expected an object"),
    ],
)
def test_a_bad_config_is_named(tmp_path, config, message):
    path = write_json(tmp_path / "bad.stage_config.json", config)
    with pytest.raises(MeshError, match=message) as caught:
        read_asset(path)
    assert str(path) in str(caught.value)


def test_an_up_alone_keeps_a_front_at_a_right_angle(tmp_path):
    path = write_json(tmp_path / "s.stage_config.json", {"render_asset": "s.glb", "up": [0, -1, 0]})
    assert read_asset(path).frame == FileAxes((0.0, -1.0, 0.0), (0.0, 0.0, -1.0))


def test_scene_ids_start_below_scene_datasets(tmp_path):
    assert scene_id_of(tmp_path / "data/scene_datasets/gibson/Adrian.glb") == "gibson/Adrian.glb"


def test_habitats_own_stages(shared):
    folder = shared / "scenes" / "habitat_sim_test_assets" / "data" / "test_assets" / "scenes"
    # Its config says z up: a room of 2.4 m height above the floor.
    low, high = box_of(stage_source(folder / "simple_room.glb").load_mesh())
    plain = load_mesh(folder / "simple_room.glb", up="z")
    assert low == pytest.approx(plain.vertices.min(0)) and high == pytest.approx(plain.vertices.max(0))
    doubled = stage_source(folder / "stage_floor1.glb").load_mesh()  # y up, scale 2
    assert doubled.vertices == pytest.approx(2.0 * load_mesh(folder / "stage_floor1.glb").vertices)


# Folders of scans: one scene for each, whatever lies next to it; formats that are not read

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
        with pytest.raises(MeshError, match="is not an SDF file" if name == "office.world" else what):
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
