import itertools
import logging
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from worlds import episodes_on, write_box, write_floor, write_json

import batchnav
import batchnav.scene.scene as scenes
from batchnav.data.episodes import scene_name
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.play import check_episodes, load_played_scenes
from batchnav.data.scenes import generated, load
from batchnav.data.scenes.ids import parse_scene_id, scene_ids
from batchnav.data.scenes.load import load_all, load_scene, load_scenes
from batchnav.data.scenes.prepared import prepare
from batchnav.data.scenes.source import mesh_source
from batchnav.data.validate import validate
from batchnav.errors import ArgumentError, MeshError, NavMeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import FAMILIES, make_house
from batchnav.runtime import console
from batchnav.runtime.parallel import in_parallel
from batchnav.scene.mesh import load_mesh
from batchnav.scene.scene import check_body


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of navmeshes."""
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "navmesh"


@pytest.fixture
def bakes(monkeypatch):
    """Settings of every bake."""
    made, bake = [], NavMesh.bake.__func__

    def counted(cls, mesh, settings=None):
        made.append(settings)
        return bake(cls, mesh, settings)

    monkeypatch.setattr(NavMesh, "bake", classmethod(counted))
    return made


def test_a_navmesh_is_baked_once_and_cached(tmp_path, cache, bakes):
    room = write_floor(tmp_path / "room.glb")
    first, second = load_scene(room), load_scene(str(room))
    assert first.name == "room" and len(first.mesh.faces) == 12
    assert len(bakes) == 1 and first.navmesh.area == second.navmesh.area > 10
    load_scene(room, NavMeshSettings(agent_radius=0.5))
    assert len(bakes) == 2 and len(list(cache.iterdir())) == 2
    for file in cache.iterdir():
        file.write_bytes(file.read_bytes()[:50])  # a damaged cache is baked anew
    assert load_scene(room).navmesh.area == first.navmesh.area and len(bakes) == 3


def test_the_navmesh_beside_the_mesh_is_read(tmp_path, bakes):
    room = write_floor(tmp_path / "room.glb")
    small = NavMesh.bake(load_mesh(write_box(tmp_path / "small.glb", (0, 0, 0), (2, 0.2, 2))))
    small.save(tmp_path / "room.navmesh")
    assert load_scene(room).navmesh.area == pytest.approx(small.area)
    assert load_scene(room, NavMeshSettings()).navmesh.area == pytest.approx(small.area)
    assert len(bakes) == 1


WIDE = NavMeshSettings(agent_radius=0.3)


def test_a_navmesh_is_baked_for_the_body_that_is_asked_for(tmp_path, bakes):
    room = write_floor(tmp_path / "room.glb")
    thin, wide = load_scene(room).navmesh, load_scene(room, WIDE).navmesh
    assert wide.area < thin.area - 1.0 and wide.settings == WIDE
    assert load_scene(str(room), settings=WIDE).navmesh.area == wide.area
    (found,) = load_all([str(room)], settings=WIDE)
    assert found.navmesh.area == wide.area and len(bakes) == 2
    check_body(found, 0.3, 1.5)
    for radius, height in ((0.1, 1.5), (0.3, 0.88)):
        with pytest.raises(
            NavMeshError,
            match=f"room.glb: found .* agent_radius 0.3 and agent_height 1.5, expected agent_radius {radius} and "
            f"agent_height {height}; ",
        ):
            check_body(found, radius, height)


def test_a_navmesh_file_for_another_body_is_refused_where_a_body_is_asked_for(tmp_path):
    room = write_floor(tmp_path / "room.glb")
    NavMesh.bake(load_mesh(room), WIDE).save(tmp_path / "room.navmesh")
    assert load_scene(room).navmesh.settings == WIDE == load_scene(room, WIDE).navmesh.settings
    # Only the body counts: a file may have finer cells.
    assert load_scene(room, NavMeshSettings(agent_radius=0.3, cell_size=0.025)).navmesh.settings == WIDE
    refused = r"room\.navmesh: found .* agent_radius 0\.3 .*, expected agent_radius 0\.1 "
    for read in (load_scene, lambda path, settings: load_all([str(path)], settings=settings)):
        with pytest.raises(NavMeshError, match=refused):
            read(room, NavMeshSettings())
    prepare([mesh_source(room)])
    with pytest.raises(NavMeshError, match=refused):
        load_scene(room, NavMeshSettings())
    with pytest.raises(NavMeshError, match=refused.replace("navmesh:", "scene:")):
        load_scene(tmp_path / "room.scene", NavMeshSettings())
    assert load_scene(tmp_path / "room.scene", WIDE).navmesh.settings == WIDE


def test_a_prepared_scene_is_baked_again_for_another_body(tmp_path, bakes, capfd):
    """Once: the cache keeps the navmesh. One line names the body."""
    room = write_floor(tmp_path / "room.glb")
    prepare([mesh_source(room)])
    scene = tmp_path / "room.scene"
    for _ in range(2):
        for path in (room, scene):
            assert load_scene(path, WIDE).navmesh.settings == WIDE
    assert len(bakes) == 2 and capfd.readouterr().err.count("agent_radius 0.3 and agent_height 1.5") <= 1
    room.unlink()
    assert [each.navmesh.settings for each in load_all([str(scene)] * 2, settings=WIDE)] == [WIDE, WIDE]
    assert load_scene(scene).navmesh.settings == NavMeshSettings()


def test_islands_that_were_left_out_stay_left_out_for_another_body(tmp_path):
    """Two floors, of which the import keeps the lower one; and a floor that looks down."""
    lower, upper = trimesh.creation.box((6.0, 0.2, 6.0)), trimesh.creation.box((5.0, 0.2, 5.0))
    upper.apply_translation((0.0, 4.0, 0.0))
    trimesh.util.concatenate([lower, upper]).export(tmp_path / "two.ply")
    (outcome,) = prepare([mesh_source(tmp_path / "two.ply").adjusted(islands="largest")], tmp_path / "out")
    kept, whole = load_scene(outcome.path, WIDE).navmesh, load_scene(tmp_path / "two.ply", WIDE).navmesh
    assert kept.num_islands == 1 and whole.num_islands == 2 and kept.sample(1)[0, 1] < 1.0
    wall = trimesh.Trimesh([(0, 0, 0), (6, 0, 0), (6, 0, 6), (0, 0, 6)], [(0, 1, 2), (0, 2, 3)])
    wall.export(tmp_path / "down.ply")
    (outcome,) = prepare([mesh_source(tmp_path / "down.ply").adjusted(two_sided=True)], tmp_path / "out")
    assert 25.0 < load_scene(outcome.path, WIDE).navmesh.area < load_scene(outcome.path).navmesh.area


def test_a_body_that_fits_nowhere_is_named(tmp_path):
    room = write_floor(tmp_path / "room.glb")
    prepare([mesh_source(room)])
    with pytest.raises(NavMeshError, match=r"room\.scene, for agent_radius 9"):
        load_scene(tmp_path / "room.scene", NavMeshSettings(agent_radius=9.0))


def test_a_navmesh_that_does_not_say_for_which_body_is_taken_with_a_warning(tmp_path, caplog):
    room = write_floor(tmp_path / "room.glb")
    made = NavMesh.bake(load_mesh(room))
    NavMesh(made.file._replace(settings=None)).save(tmp_path / "room.navmesh")  # version 1
    scene = load_scene(room, WIDE)
    assert scene.navmesh.area == made.area and not caplog.records
    check_body(scene, 0.3, 1.5)
    assert (
        "room: its navmesh file (version 1) has no bake settings" in caplog.text and "agent_radius 0.3" in caplog.text
    )


def test_the_prepared_scene_beside_the_mesh_is_read_while_it_is_up_to_date(tmp_path, bakes):
    room = write_floor(tmp_path / "room.glb")
    prepare([mesh_source(room)])
    assert len(bakes) == 1
    bakes.clear()
    shutil.rmtree(tmp_path / "cache")
    scene, itself = load_scene(room), load_scene(room.with_suffix(".scene"))
    assert scene.name == "room" and scene.navmesh.area > 10 and not bakes
    assert np.array_equal(itself.mesh.vertices, scene.mesh.vertices)
    load_scene(room, NavMeshSettings())
    assert not bakes
    write_box(room, (0, 0, 0), (3, 0.2, 3))
    assert load_scene(room).navmesh.area < 9


def test_stages_of_habitat_are_z_up(tmp_path):
    stage = write_floor(tmp_path / "scene_datasets" / "gibson" / "Adrian.glb", up="z")
    assert load_scene(stage).navmesh.area == pytest.approx(load_scene(write_floor(tmp_path / "mine.glb")).navmesh.area)


def test_bad_scenes_name_the_file(tmp_path):
    room = write_floor(tmp_path / "room.glb")
    (tmp_path / "room.navmesh").write_bytes(b"not a navmesh")
    with pytest.raises(NavMeshError, match=r"room\.navmesh"):
        load_scene(room)
    with pytest.raises(NavMeshError, match=r"wall\.glb"):  # no floor
        load_scene(write_box(tmp_path / "wall.glb", (0, 0, 0), (0.1, 1, 2)))
    with pytest.raises(MeshError, match=r"absent\.glb"):
        load_scene(tmp_path / "absent.glb")
    for folder in ("", ".", "/"):
        with pytest.raises(MeshError, match="is a folder"):
            load_scene(folder)
    with pytest.raises(MeshError, match="names: found '5', expected a list"):
        load_scenes(5)
    with pytest.raises(MeshError, match=r"absent\.scene"):
        load_scene(tmp_path / "absent.scene")


# Scenes by name from any script, and that the first use says what takes long


def test_a_scene_by_name_or_path(tmp_path):
    assert batchnav.load_scene("house:3").name == "house:3"
    assert batchnav.load_scene(write_floor(tmp_path / "mine.ply")).name == "mine"


def test_a_folder_of_mesh_files(tmp_path):
    for name in ("b", "a"):
        write_floor(tmp_path / f"{name}.ply")
    (tmp_path / "notes.txt").write_text("no scene")
    assert [scene.name for scene in batchnav.load_scenes([tmp_path])] == [str(tmp_path / f"{n}.ply") for n in "ab"]
    with pytest.raises(MeshError, match=r"names: found 'house:3', expected a list"):
        batchnav.load_scenes("house:3")


def test_progress_is_lines_where_there_is_no_terminal(monkeypatch):
    told, clock = [], itertools.count()
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(console, "announce", told.append)
    list(in_parallel(abs, range(3), "scenes", per_worker=8))
    assert told == ["scenes: 1 of 3", "scenes: 2 of 3, about 1 s left", "scenes: 3 of 3"]  # the first compiles kernels


def test_lines_go_to_the_log_or_to_stderr(capsys, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, "batchnav"):
        console.announce("one")
    assert caplog.messages == ["one"] and capsys.readouterr().err == ""
    monkeypatch.setattr(console.log, "hasHandlers", lambda: False)
    console.announce("two")
    assert capsys.readouterr().err == "two\n"
    level = console.log.level
    console.log.setLevel(logging.ERROR)  # as ranks but the first
    try:
        console.announce("three")
    finally:
        console.log.setLevel(level)
    assert capsys.readouterr().err == ""


COMPILE = """
import numba
from batchnav.runtime.kernels import compile_lock
compile_lock.SECONDS = 0.0
@numba.njit
def one(x): return x + 1
@numba.njit
def two(x): return one(x) + 1
two(1)
"""


def test_what_is_compiled_is_told():
    """One kernel within another is one; nothing is set up for it."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    found = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=True, env=environment)
    lines = found.stderr.splitlines()
    assert "compiling kernels" in lines[0] and lines[0].endswith("first: __main__.two")
    assert lines[1].startswith("compiled __main__.two in") and len(lines) == 2


