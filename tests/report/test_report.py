"""The report of agents in two small rooms: contents of the page, and data for its script."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from worlds import write_episodes, write_floor

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.envs.config import NavConfig, with_options
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation, quantiles, straight_line
from batchnav.evaluation.trajectories import PoseCameras
from batchnav.observation import Spec
from batchnav.report.evaluation import (
    MAX_PICTURES,
    PLAN_SIZE,
    SUBPIXELS,
    bar_ends,
    breakdowns,
    compared_by,
    listed,
    shown_steps,
    to_film,
    write_report,
)
from batchnav.tasks.goal_task import METRIC_SPECS
from batchnav.types import Metric
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import HOLE, colour

CONFIG = with_options(NavConfig(), {"height": 8, "width": 12, "max_steps": 20})


class Seeing(ReferencePlayer):
    """An agent whose images the report shows."""

    env_config = property(lambda self: self.config)


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rooms")
    scenes = [str(write_floor(folder / f"{name}.ply")) for name in ("a", "b<1>")]
    path = write_episodes(folder / "mine.json.gz", scenes)
    return Evaluation(path, torch.device("cpu"), CONFIG, num_envs=4)


@pytest.fixture(scope="module")
def played(evaluation):
    return [evaluation.play(Seeing("forward", CONFIG)), evaluation.play(ReferencePlayer("shortest_path", CONFIG))]


@pytest.fixture(scope="module")
def page(evaluation, played, tmp_path_factory):
    agents = dict(zip(("forward", "shortest_path"), played, strict=True))
    return write_report(tmp_path_factory.mktemp("report"), evaluation, agents, films=3).read_text()


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])


def test_the_page_stands_alone(page):
    assert '<meta name="viewport"' in page and "<h1>PointGoal: forward on mine.json.gz</h1>" in page
    assert "b&lt;1&gt;" in page and "b<1>" not in page.replace("b<1>.ply\n", "")
    assert not re.search(r"(?:src|href)=[\"'](?!data:|\$\{)", page)
    for words in (
        "6 in 2 scenes",
        "commit",
        "device",
        "success_distance: 0.2",
        "in brackets, is a bootstrap over scenes",
        "max_steps: 20",
    ):
        assert words in page


def test_agents_stand_side_by_side(page, played):
    head = page[page.index('class="cards"') : page.index("SPL by episode property")]
    assert head.index("forward") < head.index("shortest_path")
    assert f"<b>{played[0].overall['success'].mean:.3f}</b>" in head
    for name in ("geodesic distance to the goal", "detour: geodesic over straight line", "scene, worst first"):
        assert f"<h3>By {name}</h3>" in page


def test_a_reference_agent_that_is_all_zero_folds_away(evaluation, played, tmp_path):
    def nothing(name):
        found = evaluation.play(ReferencePlayer(name, CONFIG))
        zero = {metric: interval._replace(mean=0.0) for metric, interval in found.overall.items()}
        return found._replace(overall=zero)

    agents = {"forward": nothing("forward"), "shortest_path": played[1], "greedy": nothing("greedy")}
    text = write_report(tmp_path, evaluation, agents, films=0).read_text()
    assert "<summary>greedy: success and SPL 0 in all episodes</summary>" in text
    assert 'const names = ["forward", "shortest_path"]' in text  # the first agent is what the report is about
    assert all(len(episode["paths"]) == 2 for episode in data_of(text)["episodes"])


def test_disturbances_have_a_table_and_a_picture(evaluation, played, page, tmp_path):
    worse = {name: each._replace(mean=0.125, low=0.1, high=0.2) for name, each in played[0].overall.items()}
    found = {"undisturbed": played[0].overall, "drift <1%>": worse}
    text = write_report(tmp_path, evaluation, {"forward": played[0]}, films=0, disturbed=found).read_text()
    table = text[text.index("under disturbances</h2>") : text.index("<h2>Episodes")]
    assert "<th>success</th><th>SPL</th>" in table
    assert table.count("<b>0.125</b>") == 2 and "drift &lt;1%&gt;" in table
    image = base64.b64decode(re.search(r"data:image/webp;base64,([^\"]+)", table)[1])
    assert Image.open(io.BytesIO(image)).size[0] > 500
    assert "under disturbances" not in page


def test_all_scenes_are_shown_worst_first(evaluation, played):
    parts = breakdowns(evaluation, played[:1], compared_by(METRIC_SPECS))["scene"]
    assert sorted(part.label for part in parts) == sorted(evaluation.names)
    worst = {name: each["spl"].mean for name, each in played[0].scenes.items()}
    assert [worst[part.label] for part in parts] == sorted(worst.values())


def test_failures_come_first(evaluation, played, page):
    random = evaluation.play(ReferencePlayer("random", CONFIG))
    rows = listed(evaluation, [random, *played], compared_by(METRIC_SPECS))
    success = [row.scores[0].success for row in rows]
    assert sorted(row.number for row in rows) == list(range(6)) and success == sorted(success)
    assert not success[0]
    assert page.count('class="failed"') == int((played[0].episodes["success"] == 0).sum())
    assert rows[0].distance == pytest.approx(1.0 + 0.5 * (rows[0].number % 3), abs=0.05)


def test_ways_and_pictures_are_those_that_were_played(evaluation, played, page):
    data = data_of(page)
    order = [row.number for row in listed(evaluation, played, compared_by(METRIC_SPECS))]
    assert len(data["plans"]) == 2
    for number, episode in zip(order, data["episodes"], strict=True):
        for each, text in zip(played, episode["paths"], strict=True):
            way = np.frombuffer(base64.b64decode(text), "<i2").reshape(-1, 3)
            walk = each.trajectories[number]
            assert len(way) == len(walk.headings) == each.episodes["steps"][number]
            navmesh = evaluation.bank.scenes[int(each.episodes["scene"][number])].navmesh
            per_metre = TopDownMap(navmesh, None, float(walk.positions[0, 1]), PLAN_SIZE).pixels_per_metre
            ends = (way[-1, :2] - way[0, :2]) / SUBPIXELS / per_metre
            assert ends == pytest.approx((walk.positions[-1] - walk.positions[0])[[0, 2]], abs=0.06)
    filmed = [k for k, episode in enumerate(data["episodes"]) if episode["films"]]
    assert filmed == to_film(6, 3) == [0, 1, 2]
    (strip,) = data["episodes"][0]["films"]["0"]["strips"]
    assert (strip["sensor"], strip["width"], strip["height"], strip["range"]) == ("depth", 12, 8, [0.0, 10.0])
    with Image.open(io.BytesIO(base64.b64decode(strip["source"].split(",")[1]))) as image:
        assert image.size == (12 * min(strip["count"], 16), 8 * -(-strip["count"] // 16))


def test_pictures_are_drawn_from_where_the_agent_stood(evaluation):
    """Images rendered for the report equal the agent's observations."""
    (film,) = evaluation.record(Seeing("forward", CONFIG), np.array([2]))
    played = evaluation.play(Seeing("forward", CONFIG))
    (seen,) = evaluation.images_along(CONFIG, played.episodes["scene"][[2]], [played.trajectories[2]])
    np.testing.assert_array_equal(seen["depth"].values, film.images["depth"].values)
    np.testing.assert_array_equal(played.trajectories[2].positions, film.positions)
    np.testing.assert_array_equal(played.trajectories[2].actions, film.actions)


