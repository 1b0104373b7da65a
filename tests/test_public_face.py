"""The public interface: the program `public_face.py` runs, and type checkers know every name."""

import ast
import importlib
import operator
from pathlib import Path

import pytest

import batchnav
from batchnav.errors import ArgumentError
from tests import public_face
from tests.pages import ROOT
from tests.worlds import write_episodes, write_floor


def test_a_users_program_runs(tmp_path):
    scenes = public_face.read_scenes(write_floor(tmp_path / "floor.glb"))
    assert public_face.walk(scenes[0].mesh, tmp_path / "floor.navmesh") >= 0
    public_face.look(scenes)
    public_face.play(scenes)
    stage = write_floor(tmp_path / "data" / "scene_datasets" / "floors" / "a.glb", up="z")
    dataset, episodes = public_face.read_data(stage.parent, write_episodes(tmp_path / "few.json.gz", ["floors/a.glb"]))
    assert dataset.scene_names == ("floors/a.glb",) and len(episodes) == 3
    public_face.search(ROOT / "assets" / "episodes", tmp_path / "copies")


def test_a_users_other_renderer_runs(opengl):
    public_face.rasterise([batchnav.load_scene("house:3")])


LOADERS = (
    "load_mesh", "load_scene", "load_dataset", "load_episodes",
    "load_policy", "NavMesh.load",
)  # fmt: skip


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("path", [None, 5, b"house.glb", ["house.glb"], "x" * 5000])
def test_what_is_no_path_is_named(loader, path):
    with pytest.raises(ArgumentError, match="path: found"):
        operator.attrgetter(loader)(batchnav)(path)


def test_type_checkers_know_every_name():
    stub = ast.parse((Path(batchnav.__file__).parent / "__init__.pyi").read_text())
    known = {alias.name: line.module for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names}
    assert sorted(known) == batchnav.__all__
    for name in known.keys() - {"render"}:  # also the name of a module
        assert getattr(importlib.import_module(known[name]), name) is getattr(batchnav, name)
