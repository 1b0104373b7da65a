import re

import numpy as np
import pytest
import torch
from PIL import Image

from batchnav.evaluation.intervals import Interval
from batchnav.evaluation.play import Images, Recording
from batchnav.scene.scene import make_scene
from batchnav.tasks.pointnav import METRIC_SPECS, METRICS
from batchnav.types import Spec, TriangleMesh
from batchnav.view.report import write_report

DEPTH = Spec("depth", (1, 8, 8), torch.float32, 0.0, 1.0, torch.bfloat16)


@pytest.fixture(scope="module")
def floor():
    vertices = np.array([(0, 0, 0), (0, 0, 5), (5, 0, 5), (5, 0, 0)], np.float32)
    return make_scene("floor <1>", TriangleMesh(vertices, np.array([(0, 1, 2), (0, 2, 3)], np.int32)))


def summary(value):
    return {name: Interval(value, value - 0.05, value + 0.05, 20, value - 0.125, value + 0.125, 4) for name in METRICS}


def test_report(floor, tmp_path):
    x = np.linspace(1.0, 4.0, 13, dtype=np.float32)
    recording = Recording(
        scene=0, positions=np.stack([x, np.zeros_like(x), np.full_like(x, 2.0)], axis=1), headings=np.zeros(13),
        actions=np.ones(13, int), images={"depth": Images(DEPTH, np.full((13, 1, 8, 8), 0.5, np.float32))},
        goal=np.array([4.0, 0.0, 2.0]),
        goal_radius=0.2, metrics=dict.fromkeys(METRICS, 1.0), metric_specs=METRIC_SPECS,
    )  # fmt: skip
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"frames": 100, "seconds": 1.0, "success": 0.5}\n')
    agents = {"learned": summary(0.625), "greedy": summary(0.375)}
    page = write_report(
        tmp_path / "report",
        "A & B",
        {"task": "a < b"},
        agents,
        {"floor <1>": summary(0.5)},
        [recording],
        [floor],
        METRIC_SPECS,
        metrics,
    )
    text = page.read_text()
    assert "<h1>A &amp; B</h1>" in text and "a &lt; b" in text and "floor &lt;1&gt;" in text
    assert text.index("learned") < text.index("greedy")
    assert "0.625<br><small>0.575–0.675<br>(0.500–0.750)" in text and "0.375" in text
    assert "in brackets, over scenes" in text
    pictures = re.findall(r"src='([^']+)'", text)
    assert sorted(pictures) == sorted(p.name for p in page.parent.iterdir() if p.name != "index.html")
    assert {"curves.png", "depth.png", "map_1.png", "episode_1.gif"} == set(pictures)
    for picture in pictures:
        with Image.open(page.parent / picture) as image:
            image.load()


def test_a_report_without_run_or_recordings(floor, tmp_path):
    page = write_report(tmp_path, "none", {}, {"greedy": summary(0.5)}, {}, [], [floor], METRIC_SPECS)
    assert "src=" not in page.read_text()
