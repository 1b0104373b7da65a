"""Parts from files outside the package: train with --import, then resume, evaluate and export without it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
PARTS = ("own_algorithm.py", "own_encoder.py", "own_memory.py", "own_sensor.py")


def batchnav(*words, folder, fails=False):
    """Output of a command in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "BATCHNAV_IMPORTS"}
    done = subprocess.run(
        [sys.executable, "-m", "batchnav", *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 2,048 frames with one part of each kind, and the folder of the parts."""
    folder = tmp_path_factory.mktemp("seams")
    for part in PARTS:
        shutil.copy(HERE / part, folder / part)
    settings = {
        "device": "cpu", "scenes.houses": 1, "env.camera.height": 16, "env.camera.width": 16,
        "policy.encoder": "grid", "policy.grid.cells": 2, "policy.visual-size": 8, "policy.memory": "gru",
        "policy.gru.scale": 0.5, "policy.hidden-size": 16, "env.altimeter.unit": 2.0, "algorithm": "a2c",
        "a2c.gamma": 0.9, "a2c.num-envs": 16, "a2c.rollout-steps": 16, "a2c.total-frames": 2048,
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    imports = [word for part in PARTS for word in ("--import", part)]
    batchnav(
        "train", *imports, "--config", "pointnav_depth_cpu", "--processes", 1, *options, "--env.sensors", "depth",
        "altimeter", "--out", "run", folder=folder,
    )  # fmt: skip
    return folder


def test_the_run_keeps_parts_and_modules(run):
    config = yaml.safe_load((run / "run" / "config.yaml").read_text())
    assert config["imports"] == [str(run / part) for part in PARTS]
    assert config["a2c"]["gamma"] == 0.9 and config["policy"]["gru"] == {"scale": 0.5} and "ppo" not in config
    row = json.loads((run / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["frames"] == 2048 and {"policy_loss", "value_loss", "grad_norm"} <= row.keys()


def test_it_resumes_without_the_option(run):
    found = batchnav("train", "--resume", "--out", "run", "--a2c.total-frames", 4096, folder=run)
    assert "trained 4,096 frames" in found and "--a2c.total-frames 8192" in found


def test_it_is_evaluated_and_exported_without_the_option(run):
    batchnav("data", "make-episodes", "house:0", "--count", 4, "--out", "few.json.gz", folder=run)
    found = batchnav("evaluate", "run", "--episodes", "few.json.gz", "--device", "cpu", folder=run)
    assert "spl" in found.lower()
    found = batchnav("export", "run", "--out", "policy.onnx", folder=run)
    assert (run / "policy.onnx").is_file(), found


def test_a_policy_file_alone_imports_nothing(run):
    shutil.copy(run / "run" / "policy.safetensors", run / "given.safetensors")
    found = batchnav("export", "given.safetensors", "--out", "given.onnx", folder=run, fails=True)
    assert f"--import {run / 'own_encoder.py'}" in found and not (run / "given.onnx").exists()
    imports = [word for part in PARTS for word in ("--import", part)]
    batchnav("export", *imports, "given.safetensors", "--out", "given.onnx", folder=run)
