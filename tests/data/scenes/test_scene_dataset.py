import json
import math
import os
import time

import numpy as np
import pytest
from worlds import TOP, write_box, write_episodes, write_floor, write_json

import batchnav
from batchnav.data.scenes import scene_dataset
from batchnav.data.scenes.scene_dataset import SceneDatasetConfig, Search, first_containing, read_urdf
from batchnav.errors import ArgumentError, MeshError
from batchnav.runtime.files import remove_leftovers
from batchnav.scene.mesh import load_mesh

URDF = """<?xml version="1.0"?>
<robot name="cupboard">
  <link name="root"/>
  <link name="body"><visual><geometry><mesh filename="body.ply" scale="1, 1, 1"/></geometry></visual></link>
  <link name="door"><visual><origin xyz="1 0 0"/><geometry><mesh filename="door.ply"/></geometry></visual></link>
  <joint name="base" type="fixed"><origin xyz="0 1 0" rpy="0 0 0"/><parent link="root"/><child link="body"/></joint>
  <joint name="hinge" type="revolute">
    <axis xyz="0 1 0"/><origin xyz="0 0 2"/><parent link="body"/><child link="door"/>
  </joint>
</robot>
"""


def box_of(mesh):
    return np.stack([mesh.vertices.min(0), mesh.vertices.max(0)])


@pytest.fixture
def world(tmp_path):
    """A dataset of one stage, two kinds of objects, an articulated one, and the scene `flat`."""
    write_floor(tmp_path / "stages" / "floor.glb")
    write_json(
        tmp_path / "stages" / "floor.stage_config.json",
        {"render_asset": "floor.glb", "up": [0, 1, 0], "front": [0, 0, -1]},
    )
    write_box(tmp_path / "meshes" / "cube.ply", [0, 0, 0], [1, 1, 1])
    write_json(tmp_path / "objects" / "cube.object_config.json", {"render_asset": "../meshes/cube.ply"})
    tall = {"render_asset": "../../meshes/cube.ply", "scale": [1, 2, 1], "COM": [0, 0, 0]}
    write_json(tmp_path / "objects" / "more" / "tall_cube.object_config.json", tall)
    for name in ("body", "door"):
        write_box(tmp_path / "urdf" / "cupboard" / f"{name}.ply", [0, 0, 0], [0.1, 1, 1])
    (tmp_path / "urdf" / "cupboard" / "cupboard.urdf").write_text(URDF)
    config = {
        "stages": {"paths": {".json": ["stages"]}},
        "objects": {
            "paths": {".json": ["objects", "objects/*"]},
            "configs": [
                {"original_file": "objects/cube", "template_handle": "big", "attributes": {"scale": [3, 3, 3]}}
            ],
        },
        "articulated_objects": {"paths": {".urdf": ["urdf/*/"]}},
        "scene_instances": {"paths": {".json": ["scenes"]}},
        "navmesh_instances": {"named": "navmeshes/other.navmesh"},
    }
    write_json(tmp_path / "own.scene_dataset_config.json", config)
    write_instance(tmp_path)
    return tmp_path


def write_instance(folder, name="flat", **fields):
    data = {"stage_instance": {"template_name": "stages/floor"}, **fields}
    return write_json(folder / "scenes" / f"{name}.scene_instance.json", data)


def source(world, name="flat"):
    return SceneDatasetConfig(world / "own.scene_dataset_config.json").source(name)


def placed(world, **row):
    """Box of the one object that stands in the scene."""
    write_instance(world, object_instances=[row])
    found = source(world)
    (part,) = found.parts[1:]
    return box_of(part.place(load_mesh(part.asset.path)))


def test_names_and_the_stage(world):
    config = SceneDatasetConfig(world / "own.scene_dataset_config.json")
    assert config.scene_names == ["flat"]
    flat = config.source("flat")
    assert flat.name == "flat" and flat.navmesh is None and not flat.missing
    assert box_of(flat.load_mesh())[1] == pytest.approx([3.0, TOP, 4.0])
    assert flat.prepared == world / "prepared" / "flat.scene"


