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


def test_runs_are_asked_for_drawn_and_recorded(training, monkeypatch, tmp_path):
    asked, recorded = [], []

    def train(command, **_):
        run, out, _ = training.parse(command[2:])
        asked.append((run.ppo.optimizer, run.ppo.num_envs, run.ppo.learning_rate, run.eval_every))
        out.mkdir(parents=True)
        rows = [{"frames": f, "seconds": f / 100, "eval": {"spl": f / 1000}} for f in (250, 500)]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    monkeypatch.setattr(batch_study, "subprocess", types.SimpleNamespace(run=train))
    monkeypatch.setattr(batch_study, "record", lambda name, rows: recorded.extend(rows))
    options = batch_study.Options(tmp_path, num_envs=(8, 16), total_frames=500, evaluations=2, device="cpu")
    batch_study.main(options)
    assert asked == [
        ("lamb", 8, 5e-4, 250),
        ("lamb", 16, 5e-4, 250),
        ("adamw", 8, 2.5e-4, 250),
        ("adamw", 16, 2.5e-4, 250),
    ]
    assert [(row["value"], row["params"]["frames"], row["params"]["seconds"]) for row in recorded] == [
        (0.5, 500, 5)
    ] * 4
    assert (tmp_path / "batch_study.png").stat().st_size > 1000
