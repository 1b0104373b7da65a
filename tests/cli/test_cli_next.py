"""Commands name commands for next steps; each of them runs as it is printed."""

import dataclasses
import importlib.util
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from worlds import episodes_on, write_floor

from batchnav.cli import main, view
from batchnav.cli.changes import changed_environment
from batchnav.cli.evaluate import Options, parse
from batchnav.cli.measure import next_steps
from batchnav.data.formats import EpisodeDataset
from batchnav.envs.config import NavConfig, changed_settings
from batchnav.mapping.learn.recorded import HELD_OUT
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.bundled import find_episodes
from batchnav.runtime.console import next_command
from batchnav.runtime.imports import shortest_install
from batchnav.scene.mesh import load_mesh
from batchnav.training import start
from batchnav.view.viewer.app import Viewer
from tests.pages import ROOT

LINE = re.compile(r"^To [a-z ]+: batchnav (.*)$", re.MULTILINE)
SMALL_TRAINING = (
    "--device", "cpu", "--processes", "1", "--algorithm", "ppo", "--ppo.num-envs", "4", "--ppo.rollout-steps", "4",
    "--ppo.minibatches", "1", "--ppo.total-frames", "16", "--env.camera.height", "16", "--env.camera.width", "16",
    "--eval-every", "0",
)  # fmt: skip
NEXT = {
    "train": (*SMALL_TRAINING, "--scenes.houses", "0", "--scenes.sources", "floor.glb"),
    "evaluate": ("--device", "cpu", "--report-episodes", "1"),
    "view": ("--device", "cpu"),
    "data make-episodes": ("--per-scene", "2"),
}  # fmt: skip
"""Options that make printed commands small and independent of the machine."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder `runs` after README's commands: runs/pointnav with its report, and runs/mine."""
    path = tmp_path_factory.mktemp("readme")
    write_floor(path / "floor.glb")
    EpisodeDataset(episodes_on(str(path / "floor.glb"), 2)).save(path / "few.json.gz")
    scenes = "--scenes.houses", "0", "--scenes.sources", str(path / "floor.glb")
    for name in ("pointnav", "mine"):
        main(["train", *SMALL_TRAINING, *scenes, "--out", str(path / "runs" / name)])
    played = "--episodes", str(path / "few.json.gz"), "--device", "cpu"
    main(["evaluate", str(path / "runs/pointnav"), *played, "--out", str(path / "runs/pointnav/report")])
    return path / "runs"


@pytest.fixture
def folder(runs, tmp_path, monkeypatch):
    """Working folder, with a blank in its name, with a small scene and episodes, and the runs of README's commands."""
    path = tmp_path / "my folder"
    path.mkdir()
    shutil.copytree(runs, path / "runs")
    monkeypatch.chdir(path)
    write_floor(path / "floor.glb")
    EpisodeDataset(episodes_on("floor.glb", 2)).save(path / "few.json.gz")
    NavMesh.bake(load_mesh("floor.glb", appearance=False)).save(path / "a navmesh.navmesh")
    monkeypatch.setattr(Viewer, "run", lambda viewer: viewer.stop())  # it serves until it is interrupted
    return path


def follow(run, text, number):
    """Run the commands that a command printed, with the options of NEXT."""
    found = LINE.findall(text)
    assert len(found) == number, text
    for line in found:
        run_small(run, shlex.split(line))


def run_small(run, words):
    """Run a printed command with the options of NEXT."""
    name = " ".join(words[:2]) if words[0] == "data" else words[0]
    more = NEXT.get(name, ())
    if name == "train" and "--scenes.sources" in words:
        more = SMALL_TRAINING
    return run(*words, *more)


