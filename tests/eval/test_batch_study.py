"""The study of batch sizes: training parses its command lines, and its curves come from the runs' folders."""

import dataclasses
import json
import types

from batchnav.report import results
from batchnav.training import start as training
from eval.studies import batch_size as batch_study


def test_runs_are_asked_for_once_drawn_and_recorded(monkeypatch, tmp_path):
    asked = []

    def train(command, **_):
        asked_for = training.parse(command[2:])
        run, out = asked_for.run, asked_for.out
        ppo = run.ppo
        asked.append((ppo.optimizer, ppo.num_envs, ppo.minibatches, ppo.learning_rate, run.eval_every))
        out.mkdir(parents=True)
        rows = [{"frames": f, "seconds": f / 10, "collect": 1.0, "learn": 1.5} for f in (250, 500)]
        tests = [{"frames": f, "seconds": f / 10, "eval": {"spl": f / 1000}} for f in (250, 500)]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (*rows, *tests)))

    monkeypatch.setattr(batch_study, "subprocess", types.SimpleNamespace(run=train))
    tracked = tmp_path / "results"
    tracked.mkdir()
    for module in (batch_study, results):
        monkeypatch.setattr(module, "RESULTS", tracked)
    options = batch_study.Options(
        tmp_path / "runs", num_envs=(8, 16), minibatch_frames=(0, 128), total_frames=500, evaluations=2, device="cpu"
    )
    batch_study.main(options)
    assert (tmp_path / "runs" / "batch_study.webp").stat().st_size > 1000
    assert list(tracked.iterdir()) == []  # recording is off by default
    batch_study.main(dataclasses.replace(options, record=True))  # all runs are complete
    assert asked == [
        ("lamb", 8, 2, 1e-3, 250),
        ("lamb", 16, 2, 1e-3, 250),
        ("lamb", 16, 4, 1e-3, 250),
        ("adamw", 8, 2, 2.5e-4, 250),
        ("adamw", 16, 2, 2.5e-4, 250),
        ("adamw", 16, 4, 2.5e-4, 250),
    ]
    recorded = results.rows_of("batch_study")
    assert [(r["value"], r["params"]["frames"], r["params"]["seconds"]) for r in recorded] == [(0.5, 500, 5)] * 6
    assert (tracked / "batch_study.webp").stat().st_size > 1000
