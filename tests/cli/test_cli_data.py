"""The commands `batchnav data`: import, preparation, episodes, checks, list of datasets."""

import dataclasses
import gzip
import json
import shlex

import pytest
from labelled import write_named
from PIL import Image
from worlds import episodes_on, write_episodes, write_floor, write_json

from batchnav.data.download import SOURCES, Source
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals import GOALS
from batchnav.data.scenes.load import load_scene, load_scenes
from batchnav.data.scenes.prepared import load_prepared
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings


def test_import_a_scan_and_make_episodes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_floor(tmp_path / "scan.glb", up="z")
    assert "data/mine/scan.scene: prepared" in run("data", "import", "scan.glb", "--up", "z", "--out", "data/mine")
    assert "up to date" in run("data", "import", "scan.glb", "--up", "z", "--out", "data/mine")
    assert NavMesh.load("data/mine/scan.navmesh").area == load_prepared("data/mine/scan.scene").navmesh.area
    text = run("data", "make-episodes", "data/mine", "--out", "data/mine/train.json.gz", "--per-scene", 4, "--seed", 1)
    assert "4 episodes in 1 scene" in text
    episodes = load_episodes("data/mine/train.json.gz")
    assert {e.scene_id for e in episodes} == {"data/mine/scan.scene"} and len(episodes) == 4
    files = "data/mine/train.json.gz", "data/mine/scan.scene", "data/mine/scan.navmesh"
    assert run("data", "validate", *files).count("no errors") == 3


def test_a_scene_imported_beside_its_file_is_found(run, tmp_path, monkeypatch):
    """The printed command plays in the scene, +Z up and with its islands, not in the file of the same name."""
    monkeypatch.chdir(tmp_path)
    write_floor(tmp_path / "mine" / "scan.glb", up="z")
    for islands, more in (("indoor", []), ("largest", ["--islands", "all"]), ("0", ["--islands", "all"])):
        text = run("data", "import", "mine/scan.glb", "--up", "z", "--islands", islands, "--out", "mine")
        (line,) = [line for line in text.splitlines() if line.startswith("To make episodes")]
        words = shlex.split(line.partition(": batchnav ")[2])
        assert words == ["data", "make-episodes", "mine", *more, "--out", "mine/episodes.json.gz"]
        run(*words, "--per-scene", 2)
        assert {e.scene_id for e in load_episodes("mine/episodes.json.gz")} == {"mine/scan.scene"}
    (scene,) = load_scenes(["mine"])
    assert scene.navmesh.area > 10.0
    run("data", "export", "mine/scan.scene", "--out", "mine/scan.glb")
    assert [each.name for each in load_scenes(["mine"])] == [scene.name]


def test_prepare_in_place_and_episodes_in_one_file_per_scene(run, tmp_path):
    folder = tmp_path / "data" / "scene_datasets" / "gibson"
    for name in ("Adrian", "Ribera"):
        write_floor(folder / f"{name}.glb", up="z")
    text = run("data", "prepare", folder, "--split", "val")
    assert text.count(": prepared") == 2 and (folder / "Adrian.scene").is_file()
    out = tmp_path / "val" / "val.json.gz"
    run("data", "make-episodes", folder, "--split", "val", "--out", out, "--per-scene", 2, "--content")
    assert sorted(file.name for file in (out.parent / "content").iterdir()) == ["Adrian.json.gz", "Ribera.json.gz"]
    assert [e.scene_id for e in load_episodes(out)] == ["gibson/Adrian.glb"] * 2 + ["gibson/Ribera.glb"] * 2
    run("data", "validate", out, "--scenes-dir", folder.parent)


