"""Commands: results, exit status, one-line errors, help."""

import contextlib
import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from PIL import Image
from worlds import write_box, write_floor, write_json

import batchnav
from batchnav.bench import options
from batchnav.cli import COMMANDS, SLOW, main
from batchnav.cli.bench import BENCHMARKS, INTEGERS, NUMBERS
from batchnav.config import load_config
from batchnav.data.catalog import SOURCES, Source
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.objectnav.episode_file import load_objectnav
from batchnav.data.prepared.scene_file import load_prepared
from batchnav.errors import MeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.procedural import BENCHMARK_HOUSE
from batchnav.runtime.files.bundled import CONFIGS
from batchnav.training import start
from batchnav.training.config import TrainingConfig

ROOT = Path(__file__).resolve().parents[1]


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
    monkeypatch.setattr("batchnav.cli._run", lambda name, arguments: os.write(write, b"x"))
    read, write = os.pipe()
    os.close(read)
    with open(os.devnull, "w") as out, pytest.raises(BrokenPipeError):
        monkeypatch.setattr(sys, "stdout", out)
        main(["doctor"])
    os.close(write)


def test_import_a_scan_and_make_episodes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_floor(tmp_path / "scan.glb", up="z")
    assert "data/mine/scan.scene: prepared" in run("data", "import", "scan.glb", "--up", "z", "--out", "data/mine")
    assert "up to date" in run("data", "import", "scan.glb", "--up", "z", "--out", "data/mine")
    assert NavMesh.load("data/mine/scan.navmesh").area == load_prepared("data/mine/scan.scene").navmesh.area
    text = run("data", "make-episodes", "data/mine", "--out", "data/mine/train.json.gz", "--per-scene", 4, "--seed", 1)
    assert "4 episodes in 1 scene" in text
    episodes = load_episodes("data/mine/train.json.gz")
    assert {e.scene_id for e in episodes} == {"data/mine/scan.scene"} and len(episodes) == 4
    files = "data/mine/train.json.gz", "data/mine/scan.scene", "data/mine/scan.navmesh"
    assert run("data", "validate", *files).count("no errors") == 3


def test_prepare_in_place_and_episodes_in_one_file_per_scene(run, tmp_path):
    folder = tmp_path / "data" / "scene_datasets" / "gibson"
    for name in ("Adrian", "Ribera"):
        write_floor(folder / f"{name}.glb", up="z")
    text = run("data", "prepare", folder, "--split", "val")
    assert text.count(": prepared") == 2 and (folder / "Adrian.scene").is_file()
    out = tmp_path / "val" / "val.json.gz"
    run("data", "make-episodes", folder, "--split", "val", "--out", out, "--per-scene", 2, "--content")
    assert sorted(file.name for file in (out.parent / "content").iterdir()) == ["Adrian.json.gz", "Ribera.json.gz"]
    assert [e.scene_id for e in load_episodes(out)] == ["gibson/Adrian.glb"] * 2 + ["gibson/Ribera.glb"] * 2
    run("data", "validate", out, "--scenes-dir", folder.parent)


def test_import_procthor_houses(run, tmp_path):
    corners = ((0, 0), (0, 4), (4, 4), (4, 0))
    walls = [
        {"id": str(k), "polygon": [{"x": x, "y": y, "z": z} for y in (0, 2.5) for x, z in ends]}
        for k, ends in enumerate(zip(corners, (*corners[1:], corners[0]), strict=True))
    ]
    floor = [{"x": x, "y": 0, "z": z} for x, z in corners]
    stool = {"assetId": "Stool", "position": {"x": 2, "y": 0.2, "z": 2}, "rotation": {"y": 0}}
    house = {"rooms": [{"floorPolygon": floor}], "walls": walls, "doors": [], "objects": [stool]}
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(f"{json.dumps(house)}\n".encode() * 2))
    write_json(tmp_path / "asset_bbox.json", {})
    text = run("data", "import", path, "--out", tmp_path / "out")
    assert "unknown size: Stool" in text and text.count(": prepared") == 2
    assert load_prepared(tmp_path / "out" / "train_0001.scene").navmesh.area > 10.0
    sizes = write_json(tmp_path / "sizes.json", {"Stool": [0.4, 0.4, 0.4]})
    assert "unknown" not in run("data", "import", path, "--out", tmp_path / "out", "--sizes", sizes)


def test_list_data_sets(run, tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "mine", Source("https://x/y.zip", "scene_datasets/mine", "MIT", "1"))
    (tmp_path / "scene_datasets" / "mine").mkdir(parents=True)
    text = run("data", "list", "--data-path", tmp_path)
    row = next(line for line in text.splitlines() if "│ mine" in line)
    assert "yes" in row and "MIT" in row
    for name in ("habitat_test_scenes", "hm3d", "gibson", "procthor"):
        assert f"│ {name} " in text


