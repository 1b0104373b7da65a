"""The study of batch sizes: its command lines are training's, and its curves come from the runs' folders."""

import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "eval"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "train"))
import batch_study

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def training():
    """train/pointnav.py as a module (eval/ has one of the same name)."""
    spec = importlib.util.spec_from_file_location("train_pointnav", ROOT / "train" / "pointnav.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_runs_are_asked_for_once_drawn_and_recorded(training, monkeypatch, tmp_path):
    asked, recorded = [], []

    def train(command, **_):
        run, out, *_ = training.parse(command[2:])
        ppo = run.ppo
        asked.append((ppo.optimizer, ppo.num_envs, ppo.minibatches, ppo.learning_rate, run.eval_every))
        out.mkdir(parents=True)
        rows = [{"frames": f, "seconds": f / 10, "collect": 1.0, "learn": 1.5} for f in (250, 500)]
        tests = [{"frames": f, "seconds": f / 10, "eval": {"spl": f / 1000}} for f in (250, 500)]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (*rows, *tests)))

    monkeypatch.setattr(batch_study, "subprocess", types.SimpleNamespace(run=train))
    monkeypatch.setattr(batch_study, "record", lambda name, rows: recorded.extend(rows))
    monkeypatch.setattr(batch_study, "RESULTS", tmp_path)
    options = batch_study.Options(
        tmp_path, num_envs=(8, 16), minibatch_frames=(0, 128), total_frames=500, evaluations=2, device="cpu"
    )
    for _ in range(2):  # the second time all runs are complete
        batch_study.main(options)
    assert asked == [
        ("lamb", 8, 2, 1e-3, 250),
        ("lamb", 16, 2, 1e-3, 250),
        ("lamb", 16, 4, 1e-3, 250),
        ("adamw", 8, 2, 2.5e-4, 250),
        ("adamw", 16, 2, 2.5e-4, 250),
        ("adamw", 16, 4, 2.5e-4, 250),
    ]
    assert [(r["value"], r["params"]["frames"], r["params"]["seconds"]) for r in recorded] == [(0.5, 500, 5)] * 12
    assert (tmp_path / "batch_study.png").stat().st_size > 1000
