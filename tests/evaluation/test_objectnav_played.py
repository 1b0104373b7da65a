"""ObjectNav from episode files: every episode is played with the file's goals; the report has a row a category."""

import dataclasses

import numpy as np
import pytest
import torch
from squares import points_on_the_main_island, square_around

from batchnav.data.episodes import rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.data.formats.objectnav import FileGoal, ObjectNavEpisode, goals_key, header_of
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.report.evaluation import breakdowns, compared_by
from batchnav.tasks.objectnav import ObjectNav, ObjectNavConfig

SCENE, CATEGORIES = "house:3", ("chair", "bed")
CONFIG = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), {"categories": CATEGORIES})


@pytest.fixture(scope="module")
def dataset():
    """Ten episodes with a chair and two beds, whose view points are squares around sampled points of a house."""
    navmesh = load_scene(SCENE, appearance=False).navmesh
    points = points_on_the_main_island(navmesh, 200).astype(np.float64)
    places = [square_around(navmesh, point).astype(np.float64) for point in points[:3]]
    goals = {"chair": [(1, places[0])], "bed": [(2, places[1]), (3, places[2])]}
    rotation = np.tile(rotation_of(0.0), (len(places[0]), 1))

    def file_goal(category, number, places):
        count, name = len(places), f"{category}_{number}"
        return FileGoal((0.0, 0.5, 0.0), number, category, name, places, rotation[:count], np.ones(count))

    found = {goals_key(SCENE, name): [file_goal(name, *goal) for goal in some] for name, some in goals.items()}
    episodes = [
        ObjectNavEpisode(str(k), SCENE, tuple(points[50 + k]), rotation_of(0.3 * k), object_category=CATEGORIES[k % 2])
        for k in range(10)
    ]
    return EpisodeDataset(
        episodes, "category", found, header_of({"chair": 0, "bed": 1}, {"chair": 3, "bed": 11}), "objectnav"
    )


def evaluation(dataset, path, config=CONFIG):
    dataset.save(path, content=False)
    return Evaluation(path, torch.device("cpu"), config)


def test_episodes_of_a_file_are_played_with_its_goals(dataset, tmp_path):
    found = evaluation(dataset, tmp_path / "val.json.gz")
    played = found.play(ReferencePlayer("shortest_path", CONFIG))
    assert played.episodes["success"].tolist() == [1.0] * 10 and played.episodes["category"].tolist() == [0.0, 1.0] * 5
    navmesh, goals = found.bank.scenes[0].navmesh, found.bank.scenes[0].goals
    assert [goal.object_id for goal in goals.objects] == [1, 2, 3] and goals.rules == "file"
    for episode, distance in zip(found.episodes, played.episodes["start_distance"], strict=True):
        points = goals.view_points(episode.object_category)
        starts = np.repeat(np.array([episode.start_position], np.float32), len(points), axis=0)
        assert distance == pytest.approx(navmesh.geodesic_distance(starts, points).min(), abs=1e-4)
    tables = breakdowns(found, [played], compared_by(ObjectNav.metric_specs))
    assert [(part.label, part.num_episodes) for part in tables["goal category"]] == [("chair", 5), ("bed", 5)]
    assert len(tables["geodesic distance to the goal"]) == 4


def test_goals_of_child_categories_count(dataset, tmp_path):
    children = {"chair": ("bed",), "bed": None}
    both = [dataclasses.replace(e, children_object_categories=children[e.object_category]) for e in dataset.episodes]
    found = evaluation(dataclasses.replace(dataset, episodes=both), tmp_path / "val.json.gz")
    goals = found.bank.scenes[0].goals
    assert sorted(goal.object_id for goal in goals.objects if goal.category == "chair") == [1, 2, 3]


def test_categories_that_the_task_lacks_are_refused(dataset, tmp_path):
    with pytest.raises(
        EpisodeError, match=r"val.json.gz: .*object_category.*found 'bed', expected one of the task's: chair; presets"
    ):
        other = with_options(CONFIG, {"categories": ("chair",)})
        evaluation(dataset, tmp_path / "val.json.gz", other).play(ReferencePlayer("shortest_path", other))
