"""Sequences of goals: episodes whose subtasks are places, categories and objects."""

from dataclasses import replace

import numpy as np

from batchnav.data.episodes import Goal
from batchnav.data.formats import EpisodeDataset
from batchnav.data.formats.instance_imagenav import IMAGE_GOALS, image_goal
from batchnav.data.formats.objectnav import FileGoal, goals_key
from batchnav.data.goals import GOALS
from batchnav.data.sequences import CATEGORY, INSTANCE, POINT, SequenceEpisode, Subtask, instance_name
from tests.tasks.object_rooms import corridor, object_goal

NO_TURN = (0.0, 0.0, 0.0, 1.0)


def test_places_belong_to_the_subtasks_that_are_points():
    near, far = Goal((1.0, 0.0, 0.0)), Goal((2.0, 0.0, 0.0))
    subtasks = Subtask(POINT, "red"), Subtask(CATEGORY, "chair"), Subtask(POINT), Subtask(INSTANCE, "bed", "12", 3)
    episode = SequenceEpisode("0", "house:1", (0.0, 0.0, 0.0), NO_TURN, goals=(near, far), subtasks=subtasks)
    assert episode.places == [near, None, far, None]
    assert [subtask.goal_name for subtask in subtasks] == ["red", "chair", "", instance_name(12)]


def test_scenes_get_categories_with_their_children_and_the_objects_that_subtasks_ask_for():
    scene = corridor()
    camera = np.array([3.0, 1.0, 0.5, 0.0, 0.0, 1.5], np.float32)
    things = ("chair", 1, 3.0), ("armchair", 2, 5.0), ("bed", 3, 9.0)
    goals = {}
    for name, number, x in things:
        goal = FileGoal.of(object_goal(scene, name, number, [(x, 0.5)]))
        goals[goals_key(scene.name, name)] = [replace(goal, other={IMAGE_GOALS: [image_goal(camera)]})]
    subtasks = Subtask(CATEGORY, "chair", children_object_categories=("armchair",)), Subtask(INSTANCE, "bed", "3")
    episode = SequenceEpisode("0", scene.name, (3.0, 0.2, 0.5), NO_TURN, subtasks=subtasks)
    (found,) = GOALS["sequence"].with_goals_of(EpisodeDataset([episode], "sequence", goals), [scene])
    named = {(goal.category, goal.object_id) for goal in found.goals.objects}
    assert named == {
        ("chair", 1), ("chair", 2), ("armchair", 2), ("bed", 3), (instance_name(3), 3)
    }  # fmt: skip
    assert found.goals.numbers(("bed", instance_name(3)))[3] == 1, "goal masks show the category"
    assert {goal.category: len(goal.images) for goal in found.goals.objects}[instance_name(3)] == 1
    places = EpisodeDataset([replace(episode, subtasks=(Subtask(POINT),))], "sequence")
    assert GOALS["sequence"].with_goals_of(places, [scene]) == [scene]
