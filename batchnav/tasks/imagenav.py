"""Image-goal navigation: go to the place that an image shows, and stop there.

The goal is a pose, and the observation "imagegoal" is what the agent's main camera sees from it (Zhu et al., ICRA 2017;
Habitat's `imagenav`). Rewards are Habitat's, that of "Zero Experience Required" (Al-Halah et al., CVPR 2022), or that
of VC-1 (Majumdar et al., NeurIPS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchnav.config import in_range
from batchnav.errors import ConfigError
from batchnav.runtime.kernels.arrays import view
from batchnav.sim.simulator import Simulator
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.goal_state import METRIC_SPECS, GoalParameters
from batchnav.tasks.goal_task import GoalTask, GoalTaskConfig
from batchnav.tasks.imagenav_kernels import AIM_GOAL, SCORE, ImageMetrics, ImageParameters
from batchnav.tasks.steps import bind
from batchnav.types import Metric

IMAGEGOAL = "imagegoal"
"""Name of the observation that shows the goal."""
REWARDS: dict[str, tuple[float, float, float]] = {
    "habitat": (1.0, 0.0, 0.0),
    "zer": (0.5, 0.5, 1.0),
    "vc1": (1.0, 1.0, 1.0),
}
"""By name of the reward: shares of `success_reward` for a success and for one that faces as the goal does; weight of
the angle to go."""
FACING_ANGLE_DEG = 25.0
"""Largest angle to the goal's heading at which an agent faces as the goal does, degrees."""
ANGLE_RADIUS = 1.0
"""Distance to the goal within which the angle to go counts, metres."""


@dataclass(frozen=True)
class ImageNavConfig(GoalTaskConfig):
    """Configuration of the ImageGoal task. Defaults: Habitat's `ddppo_imagenav_gibson`."""

    max_steps: int = 1000
    success_distance: float = 1.0
    slack_reward: float = -0.001
    success_reward: float = 2.5
    """Reward of a success."""
    success_angle_deg: float = 180.0
    """Largest angle between the agent's heading and the goal's at a success, degrees; 180: any heading."""
    reward: str = "habitat"
    """Reward besides `slack_reward`. "habitat": decrease of the distance, and `success_reward` at a success. "zer":
    decrease of distance and angle to go, half of `success_reward` at a success, the other half if the heading is within
    25 degrees of the goal's; published with slack_reward -0.01 and success_reward 10. "vc1": as "zer", with all of
    `success_reward` at a success and again for the heading; published with -0.01 and 2.5. The angle to go is that to
    the goal's heading within 1 m of the goal, and pi farther away."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "success_angle_deg", 0.0, 180.0)
        if self.reward not in REWARDS:
            raise ConfigError(f"reward: found {self.reward!r}, expected one of {', '.join(REWARDS)}")


class ImageNav(GoalTask):
    """The ImageGoal task."""

    Config = ImageNavConfig
    title = "ImageGoal"
    goal_kind = "pose"
    episode_file = "imagenav_{split}.json.gz"
    reference_agents = ("random", "forward", "shortest_path")
    metric_specs = (
        *METRIC_SPECS, Metric("angle_success", high=1.0, binary=True), Metric("angle_to_goal", high=math.pi),
        Metric("start_distance", shown=False),
    )  # fmt: skip
    Metrics = ImageMetrics
    goal_images: Mapping[str, str] = {IMAGEGOAL: "rgb"}
    optional = frozenset({"goal_heading", "angle"})
    score_kernels = SCORE

    def __init__(self, sim: Simulator, config: ImageNavConfig, episodes: EpisodeTable | None = None):
        self.success_angle = math.radians(config.success_angle_deg)
        super().__init__(sim, config, episodes)

    def sample_episodes(self) -> None:
        """Sample the queued agents' next episodes: start and goal as in PointNav, and a heading of the goal."""
        self.sample_pairs()
        self._aim_goals()

    def kernel_parameters(self) -> ImageParameters:
        """The numbers and arrays that all kernels of the task read."""
        config, success, facing, weight = self.config, *REWARDS[self.config.reward]
        given = GoalParameters.of(config, self.places, self.success_angle)._asdict()
        given["success_reward"] = np.float32(success * config.success_reward)
        return view(
            ImageParameters(
                **given,
                facing_reward=np.float32(facing * config.success_reward),
                facing_angle=np.float32(math.radians(FACING_ANGLE_DEG)),
                angle_weight=np.float32(weight),
                angle_radius=np.float32(ANGLE_RADIUS),
            )
        )

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        super()._bind()
        sim = self.sim
        read = (*map(view, (sim.bodies, sim.queue, sim.sampling, self.episodes)), self.kernel_parameters())
        self._aim_goals: Callable[[], Any] = bind(sim, AIM_GOAL, read, (view(self.next_episode),))
