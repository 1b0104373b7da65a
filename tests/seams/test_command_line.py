"""Parts from files outside the package: train with --import, then resume, evaluate and export without it."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from batchnav import cli
from batchnav.envs.observations import SOURCES
from batchnav.learning import ALGORITHMS
from batchnav.policy import AUXILIARY, ENCODERS, MEMORIES
from batchnav.runtime import imports

HERE = Path(__file__).parent
PARTS = {
    "own_algorithm.py": (ALGORITHMS, "a2c"),
    "own_auxiliary.py": (AUXILIARY, "inverse"),
    "own_encoder.py": (ENCODERS, "grid"),
    "own_memory.py": (MEMORIES, "gru"),
    "own_sensor.py": (SOURCES, "altimeter"),
}
IMPORTS = [word for part in PARTS for word in ("--import", part)]


def forget():
    """Undo the imports of a command, so that the next one begins as a process of its own does."""
    for registry, name in PARTS.values():
        registry.pop(name, None)
    imports._imported.clear()
    os.environ.pop(imports.VARIABLE, None)


def batchnav(*words, folder):
    """Run a command in a folder, in this process."""
    forget()
    with contextlib.chdir(folder):
        try:
            cli.main([*map(str, words)])
        finally:
            forget()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 1,024 frames with one part of each kind, in two processes, and the folder of the parts."""
    folder = tmp_path_factory.mktemp("seams")
    for part in PARTS:
        shutil.copy(HERE / part, folder / part)
    settings = {
        "device": "cpu", "scenes.houses": 1, "env.camera.height": 8, "env.camera.width": 8, "env.task.max-steps": 20,
        "policy.encoder": "grid", "policy.grid.cells": 2, "policy.visual-size": 8, "policy.memory": "gru",
        "policy.auxiliary": "inverse", "policy.inverse.hidden": 4, "policy.gru.scale": 0.5, "policy.hidden-size": 8,
        "env.altimeter.unit": 2.0, "algorithm": "a2c",
        "a2c.gamma": 0.9, "a2c.num-envs": 16, "a2c.rollout-steps": 16, "a2c.total-frames": 1024, "processes": 2,
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    batchnav(
        "train", *IMPORTS, "--config", "pointnav_depth_cpu", *options, "--env.sensors", "depth", "altimeter",
        "--out", "run", folder=folder,
    )  # fmt: skip
    return folder


def test_the_run_keeps_parts_and_modules(run):
    config = yaml.safe_load((run / "run" / "config.yaml").read_text())
    assert config["imports"] == [str(run / part) for part in PARTS]
    assert config["a2c"]["gamma"] == 0.9 and config["policy"]["gru"] == {"scale": 0.5} and "ppo" not in config
    row = json.loads((run / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["frames"] == 1024 and {"policy_loss", "value_loss", "inverse_loss", "grad_norm"} <= row.keys()


def test_it_resumes_without_the_option(run, caplog):
    batchnav("train", "--resume", "--out", "run", "--a2c.total-frames", 2048, "--processes", 1, folder=run)
    assert "trained 2,048 frames" in caplog.text and "--a2c.total-frames 4096" in caplog.text
    assert "the next update changes the learning rate from" in caplog.text


def test_it_is_evaluated_and_exported_without_the_option(run, capsys):
    batchnav("data", "make-episodes", "house:0", "--per-scene", 4, "--out", "few.json.gz", folder=run)
    batchnav("evaluate", "run", "--episodes", "few.json.gz", "--device", "cpu", folder=run)
    assert "spl" in capsys.readouterr().out.lower()
    batchnav("export", "run", "--out", "policy.onnx", folder=run)
    assert (run / "policy.onnx").is_file()


def test_a_policy_file_alone_imports_nothing(run, capsys):
    shutil.copy(run / "run" / "policy.safetensors", run / "given.safetensors")
    words = ("evaluate", "given.safetensors", "--episodes", "few.json.gz", "--device", "cpu")
    with pytest.raises(SystemExit, match=f"--import {run / 'own_encoder.py'}"):
        batchnav(*words, folder=run)
    batchnav(words[0], *IMPORTS, *words[1:], folder=run)
    assert "spl" in capsys.readouterr().out.lower()