def test_navmesh_bake_info_and_view(run, tmp_path):
    floor = write_floor(tmp_path / "floor.ply")
    narrow = run("navmesh", "bake", floor, "--agent-radius", "0.5", "--out", tmp_path / "narrow.navmesh")
    assert "1 island\n" in narrow
    run("navmesh", "bake", floor)
    areas = [NavMesh.load(tmp_path / f"{name}.navmesh").area for name in ("narrow", "floor")]
    assert areas[0] < areas[1] - 5.0
    info = run("navmesh", "info", tmp_path / "narrow.navmesh")
    assert "island 0" in info and "agent_radius" in info and "0.5" in info
    run("navmesh", "view", tmp_path / "floor.navmesh")
    with Image.open(tmp_path / "floor.png") as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(2**20)) > 100  # clearance is a gradient
    ends = ("--start", -2, 0.2, 3, "--goal", 2, 0.2, -3)
    run("navmesh", "view", tmp_path / "floor.navmesh", "--out", tmp_path / "path.png", *ends)
    assert (tmp_path / "path.png").read_bytes() != (tmp_path / "floor.png").read_bytes()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("data", "import", "absent.glb", "--out", "out"), "absent.glb"),
        (("data", "prepare", "absent"), "absent: found no such"),
        (("data", "download", "absent"), "absent: found no data set"),
        (("data", "download"), "uids: found none"),
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
        (("bench", "load", "--repeats", "0"), "--repeats: found 0"),
        (("bench", "navmesh", "--batch", "0"), "--batch: found 0"),
        (("bench", "render", "--sizes", "-64"), "--sizes: found -64"),
        (("bench", "train", "--updates", "0"), "--updates: found 0"),
        (("evaluate", "greedy", "--num-envs", "0"), "--num-envs: found 0"),
        (
            ("evaluate", "nothere", "--task", "explore", "--device", "cpu"),
            "; reference agents of explore: random, forward, frontier",
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


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_numeric_option_of_a_benchmark_has_bounds(name):
    options = importlib.import_module(f"batchnav.bench.{name}").Options
    for option, kind in get_type_hints(options).items():
        for numeric, bounds in ((int, INTEGERS), (float, NUMBERS)):
            if kind is numeric or numeric in get_args(kind):
                assert option in bounds


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
     torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")],
)  # fmt: skip
def test_out_of_memory_is_a_one_line_error(run, error, monkeypatch):
    def fail(name, arguments):
        raise error

    monkeypatch.setattr("batchnav.cli._run", fail)
    with pytest.raises(SystemExit, match=r"^error: memory does not suffice \(.*\); use fewer environments[^\n]*$"):
        run("train")


def test_failed_commands_have_exit_status_1(run, tmp_path):
    (tmp_path / "bad.navmesh").write_bytes(b"x")
    write_box(tmp_path / "wall.ply", [0, 0, 0], [0.01, 3, 3])  # no navigable surface
    for arguments in (("data", "validate", tmp_path / "bad.navmesh"), ("data", "prepare", tmp_path / "wall.ply")):
        with pytest.raises(SystemExit) as caught:
            run(*arguments)
        assert caught.value.code == 1


@pytest.mark.parametrize("arguments, status", [((), 2), (("nonsense",), 2), (("--help",), 0)])
def test_usage_and_exit_status(run, arguments, status, capsys):
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == status
    out = capsys.readouterr().out
    assert "batchnav doctor\n" in out and "batchnav navmesh {bake,info,view,map}" in out


@pytest.mark.parametrize("command", SLOW)
def test_slow_commands_print_a_line_before_their_imports(run, caplog, monkeypatch, command):
    def import_module(name):
        raise ImportError(name)

    monkeypatch.setattr("batchnav.cli.importlib.import_module", import_module)
    with pytest.raises(ImportError, match=f"batchnav.cli.{command}"):
        run(command)
    assert [record.getMessage() for record in caplog.records] == [f"batchnav {batchnav.__version__}: starting"]


@pytest.mark.parametrize(
    "command, option",
    [
        ("data import", "--up {auto,x,y,z,-x,-y,-z}"),
        ("data download", "--password"),
        ("navmesh bake", "--agent-radius"),
    ],
)
def test_help_lists_options(run, command, option, capsys):
    with pytest.raises(SystemExit) as caught:
        run(*command.split(), "--help")
    assert caught.value.code == 0
    assert option in capsys.readouterr().out


