"""Errors of all commands: one line, exit status 1, closed pipes."""

import importlib
import os
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest
import torch
from worlds import write_box, write_floor

from batchnav.bench import options
from batchnav.cli import main
from batchnav.cli.bench import SUBCOMMANDS
from batchnav.config import ranges
from batchnav.procedural import BENCHMARK_HOUSE


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("data", "import", "absent.glb", "--out", "out"), "absent.glb"),
        (("data", "prepare", "absent"), "'absent': found no such"),
        (("data", "download", "absent"), "absent: found no dataset"),
        (("data", "download"), "uids: found none"),
        (("data", "validate"), "paths: found none"),
        (("data", "prepare"), "paths: found none"),
        (("data", "make-episodes", "--out", "e.json.gz"), "scenes: found none"),
        (("evaluate",), "agents: found none"),
        (("data", "make-episodes", "absent.glb", "--out", "e.json.gz"), "absent.glb"),
        (("data", "make-episodes", "house:1", "--out", "e.json.gz", "--per-scene", "0"), "per_scene: found 0"),
        (
            ("data", "make-episodes", "house:1", "--out", "e.json.gz", "--per-scene", str(10**30)),
            "per_scene: found 10000",
        ),
        (("data", "make-episodes", "house:1", "--out", "e.json.gz", "--seed", "-1"), "seed: found -1"),
        (("bench", "sim", "--steps", "-1"), "--steps: found -1"),
        (("bench", "sim", "--seconds", "nan"), "--seconds: found nan"),
        (("bench", "sim", "--seconds", "1e999"), "--seconds: found inf"),
        (("bench", "sim", "--num-envs", "4", str(10**30)), "--num-envs: found 10000"),
        (("bench", "sim", "--num-envs"), "--num-envs: found no value"),
        (("bench", "sim", "--noise", "nan"), "--noise: found nan"),
        (("bench", "sim", "--repeats", "0"), "--repeats: found 0"),
        (("bench", "navmesh", "--batch", "0"), "--batch: found 0"),
        (("bench", "render", "--sizes", "-64"), "--sizes: found -64"),
        (("bench", "train", "--updates", "0"), "--updates: found 0"),
        (("evaluate", "greedy", "--num-envs", "0"), "--num-envs: found 0"),
        (
            ("evaluate", "greedy", "--episodes", "nothere", "--device", "cpu"),
            "nothere: no such file or episode file, expected a file or one of",
        ),
        (
            ("evaluate", "nothere", "--task", "explore", "--device", "cpu"),
            "; reference agents: random, forward, greedy,",
        ),
        (("evaluate", "greedy", "--seed", str(2**63)), "seed: found 9223372036854775808"),
        (("train", "--config", ""), "--config: found an empty name"),
        (("train", "--config="), "--config: found an empty name"),
        (("train", "cartpole", "--config", ""), "configuration: found an empty name"),
        (("train", "--gpus", "0"), "--gpus: found 0"),
        (("train", "--max-restarts", str(10**30)), "--max-restarts: found 10000"),
        (
            ("navmesh", "view", "absent.navmesh", "--start", "nan", "0", "0", "--goal", "0", "0", "0"),
            "start: found nan",
        ),
        (("navmesh", "view", "absent.navmesh", "--height", "inf"), "height: found inf"),
        (("navmesh", "bake", "absent.glb"), "absent.glb: cannot be read"),
        (("navmesh", "info", "absent.navmesh"), "absent.navmesh: cannot be read"),
        (("navmesh", "view", "absent.navmesh"), "absent.navmesh: cannot be read"),
    ],
)
def test_errors_are_one_line(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert str(caught.value).startswith("error: ") and message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_failed_commands_have_exit_status_1(run, tmp_path):
    (tmp_path / "bad.navmesh").write_bytes(b"x")
    write_box(tmp_path / "wall.ply", [0, 0, 0], [0.01, 3, 3])  # no navigable surface
    for arguments in (("data", "validate", tmp_path / "bad.navmesh"), ("data", "prepare", tmp_path / "wall.ply")):
        with pytest.raises(SystemExit) as caught:
            run(*arguments)
        assert caught.value.code == 1


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
     torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")],
)  # fmt: skip
def test_out_of_memory_is_a_one_line_error(run, error, monkeypatch):
    def fail(name, arguments, imports):
        raise error

    monkeypatch.setattr("batchnav.cli._run", fail)
    with pytest.raises(SystemExit, match=r"^error: memory does not suffice \(.*\); use fewer environments[^\n]*$"):
        run("train")


