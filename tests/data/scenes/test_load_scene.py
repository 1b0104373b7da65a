import itertools
import logging
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from worlds import write_box, write_floor

import batchnav
import batchnav.scene.scene as scenes
from batchnav.data.scenes.load import load_all, load_scene, load_scenes
from batchnav.data.scenes.prepared import prepare
from batchnav.data.scenes.source import mesh_source
from batchnav.errors import MeshError, NavMeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
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
from batchnav.runtime.console import compilations
compilations.SECONDS = 0.0
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
