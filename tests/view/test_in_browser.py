"""The report and the viewer in a browser; requires Chromium."""

import dataclasses
import gzip
import json
import time

import numpy as np
import pytest
import torch
from browser import PATIENCE, browser
from labelled import write_named
from test_session import CONFIG, bank  # noqa: F401 (a fixture)
from worlds import TOP, episodes_on, write_box, write_episodes, write_floor

from batchnav import load_scene
from batchnav.data.config import ScenesConfig
from batchnav.data.episodes import Goal, rotation_of
from batchnav.data.goals.category import generate_objectnav
from batchnav.data.goals.rules import LabelMap
from batchnav.data.goals.view_points import with_goals
from batchnav.data.scenes.load import load_all
from batchnav.envs.config import PRESETS, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.report.charts import Rows
from batchnav.report.evaluation import write_report
from batchnav.report.page import RunPage
from batchnav.scene.bank import SceneBank
from batchnav.training.config import TrainingConfig
from batchnav.view.viewer.session import Session, open_session

pytestmark = pytest.mark.browser


class Seeing(ReferencePlayer):
    """An agent whose images the report shows."""

    env_config = property(lambda self: self.config)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    episodes = write_episodes(folder / "mine.json.gz", [str(write_floor(folder / "floor.ply"))])
    evaluation = Evaluation(episodes, torch.device("cpu"), CONFIG)
    players = {"<i>random": Seeing("random", CONFIG), "shortest_path": ReferencePlayer("shortest_path", CONFIG)}
    agents = {name: evaluation.play(player) for name, player in players.items()}
    return write_report(folder, evaluation, agents).as_uri()


@pytest.mark.parametrize("width", [400, 900, 1600])
def test_a_report_fits_its_window(page, report, width):
    page.open(report, width)
    assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.run("document.getElementById('stage').getBoundingClientRect().right") <= width


def test_episodes_are_shown_and_sorted(page, report):
    page.open(report, 900)
    assert page.run("document.querySelectorAll('#map .agent').length") == 2
    assert page.run("document.querySelectorAll('#views image').length") == 1
    assert page.run("document.querySelectorAll('#list tr.shown').length") == 1
    assert page.run("document.querySelector('#list tr.shown').classList.contains('failed')")
    caption = "document.getElementById('caption')"
    assert page.run(f"{caption}.innerText.includes('<i>random') && {caption}.querySelector('i') == null")
    assert page.run("+document.getElementById('step').value") == 0  # at the start of the first failure
    assert page.run("document.querySelectorAll('#map .start').length") == 1
    page.run("document.getElementById('forth').click()")
    assert page.run("+document.getElementById('step').value") == 1
    distances = "[...document.querySelectorAll('#list tbody tr')].map(row => +row.cells[2].textContent)"
    for order in (1, -1):
        page.run("document.querySelectorAll('#list th button')[2].click()")
        assert (order * np.diff(page.run(distances)) >= 0).all()


MARKUP = "<img src=x onerror=window.planted=1><!--<script>{{i}}</script>`**b** [a](javascript:b) |&amp;"
"""A text that a page shows only where it is escaped."""
PLANTED = "window.planted == 1 || document.querySelector('img[src=x], a[href^=javascript]') != null"


def planted(folder):
    """Episodes of a scene whose file's strings are markup: episode ids, scene ids and other strings."""
    scene = write_floor(folder / f"{MARKUP.replace('/', '')}.ply")
    path = write_episodes(folder / "mine.json.gz", [str(scene)])
    tree = json.loads(gzip.decompress(path.read_bytes()))
    for number, episode in enumerate(tree["episodes"]):
        episode |= {"episode_id": f"{number}{MARKUP}", "info": {"difficulty": MARKUP, MARKUP: MARKUP}}
    path.write_bytes(gzip.compress(json.dumps(tree | {MARKUP: MARKUP}).encode()))
    return path


def planted_category(folder):
    """ObjectNav episodes whose category and names of objects are markup, and their environment."""
    glb = write_named(folder / "room.glb", [("chair", (1, 0, 1), (1.4, 0.9, 1.4))])
    scene = load_scene(glb, appearance=True)._replace(name=str(glb))
    labels, path = LabelMap((MARKUP,), {"chair": MARKUP}), folder / "mine.json.gz"
    scenes = with_goals([scene], labels=labels, device="cpu")
    generate_objectnav(scenes, 3, labels=labels).save(path, content=False)
    tree = json.loads(gzip.decompress(path.read_bytes()))
    for goal in (goal for goals in tree["goals_by_category"].values() for goal in goals):
        goal |= {"object_name": MARKUP, "object_category": MARKUP}
    path.write_bytes(gzip.compress(json.dumps(tree).encode()))
    options = {"categories": (MARKUP,), "height": 8, "width": 12, "max_steps": 20}
    return path, with_options(PRESETS["objectnav_houses"], options)


@pytest.mark.parametrize("with_category", [False, True])
def test_texts_of_files_are_text_in_a_report(page, tmp_path, with_category):
    path, config = planted_category(tmp_path / "objects") if with_category else (planted(tmp_path), CONFIG)
    evaluation = Evaluation(path, torch.device("cpu"), config, appearance=needed_appearance(config))
    players = {f"{MARKUP}{name}": Seeing(name, config) for name in ("random", "forward")}
    path = write_report(tmp_path, evaluation, {name: evaluation.play(each) for name, each in players.items()})
    page.open(path.as_uri(), 900)
    assert page.run("document.querySelectorAll('#list tr.shown').length") == 1
    page.run("document.getElementById('back').click()")
    assert page.run(f"document.getElementById('list').innerText.includes({json.dumps(MARKUP)})")
    assert page.run(f"document.getElementById('caption').innerText.includes({json.dumps(MARKUP)})")
    time.sleep(0.5)
    assert not page.run(PLANTED)