@pytest.mark.parametrize(
    "name", ["house:", "house:x", "house:-1", "house:1.5", "no_such_scene", "no/such/file.glb", ""]
)
def test_what_is_no_scene_is_named(name):
    with pytest.raises(MeshError, match="scene '") as caught:
        load_scene(name, scenes_dir=SCENES_DIR)
    assert repr(name) in str(caught.value)


def test_ranges_take_any_seed_but_not_too_many():
    assert scene_ids(["house:7200000-7200002,5"]) == [f"house:{seed}" for seed in (7200000, 7200001, 7200002, 5)]
    with pytest.raises(MeshError, match="house:0-99999999999: found 100000000000 seeds, expected at most 1000000"):
        scene_ids(["house:0-99999999999"])


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_have_64_bits(family):
    """The last seed makes a scene, alone and at the end of a range; a larger one is named with the bound."""
    last = 2**64 - 1
    assert scene_ids([f"{family}:{last - 1}-{last}"]) == [f"{family}:{last - 1}", f"{family}:{last}"]
    assert parse_scene_id(f"{family}:{last}").seed == last
    bake, seen = FAMILIES[family].meshes(last, surface=False)
    assert len(bake.faces) > 0 and len(seen.faces) > 0
    for name in (f"{family}:{last + 1}", f"{family}:5-{last + 1}", f"{family}:{'9' * 5000}"):
        with pytest.raises(MeshError, match=f"scene '{family}:.*: found seed .*, expected 0 to {last}"):
            scene_ids([name])
    with pytest.raises(MeshError, match=f"found seed '{last + 1}', expected 0 to {last}"):
        load_scene(f"{family}:{last + 1}")
    with pytest.raises(ArgumentError, match=f"seed: found {last + 1}, expected an integer from 0 to {last}"):
        FAMILIES[family].meshes(last + 1, surface=False)


