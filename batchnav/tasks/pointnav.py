"""PointGoal navigation: go to a point, given by its distance and bearing, and stop there.

Habitat's task `habitat_pointnav_v1`. Steps, success and reward are those of `tasks/goal_task.py`; episodes are sampled
by `tasks/episode_sampling.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from batchnav.observation import ObservationSource, Spec, TaskObservation
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import Simulator
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.goal_task import GoalTask, GoalTaskConfig
from batchnav.tasks.task import ANGLES

POINTGOAL = Spec("pointgoal", (2,), torch.float32, -np.inf, np.inf, torch.float32)
"""The goal in polar form: [distance in metres, bearing in radians, positive to the agent's left]."""


@dataclass(frozen=True)
class PointNavConfig(GoalTaskConfig):
    """Configuration of the PointGoal task. Defaults: Habitat's `habitat_pointnav_v1`."""

    gps_compass: bool = True
    """True: "pointgoal" is relative to the agent's current pose (Habitat's `pointgoal_with_gps_compass`). False: it is
    relative to the start pose in the whole episode (Habitat's `pointgoal`), so the agent must track its motion."""


class PointNav(GoalTask):
    """The PointGoal task."""

    Config = PointNavConfig
    title = "PointGoal"
    reference_agents: tuple[str, ...] = (
        "random", "forward", "greedy", "map_planner", "map_planner_anticipation", "shortest_path",
    )  # fmt: skip

    def __init__(self, sim: Simulator, config: PointNavConfig, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.observations = {"pointgoal": self.start_goal}
        self.ranges |= {"pointgoal": ANGLES}  # distance, which is smaller, and bearing
        self.relative_goal = self.live_goal if config.gps_compass else None

    @staticmethod
    def sources(config: PointNavConfig) -> tuple[ObservationSource, ...]:
        """The goal in polar form."""
        return (TaskObservation(POINTGOAL, relative=config.gps_compass),)

    @classmethod
    def keeps_start_goal(cls, config: PointNavConfig) -> bool:
        """True if the configuration has no GPS and compass."""
        return not config.gps_compass


def pointnav_simulator(
    bank: SceneBank,
    num_envs: int,
    config: PointNavConfig | None = None,
    seed: int = 0,
    episodes: EpisodeTable | None = None,
) -> Simulator:
    """A PointNav simulator of the default body, without sensors. Arguments as in `NavEnv`."""
    config = config or PointNavConfig()
    return Simulator(bank, num_envs, BodyConfig(), lambda sim: PointNav(sim, config, episodes), seed)