def test_pictures_are_drawn_a_walk_at_a_time(evaluation, played, monkeypatch):
    """A report of many large images renders one episode at a time."""
    drawn = []
    monkeypatch.setattr(PoseCameras, "images_at", lambda eyes, scene, *pose, seen=None: drawn.append((scene, *pose)))
    walks = played[0].trajectories[:3]
    for k, _ in enumerate(evaluation.images_along(CONFIG, np.array([1, 0, 1]), walks)):
        assert len(drawn) == k + 1 and drawn[k][0].tolist() == [(1, 0, 1)[k]] * len(walks[k].headings)
        assert all(found is part for found, part in zip(drawn[k][1:], walks[k], strict=False))


def test_parts_and_properties():
    parts = quantiles(np.array([4.0, 1.0, np.nan, 3.0, 2.0]), "{:.0f}-{:.0f}")
    assert {name: rows.tolist() for name, rows in parts.items()} == {"1-1": [1], "2-2": [4], "3-3": [3], "4-4": [0]}
    assert quantiles(np.full(3, np.nan), "{}") == {}
    episode = Episode("0", "a", (0.0, 0.0, 0.0), rotation_of(0.0), (Goal((3.0, 0.0, 4.0)), Goal((1.0, 0.0, 0.0))))
    assert straight_line(episode) == 1.0
    assert compared_by(METRIC_SPECS).name == "spl"


def test_bars_end_where_a_metric_or_its_means_do(played):
    assert bar_ends(compared_by(METRIC_SPECS), played) == (0.0, 1.0)
    low, high = bar_ends(Metric("return", low=-np.inf), played)
    returns = [each.overall["return"].mean for each in played]
    assert -np.inf < low <= min(0.0, *returns) and max(returns) <= high < np.inf and low < high


def test_what_is_shown_of_many():
    assert to_film(100, 8) == [0, 1, 2, 3, 4, 5, 6, 99] and to_film(3, 24) == [0, 1, 2] and to_film(5, 0) == []
    assert len(shown_steps(10 * MAX_PICTURES + 1)) <= MAX_PICTURES and shown_steps(3).tolist() == [0, 1, 2]


def test_ids_have_colours():
    spec = Spec("semantic", (1, 1, 3), torch.int32, 0.0, 2.0**31 - 1, torch.int32)
    picture = colour(np.array([[[0, 1, 2]]]), spec)
    assert tuple(picture[0, 0]) == HOLE and tuple(picture[0, 1]) != tuple(picture[0, 2])