def test_house_by_seed():
    (scene,) = load_all(["house:100003"])
    mesh = make_house(100003)
    assert scene.name == "house:100003"
    assert np.array_equal(scene.mesh.vertices, mesh.vertices)
    assert np.array_equal(scene.mesh.faces, mesh.faces)


def test_a_house_for_another_body():
    wide = NavMeshSettings(agent_radius=0.3)
    thin, first = load_scene("house:100003"), load_scene("house:100003", settings=wide)
    (second,) = load_all(["house:100003"], settings=wide)
    assert first.navmesh.settings == second.navmesh.settings == wide
    assert first.navmesh.area == second.navmesh.area < 0.9 * thin.navmesh.area
    assert np.array_equal(first.mesh.vertices, thin.mesh.vertices)
    assert load_scene("house:100003", settings=NavMeshSettings()).navmesh.area == thin.navmesh.area


def test_a_range_stands_for_houses():
    assert scene_ids(["house:8-10", "house:3"]) == ["house:8", "house:9", "house:10", "house:3"]
    assert [scene.name for scene in load_scenes(["house:100003-100003"])] == ["house:100003"]
    with pytest.raises(MeshError, match="house:4-3: found a range without seeds"):
        scene_ids(["house:4-3"])


def test_a_list_of_seeds_and_ranges_stands_for_scenes():
    assert scene_ids(["house:1,5,9"]) == ["house:1", "house:5", "house:9"]
    assert scene_ids(["hall:0-2,7,10-11"]) == [f"hall:{seed}" for seed in (0, 1, 2, 7, 10, 11)]
    for empty in ("house:5-3", "house:0-3,9-7"):
        with pytest.raises(MeshError, match=f"{empty}: found a range without seeds"):
            scene_ids([empty])
    for wrong in ("house:1,,2", "house:1,", "house:1-2-3", "house:a,b", "house:1, 2"):
        with pytest.raises(MeshError, match=r"expected a whole number.*lists of scenes take several seeds, as in 'ho"):
            load_scene(scene_ids([wrong])[0])