@pytest.mark.parametrize(
    "command, number",
    [
        (("navmesh", "bake", "floor.glb", "--out", "a navmesh.navmesh"), 1),
        (("navmesh", "info", "a navmesh.navmesh"), 1),
        (("navmesh", "map", "floor.glb", "--out", "a map.yaml"), 1),
        (("data", "import", "floor.glb", "--out", "my scenes"), 2),
        (("data", "import", "floor.glb", "--out", "my scenes", "--agent-radius", "0.25", "--agent-height", "0.6"), 2),
        (("data", "export", "floor.glb", "--out", "a scene.glb"), 1),
        (("data", "make-episodes", "floor.glb", "--per-scene", "2", "--out", "my episodes.json.gz"), 1),
        (("data", "make-episodes", "floor.glb", "--per-scene", "2", "--agent-radius", "0.3", "--out", "a.json.gz"), 1),
        (("evaluate", "greedy", "--episodes", "few.json.gz", "--device", "cpu", "--out", "an evaluation"), 2),
        (("evaluate", "greedy", "--episodes", "few.json.gz", "--device", "cpu", "--report"), 1),
        (("data", "validate", "floor.glb"), 1),
        (("data", "validate", "a navmesh.navmesh"), 1),
        (("data", "validate", "few.json.gz"), 1),
        (("data", "prepare", "floor.glb", "--out", "my scenes"), 1),
        (("doctor",), 2),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_printed_commands_run(command, number, folder, run):
    follow(run, run(*command), number)


@pytest.mark.parametrize(
    "task, agent",
    [("objectnav", "map_searcher"), ("imagenav", "shortest_path"), ("explore", "frontier"), ("flee", "forward")],
)
def test_evaluate_of_every_task(task, agent, folder, run):
    episodes = "few.json.gz"  # of which tasks without goals read the starts
    if task in ("objectnav", "imagenav"):
        episodes = "of a house.json.gz"
        run("data", "make-episodes", "house:2", "--task", task, "--per-scene", 3, "--device", "cpu", "--out", episodes)
    follow(run, run("evaluate", agent, "--task", task, "--episodes", episodes, "--device", "cpu"), 2)


def test_evaluate_of_bundled_episodes():
    """The viewer takes the name of the file that a split has for the task."""
    for task, name in (("pointnav", "val"), ("objectnav", "objectnav_val"), ("explore", "starts_val")):
        words = shlex.split(next_steps(Options(("forward",), split="val"), task)[1].partition(": ")[2])
        assert words[2:4] == ["--episodes", name] and find_episodes(name).is_file()


def test_the_next_command_plays_the_same_evaluation():
    camera = {"camera_height": 0.88, "hfov_deg": 79.0}
    options = Options(("forward",), device="cpu", deterministic=True, seed=3, out=Path("an out"), **camera)
    report, watch = (shlex.split(line.partition(": ")[2]) for line in next_steps(options, "objectnav"))
    found = parse(report[2:])
    assert found == dataclasses.replace(options, report=True, task="objectnav")
    assert watch[watch.index("--task") :] == [
        "--task", "objectnav", "--device", "cpu", "--deterministic", "--camera-height", "0.88", "--hfov-deg", "79.0",
        "--agents", "forward"]  # fmt: skip


def test_results_say_what_was_changed(folder, run):
    """In tables and results.json; the printed commands change the same."""
    changed = "--agent-radius", "0.3", "--depth-noise", "0.5", "--env.task.max-steps", "40"
    out = "greedy", "--episodes", "few.json.gz", "--device", "cpu", "--out", "changed", "--table", "markdown"
    text = run("evaluate", *out, *changed)
    words = " ".join(text.split())
    assert "(body.agent_radius 0.3, task.max_steps 40, depth.depth_noise 0.5)" in words
    assert "Settings: body.agent_radius 0.3, task.max_steps 40, depth.depth_noise 0.5." in words
    found = json.loads(Path("changed/results.json").read_text())
    assert found["changes"] == {"body.agent_radius": 0.3, "depth.depth_noise": 0.5, "task.max_steps": 40}
    assert found["env"]["body"]["agent_radius"] == 0.3 and found["env"]["task"]["max_steps"] == 40
    for line in LINE.findall(text):
        assert line.endswith("--env.task.max-steps 40") and "--agent-radius 0.3 --depth-noise 0.5" in line
    follow(run, text, 2)
    assert "changed settings" in Path("changed/index.html").read_text()


def test_the_viewer_takes_the_changes_of_an_evaluation():
    """Its environment is that of an evaluation, and its commands name the changes."""
    given = "--agent-radius", "0.3", "--actuation-noise", "0.5", "--hfov-deg", "79", "--env.task.max-steps", "40"
    evaluated, viewed = parse(("greedy", *given)), view.parse(("house:7", "--agents", "greedy", *given))
    config = changed_environment(NavConfig(), viewed)
    assert config == changed_environment(NavConfig(), evaluated)
    assert changed_settings(NavConfig(), config) == {
        "body.agent_radius": 0.3, "body.actuation_noise": 0.5, "camera.hfov_deg": 79.0, "task.max_steps": 40,
    }  # fmt: skip
    assert "--agent-radius 0.3 --out" in view.next_step(viewed)
    alone = view.next_step(dataclasses.replace(viewed, agents=()))
    assert "--agent-radius 0.3" in alone and alone.endswith("--env.task.max-steps 40")


def test_train(run, folder, monkeypatch, caplog):
    """The next steps are logged. The command that trains on doubles the frames."""
    caplog.set_level("INFO", "batchnav")
    run("train", *SMALL_TRAINING, "--scenes.houses", "0", "--scenes.sources", "floor.glb", "--out", "a run")
    lines = LINE.findall("\n".join(caplog.messages))
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line)
        run(*words, *(("--episodes", "few.json.gz", *NEXT["evaluate"]) if words[0] == "evaluate" else ()))
    assert "--ppo.total-frames 32" in lines[1] and "trained 32 frames" in caplog.text


def test_train_cartpole(run, folder, monkeypatch):
    monkeypatch.setattr("batchnav.cartpole.program.is_solved", lambda *options: True)  # which takes seconds
    follow(run, run("train", "cartpole"), 1)


def test_train_anticipation(run, folder):
    scenes = [write_floor(folder / f"{k}.glb").name for k in range(HELD_OUT)]
    small = ("--maps", "12", "--num-envs", "4", "--steps", "1", "--path-steps", "0", "--batch", "2", "--device", "cpu")
    follow(run, run("train", "anticipation", "--out", "some weights.safetensors", "--scenes", *scenes, *small), 1)


def test_train_encoder(run, folder):
    scenes = [write_floor(folder / f"{k}.glb").name for k in range(HELD_OUT)]
    small = ("--steps", "1", "--pairs", "2", "--image-size", "16", "--eval-batches", "1", "--device", "cpu")
    follow(run, run("train", "encoder", "--out", "some eyes.safetensors", "--scenes", *scenes, *small), 1)


def test_train_detector(run, folder):
    """The next command plays episodes with it, which takes seconds."""
    scenes = [write_floor(folder / f"{k}.glb").name for k in range(HELD_OUT)]
    small = ("--steps", "1", "--views", "2", "--image-size", "32", "--eval-batches", "1", "--device", "cpu")
    (line,) = LINE.findall(run("train", "detector", "--out", "some objects.safetensors", "--scenes", *scenes, *small))
    words = shlex.split(line)
    assert words[:2] == ["evaluate", "objectnav_mask_small"]
    assert parse(words[1:]) and Path(words[-1]).is_file()


@pytest.mark.parametrize(
    "options",
    [("floor.glb",), ("floor.glb", "--agents", "greedy"), ("--episodes", "few.json.gz", "--agents", "greedy")],
    ids=["no agent", "no episodes", "both"],
)
def test_view(options, run, folder, monkeypatch, capsys):
    """The next step is printed when the viewer is interrupted."""

    def interrupted(viewer):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Viewer, "run", interrupted)
        with pytest.raises(SystemExit, match="130"):
            run("view", *options, *NEXT["view"])
    follow(run, capsys.readouterr().out, 1)


