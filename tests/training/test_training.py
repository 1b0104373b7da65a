"""`train/pointnav.py` as a process: refused, killed, stopped, restarted."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from small_runs import rows, without_times

from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.load import load_scene

ROOT = Path(__file__).resolve().parents[2]
UPDATES, FRAMES = 12, 8 * 8
"""Updates of a run, and frames of an update."""
CONFIG = {
    "env": {"camera": {"height": 16, "width": 16}},
    "scenes": {"houses": 2},
    "policy": {
        "se_resnet9": {"base_width": 4},
        "visual_size": 16,
        "hidden_size": 16,
        "lstm": {"layers": 1},
        "embedding_size": 8,
    },
    "ppo": {"num_envs": 8, "rollout_steps": 8, "total_frames": UPDATES * FRAMES, "optimizer": "adamw"},
    "device": "cpu",
    "save_every": 0.0,  # after every update
}
PATIENCE = 900.0
"""Time limit of a run, seconds: ten on an idle machine with cached kernels, minutes on a busy one without."""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


@pytest.fixture
def start():
    """Starts runs, which end with the test. While the file `held` exists, a run waits before its end."""
    begun = []

    def begin(config, out, *overrides, held=None):
        program = (
            ["train/pointnav.py"] if held is None else ["tests/training/held_run.py", held, (UPDATES - 1) * FRAMES]
        )
        command = [sys.executable, *map(str, program), "--config", str(config), "--out", str(out), *overrides]
        begun.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def finish(process):
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


def wait_for_rows(process, out, count):
    until = time.monotonic() + PATIENCE
    while len(rows(out)) < count:
        assert process.poll() is None and time.monotonic() < until, "the run ended or stalled before it was killed"
        time.sleep(0.003)


def test_a_killed_and_stopped_run_resumes_bit_for_bit(start, config, held, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finish(start(config, whole))
    for count, number, status in ((3, signal.SIGKILL, -signal.SIGKILL), (7, signal.SIGTERM, 143)):
        process = start(config, stopped, held=held)
        wait_for_rows(process, stopped, count)
        os.kill(process.pid, number)
        if number == signal.SIGTERM:
            held.unlink()
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == status and "Traceback" not in errors
    assert "SIGTERM: saved at frame " in errors
    finish(start(config, stopped))
    assert list(map(without_times, rows(stopped))) == list(map(without_times, rows(whole)))
    assert len(rows(whole)) == UPDATES
    assert (stopped / "policy.safetensors").read_bytes() == (whole / "policy.safetensors").read_bytes()


def test_a_failed_first_start_does_not_block_the_corrected_command(start, config, tmp_path):
    out, episodes = tmp_path / "episodes", tmp_path / "some.json.gz"
    EpisodeDataset(generate_episodes(load_scene("house:0"), 8)).save(episodes)
    options = ("--ppo.total-frames", "128", "--scenes.episodes")
    process = start(config, out, *options, str(tmp_path / "nowhere.json.gz"))
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "nowhere.json.gz" in errors and "Traceback" not in errors
    assert not (out / "config.yaml").exists()
    finish(start(config, out, *options, str(episodes)))
    assert [row["frames"] for row in rows(out)] == [64, 128]


def test_processes_of_one_machine_share_the_environments(start, config, held, tmp_path):
    """One command starts them, a signal ends them after a save, and the same command resumes bit for bit."""
    options = "--processes", "2"
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    process = start(config, whole, *options)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "on 2 x CPU" in errors and "8 environments" in errors, output + errors
    assert [row["frames"] for row in rows(whole)] == [FRAMES * (i + 1) for i in range(UPDATES)]
    process = start(config, stopped, *options, held=held)
    wait_for_rows(process, stopped, 3)
    process.send_signal(signal.SIGTERM)
    held.unlink()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143 and "SIGTERM: saved at frame " in errors and "Traceback" not in errors
    finish(start(config, stopped, *options))
    assert list(map(without_times, rows(stopped))) == list(map(without_times, rows(whole)))


def test_profile_writes_a_trace(start, config, tmp_path):
    out = tmp_path / "traced"
    finish(start(config, out, "--profile", "--deterministic", "--graphs", "--ppo.total-frames", str(8 * 64)))
    names = {event.get("name") for event in json.loads((out / "trace.json").read_text())["traceEvents"]}
    assert "aten::addmm" in names


def test_a_killed_run_with_streamed_scenes_resumes_bit_for_bit(start, config, held, tmp_path):
    options = ("--scenes.resident-scenes", "2", "--scenes.houses", "3", "--env.task.max-steps", "10")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(config, whole, *options))
    process = start(config, killed, *options, held=held)
    wait_for_rows(process, killed, 5)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finish(start(config, killed, *options))
    found, expected = ([without_times(row) for row in rows(out)] for out in (killed, whole))
    for row in (*found, *expected):
        assert row.pop("scene_stall") >= 0.0
    assert found == expected and sum(row["scenes_loaded"] for row in expected) >= 2