def test_a_folder_stands_for_its_prepared_scenes(tmp_path):
    for name in ("b.scene", "a.scene", "stage.scene", "stage.glb"):
        (tmp_path / name).touch()
    folder = str(tmp_path)
    assert scene_ids(["house:1", folder]) == ["house:1", f"{folder}/a.scene", f"{folder}/b.scene"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(MeshError, match=r"empty: found a folder without prepared scenes \(\*\.scene\) or mesh files"):
        scene_ids([f"{folder}/empty"])


def test_depth_alone_makes_no_surface_and_takes_one_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "versioned_cache_folder", lambda *_: tmp_path)
    bare = load_scene("hall:3", appearance=False)
    assert [file.name for file in tmp_path.iterdir()] == ["hall_3_bare.scene"]
    whole = load_scene("hall:3")
    assert bare.mesh.surface is None and whole.mesh.surface is not None
    assert np.array_equal(bare.bvh.triangles, whole.bvh.triangles)
    (tmp_path / "hall_3_bare.scene").unlink()
    monkeypatch.setitem(FAMILIES, "hall", FAMILIES["hall"]._replace(make=None))
    assert load_scene("hall:3", appearance=False).mesh.surface is None
    assert load_scene("hall:3").mesh.surface is not None
    (tmp_path / "hall_3.scene").write_bytes(b"damaged")
    monkeypatch.undo()
    monkeypatch.setattr(generated, "versioned_cache_folder", lambda *_: tmp_path)
    assert load_scene("hall:3", appearance=False).mesh.surface is None
    assert [file.name for file in tmp_path.iterdir()] == ["hall_3_bare.scene"]
    assert load_scene("hall:3").mesh.surface is not None


