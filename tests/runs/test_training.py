"""`train/pointnav.py` as its users start it: killed, started again, stopped by numbers that are not finite."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

from batchnav.data.episodes import save_episodes
from batchnav.data.generate import generate_episodes
from batchnav.data.scenes import find_scene

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 12
CONFIG = {
    "task": {"height": 16, "width": 16},
    "scenes": {"houses": 2},
    "policy": {"base_width": 4, "visual_size": 16, "hidden_size": 16, "lstm_layers": 1, "embedding_size": 8},
    "ppo": {"num_envs": 8, "rollout_steps": 8, "total_frames": UPDATES * 8 * 8, "optimizer": "adamw"},
    "device": "cpu",
    "save_every": 0.0,  # after every update
}
PATIENCE = 300.0
"""Seconds for what takes ten on a quiet machine with compiled kernels."""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def start(config, out, *overrides):
    command = [sys.executable, "train/pointnav.py", "--config", str(config), "--out", str(out), *overrides]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


def rows(out):
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_rows(process, out, count):
    until = time.monotonic() + PATIENCE
    while len(rows(out)) < count:
        assert process.poll() is None and time.monotonic() < until, "the run ended or stalled before it was killed"
        time.sleep(0.02)


def without_times(row):
    return {key: value for key, value in row.items() if key not in ("seconds", "collect", "learn", "frames_per_second")}


def test_a_killed_run_goes_on_to_the_bit(config, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(config, whole))
    for count in (3, 7):
        process = start(config, killed)
        wait_for_rows(process, killed, count)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finish(start(config, killed))
    assert list(map(without_times, rows(killed))) == list(map(without_times, rows(whole)))
    assert len(rows(whole)) == UPDATES
    expected = safetensors.torch.load_file(whole / "policy.safetensors")
    found = safetensors.torch.load_file(killed / "policy.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(config, tmp_path):
    out = tmp_path / "diverging"
    finish(start(config, out))
    good = (out / "policy.safetensors").read_bytes()
    state = torch.load(out / "resume.pt", weights_only=True)
    state["learner"]["frames"] -= 64
    state["learner"]["policy"]["critic.bias"].fill_(float("nan"))
    torch.save(state, out / "resume.pt")
    process = start(config, out)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "error: " in errors and "loss" in errors and "nan" in errors and "Traceback" not in errors
    assert (out / "policy.safetensors").read_bytes() == good


def test_trains_on_an_episode_file(config, tmp_path):
    out, episodes = tmp_path / "episodes", tmp_path / "some.json.gz"
    save_episodes(generate_episodes(find_scene("house:0"), 8), episodes)
    finish(start(config, out, "--scenes.episodes", str(episodes), "--ppo.total-frames", "128"))
    assert [row["frames"] for row in rows(out)] == [64, 128]


def test_profile_writes_a_trace(config, tmp_path):
    out = tmp_path / "traced"
    finish(start(config, out, "--profile", "--deterministic", "--graphs", "--ppo.total-frames", str(8 * 64)))
    names = {event.get("name") for event in json.loads((out / "trace.json").read_text())["traceEvents"]}
    assert "aten::addmm" in names


def test_a_killed_run_whose_scenes_take_turns_goes_on_to_the_bit(config, tmp_path):
    options = ("--scenes.slots", "2", "--scenes.houses", "3", "--task.max-steps", "10")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(config, whole, *options))
    process = start(config, killed, *options)
    wait_for_rows(process, killed, 5)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finish(start(config, killed, *options))
    found, expected = ([without_times(row) for row in rows(out)] for out in (killed, whole))
    for row in (*found, *expected):
        assert row.pop("scene_stall") >= 0.0
    assert found == expected and sum(row["scenes_loaded"] for row in expected) >= 2
