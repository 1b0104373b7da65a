"""Sessions of the viewer without an episode file: goals as the task has them, and their images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from labelled import labelled_scene, write_named

from batchnav.envs.config import PRESETS, NavConfig, nav_config, with_options
from batchnav.evaluation.players import ReferencePlayer
from batchnav.sim.bodies import FORWARD
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.view.viewer.session import SAMPLED_EPISODES, YOU, open_session, sampled

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
    options = {"height": 16, "width": 16, "goal_height": 24, "goal_width": 32, "max_steps": 40}
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