def test_no_more_are_made_where_one_cannot_be_read(monkeypatch):
    closed = []

    def making(*_):
        try:
            yield None
        finally:
            closed.append(True)

    def fail(name, **_):
        raise MeshError(name)

    monkeypatch.setattr(load, "in_parallel", making)
    monkeypatch.setattr(load, "_load", fail)
    with pytest.raises(MeshError, match="hall:901") as caught:
        load_all(["hall:901", "hall:902"])
    assert closed and caught  # whose traceback holds the frame


@pytest.fixture
def stage(tmp_path):
    """A stage in Habitat's folders; returns the folder of scenes."""
    write_floor(tmp_path / "scene_datasets" / "mp3d" / "17DRP" / "17DRP.glb", up="z")
    return tmp_path / "scene_datasets"


def test_scenes_that_a_data_set_does_not_list_are_loaded_by_their_path(stage, caplog):
    """As Habitat does: a scene id that names a file is loaded, whether the config is absent or lists other scenes."""
    write_json(stage / "mp3d" / "mp3d.scene_dataset_config.json", {"stages": {"paths": {".glb": ["nothing/*"]}}})
    expected = load_scene("mp3d/17DRP/17DRP.glb", scenes_dir=stage)
    for config in ("mp3d/mp3d.scene_dataset_config.json", "absent/x.scene_dataset_config.json"):
        for name in ("mp3d/17DRP/17DRP.glb", r"mp3d\17DRP\17DRP.glb", "data/scene_datasets/mp3d/17DRP/17DRP.glb"):
            caplog.clear()
            found = load_scene(f"{config}:{name}", scenes_dir=stage)
            assert found.name == f"{config}:{name}" and (found.mesh.vertices == expected.mesh.vertices).all()
            assert "17DRP.glb: loaded by its path, since the dataset's config" in caplog.text
    with pytest.raises(
        MeshError, match=r"found no file absent/x\S+, and no file of this name here or in.*--scenes-dir"
    ):
        load_scene("absent/x.scene_dataset_config.json:mp3d/nothing.glb", scenes_dir=stage)
    with pytest.raises(MeshError, match=r"found no scene 'nothing' in \S+/mp3d/mp3d\S+, and no file of this name here"):
        load_scene("mp3d/mp3d.scene_dataset_config.json:nothing", scenes_dir=stage)


def test_scene_ids_with_backslashes(stage, tmp_path):
    expected = load_scene("mp3d/17DRP/17DRP.glb", scenes_dir=stage)
    found = load_scene(r"mp3d\17DRP\17DRP.glb", scenes_dir=stage)
    assert (found.mesh.vertices == expected.mesh.vertices).all() and found.name == r"mp3d\17DRP\17DRP.glb"
    EpisodeDataset(episodes_on(r"data\scene_datasets\mp3d\17DRP\17DRP.glb")).save(tmp_path / "e.json.gz")
    episodes = load_episodes(tmp_path / "e.json.gz")
    (scene,) = load_played_scenes(episodes, stage)
    assert scene_name(episodes[0].scene_id) == "17DRP" and len(check_episodes(episodes, {scene.name: scene})) == 3
    write_floor(tmp_path / r"a\b.ply")  # a file of this very name comes first
    assert load_scene(str(tmp_path / r"a\b.ply"), scenes_dir=stage).mesh.vertices.shape == (8, 3)