def test_texts_of_files_are_text_in_a_runs_page(page, tmp_path):
    folder = tmp_path / MARKUP.replace("/", "")
    run = TrainingConfig(scenes=ScenesConfig(sources=(MARKUP,)))
    row = {"frames": 1, "frames_per_second": 1.0, "loss": MARKUP, MARKUP: MARKUP, "spl": 0.5}
    folder.mkdir()
    shown = RunPage(folder / "report.html", run, Rows([], []), {"spl": (0.0, 1.0)})
    for values in (row, row | {"frames": 2}, {"frames": 2, "eval": {"spl": 0.5, MARKUP: MARKUP}}):
        shown.add(values)
    shown.write(running=False)
    page.open((folder / "report.html").as_uri(), 900)
    assert page.run(f"document.body.textContent.replace(/\\s+/g, ' ').includes({json.dumps(MARKUP)})")
    time.sleep(0.5)
    assert not page.run(PLANTED)


@pytest.mark.parametrize("with_category", [False, True])
def test_texts_of_files_are_text_in_the_viewer(page, tmp_path, with_category):
    pytest.importorskip("viser", reason="the viewer's library is not installed")
    from batchnav.view.viewer.app import Viewer

    path, config = planted_category(tmp_path / "objects") if with_category else (planted(tmp_path), CONFIG)
    players = {f"{MARKUP}forward": ReferencePlayer("forward", config)}
    viewer = Viewer(open_session([], path, players, torch.device("cpu")), port=18110)
    try:
        page.open(f"http://127.0.0.1:{viewer.server.get_port()}", 1200)
        page.wait_for("document.body.innerText.includes('1 of') && document.querySelector('canvas') != null")
        page.wait_for(f"document.body.innerText.includes({json.dumps(with_category * 'goal: ' + MARKUP)})")
        press = "[...document.querySelectorAll('button')].find(button => button.textContent == '{}').click()"
        page.run(press.format("next"))
        page.wait_for("document.body.innerText.includes('2 of')")
        time.sleep(1.0)
        assert not page.run(PLANTED)
    finally:
        viewer.server.stop()


def test_the_viewer_is_served(page, bank):  # noqa: F811
    pytest.importorskip("viser", reason="the viewer's library is not installed")
    from batchnav.view.viewer.app import Viewer

    players = {"forward": ReferencePlayer("forward", CONFIG)}
    viewer = Viewer(Session(bank, episodes_on(bank.scenes[0].name), players), port=18090)
    try:
        page.open(f"http://127.0.0.1:{viewer.server.get_port()}", 1200)
        page.wait_for("document.body.innerText.includes('1 of 3') && document.querySelector('canvas') != null")
        press = "[...document.querySelectorAll('button')].find(button => button.textContent == '{}').click()"
        page.run(press.format("next"))
        page.wait_for("document.body.innerText.includes('2 of 3')")
        page.run(press.format("forward"))
        page.wait_for("document.body.innerText.includes('you: step 2 of 2')")
    finally:
        viewer.server.stop()


def test_the_camera_follows_to_another_scene(page, tmp_path):
    """The next failure and the next episode lie in a scene 100 m away, which the camera then looks at."""
    pytest.importorskip("viser", reason="the viewer's library is not installed")
    from batchnav.view.viewer.app import Viewer

    near, far = write_floor(tmp_path / "near.ply"), write_box(tmp_path / "far.ply", [97, -0.1, -4], [103, 0.1, 4])
    scenes = load_all([str(near), str(far)], settings=CONFIG.body.navmesh)
    here = episodes_on(scenes[0].name, 1)[0]
    there = dataclasses.replace(
        here, scene_id=scenes[1].name, start_position=(100.0, TOP, 3.0), start_rotation=rotation_of(np.pi),
        goals=(Goal((100.0, TOP, 1.0), 0.2),),
    )  # fmt: skip
    players = {"forward": ReferencePlayer("forward", CONFIG)}  # turned away from its goal in the second scene
    viewer = Viewer(Session(SceneBank.pack(scenes, "cpu"), [here, there], players), port=18095)
    try:
        page.open(f"http://127.0.0.1:{viewer.server.get_port()}", 1200)
        page.wait_for("document.body.innerText.includes('1 of 2') && document.querySelector('canvas') != null")
        press = "[...document.querySelectorAll('button')].find(button => button.textContent == '{}').click()"
        for button, shown, x in (("next failure", 2, 100.0), ("next", 1, 0.0), ("next", 2, 100.0)):
            page.run(press.format(button))
            page.wait_for(f"document.body.innerText.includes('{shown} of 2')")
            until = time.monotonic() + PATIENCE
            while abs(client_camera(viewer).look_at[0] - x) > 1.0:  # the page reports its camera
                assert time.monotonic() < until
                time.sleep(0.1)
            assert abs(client_camera(viewer).position[0] - x) < 20.0
    finally:
        viewer.server.stop()


def client_camera(viewer):
    """The camera of the page, which the browser reports."""
    (client,) = viewer.server.get_clients().values()
    return client.camera