def test_objects_are_placed_by_their_centre_or_their_origin(world):
    there = [1.0, 0.5, 2.0]
    assert placed(world, template_name="objects/cube", translation=there).tolist() == [[0.5, 0.0, 1.5], [1.5, 1.0, 2.5]]
    at_origin = placed(world, template_name="cube", translation=there, translation_origin="asset_local")
    assert at_origin.tolist() == [[1.0, 0.5, 2.0], [2.0, 1.5, 3.0]]
    # A config's centre of mass takes the box centre's place; the config's scale and the instance's multiply.
    massive = placed(world, template_name="tall_cube", translation=there, uniform_scale=2.0)
    assert massive.tolist() == [[1.0, 0.5, 2.0], [3.0, 4.5, 4.0]]
    uneven = placed(world, template_name="big", translation_origin="asset_local", non_uniform_scale=[1, 2, 1])
    assert uneven.tolist() == [[0.0, 0.0, 0.0], [3.0, 6.0, 3.0]]


def test_rotations_are_w_x_y_z(world):
    half = math.sqrt(0.5)
    # A quarter turn about +Y takes +X to -Z.
    turned = placed(world, template_name="cube", rotation=[half, 0, half, 0], translation_origin="asset_local")
    assert turned == pytest.approx(np.array([[0.0, 0.0, -1.0], [1.0, 1.0, 0.0]]), abs=1e-6)


def test_the_scenes_translation_origin_counts_where_an_object_has_none(world):
    write_instance(world, translation_origin="ASSET_LOCAL", object_instances=[{"template_name": "cube"}])
    assert not source(world).parts[1].at_centre


def test_articulated_objects_stand_as_their_joints_say(world):
    row = {"template_name": "cupboard", "translation": [1, 0, 0], "uniform_scale": 2.0}
    write_instance(world, articulated_object_instances=[row])
    body, door = (part.translation.tolist() for part in source(world).parts[1:])
    assert body == [1.0, 2.0, 0.0]
    assert door == [3.0, 2.0, 4.0]
    row["initial_joint_pose"] = {"hinge": math.pi / 2}
    write_instance(world, articulated_object_instances=[row])
    assert source(world).parts[2].translation.tolist() == pytest.approx([1.0, 2.0, 2.0])  # +X went to -Z


def test_what_is_missing_is_named_and_left_out(world):
    (world / "urdf" / "cupboard" / "door.ply").unlink()
    write_instance(
        world,
        object_instances=[{"template_name": "sofa"}, {"template_name": "cube"}],
        articulated_object_instances=[{"template_name": "cupboard"}],
    )
    found = source(world)
    assert found.missing == ("sofa", "cupboard") and len(found.parts) == 3
    found.load_mesh()


def test_where_a_navmesh_is_looked_for(world):
    navmeshes = world / "navmeshes"
    navmeshes.mkdir()
    (navmeshes / "other.navmesh").touch()
    assert source(world).navmesh is None
    write_instance(world, navmesh_instance="named")
    assert source(world).navmesh == navmeshes / "other.navmesh"
    (navmeshes / "flat.navmesh").touch()
    write_instance(world, navmesh_instance="")
    assert source(world).navmesh == navmeshes / "flat.navmesh"