def test_scenes_beside_the_episode_file(tmp_path, monkeypatch):
    """Paths count from the current folder, and where there is no file from the episode file's own folder."""
    home, away = tmp_path / "home", tmp_path / "away"
    write_floor(home / "scans" / "a.ply")
    away.mkdir()
    monkeypatch.chdir(home)
    EpisodeDataset(episodes_on("scans/a.ply")).save(home / "e.json.gz")
    monkeypatch.chdir(away)
    episodes = load_episodes(home / "e.json.gz")
    (scene,) = load_played_scenes(episodes)
    assert scene.name == "scans/a.ply" and len(check_episodes(episodes, {scene.name: scene})) == 3
    assert not [finding for finding in validate(home / "e.json.gz") if finding.level == "error"]
    assert list(load_episodes(home / "e.json.gz")) == episodes_on("scans/a.ply")
    write_box(away / "scans" / "a.ply", [0, 0, 0], [9, 1, 9])  # the current folder comes first
    assert load_played_scenes(episodes)[0].mesh.vertices.max() == 9


def test_data_sets_beside_the_episode_file(tmp_path, monkeypatch):
    write_floor(tmp_path / "set" / "stages" / "floor.ply")
    write_json(tmp_path / "set" / "own.scene_dataset_config.json", {"stages": {"paths": {".ply": ["stages"]}}})
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    config = "own.scene_dataset_config.json"
    EpisodeDataset(episodes_on("floor", scene_dataset_config=config)).save(tmp_path / "set" / "e.json.gz")
    assert load_played_scenes(load_episodes(tmp_path / "set" / "e.json.gz"))[0].name == "floor"


def test_options_of_mesh_files_are_those_of_one_scene(tmp_path):
    """Upside down and in centimetres: `load_scenes` and `load_all` take the options of `load_scene`."""
    how = {"up": "-y", "scale": 0.01, "flip": True, "two_sided": True, "islands": "largest"}
    paths = [str(write_box(tmp_path / f"{name}.ply", [0, 0, 0], [600, 20, 800])) for name in "ab"]
    expected = load_scene(paths[0], **how)
    for found in (load_scenes(paths, **how), load_all(paths, **how), [load_scene(paths[0], **how)]):
        assert (found[0].mesh.vertices == expected.mesh.vertices).all() and abs(found[0].mesh.vertices).max() == 8
        assert (found[0].mesh.faces == expected.mesh.faces).all()
        assert found[0].navmesh.area == expected.navmesh.area
    with pytest.raises(ArgumentError, match="up, scale, flip, two_sided: found one of them for 'house:3'"):
        load_scenes(["house:3"], scale=0.5)
    whole, largest = load_scene("house:3"), load_scenes(["house:3"], islands="largest")[0]
    assert largest.navmesh.num_islands == 1 <= whole.navmesh.num_islands


def test_a_missing_scene_of_a_dataset_is_named_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "hm3d_v0.2/hm3d/val/00800-TEEsavR23oF-with-a-name-of-a-hundred-characters/TEEsavR23oF.basis.glb"
    with pytest.raises(
        MeshError, match=rf"scene '{name}': found no such file here or in data.* --scenes-dir$"
    ) as caught:
        load_scene(name, scenes_dir=SCENES_DIR)
    assert "house:SEED" not in str(caught.value)
    with pytest.raises(MeshError, match=rf"scene '{name}': found no file a/x\S+, and no file of this name"):
        load_scene(f"a/x.scene_dataset_config.json:{name}", scenes_dir=SCENES_DIR)
    with pytest.raises(MeshError, match=r"scene 'housee:0': found no such file here .*'house:SEED'"):
        load_scene("housee:0", scenes_dir=SCENES_DIR)
    with pytest.raises(MeshError) as caught:
        load_all([9999 * "a/" + "b.glb"])
    assert len(str(caught.value)) < 500


def test_a_scene_that_is_added_to_a_dataset_is_found_by_the_same_process(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "_KEPT", 0.0)
    write_floor(tmp_path / "stages" / "first.ply")
    config = write_json(tmp_path / "own.scene_dataset_config.json", {"stages": {"paths": {".ply": ["stages"]}}})
    assert load_scene(f"{config}:first").name == f"{config}:first"
    with pytest.raises(MeshError, match="found no scene 'second'"):
        load_scene(f"{config}:second")
    write_floor(tmp_path / "stages" / "second.ply")
    assert load_scene(f"{config}:second").navmesh.area > 0.0
