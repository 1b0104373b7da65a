import numpy as np
import pytest
from worlds import write_box, write_floor, write_json

from batchnav.data.scenes.asset import Asset, FileAxes, Part
from batchnav.data.scenes.source import file_source, mesh_source, read_asset, scene_id_of, stage_source
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
