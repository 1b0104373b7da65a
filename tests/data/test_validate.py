import dataclasses

import pytest
import trimesh
from worlds import TOP, episodes_on, write_box, write_floor, write_json

from batchnav.data.episodes import Goal
from batchnav.data.formats import EpisodeDataset
from batchnav.data.scenes.prepared import save_prepared
from batchnav.data.scenes.source import mesh_source, stage_source
from batchnav.data.validate import check_mesh, validate
from batchnav.envs.nav import NavEnv
from batchnav.navmesh.navmesh import NavMesh
from batchnav.procedural import make_house
from batchnav.scene.mesh import load_mesh


def findings(path, **options):
    """Levels and texts of what is found."""
    return [(finding.level, finding.text) for finding in validate(path, **options)]


@pytest.fixture
def floor(tmp_path):
    return write_floor(tmp_path / "floor.ply")


def test_nothing_is_wrong(tmp_path, floor):
    NavMesh.bake(load_mesh(floor)).save(tmp_path / "floor.navmesh")
    EpisodeDataset(episodes_on(str(floor))).save(tmp_path / "e.json.gz")
    for path in (floor, tmp_path / "floor.navmesh", tmp_path / "e.json.gz"):
        assert not findings(path)


def test_files_that_cannot_be_read(tmp_path):
    for name in ("a.navmesh", "a.json.gz", "a.scene", "a.glb", "a.scene_dataset_config.json"):
        (tmp_path / name).write_bytes(b"nonsense")
        ((level, text),) = findings(tmp_path / name)
        assert level == "error" and name in text


def test_a_navmesh_of_another_scene_or_axis(tmp_path):
    stage = write_floor(tmp_path / "scene_datasets" / "own.glb")  # y up, but Habitat takes it for z up
    NavMesh.bake(mesh_source(stage).load_mesh()).save(stage.with_suffix(".navmesh"))
    assert stage_source(stage).navmesh
    found = findings(tmp_path / "scene_datasets")
    assert any(level == "error" and "same axis up" in text for level, text in found)


def test_a_folder_of_prepared_scenes(tmp_path):
    for name in "ab":
        save_prepared(mesh_source(write_floor(tmp_path / "floor.ply")).load(), tmp_path / "out" / f"{name}.scene")
    assert findings(tmp_path / "out") == []
    (tmp_path / "out" / "b.scene").write_bytes(b"")
    assert [level for level, _ in findings(tmp_path / "out")] == ["error"]


def test_a_house_on_its_side_is_found():
    house = make_house(1)
    assert not [finding for finding in check_mesh(house, "house") if "+Y up" in finding.text]
    for order in ([0, 2, 1], [1, 0, 2]):
        (finding,) = check_mesh(house._replace(vertices=house.vertices[:, order]), "house")
        assert finding.level == "warning" and "is +Y up?" in finding.text


def test_units_slivers_and_small_islands(tmp_path):
    write_box(tmp_path / "tiny.ply", [0, 0, 0], [0.5, 0.01, 0.5])
    assert any("is it in metres?" in text for _, text in findings(tmp_path / "tiny.ply"))
    mesh = trimesh.creation.box((2.0, 0.2, 2.0))
    faces = [*mesh.faces.tolist(), [0, 0, 1]]
    trimesh.Trimesh(mesh.vertices, faces, process=False).export(tmp_path / "sliver.ply")
    found = findings(tmp_path / "sliver.ply")
    what = "1 triangle (7.7%) without area, or with a corner that is not finite"
    assert ("warning", f"{tmp_path / 'sliver.ply'}: {what}") in found
    assert any(level == "error" and "no episode can be sampled" in text for level, text in found)


def test_episodes(tmp_path, floor):
    good, other, off = episodes_on(str(floor))
    other = dataclasses.replace(other, info={"geodesic_distance": 9.0}, episode_id=good.episode_id)
    off = dataclasses.replace(off, goals=(Goal((40.0, TOP, 0.0)),))
    absent = dataclasses.replace(good, scene_id="nowhere.glb")
    EpisodeDataset([good, other, off, absent]).save(tmp_path / "e.json.gz")
    found = findings(tmp_path / "e.json.gz")
    assert [level for level, _ in found] == ["warning", "error", "warning", "error"]
    assert "episode ids are duplicates" in found[0][1]
    assert "goals[0].position" in found[1][1]
    assert "states a geodesic distance of 9.000 m, found 1.5" in found[2][1]
    assert "'nowhere.glb'" in found[3][1]


def test_goals_above_the_floor_that_no_stop_reaches(tmp_path, floor, caplog):
    """A goal may be 0.5 m above the navmesh, but a stop succeeds only within the task's success distance of it."""
    low, high = (dataclasses.replace(e, episode_id=str(k)) for k, e in enumerate(episodes_on(str(floor))[:2]))
    raised = tuple(dataclasses.replace(g, position=(g.position[0], TOP + 0.6, g.position[2])) for g in high.goals)
    EpisodeDataset([low, dataclasses.replace(high, goals=raised, info={})]).save(tmp_path / "e.json.gz")
    ((level, text),) = findings(tmp_path / "e.json.gz")
    assert level == "warning" and "episode '1'" in text and "success distance of 0.2 m, else no stop succeeds" in text
    NavEnv.from_episodes(tmp_path / "e.json.gz", 2, "cpu", sensors=(), success_distance=1.0)
    assert not caplog.text
    NavEnv.from_episodes(tmp_path / "e.json.gz", 2, "cpu", sensors=())
    assert "1 episode in which no stop succeeds, such as episode '1'" in caplog.text


def test_missing_assets(tmp_path):
    write_floor(tmp_path / "stages" / "s.glb")
    write_json(tmp_path / "stages" / "s.stage_config.json", {"render_asset": "s.glb", "up": [0, 1, 0]})
    instance = {"stage_instance": {"template_name": "s"}, "object_instances": [{"template_name": "sofa"}]}
    write_json(tmp_path / "scenes" / "x.scene_instance.json", instance)
    cells = {"stages": {"paths": {".json": ["stages"]}}, "scene_instances": {"paths": {".json": ["scenes"]}}}
    config = write_json(tmp_path / "x.scene_dataset_config.json", cells)
    expected = [("warning", "x: 1 assets are missing: sofa")]
    assert findings(config) == findings(tmp_path / "scenes" / "x.scene_instance.json") == expected