def test_each_finding_of_validate_names_its_file(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_floor(tmp_path / "floor.glb", up="y")
    far = [dataclasses.replace(e, start_position=(90.0, 0.0, 0.0)) for e in episodes_on("floor.glb", 2)]
    EpisodeDataset(far).save(tmp_path / "far.json.gz")
    with pytest.raises(SystemExit, match="1"):
        run("data", "validate", "floor.glb", "far.json.gz")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2 and all(line.startswith("error: far.json.gz: episode ") for line in lines)


def test_labels_of_objects_are_counted(run, tmp_path, monkeypatch):
    """Objects by category, labels of none, and a file of patterns, whose printed command plays the episodes."""
    monkeypatch.chdir(tmp_path)
    places = [("my_ArmChairB", -2), ("Shelf", 0), ("shelf", 2)]
    things = [(label, (x - 0.3, 0, -0.3), (x + 0.3, 0.8, 0.3)) for label, x in places]
    write_named(tmp_path / "room.glb", things)
    make = ("data", "make-episodes", "room.glb", "--task", "objectnav", "--per-scene", 2, "--device", "cpu")
    text = run(*make, "--out", "chairs.json.gz")
    assert "objects by category: chair 1\n" in text
    assert "objects of no category, by label: floor 1, Shelf 1, shelf 1\n" in text
    assert {e.object_category for e in load_episodes("chairs.json.gz")} == {"chair"}
    (tmp_path / "labels.yaml").write_text("book shelf: shelf\nseat: '*chair*'\n")
    text = run(*make, "--labels", "labels.yaml", "--out", "own.json.gz")
    assert "objects by category: book shelf 2, seat 1\nobjects of no category, by label: floor 1\n" in text
    assert {e.object_category for e in load_episodes("own.json.gz")} == {"book shelf", "seat"}
    (line,) = [line for line in text.splitlines() if line.startswith("To evaluate an agent")]
    words = shlex.split(line.partition(": batchnav ")[2])
    assert words[4:7] == ["--env.task.categories", "book shelf", "seat"]
    assert "success" in run(*words, "--out", "played", "--device", "cpu")
    text = run("data", "validate", "own.json.gz")
    assert shlex.split(text.splitlines()[-1].partition(": batchnav ")[2]) == words


def test_import_procthor_houses(run, tmp_path):
    corners = ((0, 0), (0, 4), (4, 4), (4, 0))
    walls = [
        {"id": str(k), "polygon": [{"x": x, "y": y, "z": z} for y in (0, 2.5) for x, z in ends]}
        for k, ends in enumerate(zip(corners, (*corners[1:], corners[0]), strict=True))
    ]
    floor = [{"x": x, "y": 0, "z": z} for x, z in corners]
    stool = {"assetId": "Stool", "position": {"x": 2, "y": 0.2, "z": 2}, "rotation": {"y": 0}}
    house = {"rooms": [{"floorPolygon": floor}], "walls": walls, "doors": [], "objects": [stool]}
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(f"{json.dumps(house)}\n".encode() * 2))
    write_json(tmp_path / "asset_bbox.json", {})
    text = run("data", "import", path, "--out", tmp_path / "out")
    assert "unknown size: Stool" in text and text.count(": prepared") == 2
    assert load_prepared(tmp_path / "out" / "train_0001.scene").navmesh.area > 10.0
    sizes = write_json(tmp_path / "sizes.json", {"Stool": [0.4, 0.4, 0.4]})
    assert "unknown" not in run("data", "import", path, "--out", tmp_path / "out", "--sizes", sizes)


def test_make_objectnav_episodes(run, tmp_path):
    out = tmp_path / "val.json.gz"
    text = run("data", "make-episodes", "house:2", "--task", "objectnav", "--out", out, "--per-scene", 6, "--content")
    assert "6 episodes in 1 scene" in text
    dataset = load_episodes(out)
    assert len(dataset.episodes) == 6 and GOALS[dataset.kind].scene_goals(dataset, "house:2").objects


def test_make_imagenav_episodes(run, tmp_path):
    out = tmp_path / "val.json.gz"
    assert "6 episodes in 1 scene" in run(
        "data", "make-episodes", "house:2", "--task", "imagenav", "--out", out, "--per-scene", 6
    )
    assert {episode.info["difficulty"] for episode in load_episodes(out)} == {"easy", "medium", "hard"}


def test_make_episodes_refuses_files_that_would_be_read_together(run, tmp_path, monkeypatch):
    """Files of a folder `content` belong to each split in the folder above."""
    monkeypatch.setattr("batchnav.data.scenes.load.load_all", lambda *_, **__: pytest.fail("scenes were loaded"))
    write_episodes(tmp_path / "val.json.gz", ["a.glb", "b.glb"], content=True)
    before = sorted(tmp_path.rglob("*"))
    for name, more in (("mine.json.gz", ()), ("mine.json.gz", ("--content",)), ("val.json.gz", ())):
        with pytest.raises(SystemExit, match=rf"{name}: found a.json.gz, b.json.gz in \S+/content, .*another folder"):
            run("data", "make-episodes", "house:2", "--out", tmp_path / name, *more)
    with pytest.raises(SystemExit, match=r"mine\.json: found another suffix, expected \.json\.gz"):
        run("data", "make-episodes", "house:2", "--out", tmp_path / "mine.json")
    assert sorted(tmp_path.rglob("*")) == before


def test_list_data_sets(run, tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "mine", Source("https://x/y.zip", "scene_datasets/mine", "MIT", "1"))
    (tmp_path / "scene_datasets" / "mine").mkdir(parents=True)
    text = run("data", "list", "--data-path", tmp_path)
    row = next(line for line in text.splitlines() if "│ mine" in line)
    assert "yes" in row and "MIT" in row
    for name in ("habitat_test_scenes", "hm3d", "gibson", "procthor"):
        assert f"│ {name} " in text


