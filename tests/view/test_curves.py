import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from batchnav.errors import BatchnavError
from batchnav.ppo.loss import LossStats
from batchnav.ppo.stats import Timer, UpdateStats
from batchnav.runs.training import summary
from batchnav.tasks.pointnav import METRIC_SPECS, METRICS
from batchnav.view.curves import PANELS, load_metrics, plot_curves, series, smooth


@pytest.fixture
def metrics(tmp_path):
    rows = [
        {
            "frames": 100 * (i + 1), "seconds": 2.0 * (i + 1), "frames_per_second": 50.0,
            "success": math.nan if i < 2 else 0.1 * i, "spl": math.nan if i < 2 else 0.05 * i, "return": 1.0 * i,
            "policy_loss": 0.1, "value_loss": 0.2, "entropy": 1.3, "approx_kl": 0.01,
        }
        for i in range(8)
    ]  # fmt: skip
    rows.insert(5, {"frames": 500, "eval": {"success": 0.3, "spl": 0.2}})
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_and_evaluations_are_told_apart(metrics):
    rows, evals = load_metrics(metrics)
    assert len(rows) == 8 and [e["frames"] for e in evals] == [500]
    frames, success = series(rows, "success")
    assert frames.tolist() == [300, 400, 500, 600, 700, 800]  # the first two hold NaN
    assert success == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    assert len(series(rows, "no such key")[0]) == 0


def test_a_cut_last_line_is_left_out_and_any_other_is_named(metrics):
    text = metrics.read_text()
    metrics.write_text(text + '{"frames": 9')
    assert len(load_metrics(metrics)[0]) == 8
    for bad, message in (
        ('{"frames": 9', "is not JSON"), ("[" * 100_000, "is not JSON"), ("[1]", "expected an object with 'frames'"),
        ('{"frames": "many"}', "expected an object with 'frames'"),
    ):  # fmt: skip
        metrics.write_text(bad + "\n" + text)
        with pytest.raises(BatchnavError, match=f"line 1: .*{message}"):
            load_metrics(metrics)
    with pytest.raises(BatchnavError, match="cannot be read"):
        load_metrics(metrics.parent / "absent.jsonl")


def test_running_mean():
    assert smooth(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3) == pytest.approx([1.5, 2.0, 3.0, 4.0, 4.5])
    assert smooth(np.array([1.0, 7.0]), 0) == pytest.approx([1.0, 7.0])
    assert smooth(np.array([1.0, 7.0]), 50).shape == (2,)


def test_picture(metrics):
    out = metrics.parent / "curves.png"
    plot_curves(metrics, out, METRIC_SPECS, "a run")
    image = np.asarray(Image.open(out).convert("RGB")).astype(int)
    assert image.shape == (704, 1320, 3)
    # The success curve is in the first panel, in its blue; the last panel has no blue.
    blue = (np.abs(image - [0, 114, 178]).max(axis=2) < 20).nonzero()
    assert ((blue[0] < 352) & (blue[1] < 440)).any()
    assert not ((blue[0] > 352) & (blue[1] > 880)).any()


def test_every_curve_is_a_figure_that_training_writes(tmp_path):
    """The rows come from an update's own statistics, so a name that only the page knows draws nothing."""
    one = torch.tensor(1.0)
    stats = UpdateStats(
        frames=128, learning_rate=1e-3, losses=LossStats(*[one] * len(LossStats._fields)), grad_norm=one,
        explained_variance=one, reward=one, episodes={"count": one, **dict.fromkeys(METRICS, one)},
        upkeep={}, timer=Timer(torch.device("cpu")),
    )  # fmt: skip
    for _ in range(2):
        stats.timer.mark()
    row = summary(stats.read(), 128, METRICS)
    keys = [key for _, curves in PANELS for key, _ in curves]
    assert set(keys) <= row.keys() and "approx_kl" in keys
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({**row, "frames": 128 * i, "seconds": i}) + "\n" for i in range(1, 5)))
    grey = np.array([107, 107, 107])
    plot_curves(path, tmp_path / "curves.png", METRIC_SPECS)
    third = np.asarray(Image.open(tmp_path / "curves.png").convert("RGB")).astype(int)[40:320, 900:1300]
    assert (np.abs(third - grey).max(axis=2) < 8).any(axis=0).mean() > 0.5, "the line of KL is not in its panel"


def test_a_run_without_episodes_can_be_drawn(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"frames": 100, "seconds": 1.0, "success": NaN}\n')
    plot_curves(path, tmp_path / "curves.png", METRIC_SPECS)
    path.write_text("")
    plot_curves(path, tmp_path / "curves.png", METRIC_SPECS)