def test_stages_are_scenes_where_there_are_no_instances(tmp_path):
    write_floor(tmp_path / "val" / "a" / "a.basis.glb", up="z")
    (tmp_path / "val" / "a" / "a.basis.navmesh").touch()
    stages = {"default_attributes": {"up": [0, 0, 1], "front": [0, 1, 0]}, "paths": {".glb": ["val/*"]}}
    config = SceneDatasetConfig(write_json(tmp_path / "hm3d.scene_dataset_config.json", {"stages": stages}))
    (name,) = config.scene_names
    found = config.source(name)
    assert box_of(found.load_mesh())[1] == pytest.approx([3.0, TOP, 4.0])
    assert found.navmesh == tmp_path / "val" / "a" / "a.basis.navmesh"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"stage_instance": 3}, "'stage_instance'"),
        ({"navmesh_instance": 5}, "'navmesh_instance': found 5"),
        ({"stage_instance": {"template_name": "castle"}}, "no stage 'castle'"),
        ({"object_instances": {}}, "'object_instances'"),
        ({"object_instances": [{}]}, r"object_instances\[0\].*'template_name'"),
        ({"object_instances": [{"template_name": "cube", "rotation": [0, 0, 0, 0]}]}, "'rotation': found zeros"),
        ({"object_instances": [{"template_name": "cube", "rotation": [1, 0, 0]}]}, "'rotation'.*expected 4 finite"),
        ({"object_instances": [{"template_name": "cube", "uniform_scale": "a"}]}, "'uniform_scale'"),
    ],
)
def test_a_bad_scene_instance_is_named(world, fields, message):
    path = write_instance(world, **fields)
    with pytest.raises(MeshError, match=message) as caught:
        source(world)
    assert str(path) in str(caught.value)


def test_a_bad_dataset_config_is_named(tmp_path):
    bad = ([], {"stages": []}, {"stages": {"paths": []}}, {"objects": {"paths": {".json": "x"}}},
           {"objects": {"configs": [{"attributes": {}}]}}, {"navmesh_instances": []})  # fmt: skip
    for data in bad:
        path = write_json(tmp_path / "bad.scene_dataset_config.json", data)
        with pytest.raises(MeshError, match=r"bad\.scene_dataset_config\.json: "):
            SceneDatasetConfig(path)


@pytest.mark.parametrize(
    "old, new",
    [
        ("</robot>", ""),
        ('xyz="0 0 2"', 'xyz="0 0"'),
        ('xyz="0 0 2"', 'xyz="0 nan 2"'),
        ('<parent link="root"/>', '<parent link="door"/>'),
        ('filename="door.ply"', ""),
    ],
)
def test_a_bad_urdf_is_named(tmp_path, old, new):
    path = tmp_path / "bad.urdf"
    path.write_text(URDF.replace(old, new))
    with pytest.raises(MeshError, match=r"bad\.urdf"):
        read_urdf(path, {})


def test_a_long_chain_of_links_takes_linear_time(tmp_path):
    links = "".join(f'<link name="{k}"/>' for k in range(5000))
    joint = '<joint type="fixed"><origin xyz="0 0 1"/><parent link="{}"/><child link="{}"/></joint>'
    last = '<link name="5000"><visual><geometry><mesh filename="a.ply"/></geometry></visual></link>'
    joints = "".join(joint.format(k, k + 1) for k in range(5000))
    (tmp_path / "chain.urdf").write_text(f"<robot>{links}{last}{joints}</robot>")
    begin = time.process_time()
    (part,) = read_urdf(tmp_path / "chain.urdf", {})
    assert time.process_time() - begin < 5.0  # measured: 0.5 s; it took minutes
    np.testing.assert_allclose(part.translation, [0, 0, 5000])


def test_replica_cad(shared):
    config = SceneDatasetConfig(shared / "scenes" / "replica_cad" / "replicaCAD.scene_dataset_config.json")
    assert len(config.scene_names) == 91
    apartment = config.source("apt_0")
    assert apartment.missing == ("objects/frl_apartment_bike_01", "objects/frl_apartment_bike_02")
    with pytest.raises(MeshError, match=r"frl_apartment_stage\.glb"):  # the stages' meshes are not there
        apartment.load_mesh()
    bottoms = {
        part.asset.path.stem: float(part.place(load_mesh(part.asset.path)).vertices[:, 1].min())
        for part in apartment.parts[1:]
    }
    # Furniture of every kind stands on the floor, y = 0, whatever its own origin.
    for name in ("sofa", "chair_01", "table_02", "tvstand", "refrigerator", "bin_03"):
        if (bottom := bottoms.get(f"frl_apartment_{name}")) is not None:
            assert bottom == pytest.approx(0.0, abs=0.06), name
    assert bottoms["body"] == pytest.approx(0.0, abs=0.06)  # the fridge


