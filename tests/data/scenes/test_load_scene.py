import shutil

import numpy as np
import pytest
from worlds import write_box, write_floor

import batchnav.scene.scene as scenes
from batchnav.data.scenes.load import load_all, load_scene, load_scenes
from batchnav.data.scenes.prepare import prepare
from batchnav.data.scenes.source import mesh_source
from batchnav.errors import MeshError, NavMeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
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
    for load in (load_scene, lambda path, settings: load_all([str(path)], settings=settings)):
        with pytest.raises(NavMeshError, match=refused):
            load(room, NavMeshSettings())
    prepare([mesh_source(room)])
    with pytest.raises(NavMeshError, match=refused):
        load_scene(room, NavMeshSettings())
    with pytest.raises(NavMeshError, match=refused.replace("navmesh:", "scene:")):
        load_scene(tmp_path / "room.scene", NavMeshSettings())
    assert load_scene(tmp_path / "room.scene", WIDE).navmesh.settings == WIDE


def test_a_prepared_scene_for_another_body_gives_way_to_its_mesh(tmp_path, bakes):
    room = write_floor(tmp_path / "room.glb")
    prepare([mesh_source(room)])
    assert load_scene(room, WIDE).navmesh.settings == WIDE and len(bakes) == 2


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
