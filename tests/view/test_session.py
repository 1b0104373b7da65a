"""Sessions of the viewer: agents' paths through episodes on a floor, and a manually controlled agent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from labelled import labelled_scene, write_named
from worlds import as_mesh, episodes_on, write_floor

from batchnav.data.scenes.load import load_all
from batchnav.envs.config import PRESETS, NavConfig, nav_config, with_options
from batchnav.errors import ArgumentError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import FORWARD, LEFT, STOP
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.types import Material, Surface, Texture, TriangleMesh
from batchnav.view.topdown import BLUE, ORANGE
from batchnav.view.viewer.session import SAMPLED_EPISODES, YOU, Session, open_session, sampled, to_glb

CONFIG = with_options(NavConfig(), {"height": 8, "width": 12, "max_steps": 20})


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    path = write_floor(tmp_path_factory.mktemp("floor") / "floor.ply")
    return SceneBank.pack(load_all([str(path)], settings=CONFIG.body.navmesh), torch.device("cpu"))


@pytest.fixture
def session(bank):
    players = {name: ReferencePlayer(name, CONFIG) for name in ("forward", "random")}
    return Session(bank, episodes_on(bank.scenes[0].name), players)


def test_an_episode_is_played_once_by_each_agent(session):
    track = session.track("forward")
    assert track is session.track("forward") and track.metrics["success"] == 1.0
    assert len(track.trajectory.actions) == track.metrics["steps"] and track.trajectory.actions[-1] == STOP
    session.pick(1)
    assert session.track("forward").metrics["path_length"] > track.metrics["path_length"]
    session.pick(4)
    assert session.number == 1 and session.episode.episode_id == "1"


def test_the_next_failure_is_found(session):
    assert not session.next_failure("forward") and session.number == 0
    failing = [k for k in range(3) if session.pick(k) or session.failed("random")]
    session.pick(0)
    counted = []
    found = session.next_failure("random", lambda played, total: counted.append((played, total)))
    assert counted == [(k, 2) for k in range(len(counted))] and counted
    assert found == bool([k for k in failing if k > 0])
    assert not found or session.number == min(k for k in failing if k > 0)


def test_looking_for_a_failure_in_vain_leaves_the_driver_be(session):
    session.driver.step(FORWARD)
    assert not session.next_failure("forward")
    assert session.track(YOU).trajectory.actions.tolist() == [FORWARD, STOP]


def test_the_goals_of_starts_are_not_shown(bank):
    """Files of starts contain goals, since the format requires them; a task without a goal does not show them."""
    flee = Session(bank, episodes_on(bank.scenes[0].name), config=nav_config(None, {"height": 8, "width": 12}, "flee"))
    assert flee.goal is None and flee.shortest_path.shape == (0, 3)


def test_a_person_drives(session):
    driver = session.driver
    start = driver.track.trajectory.positions[-1]
    driver.step(FORWARD)
    moved = driver.track.trajectory.positions[-1] - start
    assert moved[[0, 2]] == pytest.approx([0.0, -0.25], abs=1e-4)
    driver.step(LEFT)
    walk, metrics, _ = session.track(YOU)
    assert len(walk.headings) == 3 and metrics == {}
    assert walk.headings[-1] == pytest.approx(np.deg2rad(10.0))
    driver.step(STOP)
    assert session.track(YOU).metrics["success"] == 0.0 and session.failed(YOU)
    driver.step(FORWARD)  # the episode has ended
    assert session.track(YOU).trajectory.actions.tolist() == [FORWARD, LEFT, STOP]
    session.pick(0)
    assert len(session.track(YOU).trajectory.headings) == 1


def test_what_is_seen_and_the_map(session):
    seen = session.seen("forward", 3)
    assert seen["depth"].shape == (8, 12, 3) and seen["depth"].dtype == np.uint8
    last = len(session.track("forward").trajectory.headings) - 1
    np.testing.assert_array_equal(session.seen("forward", 1000)["depth"], session.seen("forward", last)["depth"])
    picture = np.asarray(session.plan(1000, {"forward": BLUE})).reshape(-1, 3)
    for colour in (BLUE, ORANGE):
        assert (picture == colour).all(axis=1).sum() > 20
    assert session.shortest_path[-1] == pytest.approx(session.goal, abs=0.05)


def test_without_episodes_there_is_nothing_to_see(bank):
    with pytest.raises(ArgumentError, match="episodes: found none"):
        Session(bank, [])


def loaded(glb, tmp_path):
    (tmp_path / "mesh.glb").write_bytes(glb)
    return trimesh.load_scene(tmp_path / "mesh.glb")


def test_a_glb_without_what_is_above_the_cut(tmp_path):
    mesh = as_mesh(trimesh.creation.box((4.0, 3.0, 4.0)))  # from -1.5 to 1.5
    below = loaded(to_glb(mesh, 1.0), tmp_path).to_geometry()
    assert len(below.faces) == 10 and below.bounds[1][1] == 1.5  # without the top
    assert len(loaded(to_glb(mesh, 2.0), tmp_path).to_geometry().faces) == 12


def test_a_glb_with_colours_and_textures(tmp_path):
    corners = np.array([(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1)], np.float32)
    texture = Texture(np.full((2, 2, 4), (10, 200, 30, 255), np.uint8))
    surface = Surface(
        material=np.array([0, 1], np.int32), materials=(Material((1.0, 0.5, 0.0, 1.0)), Material(texture=0)),
        textures=(texture,), uv=np.array([[(0, 0), (1, 0), (0, 1)]] * 2, np.float32),
    )  # fmt: skip
    mesh = TriangleMesh(corners, np.array([(0, 2, 1), (1, 2, 3)], np.int32), surface=surface)
    plain, textured = sorted(
        loaded(to_glb(mesh, 1.0), tmp_path).geometry.values(), key=lambda g: g.visual.kind == "texture"
    )
    # glTF stores vertex colours in linear light: sRGB 128 is 55 of 255.
    assert plain.visual.vertex_colors[0].tolist() == [255, 55, 0, 255]
    assert np.asarray(textured.visual.material.baseColorTexture.convert("RGB"))[0, 0].tolist() == [10, 200, 30]
    assert np.ptp(textured.visual.uv, axis=0).tolist() == [1.0, 1.0]


# Sessions of the viewer without an episode file: goals as the task has them, and their images

CPU = torch.device("cpu")
CHAIRS = ("chair", (-2.0, 0.0, -2.0), (-1.4, 0.8, -1.4)), ("chair", (1.4, 0.0, 1.4), (2.0, 0.8, 2.0))


@pytest.mark.parametrize(("closest", "furthest"), [(1.0, 2.0), (3.0, 5.0)])
def test_goals_are_as_far_as_the_task_says(closest, furthest):
    scene = labelled_scene([])
    config = with_options(PRESETS["imagenav_houses"], {"closest_goal": closest, "furthest_goal": furthest})
    _, episodes = sampled([scene], config, CPU)
    starts, goals = (np.array(list(points), np.float32) for points in zip(
        *((e.start_position, e.goals[0].position) for e in episodes), strict=True))  # fmt: skip
    distance = scene.navmesh.geodesic_distance(starts, goals)
    assert len(episodes) == SAMPLED_EPISODES and {e.goals[0].radius for e in episodes} == {1.0}
    assert (distance >= closest - 1e-3).all() and (distance <= furthest + 1e-3).all()


def test_tasks_without_a_goal_are_shown_with_starts():
    _, episodes = sampled([labelled_scene([])], nav_config(None, {}, "explore"), CPU)
    assert len(episodes) == SAMPLED_EPISODES


def test_images_of_objects_are_made_for_instance_imagenav(tmp_path):
    """Each episode shows the image of its object; the plan has the object's view points."""
    path = write_named(tmp_path / "room.glb", CHAIRS)
    options = {"height": 16, "width": 16, "goal_height": 24, "goal_width": 32, "max_steps": 100}
    config = with_options(NavConfig(sensors=("rgb",), task=InstanceImageNavConfig()), options)
    player = ReferencePlayer("shortest_path", config)
    session = open_session((str(path),), None, {player.name: player}, CPU)
    assert len(session.episodes) == SAMPLED_EPISODES and {e.goal_name for e in session.episodes} == {"2", "3"}
    for number in (0, 1):
        session.pick(number)
        (goal,) = (g for g in session.scene.goals.objects if g.category == session.episode.goal_name)
        np.testing.assert_array_equal(session.goals.view_points, goal.view_points)
        assert session.goals.objects.tolist() == [pytest.approx(goal.position)]
    session.driver.step(FORWARD)
    seen = session.seen(YOU, 0)
    assert seen["imagegoal"].shape == (24, 32, 3) and seen["rgb"].shape == (16, 16, 3)
    assert not session.failed("shortest_path")
    assert replace(session.episode, goal_image_id=0).goal_object_id == session.episode.goal_name
