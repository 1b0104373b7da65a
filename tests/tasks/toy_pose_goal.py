"""A toy task: go to a pose, given by an image from there, and stop with its heading. One file and one line in TASKS."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from batchnav.tasks import TASKS
from batchnav.tasks.goal_task import GoalTask, GoalTaskConfig
from batchnav.tasks.task import Field

SUCCESS_ANGLE = math.radians(25.0)


@dataclass(frozen=True)
class PoseGoalConfig(GoalTaskConfig):
    """Configuration of the toy task."""


class PoseGoal(GoalTask):
    """Goal headings are whole radians that depend on the numbers of episode and agent."""

    Config = PoseGoalConfig
    title = "Pose goal"
    fields: ClassVar = {**GoalTask.fields, "goal_heading": Field()}

    @staticmethod
    def goal_images(config):
        return {"goal_depth": "depth"}

    def __init__(self, sim, config, episodes=None):
        super().__init__(sim, config, episodes)
        self._agents = torch.arange(sim.num_envs, device=sim.device)

    def sample_episodes(self) -> None:
        """Start and goal as in PointNav, and a heading."""
        self.sample_pairs()
        self.next_episode.goal_heading.copy_((self.sim.bodies.episode + 1 + self._agents) % 7 - 3.0)

    def score(self) -> None:
        """As in PointNav, but success needs the goal's heading."""
        super().score()
        gap = (self.transition.heading - self.transition.goal_heading).abs() % math.tau
        self.metrics["success"].mul_(torch.minimum(gap, math.tau - gap) <= SUCCESS_ANGLE)


TASKS["pose_goal"] = PoseGoal
