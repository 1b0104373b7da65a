import numpy as np
import pytest

from batchnav.data.scenes import find_scene, find_scenes, scene_ids
from batchnav.errors import MeshError
from batchnav.houses import make_house


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


def test_bundled_scene_by_name():
    scene = find_scene("aws_small_house")
    assert scene.name == "aws_small_house"
    # About 136 m2 on its main island, a few more on tables and roofs.
    assert 120.0 < scene.navmesh.area < 160.0


def test_a_folder_stands_for_its_prepared_scenes(tmp_path):
    for name in ("b.scene", "a.scene", "stage.scene", "stage.glb"):
        (tmp_path / name).touch()
    folder = str(tmp_path)
    assert scene_ids(["house:1", folder]) == ["house:1", f"{folder}/a.scene", f"{folder}/b.scene"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(MeshError, match=r"empty: found a folder without prepared scenes \(\*\.scene\)"):
        scene_ids([f"{folder}/empty"])
