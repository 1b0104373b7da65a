"""The viewer's panel and scene, read from the state that viser sends to browsers."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from test_session import CONFIG, bank  # noqa: F401 (a fixture)
from worlds import episodes_on

from batchnav.data.formats import EpisodeDataset
from batchnav.envs.config import with_options
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.sim.bodies import FORWARD
from batchnav.view.viewer.app import Viewer, whole_view
from batchnav.view.viewer.session import YOU, Session, open_session

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
    assert {"/scene", "/goals/nearest", "/paths/forward", "/paths/shortest", "/agents/forward/camera"} <= shown
    assert any(name.startswith("/navmesh/") for name in shown)
    assert "1 of 3" in viewer.status.content and "**random**: step 1 of" in viewer.status.content
    assert {("forward", "depth"), ("random", "depth")} == set(viewer.views)
    assert np.ptp(viewer.map.image) > 100


@pytest.mark.parametrize("free", [1.0, 0.4])
@pytest.mark.parametrize("aspect", [0.5, 1.0, 2.2])
@pytest.mark.parametrize("size", [(12.0, 2.5, 3.0), (3.0, 2.5, 12.0), (5.0, 2.5, 5.0)])
def test_a_storey_fills_the_free_part_of_the_canvas(size, aspect, free):
    low = np.array([3.0, -1.0, 40.0])
    high = low + size
    position, target = whole_view(low, high, 1.3, aspect, free)
    ahead = (target - position) / np.linalg.norm(target - position)
    right = np.cross(ahead, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    across, up, depth = ((corners - position) @ axis for axis in (right, np.cross(right, ahead), ahead))
    x, y = across / depth / (np.tan(0.65) * aspect), up / depth / np.tan(0.65)  # -1 to 1 on the canvas
    assert (depth > 0).all() and np.abs(x).max() <= 1.001 and y.max() <= 1.001 and y.min() >= 1 - 2 * free - 0.001
    assert np.ptp(x) > 1.6 or np.ptp(y) > 1.8 * free, "found a storey that fills neither width nor height"


def test_the_camera_stands_where_it_is_mounted(bank):  # noqa: F811
    """A camera in front of the agent, turned left and down, has the pose of the rendered image."""
    mounted = {"camera_forward": 0.2, "camera_left": 0.1, "camera_heading_deg": 90.0, "camera_pitch_deg": -30.0}
    viewer = Viewer(
        Session(bank, episodes_on(bank.scenes[0].name), config=with_options(CONFIG, mounted)), port=18081
    )  # fmt: skip
    viewer.boxes[YOU].value = True
    viewer.show_episode()
    walk = viewer.session.track(YOU).trajectory
    camera = viewer.server.scene._handle_from_node_name[f"/agents/{YOU}/camera"]
    viewer.server.stop()
    ahead = np.array([-np.sin(walk.headings[0]), 0.0, -np.cos(walk.headings[0])])
    left = np.array([ahead[2], 0.0, -ahead[0]])
    expected = walk.positions[0] + 0.2 * ahead + 0.1 * left + np.array([0.0, CONFIG.camera.camera_height, 0.0])
    assert camera.position == pytest.approx(expected, abs=1e-5)
    axes = Rotation.from_quat(np.roll(camera.wxyz, -1)).as_matrix()  # the camera looks along +Z, with +Y down
    assert axes[:, 2] == pytest.approx(np.cos(np.pi / 6) * left - np.array([0.0, 0.5, 0.0]), abs=1e-5)
    assert axes[:, 0] == pytest.approx(ahead, abs=1e-5)  # the image's right is the agent's forward direction


def test_episodes_that_cannot_be_played_are_refused(bank, tmp_path):  # noqa: F811
    name = bank.scenes[0].name
    first = episodes_on(name)[0]
    EpisodeDataset([dataclasses.replace(first, start_position=(0.0, 50.0, 0.0))]).save(tmp_path / "a.json.gz")
    with pytest.raises(EpisodeError, match=r"start_position"):
        open_session((), tmp_path / "a.json.gz", {}, torch.device("cpu"))


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


def test_search_for_a_failure_is_counted_and_can_be_ended(viewer, monkeypatch):
    lines = []

    def failed(name):
        lines.append(viewer.status.content)
        return False

    monkeypatch.setattr(viewer.session, "failed", failed)
    viewer._change_episode("next failure")
    assert lines == [f"searching for a failed episode of forward: {k} of 2 others searched" for k in range(2)]
    assert viewer.status.content == "no other failed episode of forward" and not viewer.end_search.visible
    lines.clear()
    monkeypatch.setattr(viewer.session, "failed", lambda name: failed(name) or viewer._end_search(None))
    viewer._change_episode("next failure")
    assert len(lines) == 1 and viewer.status.content == "search ended" and viewer.session.number == 0
