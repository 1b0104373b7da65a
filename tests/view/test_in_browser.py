"""The report and the viewer in a browser; requires Chromium."""

import dataclasses
import time

import numpy as np
import pytest
import torch
from browser import PATIENCE, browser
from test_session import CONFIG, bank  # noqa: F401 (a fixture)
from worlds import TOP, episodes_on, write_box, write_episodes, write_floor

from batchnav.data.episodes import Goal, rotation_of
from batchnav.data.scenes.load import load_all
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.report.evaluation import write_report
from batchnav.scene.bank import SceneBank
from batchnav.view.viewer.session import Session

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
    players = {"<i>random": Seeing("random", CONFIG), "forward": ReferencePlayer("forward", CONFIG)}
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
