"""The page of a training run."""

import logging
import re

import pytest
from small_runs import finish, make_run, start

from batchnav.report import page
from batchnav.report.charts import Rows
from batchnav.report.page import RunPage
from batchnav.training.folder import RunFolder

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
