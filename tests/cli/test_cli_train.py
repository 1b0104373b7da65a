"""The command `batchnav train`: configurations by name, processes and GPUs, help."""

import contextlib
import re

import pytest
import torch
import yaml
from worlds import write_floor

from batchnav.cli import train
from batchnav.config import load_config
from batchnav.errors import MeshError
from batchnav.runtime import parallel
from batchnav.runtime.bundled import CONFIGS
from batchnav.training import start
from batchnav.training.config import TrainingConfig


def test_training_on_several_gpus_starts_torchrun(run, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(start.os, "execv", lambda program, words: started.append(words))
    monkeypatch.setenv("WORLD_SIZE", "1")  # set by schedulers for a single process
    small = ("--config", "pointnav_depth_cpu", "--device", "cpu")
    options = (*small, "--processes", "1", "--ppo.num-envs", "16", "--out", tmp_path / "run")
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
            run("train", *wrong, *small)


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
    with pytest.raises(SystemExit, match=r"file: found a file at .*file, expected a folder"):
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
    with pytest.raises(
        SystemExit, match=r"config\.yaml: no such file, expected the folder of a run .*; name it by --out"
    ):
        run("train", "--resume", "--out", tmp_path)


def test_resume_with_another_task_names_what_differs(run, tmp_path, monkeypatch):
    write_floor(tmp_path / "floor.glb")
    monkeypatch.chdir(tmp_path)
    small = {
        "env": {"camera": {"height": 16, "width": 16}}, "device": "cpu",
        "scenes": {"houses": 0, "sources": ["floor.glb"]},
        "policy": {"encoder": "simple_cnn", "visual_size": 8, "hidden_size": 8},
        "ppo": {"num_envs": 2, "rollout_steps": 4, "minibatches": 1, "total_frames": 8},
    }  # fmt: skip
    for task in ("pointnav", "flee"):
        text = yaml.safe_dump(small | {"env": small["env"] | {"task": {"name": task}}})
        (tmp_path / f"{task}.yaml").write_text(text)
    run("train", "--config", "pointnav.yaml", "--out", "mine")
    with pytest.raises(SystemExit) as caught:
        run("train", "--config", "flee.yaml", "--out", "mine", "--allow-changes")
    what, settings = str(caught.value).split("; changed settings: ")
    expected = r"tensor 'body.weight_ih_l0' is \S+ \[\d+, \d+\], expected .* \[\d+, \d+\]"
    assert re.fullmatch(f"error: mine: resume state: does not fit this run: {expected}", what)
    assert settings.startswith("env.task.name = 'flee', was 'pointnav'; env.task.distance_reward = ")
    assert settings.endswith("; continue with the settings of config.yaml, or choose another --out")


@pytest.mark.parametrize("name", [name.stem for name in CONFIGS.glob("*.yaml") if not name.stem.startswith("cartpole")])
def test_configurations_are_found_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert start.parse(["--config", name]).run == load_config(CONFIGS / f"{name}.yaml", TrainingConfig)


def test_default_configuration_depends_on_the_machine(monkeypatch):
    for has_gpu, name in ((False, "pointnav_waypoint_cpu"), (True, "pointnav_depth_h200")):
        monkeypatch.setattr(start.torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert start.parse([]).run == load_config(CONFIGS / f"{name}.yaml", TrainingConfig)


def test_error_for_an_unknown_configuration_lists_the_known_ones(run):
    with pytest.raises(SystemExit, match=r"error: cpu: no such file.*pointnav_depth_cpu, pointnav_depth_h200"):
        run("train", "--config", "cpu")


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


@pytest.mark.parametrize(
    ("words", "world_size", "cached", "ahead"),
    [
        ([], None, False, ["batchnav.data.scenes.load"]),
        ([], None, True, []),
        ([], "2", False, []),
        (["--gpus=2"], None, False, []),
        (["--scenes.episodes", "mine.json.gz"], None, False, []),
    ],
)
def test_processes_start_ahead_where_houses_are_made(words, world_size, cached, ahead, monkeypatch, tmp_path):
    """They come before the imports of training; the first run in an empty cache needs them."""
    events = []

    @contextlib.contextmanager
    def processes_ahead(module):
        events.append(module)
        yield
        events.append("ended")

    monkeypatch.setattr(parallel, "processes_ahead", processes_ahead)
    monkeypatch.setattr(start, "start", lambda _: events.append("trained"))
    monkeypatch.setenv("BATCHNAV_CACHE", str(tmp_path))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if world_size:
        monkeypatch.setenv("WORLD_SIZE", world_size)
    if cached:
        (tmp_path / "houses" / "version").mkdir(parents=True)
        (tmp_path / "houses" / "version" / "house_0.scene").touch()
    train.command(words)
    assert events == ([*ahead, "trained", "ended"] if ahead else ["trained"])
