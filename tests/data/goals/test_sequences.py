"""Sequences of goals: episodes whose subtasks are places, categories and objects."""

from batchnav.data.episodes import Goal
from batchnav.data.sequences import CATEGORY, INSTANCE, POINT, SequenceEpisode, Subtask, instance_name

NO_TURN = (0.0, 0.0, 0.0, 1.0)


def test_places_belong_to_the_subtasks_that_are_points():
    near, far = Goal((1.0, 0.0, 0.0)), Goal((2.0, 0.0, 0.0))
    subtasks = Subtask(POINT, "red"), Subtask(CATEGORY, "chair"), Subtask(POINT), Subtask(INSTANCE, "bed", "12", 3)
    episode = SequenceEpisode("0", "house:1", (0.0, 0.0, 0.0), NO_TURN, goals=(near, far), subtasks=subtasks)
    assert episode.places == [near, None, far, None]
    assert [subtask.goal_name for subtask in subtasks] == ["red", "chair", "", instance_name(12)]
