"""Checkpoints, progress, TensorBoard, Weights & Biases, and resuming of a run."""

import json
import math
import sys
import types

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from small_runs import make_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from batchnav.config import to_dict
from batchnav.errors import ConfigError
from batchnav.learning.rollout import Rollout
from batchnav.policy.actions import actions_of
from batchnav.training import progress, start
from batchnav.training.curves import wandb_log
from batchnav.training.folder import RunFolder
from batchnav.training.loop import histograms, observed_images
from batchnav.training.progress import RecentEpisodes
from batchnav.training.validation import Checkpoints


def test_checkpoints_are_a_series_and_the_best(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"frames": 1, "eval": {"spl": 0.3, "success": null}}\n{"frames": 2}\n')
    written = []
    kept = Checkpoints(tmp_path, 100, ("success", "spl"), lambda path: written.append(path.name))
    for before in range(0, 400, 40):
        kept.after_update(before, before + 40)
    assert written == [f"policy_{frames:012d}.safetensors" for frames in (120, 200, 320, 400)]
    written.clear()
    better = []
    for found in ((math.nan, 0.2), (0.5, 0.2), (0.5, 0.2), (0.4, 0.9), (0.5, 0.3)):
        kept.after_validation(dict(zip(("success", "spl"), found, strict=True)))
        better.append(len(written))
    assert better == [0, 1, 1, 1, 2] and set(written) == {"best.safetensors"}


def test_success_is_a_mean_over_recent_episodes(monkeypatch):
    monkeypatch.setattr(progress, "RECENT", 10)
    recent = RecentEpisodes(("success",))
    assert math.isnan(recent.add({"episodes": 0, "success": math.nan})["success"])
    assert recent.add({"episodes": 4, "success": 0.5})["success"] == 0.5
    assert recent.add({"episodes": 4, "success": 1.0})["success"] == 0.75
    assert recent.add({"episodes": 2, "success": 0.0})["success"] == 0.6
    assert recent.add({"episodes": 8, "success": 0.5})["success"] == 0.4  # the last ten


def test_the_time_left_is_never_negative(capsys):
    with progress.TrainingProgress(10) as bar:
        bar.show(2048, {"success": 0.5})
    line = capsys.readouterr().out
    assert "2,048 of 2,048 frames" in line and " 0 s left" in line


def test_the_time_left_does_not_count_the_first_update(capsys, monkeypatch):
    """Kernels compile during the first update, 100 s here; the others take 20 s each."""
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    now = 0.0
    with progress.TrainingProgress(1000, done=100) as bar:
        for now, frames in ((100.0, 300), (120.0, 500), (140.0, 700)):  # noqa: B007  # the clock reads `now`
            bar.show(frames, {"success": 0.5})
    first, *others = capsys.readouterr().out.splitlines()
    assert first.split() == ["300", "of", "1,000", "frames", "success", "0.500"]
    assert [line.split("  ")[-1] for line in others] == ["50 s left", "30 s left"]


def test_resume_takes_the_folders_configuration_with_changes(tmp_path):
    run = make_run(seed=5)
    (tmp_path / "config.yaml").write_text("# from frame 10 on: seed = 5, was 4\n" + yaml.safe_dump(to_dict(run)))
    words = ["--resume", "--out", str(tmp_path)]
    assert start.parse(words).run == run
    more = start.parse([*words, "--ppo.total-frames", "99_999"])
    assert more.resume and more.out == tmp_path and more.run.ppo.total_frames == 99_999 and more.run.seed == 5
    with pytest.raises(ConfigError, match="--config: found x with --resume"):
        start.parse([*words, "--config", "x"])
    with pytest.raises(ConfigError, match=r"nowhere/config\.yaml: no such file"):
        start.parse(["--resume", "--out", "nowhere"])


def test_tensorboard_has_settings_images_and_histograms(tmp_path):
    shapes, dtypes = {"depth": (1, 4, 6), "semantic": (1, 4, 6), "goal": (2,)}, {"depth": torch.float32}
    dtypes |= {"semantic": torch.int32, "goal": torch.float32}
    rollout = Rollout(
        shapes, dtypes, 3, 5, torch.device("cpu"), torch.zeros(2, 1, 5, 8), actions_of(spaces.Discrete(4))
    )
    rollout.obs["depth"][-1] = 0.5
    images = observed_images(rollout.get_obs(-1))
    assert set(images) == {"depth"} and images["depth"].shape == (1, 4, 30) and (images["depth"] == 127).all()
    with RunFolder(tmp_path, make_run()) as folder:
        folder.begin(0)
        folder.log({"frames": 10, "spl": 0.5})
        folder.show(10, images, histograms({"value": rollout.value, "action": rollout.action}))
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    tags = board.Tags()
    assert tags["images"] == ["depth"] and set(tags["histograms"]) == {"value", "action"}
    assert "spl" in tags["scalars"] and board.summary_metadata["_hparams_/session_start_info"]


def test_rows_go_to_wandb_if_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        wandb_log(tmp_path, {})
    with pytest.raises(ConfigError, match="--wandb: package wandb not found"):  # before anything is made
        start.parse(["--config", "pointnav_depth_cpu", "--wandb", "--out", str(tmp_path / "run")])
    sent = []
    fake = types.SimpleNamespace(log=lambda row, step: sent.append((step, row)))
    asked = {}
    monkeypatch.setitem(
        sys.modules, "wandb", types.SimpleNamespace(init=lambda **options: asked.update(options) or fake)
    )
    with RunFolder(tmp_path, make_run()) as folder:
        folder.begin(0)
        folder.listeners.append(wandb_log(tmp_path, {"seed": 1}))
        folder.log({"frames": 10, "eval": {"spl": np.float32(0.5).item()}})
    ((step, row),) = sent
    assert step == 10 and row["eval.spl"] == 0.5 and asked["resume"] == "allow" and asked["config"] == {"seed": 1}
    assert asked["name"] == tmp_path.name and "project" not in asked
    options = ["--config", "pointnav_depth_cpu", "--wandb-project", "maps", "--wandb-name", "first"]
    names = start.wandb_names(start.parse([*options, "--out", str(tmp_path / "run")]))
    wandb_log(tmp_path, {}, names)
    assert (asked["project"], asked["name"]) == ("maps", "first")
    assert start.wandb_names(start.parse(options[:2])) is None
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["frames"] == 10
