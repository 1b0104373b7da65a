"""Instance ImageNav files without view points: these are made anew, images come from the file; the bundled file."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled import write_named

from batchnav.data.formats import load_episodes
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import view_point_hash
from batchnav.data.goals.instance import FRAME_COVERAGE, HEIGHTS, OBJECT_COVERAGE, _Cameras, coverages
from batchnav.data.goals.view_points import objects_of
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.procedural import SPLITS
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.tasks.objectnav import HM3D

BUNDLED = Path(__file__).resolve().parents[3] / "assets" / "episodes" / "instance_imagenav_val.json.gz"
THINGS = [("chair", (-2.0, 0.0, -2.0), (-1.4, 0.8, -1.4)), ("bed", (1.0, 0.0, 1.0), (2.0, 0.6, 2.4))]
RULES, LABELS, CPU = "hm3d_v2", "hm3d", torch.device("cpu")


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A room in a file, with a chair and a bed that images show."""
    (scene,) = load_all([str(write_named(tmp_path_factory.mktemp("room") / "room.glb", THINGS))])
    return GOALS["instance"].with_goals([scene], InstanceImageNavConfig(), "cpu")[0]


@pytest.fixture(scope="module")
def dataset(room):
    return GOALS["instance"].generate([room], 6, 0, InstanceImageNavConfig())


def cameras(goals, episodes):
    """The camera of each episode's image, f32 [E, 6]."""
    images = {goal.category: goal.images for goal in goals.objects}
    return np.array([images[episode.goal_name][episode.goal_image_id] for episode in episodes])


def test_view_points_are_made_anew_and_the_images_are_those_of_the_file(room, dataset, tmp_path):
    GOALS["instance"].without_view_points(dataset, RULES, LABELS).save(tmp_path / "few.json.gz", content=False)
    few = load_episodes(tmp_path / "few.json.gz")
    assert all(len(goal.points) == 0 for goal in few.goals.values())
    (goals,) = [scene.goals for scene in GOALS["instance"].with_goals_of(few, [room._replace(goals=None)], "cpu")]
    assert goals.categories == room.goals.categories == ("2", "3")
    assert view_point_hash(goals) == view_point_hash(room.goals)
    whole = GOALS[dataset.kind].scene_goals(dataset, room.name)
    np.testing.assert_array_equal(cameras(goals, few.episodes), cameras(whole, dataset.episodes))
    for goal in goals.objects:
        assert len(goal.images) == len({e.goal_image_id for e in few.episodes if e.goal_name == goal.category})


def test_another_scene_is_refused(room, dataset):
    moved = [(label, np.add(low, (0.5, 0.0, 0.0)), np.add(high, (0.5, 0.0, 0.0))) for label, low, high in THINGS]
    other = load_scene(str(write_named(Path(room.name).with_name("moved.glb"), moved)))._replace(name=room.name)
    with pytest.raises(EpisodeError, match=r"found .* m to the nearest view point of '[23]', expected"):
        GOALS["instance"].with_goals_of(GOALS["instance"].without_view_points(dataset, RULES, LABELS), [other], "cpu")


def test_the_shortest_path_follower_succeeds_in_a_file_without_view_points(dataset, tmp_path):
    GOALS["instance"].without_view_points(dataset, RULES, LABELS).save(tmp_path / "few.json.gz", content=False)
    config = with_options(NavConfig(sensors=(), task=InstanceImageNavConfig()), {"goal_height": 16, "goal_width": 16})
    found = Evaluation(tmp_path / "few.json.gz", CPU, config, 3, appearance=needed_appearance(config))
    played = found.play(ReferencePlayer("shortest_path", config))
    assert played.episodes["success"].tolist() == [1.0] * 6 and not played.mismatches


def test_two_hundred_bundled_episodes_in_unseen_houses():
    dataset = load_episodes(BUNDLED)
    scenes = Counter(episode.scene_id for episode in dataset.episodes)
    assert len(scenes) == 10 and set(scenes.values()) == {20}
    assert all(int(scene.partition(":")[2]) in SPLITS["val"] for scene in scenes)
    assert {episode.object_category for episode in dataset.episodes} == set(HM3D)
    distance = np.array([episode.info["geodesic_distance"] for episode in dataset.episodes])
    ratio = distance / [episode.info["euclidean_distance"] for episode in dataset.episodes]
    assert distance.min() >= 1.0 and distance.max() <= 30.0 and ratio.mean() >= 1.2


def test_bundled_episodes_fit_todays_scenes():
    """View points have the file's hash, and the image of an episode shows its object within the published bounds.

    Fails where scenes, baker or rules have changed since `eval/publish/make_episodes.py` was run.
    """
    dataset = load_episodes(BUNDLED)
    scene_id = dataset.episodes[0].scene_id
    scene = load_scene(scene_id)
    (goals,) = [scene.goals for scene in GOALS["instance"].with_goals_of(dataset, [scene], "cpu")]
    mine = [episode for episode in dataset.episodes if episode.scene_id == scene_id]
    assert view_point_hash(goals) == mine[0].info["view_points_sha256"]
    things = {str(thing.object_id): thing for thing in objects_of(scene.mesh)}
    for episode, camera in zip(mine[:2], cameras(goals, mine), strict=False):
        given = _Cameras(camera[None, :3].astype(np.float64), *camera[None, 3:5].T, np.degrees(camera[None, 5]).round())
        frame, outline = coverages(scene, things[episode.goal_name], given, CPU)
        assert FRAME_COVERAGE[0] * 0.98 <= frame[0] <= FRAME_COVERAGE[1] and outline[0] >= OBJECT_COVERAGE * 0.98
        floor = scene.navmesh.snap(camera[None, :3] * np.float32([1, 0, 1]))[0, 1]
        assert HEIGHTS[0] - 0.01 <= camera[1] - floor <= HEIGHTS[1] + 0.01