def test_training_on_several_gpus_starts_torchrun(run, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(start.os, "execv", lambda program, words: started.append(words))
    monkeypatch.setenv("WORLD_SIZE", "1")  # set by schedulers for a single process
    options = ("--device", "cpu", "--processes", "1", "--ppo.num-envs", "16", "--out", tmp_path / "run")
    run("train", "--gpus", "2", "--max-restarts", "3", *options)
    ((_, *words),) = started
    assert words[:6] == [
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3", "-m",
    ]  # fmt: skip
    assert words[6:9] == ["batchnav", "train", "--gpus"] and words[-len(options) :] == [*map(str, options)]
    monkeypatch.setenv("WORLD_SIZE", "2")  # a process that torchrun starts is one rank of the run
    monkeypatch.setattr(start, "train", lambda *command: started.append(command))
    run("train", "--gpus", "2", *options)
    assert started[1][0].ppo.num_envs == 16 and started[1][1] == tmp_path / "run"
    for wrong, message in (
        (("--gpus", "0"), "--gpus: found 0"),
        (("--gpus", "2", "--seed", "-1"), "seed: found -1"),
        (("--processes", "3"), "ppo.num_envs: found 256, expected a multiple of the 3"),
    ):
        with pytest.raises(SystemExit, match=message):
            run("train", *wrong)


def test_processes_of_a_configuration_apply_to_the_cpu_only(run, tmp_path, monkeypatch):
    started, command = [], ("train", "--config", "pointnav_depth_cpu", "--out", tmp_path / "run")  # two processes
    monkeypatch.setattr(start.os, "execv", lambda program, words: started.append(words))
    with pytest.raises(SystemExit, match="--gpus: found 3 with processes 2, expected one of them to be 1"):
        run(*command, "--gpus", "3", "--device", "cpu")
    run(*command, "--max-restarts", "1", "--device", "cpu")
    monkeypatch.setattr(start, "resolve_device", lambda device: torch.device(device, 0))
    monkeypatch.setattr(start.torch.cuda, "device_count", lambda: 3)
    run(*command, "--gpus", "3", "--device", "cuda")
    assert [words[4] for words in started] == ["--nproc-per-node=2", "--nproc-per-node=3"]


@pytest.mark.parametrize(
    "device, count, message",
    [
        ("auto", 0, "--gpus: found 4 on a machine with 0 GPUs, expected --gpus omitted; .*--device cpu --processes 4"),
        ("cuda", 1, "--gpus: found 4 on a machine with 1 GPU, expected --gpus omitted"),
        ("cuda", 2, "--gpus: found 4 on a machine with 2 GPUs, expected at most 2"),
    ],
)
def test_more_gpus_than_the_machine_has(device, count, message, run, tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(start.torch.cuda, "device_count", lambda: count)
    with pytest.raises(SystemExit, match=message):
        run("train", "--config", "pointnav_depth_cpu", "--gpus", "4", "--device", device, "--out", tmp_path / "run")


@pytest.mark.parametrize("how", [("--processes", "2"), ("--processes", "1", "--gpus", "2")])
def test_invalid_output_folder_is_refused_before_scenes_are_made(how, run, tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for later in ("prepare", "start_local_ranks"):
        monkeypatch.setattr(start, later, None)
    monkeypatch.setattr(start.os, "execv", None)
    (tmp_path / "file").write_text("words")
    with pytest.raises(SystemExit, match="file: found a file, expected a folder"):
        run("train", "--device", "cpu", *how, "--out", tmp_path / "file")


def test_local_ranks_start_before_scenes_are_made_and_end_on_failure(run, tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    happened = []

    @contextlib.contextmanager
    def start_local_ranks(*_):
        happened.append("begin")
        try:
            yield
        finally:
            happened.append("end")

    def prepare(_):
        happened.append("prepare")
        raise MeshError("no house")

    monkeypatch.setattr(start, "start_local_ranks", start_local_ranks)
    monkeypatch.setattr(start, "prepare", prepare)
    with pytest.raises(SystemExit, match="error: no house"):
        run("train", "--device", "cpu", "--processes", "2", "--out", tmp_path / "run")
    assert happened == ["begin", "prepare", "end"]


def test_resume_needs_the_folder_of_a_run(run, tmp_path):
    with pytest.raises(SystemExit, match=r"config\.yaml: no such file, expected the folder of a run to continue"):
        run("train", "--resume", "--out", tmp_path)


LIGHT = """
import sys
import batchnav
from batchnav.cli import COMMANDS, main
from batchnav.config import load_config
try:
    main(sys.argv[1:])
finally:
    print(*sorted({"torch", "numba", "tyro", "numpy"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_do_not_import_heavy_packages(option):
    found = subprocess.run([sys.executable, "-c", LIGHT, option], capture_output=True, text=True)
    assert found.returncode == 0 and found.stderr.split() == []
    assert "batchnav" in found.stdout


def test_python_m_batchnav_works_in_any_folder(tmp_path):
    command = [sys.executable, "-m", "batchnav", "--version"]
    found = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert found.stdout == f"batchnav {batchnav.__version__}\n"


def test_every_command_has_a_module(run):
    with pytest.raises(SystemExit):
        run("--help")
    for name in COMMANDS:
        assert hasattr(importlib.import_module(f"batchnav.cli.{name}"), "command")


@pytest.mark.parametrize("name", [name.stem for name in CONFIGS.glob("*.yaml") if not name.stem.startswith("cartpole")])
def test_configurations_are_found_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert start.parse(["--config", name]).run == load_config(CONFIGS / f"{name}.yaml", TrainingConfig)


def test_default_configuration_depends_on_the_machine(monkeypatch):
    for has_gpu, name in ((False, "pointnav_waypoint_cpu"), (True, "pointnav_depth_h200")):
        monkeypatch.setattr(start.torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert start.parse([]).run == load_config(CONFIGS / f"{name}.yaml", TrainingConfig)


OPTIONS_OF_TRAIN = "--config", "--out", "--profile", "--allow-changes", "--gpus"


def test_help_of_train_lists_options_and_configurations(run, capsys):
    with pytest.raises(SystemExit):
        run("train", "--help")
    text = capsys.readouterr().out
    assert all(word in text for word in (*OPTIONS_OF_TRAIN, "--help-all"))
    for path in CONFIGS.glob("*.yaml"):
        assert (f"  {path.stem}\n      " in text) == (not path.stem.startswith("cartpole")), path


def test_help_all_of_train_lists_options_of_all_levels(run, capsys):
    with pytest.raises(SystemExit):
        run("train", "--help-all")
    text = capsys.readouterr().out
    assert all(word in text for word in (*OPTIONS_OF_TRAIN, "--ppo.num-envs", "--env.task.max-steps"))


HELPS = """
import sys
from batchnav.cli import main
for words in sys.stdin.read().splitlines():
    try:
        main([*words.split(), "--help"])
    except SystemExit as end:
        assert end.code == 0, words
    heavy = {"torch", "numba", "scipy", "trimesh", "matplotlib"} & set(sys.modules)
    assert not heavy, (words, heavy)
"""


def test_help_imports_nothing_heavy():
    """PyTorch and numba take seconds to import, on a cold disk half a minute."""
    words = ["train", "train cartpole", "train anticipation", "evaluate", "view", "doctor", "data", "navmesh"]
    words += [f"bench {name}" for name in BENCHMARKS]
    words += [
        f"data {name}" for name in ("list", "download", "import", "prepare", "export", "make-episodes", "validate")
    ]
    words += [f"navmesh {name}" for name in ("bake", "info", "view")]
    found = subprocess.run([sys.executable, "-c", HELPS], input="\n".join(words), capture_output=True, text=True)
    assert found.returncode == 0 and not found.stderr, found.stderr
    assert found.stdout.count("usage:") >= len(words)


def test_the_scene_of_benchmarks():
    assert f"house:{BENCHMARK_HOUSE}" == options.SCENE


def test_error_for_an_unknown_configuration_lists_the_known_ones(run):
    with pytest.raises(SystemExit, match=r"error: cpu: no such file.*pointnav_depth_cpu, pointnav_depth_h200"):
        run("train", "--config", "cpu")


def test_make_objectnav_episodes(run, tmp_path):
    out = tmp_path / "val.json.gz"
    text = run("data", "make-episodes", "house:2", "--task", "objectnav", "--out", out, "--per-scene", 6, "--content")
    assert "6 episodes in 1 scene" in text
    dataset = load_objectnav(out)
    assert len(dataset.episodes) == 6 and dataset.scene_goals("house:2").objects


def test_a_former_name_of_a_subcommand_works_with_a_warning(run, tmp_path):
    with pytest.warns(FutureWarning, match="data episodes is now data make-episodes"):
        text = run("data", "episodes", "house:2-3", "--out", tmp_path / "val.json.gz", "--per-scene", 2)
    assert "4 episodes in 2 scenes" in text
    assert {episode.scene_id for episode in load_episodes(tmp_path / "val.json.gz")} == {"house:2", "house:3"}
