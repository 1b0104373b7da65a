"""Image-goal navigation: go to the place that an image shows, and stop there.

The goal is a pose, and the observation "imagegoal" is what the agent's main camera sees from it (Zhu et al., ICRA 2017;
Habitat's `imagenav`). Rewards are Habitat's, that of "Zero Experience Required" (Al-Halah et al., CVPR 2022), or that
of VC-1 (Majumdar et al., NeurIPS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from batchnav.config import bounded
from batchnav.errors import ConfigError
from batchnav.geometry.pose import angle_between
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import record_type, view
from batchnav.runtime.kernels.launch import Kernel, kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.sim.episodes import GOAL_DRAW, agent_number
from batchnav.tasks.config import SuccessRule
from batchnav.tasks.episode_sampling import table_row
from batchnav.tasks.formulas import angle_to_go, step_reward
from batchnav.tasks.goal_task import (
    METRIC_SPECS,
    GoalParameters,
    GoalTask,
    GoalTaskConfig,
    distance_to_goal,
    faces_goal,
    record_score,
)
from batchnav.tasks.task import ANGLES, Field
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
_TWO_PI, _ZERO, _ONE = np.float32(2.0 * math.pi), np.float32(0.0), np.float32(1.0)
ImageParameters = record_type(
    "ImageParameters",
    (*GoalParameters._fields, "facing_reward", "facing_angle", "angle_weight", "angle_radius"),
    __name__,
)
"""Numbers that the kernels read: those of `GoalParameters`, of which `success_reward` is that of any success;
`facing_reward`: further reward of a success within `facing_angle`, radians, of the goal's heading; `angle_weight`:
reward per radian by which the angle to go (`formulas.angle_to_go`) decreases; `angle_radius`: distance to the goal
within which the angle counts, metres."""


# One agent.


@kernel(block=SEARCH_BLOCK)
def score_one(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step. Success: a stop within the success distance and angle. Reward: see `ImageParameters`."""
    distance = distance_to_goal(i, nav, transition, scratch, row)
    angle = angle_between(transition.heading[i], transition.goal_heading[i])
    to_go = angle_to_go(distance, angle, parameters.angle_radius)
    near = bodies.terminated[i] and distance < parameters.success_distance
    success = near and faces_goal(i, transition, parameters)
    facing = success and angle <= parameters.facing_angle
    bonus, facing_bonus = _ONE if success else _ZERO, _ONE if facing else _ZERO
    reward = step_reward(transition.distance[i], distance, bonus, parameters.slack_reward, parameters.success_reward)
    reward += parameters.angle_weight * (transition.angle[i] - to_go) + parameters.facing_reward * facing_bonus
    record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out)
    if not bodies.done[i]:
        state_out.angle[i] = to_go
    metrics_out.angle_success[i], metrics_out.angle_to_goal[i] = facing_bonus, angle
    metrics_out.start_distance[i] = transition.start_distance[i]


@kernel(over="queue")
def sample_heading(i, bodies, sampling, table, parameters, next_out):
    """Write the goal's heading and the angle to go of the agent's next episode: the table's, or a random heading."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        k, _ = table_row(i, episode, table, bodies.scene.shape[0])
        heading = table.goal_heading[k]
    else:
        u, _, _, _ = uniform4(sampling.seed[0], agent_number(i, sampling), episode, GOAL_DRAW)
        heading = u * _TWO_PI
    angle = angle_between(next_out.heading[i], heading)
    next_out.goal_heading[i] = heading
    next_out.angle[i] = angle_to_go(next_out.distance[i], angle, parameters.angle_radius)


# The task.


@dataclass(frozen=True)
class ImageNavConfig(GoalTaskConfig):
    """Configuration of the ImageGoal task. Defaults: Habitat's `ddppo_imagenav_gibson`."""

    success_target = "the place of the camera that took the image"
    max_steps: int = 1000
    success_distance: float = 1.0
    slack_reward: float = -0.001
    success_reward: float = 2.5
    """Reward of a success."""
    success_angle_deg: float = bounded(180.0, 0.0, 180.0)
    """Largest angle between the agent's heading and the goal's at a success, degrees; 180: any heading."""
    reward: str = "habitat"
    """Reward besides `slack_reward`. "habitat": decrease of the distance, and `success_reward` at a success. "zer":
    decrease of distance and angle to go, half of `success_reward` at a success, the other half if the heading is within
    25 degrees of the goal's; published with slack_reward -0.01 and success_reward 10. "vc1": as "zer", with all of
    `success_reward` at a success and again for the heading; published with -0.01 and 2.5. The angle to go is that to
    the goal's heading within 1 m of the goal, and pi farther away."""

    @property
    def success_rule(self) -> SuccessRule:
        """Stop near the goal, within the largest angle."""
        return super().success_rule._replace(max_angle_deg=self.success_angle_deg)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
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
    fields: ClassVar[dict[str, Field]] = {
        **GoalTask.fields,
        "goal_heading": Field(low=ANGLES[0], high=ANGLES[1]),  # radians
        "angle": Field(low=0.0, high=float(np.float32(np.pi))),  # angle to go after the last step, radians
    }
    score_kernel: Kernel = score_one

    @staticmethod
    def goal_images(config: Any) -> Mapping[str, str]:
        """The main camera's colours."""
        return {IMAGEGOAL: "rgb"}

    def sample_episodes(self) -> None:
        """Sample the queued agents' next episodes: start and goal as in PointNav, and a heading of the goal."""
        self.sample_pairs()
        self._sample_headings()

    def kernel_parameters(self) -> Any:
        """The numbers that all kernels of the task read."""
        config, success, facing, weight = self.config, *REWARDS[self.config.reward]
        given = GoalParameters.of(config, math.radians(config.success_angle_deg))
        given = given._replace(success_reward=np.float32(success * config.success_reward))
        angle, radius = np.float32(math.radians(FACING_ANGLE_DEG)), np.float32(ANGLE_RADIUS)
        return ImageParameters(*given, np.float32(facing * config.success_reward), angle, np.float32(weight), radius)

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        super()._bind()
        sim = self.sim
        read = *map(view, (sim.bodies, sim.sampling, self.episodes)), self.kernel_parameters()
        self._sample_headings: Callable[[], None] = sample_heading.bind(view(sim.queue), *read, view(self.next_episode))