def test_bench(run, folder, monkeypatch):
    """What the benchmarks measure is tested elsewhere."""
    for name in ("sim", "train"):
        monkeypatch.setattr(f"batchnav.bench.{name}.main", lambda options: print(options.device))
    (line,) = LINE.findall(run("bench", "sim", "--device", "cpu"))
    assert shlex.split(line) == ["bench", "train", "--device", "cpu"]
    (line,) = LINE.findall(run(*shlex.split(line)))
    words = shlex.split(line)
    assert words == ["train", "--device", "cpu", "--out", "runs/mine_2"]
    assert start.parse(words[1:]).run.device == "cpu"


def test_export(run, folder):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    camera = ("--camera-height", "0.6", "--hfov-deg", "87")
    (line,) = LINE.findall(run("export", "pointnav_waypoint_small", "--out", "a policy.onnx", *camera))
    words = shlex.split(line)
    assert words == ["evaluate", "pointnav_waypoint_small", *camera]
    run_small(run, [*words, "--episodes", "few.json.gz"])


def test_data_list_and_download(run, folder, monkeypatch):
    """The dataset that is offered has its scenes prepared next."""
    scenes = folder / "data" / "scene_datasets" / "habitat-test-scenes"

    def download(uids, data, login, replace):
        assert uids == ("habitat_test_scenes",)
        write_floor(scenes / "a room.glb", up="z")
        return [scenes.relative_to(folder)]

    monkeypatch.setattr("batchnav.data.download.download", download)
    (line,) = LINE.findall(run("data", "list"))
    follow(run, run(*shlex.split(line)), 1)
    assert (scenes / "a room.scene").is_file()


def test_a_command_for_the_viewer_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "viser" else find(name))
    (line,) = next_command("watch it", "batchnav", "view", "house:7").splitlines()
    assert line == f"To watch it (first: {shortest_install('viewer')}): batchnav view house:7"
    assert "(" not in next_command("evaluate", "batchnav", "evaluate", "greedy")
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    assert shortest_install("viewer") == "make viewer"
