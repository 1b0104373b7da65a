"""Kinds of goals: one file each, and one registry."""

from batchnav.data.goals.category import CategoryGoals
from batchnav.data.goals.instance import InstanceGoals
from batchnav.data.goals.kind import FailedEpisode, GoalKind, ShownGoals
from batchnav.data.goals.point import NoGoals, PointGoals, PoseGoals
from batchnav.data.goals.sequence import SequenceGoals
from batchnav.tasks import TASKS

__all__ = ["GOALS", "FailedEpisode", "GoalKind", "ShownGoals", "kind_of"]

GOALS: dict[str, GoalKind] = {
    kind.name: kind
    for kind in (NoGoals(), PointGoals(), PoseGoals(), CategoryGoals(), InstanceGoals(), SequenceGoals())
}
"""Kinds of goals by name: `Task.goal_kind` of tasks, and `EpisodeDataset.kind` of files. Add your own."""


def kind_of(task: str) -> GoalKind:
    """Kind of the goals of a task, by the task's name."""
    return GOALS[TASKS[task].goal_kind]
