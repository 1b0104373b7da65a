import json
import logging
import math
import re

import numpy as np
import pytest
from small_runs import finish, make_run, start

from batchnav.errors import BatchnavError
from batchnav.report import page
from batchnav.report.charts import (
    BOTTOM,
    COLOURS,
    LEFT,
    RIGHT,
    TOP,
    Rows,
    charts,
    load_metrics,
    series,
    smooth,
)
from batchnav.report.page import RunPage
from batchnav.training.folder import RunFolder

SHOWN = {"success": (0.0, 1.0), "spl": (0.0, 1.0)}


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


def points(text):
    return np.array([pair.split(",") for pair in text.split()], float)


def test_a_chart_for_each_curve(metrics):
    drawn = {chart.title: chart for chart in charts({"mine": Rows(*load_metrics(metrics))}, SHOWN)}
    assert list(drawn) == [
        "success", "SPL", "return of an episode", "entropy", "KL divergence", "policy loss", "value loss",
        "speed",
    ]  # fmt: skip
    assert drawn["speed"].unit == "frames/s" and drawn["entropy"].unit == "nats"
    success = drawn["success"]
    # 300 to 800 frames and 0.2 to 0.7, on axes from 0 to 800 and from 0 to 1.
    at = points(success.lines[0].faint)
    assert at[:, 0] == pytest.approx(LEFT + (RIGHT - LEFT) * np.arange(300, 900, 100) / 800, abs=0.06)
    assert at[:, 1] == pytest.approx(BOTTOM + (TOP - BOTTOM) * np.arange(0.2, 0.75, 0.1), abs=0.06)
    assert [mark.text for mark in success.up] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    (dot,) = success.lines[0].dots
    assert dot == pytest.approx((LEFT + (RIGHT - LEFT) * 500 / 800, BOTTOM + (TOP - BOTTOM) * 0.3), abs=0.06)
    assert success.last == [(COLOURS[0], "0.450")]  # the mean of the last ten updates, of all six here


@pytest.mark.parametrize(
    "end, values", [(128, (0.0, 1e-4)), (3e8, (-40.0, 900.0)), (7e7, (0.3, 0.3)), (1, (-2.0, -1.0))]
)
def test_ticks_are_round_and_do_not_overlap(end, values):
    rows = [{"frames": end * k / 9, "return": v} for k, v in enumerate(np.linspace(*values, 10))]
    (chart,) = charts({"mine": Rows(rows, [])}, {})
    assert 2 <= len(chart.across) <= 6 and 2 <= len(chart.up) <= 6
    assert np.diff([mark.at for mark in chart.across]).min() > 7.0 * max(len(mark.text) for mark in chart.across)
    assert np.diff([-mark.at for mark in chart.up]).min() > 14.0
    assert len({mark.text for mark in chart.up}) == len(chart.up)
    at = points(chart.lines[0].faint)
    assert (
        (at[:, 0] >= LEFT).all()
        and (at[:, 0] <= RIGHT).all()
        and (at[:, 1] >= TOP).all()
        and (at[:, 1] <= BOTTOM).all()
    )


def test_a_run_without_episodes_can_be_drawn(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"frames": 100, "seconds": 1.0, "success": NaN}\n')
    assert charts({"mine": Rows(*load_metrics(path))}, SHOWN) == []
    path.write_text("")
    assert charts({"mine": Rows(*load_metrics(path))}, SHOWN) == []


def test_values_beyond_float32_are_left_out(tmp_path):
    values = [10**400, 1e308, -1e308, math.inf, math.nan, 5e-324, True, "x", None, [1], 0.25]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"frames": i, "spl": v, "loss": v}) + "\n" for i, v in enumerate(values)))
    rows = Rows(*load_metrics(path))
    assert series(rows.training, "spl")[0].tolist() == [5, 6, 10]
    assert [chart.title for chart in charts({"": rows}, {"spl": (0.0, 1.0)})] == ["SPL"]
    path.write_text('{"frames": 1, "return": 0}\n{"frames": 2, "return": 5e-324}\n{"frames": 3, "return": 1e-300}\n')
    assert len(charts({"": Rows(*load_metrics(path))}, {})) == 1


# The page of a training run

ROW = {"frames": 640, "return": 1.5, "frames_per_second": 320.0, "collect": 1.0, "spl": 0.5}


def test_a_run_leaves_its_page(tmp_path):
    run, out = make_run(updates=3), tmp_path / "carts"
    assert finish(start(run, out)) == 0
    text = (out / "report.html").read_text()
    assert "<h1>carts</h1>" in text and "Trained: 384 of 384 frames" in text
    assert "http-equiv" not in text  # complete: no more refreshes
    for word in ("KL divergence", "entropy", "total_frames: 384", 'name="viewport"', "commit"):
        assert word in text
    assert not re.search(r"(src|href)=[\"']https?:", text)  # loads nothing from elsewhere


def test_it_refreshes_while_training(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(page.time, "monotonic", lambda: clock[0])
    written = RunPage(tmp_path / "report.html", make_run(updates=10), Rows([], []), {"spl": (0.0, 1.0)})
    written.add(ROW)
    assert not written.path.exists()  # not at the start, since a short run would wait for it
    clock[0] += page.FIRST_SECONDS
    written.add({**ROW, "frames": 768})
    text = written.path.read_text()
    assert '<meta http-equiv="refresh" content="20">' in text
    assert "768 of 1,280 frames, about 0 min left" in text and ">SPL<" in text
    written.path.unlink()
    clock[0] += page.REFRESH_SECONDS - 1.0
    written.add(ROW)
    assert not written.path.exists()
    clock[0] += 1.0
    written.add({"frames": 800, "eval": {"spl": 0.25}})
    assert "<circle" in written.path.read_text()


def test_it_goes_on_with_the_rows_before(tmp_path):
    run = make_run(updates=10)
    for frames in (128, 256):
        with RunFolder(tmp_path / "run", run) as folder:
            folder.begin(frames - 128)
            folder.log({**ROW, "frames": frames})
    text = (tmp_path / "run" / "report.html").read_text()
    assert "Stopped: 256 of 1,280 frames" in text
    points = re.search(r'points="([^"]+)"', text)[1]
    assert len(points.split()) == 2


@pytest.mark.filterwarnings("error")
def test_training_goes_on_where_it_cannot_be_written(tmp_path, caplog):
    (tmp_path / "report.html").mkdir()
    with caplog.at_level(logging.WARNING):
        RunPage(tmp_path / "report.html", make_run(), Rows([], []), {}).write(running=True)
    assert "report.html: cannot be written" in caplog.text
