import numpy as np
import pytest
import torch

import batchnav.scene.scene as scenes
from batchnav.errors import ArgumentError, DeviceError, MeshError, NavMeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.bank import SceneBank
from batchnav.scene.mesh import save_mesh
from batchnav.scene.scene import load_scene, make_scene
from batchnav.types import TriangleMesh


def floor(size=4.0) -> TriangleMesh:
    corners = np.float32([[0, 0, 0], [0, 0, size], [size, 0, size], [size, 0, 0]])
    return TriangleMesh(corners, np.int32([[0, 1, 2], [0, 2, 3]]))


@pytest.fixture
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
    save_mesh(floor(), tmp_path / "room.glb")
    first, second = load_scene(tmp_path / "room.glb"), load_scene(str(tmp_path / "room.glb"))
    assert first.name == "room" and len(first.mesh.faces) == 2
    assert len(bakes) == 1 and first.navmesh.area == second.navmesh.area > 10
    load_scene(tmp_path / "room.glb", NavMeshSettings(agent_radius=0.5))
    assert len(bakes) == 2 and len(list(cache.iterdir())) == 2
    for file in cache.iterdir():
        file.write_bytes(file.read_bytes()[:50])  # a damaged cache is baked anew
    assert load_scene(tmp_path / "room.glb").navmesh.area == first.navmesh.area and len(bakes) == 3


def test_the_navmesh_beside_the_mesh_is_read(tmp_path, cache, bakes):
    save_mesh(floor(4.0), tmp_path / "room.glb")
    small = NavMesh.bake(floor(2.0))
    small.save(tmp_path / "room.navmesh")
    assert load_scene(tmp_path / "room.glb").navmesh.area == pytest.approx(small.area)
    assert len(bakes) == 1
    assert load_scene(tmp_path / "room.glb", NavMeshSettings()).navmesh.area > small.area  # asked for


def test_bad_scenes_name_the_file(tmp_path, cache):
    save_mesh(floor(), tmp_path / "room.glb")
    (tmp_path / "room.navmesh").write_bytes(b"not a navmesh")
    with pytest.raises(NavMeshError, match=r"room\.navmesh"):
        load_scene(tmp_path / "room.glb")
    wall = TriangleMesh(np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.int32([[0, 1, 2]]))
    save_mesh(wall, tmp_path / "wall.glb")
    with pytest.raises(NavMeshError, match=r"wall\.glb"):  # no floor
        load_scene(tmp_path / "wall.glb")
    with pytest.raises(MeshError, match=r"absent\.glb"):
        load_scene(tmp_path / "absent.glb")
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