def test_each_dataset_without_a_form_has_its_command_in_the_list(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    text = run("data", "list", "--data-path", tmp_path)
    for name in ("habitat_test_scenes", "hm3d_example"):
        row = next(line for line in text.splitlines() if f"│ {name} " in line)
        assert f"batchnav data download {name} " in row


# The commands `batchnav navmesh`


def test_navmesh_bake_info_and_view(run, tmp_path):
    floor = write_floor(tmp_path / "floor.ply")
    narrow = run("navmesh", "bake", floor, "--agent-radius", "0.5", "--out", tmp_path / "narrow.navmesh")
    assert "1 island\n" in narrow
    run("navmesh", "bake", floor)
    areas = [NavMesh.load(tmp_path / f"{name}.navmesh").area for name in ("narrow", "floor")]
    assert areas[0] < areas[1] - 5.0
    info = run("navmesh", "info", tmp_path / "narrow.navmesh")
    assert "island 0" in info and "agent_radius" in info and "0.5" in info
    run("navmesh", "view", tmp_path / "floor.navmesh")
    with Image.open(tmp_path / "floor.png") as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(2**20)) > 100  # clearance is a gradient
    ends = ("--start", -2, 0.2, 3, "--goal", 2, 0.2, -3)
    run("navmesh", "view", tmp_path / "floor.navmesh", "--out", tmp_path / "path.png", *ends)
    assert (tmp_path / "path.png").read_bytes() != (tmp_path / "floor.png").read_bytes()


def test_a_radius_that_is_no_whole_number_of_cells_is_named(run, tmp_path):
    floor, out = write_floor(tmp_path / "floor.ply"), tmp_path / "floor.navmesh"
    note = "agent_radius 0.24 acts as 0.25 m"
    assert note in run("navmesh", "bake", floor, "--agent-radius", "0.24")
    assert note in " ".join(run("navmesh", "info", out).split()) and note in run("data", "validate", out)
    assert "acts as" not in run("navmesh", "bake", floor, "--agent-radius", "0.25")


def test_navmeshes_for_a_body(run, tmp_path, monkeypatch):
    """Import, preparation, episodes and baking for a robot; then again for another one."""
    monkeypatch.chdir(tmp_path)
    floor = write_floor(tmp_path / "floor.ply")
    body = "--agent-radius", "0.25", "--agent-height", "0.6"
    text = run("data", "import", floor, "--out", "mine", *body)
    assert "--env.body.agent-radius 0.25 --env.body.agent-height 0.6 --out runs/mine" in text
    assert "make-episodes mine --agent-radius 0.25 --agent-height 0.6 --out" in text
    wide = NavMeshSettings(agent_radius=0.25, agent_height=0.6)
    assert NavMesh.load("mine/floor.navmesh").settings == load_scene("mine/floor.scene").navmesh.settings == wide
    assert "up to date" in run("data", "import", floor, "--out", "mine", *body)
    assert "prepared" in run("data", "import", floor, "--out", "mine")
    assert load_scene("mine/floor.scene").navmesh.settings == NavMeshSettings()
    text = run("data", "make-episodes", "mine", *body, "--per-scene", 2, "--out", "few.json.gz")
    assert (
        "evaluate shortest_path --task pointnav --agent-radius 0.25 --agent-height 0.6 --episodes few.json.gz" in text
    )
    assert "radius_0.25m" in run("evaluate", "shortest_path", *body, "--episodes", "few.json.gz", "--device", "cpu")
    run("navmesh", "bake", "mine/floor.scene", *body, "--out", "wide.navmesh")
    assert NavMesh.load("wide.navmesh").area == load_scene("mine/floor.scene", wide).navmesh.area
    with pytest.raises(SystemExit, match="up, scale, flip, two_sided: found one of them for mine/floor"):
        run("navmesh", "bake", "mine/floor.scene", "--flip")


def test_prepared_for_a_body_beside_a_navmesh_of_another(run, tmp_path):
    floor = write_floor(tmp_path / "floor.ply")
    run("navmesh", "bake", floor)
    run("data", "prepare", floor, "--agent-radius", "0.25")
    wide = NavMeshSettings(agent_radius=0.25)
    assert load_scene(floor, wide).navmesh.settings == load_scene(floor).navmesh.settings == wide
    with pytest.raises(SystemExit, match="agent_radius: found -1"):
        run("data", "prepare", floor, "--agent-radius", "-1")