def test_habitats_own_test_dataset(shared):
    folder = shared / "scenes" / "habitat_sim_test_assets" / "data" / "test_assets" / "dataset_tests" / "dataset_0"
    config = SceneDatasetConfig(folder / "test_dataset_0.scene_dataset_config.json")
    scene = config.source("dataset_test_scene")
    assert [part.asset.path.name for part in scene.parts] == [
        "dataset_test_stage.glb", "dataset_test_object1.glb", "dataset_test_object2.glb",
    ]  # fmt: skip
    assert scene.parts[0].asset.scale == (1.0, 1.0, 1.0)  # "modified_test_stage" overrides the file's 2, 2, 2
    assert not scene.parts[1].at_centre
    assert config.source("new_test_stage").parts[0].asset.scale == (2.0, 2.0, 2.0)


def test_instances_are_things_of_the_lexicons_categories(world):
    """Each row of a scene instance is one thing; its template's semantic_id is looked up by name of the lexicon."""
    write_json(world / "objects" / "cube.object_config.json", {"render_asset": "../meshes/cube.ply", "semantic_id": 7})
    write_json(world / "semantics" / "words.json", {"classes": [{"name": "box", "id": 7}, {"name": "lamp", "id": 9}]})
    config = json.loads((world / "own.scene_dataset_config.json").read_text())
    config["semantic_scene_descriptor_instances"] = {"words": "semantics/words.json"}
    config["scene_instances"]["default_attributes"] = {"semantic_scene_instance": "words"}
    write_json(world / "own.scene_dataset_config.json", config)
    rows = [{"template_name": name, "translation": [x, 1, 0]} for x, name in enumerate(("cube", "tall_cube", "cube"))]
    write_instance(world, object_instances=rows, articulated_object_instances=[{"template_name": "cupboard"}])
    found = source(world)
    assert [(part.object_id, part.category) for part in found.parts] == [
        (0, ""), (1, "box"), (2, ""), (3, "box"), (4, ""), (4, "")
    ]  # fmt: skip
    surface = found.load_mesh().surface
    names = np.array(surface.categories)[surface.category]
    assert set(surface.object_id) == {0, 1, 2, 3, 4}
    assert set(surface.object_id[names == "box"]) == {1, 3} and set(names[surface.object_id == 2]) == {""}
    assert found.load_mesh(appearance=False).surface is None


@pytest.mark.parametrize("classes", [{}, [3], [{"name": 3, "id": 1}], [{"name": "box", "id": "one"}]])
def test_a_lexicon_that_is_none_is_named(world, classes):
    write_json(world / "words.json", {"classes": classes})
    config = json.loads((world / "own.scene_dataset_config.json").read_text())
    config["semantic_scene_descriptor_instances"] = {"words": "words.json"}
    write_json(world / "own.scene_dataset_config.json", config)
    write_instance(world, semantic_scene_instance="words")
    with pytest.raises(MeshError, match=r"words\.json: field 'classes'"):
        source(world)


@pytest.mark.parametrize("cell", [3, {"paths": {".json": 5}}, {"paths": []}])
def test_lexicons_that_are_no_paths_are_named(world, cell):
    config = json.loads((world / "own.scene_dataset_config.json").read_text())
    write_json(world / "own.scene_dataset_config.json", {**config, "semantic_scene_descriptor_instances": cell})
    with pytest.raises(MeshError, match="semantic_scene_descriptor_instances"):
        source(world)


# Search paths of datasets: what patterns match, bounds, cycles, and names with special characters

NAMES = ("stages/a.glb", "stages/b.glb", "stages/.hidden.glb", "stages/deep/c.glb", "objects/a.json", "x[1].glb")


