import shutil

import pytest
import trimesh
from worlds import TOP, episodes_on, write_episodes, write_floor, write_json

import batchnav
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.play import check_episodes
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.data.scenes.prepared import prepare
from batchnav.data.scenes.source import mesh_source
from batchnav.data.validate import validate
from batchnav.errors import ArgumentError, EpisodeError, MeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.mesh import load_mesh


@pytest.fixture
def data(tmp_path):
    """Habitat's folder `data`."""
    (tmp_path / "data" / "scene_datasets").mkdir(parents=True)
    return tmp_path / "data"


def scene(data, path):
    return write_floor(data / "scene_datasets" / path, up="z")


def episodes(data, path, scene_ids, content=False):
    return write_episodes(data / "datasets" / "pointnav" / path, scene_ids, content)


def test_gibson(data):
    for name in ("Adrian", "Ribera"):
        scene(data, f"gibson/{name}.glb")
    val = episodes(data, "gibson/v1/val/val.json.gz", ["gibson/Adrian.glb"])
    found = batchnav.load_dataset(data / "scene_datasets" / "gibson", split="val")
    assert found.scene_names == ("gibson/Adrian.glb",)  # that the split's episodes play in
    assert found.episode_file == val and len(found.episodes) == 3 and not found.navmeshes
    (adrian,) = found.load_scenes()
    assert adrian.name == "gibson/Adrian.glb" == found.episodes[0].scene_id
    assert adrian.mesh.vertices.max(0) == pytest.approx([3.0, TOP, 4.0])
    check_episodes(found.episodes, {adrian.name: adrian})
    without = batchnav.load_dataset(data / "scene_datasets" / "gibson", split="train")
    assert without.scene_names == ("gibson/Adrian.glb", "gibson/Ribera.glb")
    with pytest.raises(EpisodeError, match=r"no PointNav episodes of split 'train'.*pointnav/gibson/\*/train"):
        without.episodes  # noqa: B018


def test_versions_of_episodes(data):
    scene(data, "gibson/Adrian.glb")
    ids = ["gibson/Adrian.glb"]
    folder = data / "scene_datasets" / "gibson"
    second = episodes(data, "gibson/v2/val/val.json.gz", ids)
    assert batchnav.load_dataset(folder, "val").episode_file == second  # the only one
    first = episodes(data, "gibson/v1/val/val.json.gz", ids)
    assert batchnav.load_dataset(folder, "val").episode_file == first
    template = str(data / "datasets/pointnav/gibson/v2/{split}/{split}.json.gz")
    assert batchnav.load_dataset(folder, "val", episodes=template).episode_file == second


def test_mp3d(data):
    scene(data, "mp3d/17DRP5sb8fy/17DRP5sb8fy.glb").with_suffix(".navmesh").touch()
    scene(data, "mp3d/1LXtFkjw3qL/1LXtFkjw3qL.glb")
    episodes(data, "mp3d/v1/val/val.json.gz", ["mp3d/17DRP5sb8fy/17DRP5sb8fy.glb"], content=True)
    found = batchnav.load_dataset(data / "scene_datasets" / "mp3d", split="val")
    assert found.scene_names == ("mp3d/17DRP5sb8fy/17DRP5sb8fy.glb",)
    assert list(found.navmeshes.values()) == [data / "scene_datasets/mp3d/17DRP5sb8fy/17DRP5sb8fy.navmesh"]
    assert found.episode_file.name == "val.json.gz" and len(found.episodes) == 3  # out of the folder content


def test_hm3d(data):
    names = ["hm3d/val/00800-TEEsavR23oF/TEEsavR23oF", "hm3d/val/00801-HaxA7YrQdEC/HaxA7YrQdEC"]
    for name in names:
        stage = scene(data, f"{name}.basis.glb")
        NavMesh.bake(load_mesh(stage, up="z")).save(stage.with_suffix(".navmesh"))
    scene(data, f"{names[0]}.glb")  # not compressed for Habitat: the same scene
    scene(data, f"{names[0]}.semantic.glb")
    scene(data, "hm3d/train/00000-kfPV7w3FaU5/kfPV7w3FaU5.basis.glb")
    write_json(data / "scene_datasets" / "hm3d" / "hm3d_basis.scene_dataset_config.json", {})
    found = batchnav.load_dataset(data / "scene_datasets" / "hm3d", split="val")
    assert found.scene_names == tuple(f"{name}.basis.glb" for name in names)
    assert len(found.navmeshes) == 2 and found.episode_file is None
    loaded = found.load_scenes([f"{names[1]}.basis.glb"])
    assert loaded[0].navmesh.area == pytest.approx(6.0 * 8.0, rel=0.15)
    with pytest.raises(MeshError, match="no scenes of split 'test', expected one of train, val"):
        batchnav.load_dataset(data / "scene_datasets" / "hm3d", split="test")
    with pytest.raises(ArgumentError, match="'x', expected one of the 2"):
        found.scene("x")


@pytest.fixture
def hssd(data):
    """HSSD's layout: a config, a stage, scene instances, navmeshes, episodes that name the config."""
    folder = data / "scene_datasets" / "hssd-hab"
    for name in ("102344049", "102344250"):
        write_floor(folder / "stages" / f"{name}.glb")
        stage = {"render_asset": f"{name}.glb", "up": [0, 1, 0], "front": [0, 0, -1]}
        write_json(folder / "stages" / f"{name}.stage_config.json", stage)
        instance = {"stage_instance": {"template_name": f"stages/{name}"}}
        write_json(folder / "scenes" / f"{name}.scene_instance.json", instance)
    (folder / "navmeshes").mkdir()
    mesh = load_mesh(folder / "stages" / "102344049.glb")
    NavMesh.bake(mesh).save(folder / "navmeshes" / "102344049.navmesh")
    cells = {"stages": {"paths": {".json": ["stages"]}}, "scene_instances": {"paths": {".json": ["scenes"]}}}
    write_json(folder / "hssd-hab.scene_dataset_config.json", cells)
    write_json(folder / "another.scene_dataset_config.json", {})
    return folder


