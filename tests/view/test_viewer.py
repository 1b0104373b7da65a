"""The viewer's panel and scene, by viser's own state of them: what a browser would show."""

import numpy as np
import pytest
from test_session import CONFIG, bank  # noqa: F401 (a fixture)
from worlds import episodes_on

from batchnav.evaluation.run import ReferencePlayer
from batchnav.sim.bodies import FORWARD
from batchnav.view.session import YOU, Session
from batchnav.view.viewer import Viewer

pytest.importorskip("viser", reason="the viewer's library is not installed")


@pytest.fixture
def viewer(bank):  # noqa: F811
    players = {name: ReferencePlayer(name, CONFIG) for name in ("forward", "random")}
    made = Viewer(Session(bank, episodes_on(bank.scenes[0].name), players), port=18080)
    yield made
    made.server.stop()


def nodes(viewer):
    return {name for name, handle in viewer.server.scene._handle_from_node_name.items() if handle.visible}


def test_what_is_shown_at_first(viewer):
    assert viewer.shown == ["forward", "random"]
    shown = nodes(viewer)
    assert {"/scene", "/goal", "/paths/forward", "/paths/shortest", "/agents/forward/camera"} <= shown
    assert any(name.startswith("/navmesh/") for name in shown)
    assert "1 of 3" in viewer.status.content and "**random**: step 1 of" in viewer.status.content
    assert {("forward", "depth"), ("random", "depth")} == set(viewer.views)
    assert np.ptp(viewer.map.image) > 100


def test_playing_ends_at_the_last_step(viewer):
    viewer.toggle()
    assert viewer.playing and viewer.play.label == "Pause"
    for _ in range(viewer.last_step + 3):
        viewer.advance()
    assert not viewer.playing and viewer.play.label == "Play"
    assert viewer.step == viewer.last_step == int(viewer.time.value)
    assert "success" in viewer.status.content
    viewer.toggle()
    assert viewer.step == 0


def test_an_episode_is_picked(viewer):
    before = viewer.last_step
    viewer.pick(2)
    assert viewer.session.number == 2 == int(viewer.episode.value) and viewer.step == 0
    assert "3 of 3" in viewer.status.content and viewer.time.max >= before - 1


def test_driving_shows_the_driver(viewer):
    assert YOU not in viewer.shown
    for _ in range(2):
        viewer.drive(FORWARD)
    assert YOU in viewer.shown and "**you**: step 3 of 3" in viewer.status.content
    assert f"/paths/{YOU}" in nodes(viewer) and (YOU, "depth") in viewer.views


def test_what_is_not_wanted_goes(viewer):
    for box in (viewer.boxes["random"], *viewer.options.values()):
        box.value = False
    viewer.show_episode()
    shown = nodes(viewer)
    assert not any(
        name.startswith(("/navmesh", "/agents/random", "/paths/random", "/paths/shortest")) for name in shown
    )
    assert set(viewer.views) == {("forward", "depth")}