@pytest.fixture
def folder(tmp_path):
    """A folder whose own name is a pattern."""
    for name in NAMES:
        file = tmp_path / "set [v2]" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path / "set [v2]"


def test_files_in_matching_folders(folder):
    assert [file.name for file in Search("own", folder).files("stages")] == [".hidden.glb", "a.glb", "b.glb", "deep"]


@pytest.mark.parametrize("pattern", ["*/" * 18 + "*", "../*/" + "*/" * 10 + "*.glb", "*/.." * 12])
def test_links_to_folders_above_are_not_followed(pattern, folder):
    for name, target in (("one", "."), ("two", "."), ("three", ".."), ("stages/four", "../stages"), ("five", "five")):
        (folder / name).symlink_to(target)
    assert len(Search("own", folder).files(pattern)) <= 100
    config = write_json(folder / "own.scene_dataset_config.json", {"stages": {"paths": {".glb": [pattern]}}})
    assert len(SceneDatasetConfig(config).scene_names) <= 4


def test_entries_are_bounded(folder, monkeypatch):
    monkeypatch.setattr(scene_dataset, "MAX_ENTRIES", 4)
    with pytest.raises(MeshError, match=r"own: pattern '\*/\*': searched more than 4 files and folders, expected"):
        Search("own", folder).files("*/*")


def test_a_folder_that_cannot_be_read_holds_nothing(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert Search("own", folder).files("/*/*/*/*/*") == Search("own", folder).files("stages") == []


def test_a_link_that_cannot_be_read_is_left_out(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    (folder / "link").symlink_to("stages")
    assert [file.name for file in Search("own", folder).files("l*/a.glb")] == ["a.glb"]
    monkeypatch.setattr(os.path, "realpath", refuse)
    assert Search("own", folder).files("l*/a.glb") == []
    assert [file.name for file in Search("own", folder).files("st*/a.glb")] == ["a.glb"]


def test_a_data_set_below_a_folder_with_special_characters(folder):
    write_floor(folder / "stages" / "floor.ply")
    config = write_json(folder / "own.scene_dataset_config.json", {"stages": {"paths": {".ply": ["stages/*.ply"]}}})
    assert len(SceneDatasetConfig(config).scene_names) == 1
    write_floor(folder / "scene_datasets" / "own" / "floor.glb", up="z")
    split = write_episodes(folder / "datasets" / "pointnav" / "own" / "v1" / "val" / "val.json.gz", ["own/floor.glb"])
    assert batchnav.load_dataset(folder / "scene_datasets" / "own", split="val").episode_file == split
    assert batchnav.load_dataset(folder / "scene_datasets" / "own", split="[v]al").episode_file is None
    for split in ("", "../val", "a\0b"):
        with pytest.raises(ArgumentError, match=r"split: found .* expected a name"):
            batchnav.load_dataset(folder / "scene_datasets" / "own", split=split)


def test_leftovers_of_a_name_with_special_characters(tmp_path):
    left, other = tmp_path / ".a[1].pt.0123abcd.part", tmp_path / ".a1.pt.0123abcd.part"
    for file in (left, other):
        file.touch()
    remove_leftovers(tmp_path / "a[1].pt")
    assert not left.exists() and other.exists()


# The search for names against Python's `in`


def test_the_first_text_that_contains_a_word():
    rng = np.random.default_rng(0)
    texts, words = (
        ["".join(rng.choice(list("ab/"), rng.integers(high))) for _ in range(200)] for high in (30, 9)
    )  # fmt: skip
    expected = {word: next((i for i, text in enumerate(texts) if word in text), None) for word in words if word}
    assert first_containing(texts, words) == {word: i for word, i in expected.items() if i is not None}
    assert first_containing([], ["a"]) == first_containing(["a"], []) == {}
    deep = "a" * 100_000
    assert first_containing([deep], [deep, deep[1:], "ab"]) == {deep: 0, deep[1:]: 0}