@pytest.mark.parametrize("words", [["--help"], ["data", "list"]])
def test_closed_standard_output_ends_a_command_without_traceback(words):
    """As in `batchnav --help | head -1`: the exit status is that of a broken pipe."""
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run([sys.executable, "-m", "batchnav", *words], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert found.stderr == "" and found.returncode in (1, 141)  # rich exits with 1


def test_another_broken_pipe_raises(monkeypatch):
    """For example a pipe to a worker process or a logging service, unlike a closed standard output."""
    monkeypatch.setattr("batchnav.cli._run", lambda name, arguments, imports: os.write(write, b"x"))
    read, write = os.pipe()
    os.close(read)
    with open(os.devnull, "w") as out, pytest.raises(BrokenPipeError):
        monkeypatch.setattr(sys, "stdout", out)
        main(["doctor"])
    os.close(write)


def test_a_missing_viewer_is_named_before_scenes_are_loaded(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    monkeypatch.setattr("batchnav.cli.view.session_of", None)
    with pytest.raises(SystemExit, match="viewer: found no viser, expected it: pip install"):
        run("view", "house:7")


@pytest.mark.parametrize(
    "words",
    [
        ("navmesh", "bake", "floor.ply", "--out"), ("navmesh", "map", "floor.ply", "--out"),
        ("data", "make-episodes", "floor.ply", "--out"), ("data", "export", "floor.ply", "--out"),
        ("data", "import", "floor.ply", "--out"), ("data", "prepare", "floor.ply", "--out"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_target_that_cannot_be_written_is_named_before_the_work(words, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_floor(tmp_path / "floor.ply")
    for module in ("scene.mesh.load_mesh", "data.scenes.source.SceneSource.load_mesh"):
        monkeypatch.setattr(f"batchnav.{module}", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(SystemExit, match=r"error: .*found a file at .*floor\.ply, expected a folder"):
        run(*words, "floor.ply/new/out.file")
    if words[1] in ("import", "prepare"):
        return
    with pytest.raises(SystemExit, match="found a folder, expected a file"):
        run(*words, tmp_path)


def test_a_deleted_working_folder_is_named(tmp_path):
    folder = tmp_path / "deleted"
    folder.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); from batchnav.cli import main; main(['evaluate', 'greedy'])"
    found = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr == "error: working folder: found none, it was deleted; change to another folder\n"


# The commands `batchnav bench`: bounds of options, default scene


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_numeric_option_of_a_benchmark_has_bounds(name):
    options = importlib.import_module(f"batchnav.bench.{name}").Options
    for option, kind in get_type_hints(options).items():
        if {int, float} & {kind, *get_args(kind)}:
            assert option in ranges(options)


def test_benchmarks_take_ranges_of_scenes():
    scene_names = importlib.import_module("batchnav.bench.render").scene_names
    assert scene_names("house:7200000-7200001") == ["house:7200000", "house:7200001"]
    assert scene_names("houses:2") == scene_names("house:0-1") == ["house:0", "house:1"]
    assert scene_names("houses:x") == ["houses:x"]  # which loading refuses, with the names of the families


def test_the_scene_of_benchmarks():
    assert f"house:{BENCHMARK_HOUSE}" == options.SCENE


def test_a_warning_about_a_file_is_one_line(tmp_path):
    """Without the place in the source that issued it."""
    (tmp_path / "floor.mtl").write_text("newmtl m\nmap_Kd absent.png\n")
    (tmp_path / "floor.obj").write_text(
        "mtllib floor.mtl\nv 0 0 0\nv 0 0 6\nv 6 0 6\nv 6 0 0\nvt 0 0\nusemtl m\nf 1/1 2/1 3/1 4/1\n"
    )
    words = sys.executable, "-m", "batchnav", "data", "import", "floor.obj", "--out", "out"
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = [line for line in found.stderr.splitlines() if "absent.png" in line]
    assert len(lines) == 1 and lines[0].startswith("warning: floor.obj: some parts of the appearance cannot be read")
    assert "warn" not in found.stderr.replace(lines[0], "")
