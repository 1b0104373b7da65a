import numpy as np
import pytest

from batchnav.data import generated, scenes
from batchnav.data.scene_ref import scene_ids
from batchnav.data.scenes import find_scene, find_scenes, load_scenes
from batchnav.errors import MeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import FAMILIES, make_house


@pytest.mark.parametrize(
    "name", ["house:", "house:x", "house:-1", "house:1.5", "no_such_scene", "no/such/file.glb", ""]
)
def test_what_is_no_scene_is_named(name):
    with pytest.raises(MeshError, match="scene '") as caught:
        find_scene(name)
    assert repr(name) in str(caught.value)


def test_house_by_seed():
    (scene,) = find_scenes(["house:100003"])
    mesh = make_house(100003)
    assert scene.name == "house:100003"
    assert np.array_equal(scene.mesh.vertices, mesh.vertices)
    assert np.array_equal(scene.mesh.faces, mesh.faces)


def test_a_house_for_another_body():
    wide = NavMeshSettings(agent_radius=0.3)
    thin, first = find_scene("house:100003"), find_scene("house:100003", settings=wide)
    (second,) = find_scenes(["house:100003"], settings=wide)
    assert first.navmesh.settings == second.navmesh.settings == wide
    assert first.navmesh.area == second.navmesh.area < 0.9 * thin.navmesh.area
    assert np.array_equal(first.mesh.vertices, thin.mesh.vertices)
    assert find_scene("house:100003", settings=NavMeshSettings()).navmesh.area == thin.navmesh.area


def test_a_range_stands_for_houses():
    assert scene_ids(["house:8-10", "house:3"]) == ["house:8", "house:9", "house:10", "house:3"]
    assert [scene.name for scene in load_scenes(["house:100003-100003"])] == ["house:100003"]
    with pytest.raises(MeshError, match="house:4-3: found a range without seeds"):
        scene_ids(["house:4-3"])


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
    bare = find_scene("hall:3", appearance=False)
    assert [file.name for file in tmp_path.iterdir()] == ["hall_3_bare.scene"]
    whole = find_scene("hall:3")
    assert bare.mesh.surface is None and whole.mesh.surface is not None
    assert np.array_equal(bare.bvh.triangles, whole.bvh.triangles)
    (tmp_path / "hall_3_bare.scene").unlink()
    monkeypatch.setitem(FAMILIES, "hall", FAMILIES["hall"]._replace(make=None))
    assert find_scene("hall:3", appearance=False).mesh.surface is None
    assert find_scene("hall:3").mesh.surface is not None
    (tmp_path / "hall_3.scene").write_bytes(b"damaged")
    monkeypatch.undo()
    monkeypatch.setattr(generated, "versioned_cache_folder", lambda *_: tmp_path)
    assert find_scene("hall:3", appearance=False).mesh.surface is None
    assert [file.name for file in tmp_path.iterdir()] == ["hall_3_bare.scene"]
    assert find_scene("hall:3").mesh.surface is not None


def test_no_more_are_made_where_one_cannot_be_read(monkeypatch):
    closed = []

    def making(*_):
        try:
            yield None
        finally:
            closed.append(True)

    def fail(name, **_):
        raise MeshError(name)

    monkeypatch.setattr(scenes, "in_parallel", making)
    monkeypatch.setattr(scenes, "find_scene", fail)
    with pytest.raises(MeshError, match="hall:901") as caught:
        find_scenes(["hall:901", "hall:902"])
    assert closed and caught  # whose traceback holds the frame
