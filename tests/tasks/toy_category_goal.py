"""A toy task: go to the nearest place of a category, given by its number. One file and one line in TASKS."""

from dataclasses import dataclass

import torch

from batchnav.observation import ObservationSource, Spec, TaskObservation
from batchnav.tasks import TASKS
from batchnav.tasks.goal_task import GoalTask, GoalTaskConfig

PLACES = ((1.0, 1.0), (5.0, 1.0), (1.0, 5.0))
"""x and z on the navmesh of `rooms.make_room`, metres."""
HEIGHT = 0.2
"""Metres: y of that navmesh."""
RANGES = ((0, 2), (2, 3))
"""Rows of PLACES of each category."""


@dataclass(frozen=True)
class CategoryGoalConfig(GoalTaskConfig):
    """Configuration of the toy task."""


class CategoryGoal(GoalTask):
    """The category alternates from episode to episode and from agent to agent."""

    Config = CategoryGoalConfig
    title = "Category goal"
    optional = frozenset({"category", "goal_range"})

    def __init__(self, sim, config, episodes=None):
        super().__init__(sim, config, episodes)
        self.observations = {"objectgoal": self.goal_state.category}
        self.ranges |= {"category": (0, len(RANGES) - 1)}
        self._ranges = torch.tensor(RANGES, dtype=torch.int32, device=sim.device)
        self._agents = torch.arange(sim.num_envs, device=sim.device)

    @staticmethod
    def sources(config) -> tuple[ObservationSource, ...]:
        """The number of the category."""
        return (TaskObservation(Spec("objectgoal", (), torch.int64, 0, len(RANGES) - 1, torch.int64)),)

    def goal_places(self) -> torch.Tensor:
        """PLACES as points on the navmesh."""
        return torch.tensor([(x, HEIGHT, z) for x, z in PLACES], device=self.sim.device)

    def sample_episodes(self) -> None:
        """A start as in PointNav, and a category."""
        self.sample_pairs()
        category = (self.sim.bodies.episode + 1 + self._agents) % len(RANGES)
        self.next_episode.category.copy_(category)
        self.next_episode.goal_range.copy_(self._ranges[category])
        self.measure_goals()


TASKS["category_goal"] = CategoryGoal
