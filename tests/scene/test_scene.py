import numpy as np
import pytest
import torch

import batchnav.scene.scene as scenes
from batchnav.errors import ArgumentError, DeviceError, MeshError, NavMeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh


def floor(size=4.0) -> TriangleMesh:
    corners = np.float32([[0, 0, 0], [0, 0, size], [size, 0, size], [size, 0, 0]])
    return TriangleMesh(corners, np.int32([[0, 1, 2], [0, 2, 3]]))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of navmeshes."""
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")


def test_bad_scenes_are_named():
    with pytest.raises(MeshError, match="room: holds no triangles"):
        make_scene("room", TriangleMesh(np.zeros((3, 3), np.float32), np.zeros((0, 3), np.int32)))


def test_a_bank_holds_its_scenes_in_order(cache):
    rooms = [make_scene("small", floor(2.0)), make_scene("large", floor(4.0))]
    bank = SceneBank.pack(rooms, "cpu")
    assert bank.names == ("small", "large") and bank.num_scenes == 2 and bank.device == torch.device("cpu")
    assert bank.bvh.roots.tolist() == [0, 1] and bank.bvh.triangles.shape == (4, 12)
    assert bank.bvh_view.nodes.ctypes.data == bank.bvh.nodes.data_ptr()
    assert SceneBank.pack(rooms[0]).num_scenes == 1


def test_bad_banks_are_named(cache):
    with pytest.raises(ArgumentError, match="scenes: found none"):
        SceneBank.pack([])
    with pytest.raises(ArgumentError, match=r"scenes\[0\]: found TriangleMesh"):
        SceneBank.pack([floor()])
    with pytest.raises(DeviceError, match="device"):
        SceneBank.pack([make_scene("room", floor())], "abacus")


@pytest.mark.parametrize(
    ("body", "what"),
    [({"agent_radius": 3.0}, "agent_radius 3 and agent_height 1.5"), ({"agent_height": 3.0}, "agent_height 3")],
)
def test_a_body_that_no_navmesh_fits_is_named(cache, body, what):
    """Too wide for a floor of 4 m, or too tall for a room of 2.5 m."""
    low, high = floor(), floor()
    ceiling = high.vertices + np.float32([0, 2.5, 0])
    faces = np.concatenate([low.faces, high.faces[:, ::-1] + 4])
    mesh = TriangleMesh(np.concatenate([low.vertices, ceiling]), np.ascontiguousarray(faces))
    make_scene("room", mesh)
    with pytest.raises(NavMeshError, match=rf"room, for .*{what}: mesh: found no "):
        make_scene("room", mesh, settings=NavMeshSettings(**body))
