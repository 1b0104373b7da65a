"""Scenes by name from any script, and that the first use says what takes long."""

import itertools
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from worlds import write_floor

import batchnav
from batchnav.data.parallel import in_parallel
from batchnav.errors import MeshError
from batchnav.runtime import console


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