def test_hssd(data, hssd):
    config = "data/scene_datasets/hssd-hab/hssd-hab.scene_dataset_config.json"
    file = data / "datasets" / "pointnav" / "hssd-hab" / "v1" / "val" / "val.json.gz"
    EpisodeDataset(episodes_on("102344049", scene_dataset_config=config)).save(file)
    found = batchnav.load_dataset(hssd, split="val")
    assert found.scene_names == ("102344049",)
    assert found.navmeshes == {"102344049": hssd / "navmeshes" / "102344049.navmesh"}
    (loaded,) = found.load_scenes()
    assert loaded.name == "102344049"
    again = batchnav.load_dataset(hssd / "hssd-hab.scene_dataset_config.json", split="train")
    assert again.scene_names == ("102344049", "102344250")
    # An episode alone leads to its scene, wherever Habitat's folder is.
    name = found.episodes[0].scene
    assert name == f"{config}:102344049"
    assert load_scene(name, scenes_dir=data / "scene_datasets").name == name


def test_habitats_episodes_find_their_scenes(data):
    scene(data, "gibson/Adrian.glb")
    for scene_id in ("gibson/Adrian.glb", str(data / "scene_datasets/gibson/Adrian.glb")):
        found = load_scene(scene_id, scenes_dir=data / "scene_datasets")
        assert found.name == scene_id
        assert found.mesh.vertices.max(0) == pytest.approx([3.0, TOP, 4.0])


def test_a_prepared_scene_in_habitats_folders(data, monkeypatch):
    """Episodes that name it lose the prefix data/scene_datasets/, as Habitat's do."""
    monkeypatch.chdir(data.parent)
    source = mesh_source(write_floor(data / "scan.glb"))
    prepare([source], data / "scene_datasets" / "mine")
    file = data / "e.json.gz"
    EpisodeDataset(episodes_on("data/scene_datasets/mine/scan.scene")).save(file)
    (name,) = {e.scene for e in load_episodes(file)}
    assert name == "mine/scan.scene" and load_all([name])[0].name == name


def test_what_is_no_dataset_is_named(tmp_path):
    with pytest.raises(MeshError, match="no such file or folder"):
        batchnav.load_dataset(tmp_path / "absent")
    with pytest.raises(MeshError, match="found no scenes"):
        batchnav.load_dataset(tmp_path)
    (tmp_path / "x.txt").touch()
    with pytest.raises(MeshError, match="found a file"):
        batchnav.load_dataset(tmp_path / "x.txt")


def test_a_split_whose_scenes_are_absent(data):
    scene(data, "gibson/Adrian.glb")
    episodes(data, "gibson/v1/val/val.json.gz", ["gibson/Ribera.glb"])
    with pytest.raises(MeshError, match="none of the 1 scene that"):
        batchnav.load_dataset(data / "scene_datasets" / "gibson", split="val")


def test_the_environment_plays_a_split(data):
    for name in ("Adrian", "Ribera"):
        scene(data, f"gibson/{name}.glb")
    episodes(data, "gibson/v1/val/val.json.gz", ["gibson/Ribera.glb", "gibson/Adrian.glb"])
    found = batchnav.load_dataset(data / "scene_datasets" / "gibson", split="val")
    table = found.episode_table(num_episode_sample=4, rounds=2, shuffle=True, seed=1)
    assert len(table.scene) == 8 and set(table.scene.tolist()) == {0, 1}
    scenes = found.load_scenes()
    assert [one.name for one in scenes] == list(found.scene_names)
    env = batchnav.PointNavEnv(scenes, num_envs=8, device="cpu", episodes=table, height=4, width=4)
    observation, _ = env.reset()
    straight = (table.goal - table.start).norm(dim=1)
    assert observation["pointgoal"][:, 0].tolist() == pytest.approx(straight.tolist(), abs=1e-4)


def test_van_gogh_room(shared, data):
    """A test scene of Habitat's with its navmesh and published episodes, laid out as its downloads are."""
    room = shared / "scenes" / "van-gogh-room"
    folder = data / "scene_datasets" / "habitat-test-scenes"
    folder.mkdir()
    trimesh.load(room / "van-gogh-room.mesh.ply", process=False).export(folder / "van-gogh-room.glb")
    shutil.copy(room / "van-gogh-room.navmesh", folder)
    published = [
        e for e in load_episodes(room / "gt" / "habitat_test_scenes_3_episodes.json.gz") if "gogh" in e.scene_id
    ]
    EpisodeDataset(published).save(
        data / "datasets" / "pointnav" / "habitat-test-scenes" / "v1" / "val" / "val.json.gz"
    )
    found = batchnav.load_dataset(folder, split="val")
    assert found.scene_names == ("habitat-test-scenes/van-gogh-room.glb",)
    (loaded,) = found.load_scenes()
    assert loaded.navmesh.area == pytest.approx(9.177721, abs=1e-5)
    theirs = load_mesh(room / "van-gogh-room.yup.glb")
    assert loaded.mesh.vertices.min(0) == pytest.approx(theirs.vertices.min(0), abs=1e-5)
    assert loaded.mesh.vertices.max(0) == pytest.approx(theirs.vertices.max(0), abs=1e-5)
    assert found.episodes and not list(validate(found.episode_file, scenes_dir=data / "scene_datasets"))
