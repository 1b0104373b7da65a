"""`GoalTask`, the base of tasks with a goal, such as PointNav.

Steps, success, SPL, reward, fixed episodes and resuming are here. A subclass defines what differs: `fields` declares
further tensors of an episode, and a kernel after `sample_pairs` fills those of the next episodes. A task with another
rule of success or reward replaces `score_kernel`, whose function calls `distance_to_goal` and `record_score`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from batchnav.config import bounded, in_range
from batchnav.geometry.pose import angle_between, goal_in_agent_frame, point_at
from batchnav.navmesh.file import FARTHEST
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.intrinsics import copy_fields
from batchnav.runtime.kernels.launch import Kernel, kernel
from batchnav.runtime.kernels.synchronization import enqueue
from batchnav.sim.bodies import begin_episode
from batchnav.sim.simulator import Simulator
from batchnav.tasks.config import SuccessRule, TaskConfig
from batchnav.tasks.episode_sampling import (
    MAX_CANDIDATES,
    MIN_ISLAND_RADIUS,
    EpisodeTable,
    sample_one,
    sampling_threads,
)
from batchnav.tasks.formulas import soft_spl, spl, step_reward
from batchnav.tasks.task import COMMON_FIELDS, BatchTask, Field, advance_body, flag_invalid, record_step_metrics
from batchnav.types import Metric

METRIC_SPECS = (
    Metric("success", high=1.0, binary=True, headline=True),
    Metric("spl", high=1.0, headline=True),
    Metric("soft_spl", high=1.0, headline=True),
    Metric("distance_to_goal"),
    Metric("collisions"),
    Metric("path_length", shown=False),
    Metric("steps"),
    Metric("return", low=-math.inf, shown=False),
)
METRICS = tuple(metric.name for metric in METRIC_SPECS)
"""Names of the metrics of an episode."""
_PI = np.float32(np.pi)


class GoalParameters(NamedTuple):
    """Numbers of `GoalTaskConfig` that the kernels of a task with a goal read."""

    max_steps: np.int32
    """Steps after which an episode is truncated."""
    success_distance: np.float32
    """Geodesic distance to the goal below which a stop succeeds, metres."""
    success_angle: np.float32
    """Largest angle between agent and goal heading at which a stop succeeds, radians; pi or more: any heading."""
    slack_reward: np.float32
    """Reward of every step."""
    success_reward: np.float32
    """Reward of a success, multiplied by SPL."""
    closest_goal: np.float32
    furthest_goal: np.float32
    """Limits of the geodesic distance of sampled episodes, metres."""
    min_detour_ratio: np.float32
    """Ratio of geodesic to Euclidean distance below which most sampled episodes are rejected."""

    @classmethod
    def of(cls, config: Any, success_angle: float = math.pi) -> GoalParameters:
        """Parameters of a `GoalTaskConfig`."""
        given: dict[str, Any] = {"max_steps": np.int32(config.max_steps), "success_angle": np.float32(success_angle)}
        given |= {name: np.float32(getattr(config, name)) for name in cls._fields if name not in given}
        return cls(**given)


# One agent.


@kernel(block=SEARCH_BLOCK)
def advance(
    i, actions, nav, state, body, parameters, scratch, row, bodies_out, transition_out, relative_goal_out, errors_out
):
    """Move the body, flag the end of its episode, record the step for scoring, and observe the goal."""
    flag_invalid(i, actions, body, errors_out)
    max_steps = parameters.max_steps
    advance_body(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out)
    observe_goal(i, bodies_out, state, relative_goal_out)


@lean_function
def observe_goal(i, bodies, state, relative_goal_out):
    """Write the goal in the agent's frame."""
    rho, minus_phi = goal_in_agent_frame(point_at(i, bodies.position), bodies.heading[i], point_at(i, state.goal))
    relative_goal_out[i, 0], relative_goal_out[i, 1] = rho, minus_phi


@inline_function
def distance_to_goal(i, nav, transition, scratch, row):
    """Geodesic distance in metres to the goal after the step; inf if it cannot be reached."""
    if not transition.moved[i]:
        return transition.distance[i]
    position, goal = point_at(i, transition.position), point_at(i, transition.goal)
    return geodesic_distance(nav, transition.scene[i], position, goal, scratch, row)


@inline_function
def faces_goal(i, transition, parameters):
    """True if the agent's heading is within the success angle of the goal heading, or if any heading succeeds."""
    if parameters.success_angle >= _PI:
        return True
    return angle_between(transition.heading[i], transition.goal_heading[i]) <= parameters.success_angle


@inline_function
def record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out):
    """Write distance, reward and all metrics of a step. State is not written if the episode ended."""
    start_distance, path_length = transition.start_distance[i], transition.path_length[i]
    episode_return = transition.episode_return[i] + reward
    if not bodies.done[i]:
        state_out.distance[i], state_out.episode_return[i] = distance, episode_return
    metrics_out.success[i] = np.float32(1.0) if success else np.float32(0.0)
    metrics_out.spl[i] = spl(success, start_distance, path_length)
    metrics_out.soft_spl[i] = soft_spl(distance, start_distance, path_length)
    metrics_out.distance_to_goal[i] = distance
    record_step_metrics(i, transition, episode_return, metrics_out)
    reward_out[i] = reward


@kernel(block=SEARCH_BLOCK)
def score(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step. Success: a stop within the success distance. Reward: `formulas.step_reward`."""
    distance = distance_to_goal(i, nav, transition, scratch, row)
    success = bodies.terminated[i] and distance < parameters.success_distance
    efficiency = spl(success, transition.start_distance[i], transition.path_length[i])
    slack_reward, success_reward = parameters.slack_reward, parameters.success_reward
    reward = step_reward(transition.distance[i], distance, efficiency, slack_reward, success_reward)
    record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out)


@kernel()
def begin(i, all_agents, next_episode, bodies_out, state_out, queue_out, relative_goal_out):
    """Begin the episode that was sampled ahead if it is due, and queue the agent for sampling."""
    due = all_agents or bodies_out.done[i]
    if due:
        begin_episode(i, next_episode, bodies_out)
        copy_fields(i, next_episode, state_out)  # scoring runs concurrently, and writes those of agents that go on
        state_out.episode_return[i] = np.float32(0.0)
        observe_goal(i, bodies_out, state_out, relative_goal_out)
    enqueue(i, due, queue_out.agents, queue_out.count)


# The task.


@dataclass(frozen=True)
class GoalTaskConfig(TaskConfig):
    """Base of the configurations of tasks with a goal. Defaults: Habitat's `habitat_pointnav_v1`."""

    success_target = "the goal's point"
    """Place that `success_distance` leads to."""
    success_distance: float = bounded(0.2, 1e-3, 100.0)
    """Geodesic distance to the goal in metres below which a stop succeeds."""
    slack_reward: float = bounded(-0.01, -1e6, 1e6)
    """Reward of every step."""
    success_reward: float = bounded(2.5, -1e6, 1e6)
    """Reward of a success, multiplied by SPL."""
    closest_goal: float = bounded(1.0, 0.0, 1e3)
    """Smallest geodesic distance from start to goal in sampled episodes, metres."""
    furthest_goal: float = 30.0
    """Largest geodesic distance from start to goal in sampled episodes, metres."""
    min_detour_ratio: float = bounded(1.1, 1.0, 10.0)
    """Ratio of geodesic to Euclidean distance below which most sampled episodes are rejected (Habitat's rule)."""

    @property
    def success_rule(self) -> SuccessRule:
        """Stop near the goal, at any heading."""
        return SuccessRule(self.success_distance, self.success_target)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "furthest_goal", self.closest_goal + 1e-3, 1e4)


class GoalTask(BatchTask):
    """A task with a goal. Arguments as in `BatchTask`."""

    Config: type = GoalTaskConfig
    title = "Goal"
    goal_kind: str = "point"
    reference_agents: tuple[str, ...] = ("random", "forward", "shortest_path")
    metric_specs: tuple[Metric, ...] = METRIC_SPECS
    fields: ClassVar[dict[str, Field]] = {
        "goal": Field(3, low=-FARTHEST, high=FARTHEST),  # metres; in ObjectNav the view point nearest to the agent
        "start_distance": Field(low=0.0, high=math.inf),  # geodesic, from the start to the goal, metres, for SPL
        "distance": Field(low=0.0, high=math.inf),  # geodesic, from the agent to the goal, metres
        **COMMON_FIELDS,
    }
    score_kernel: Kernel = score
    """Kernel that scores a step. Override it for another rule of success or reward."""
    sample_kernel: Kernel = sample_one
    """Kernel that samples starts and goals. Override it for other rules."""

    def __init__(self, sim: Simulator, config: Any, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.no_episode_message = (
            f"no episode found in {MAX_CANDIDATES} tries, expected an island of radius >= {MIN_ISLAND_RADIUS:g} m "
            f"with points {config.closest_goal:g} to {config.furthest_goal:g} m apart"
        )
        self.live_goal, self.start_goal = self.own[0], self.own[-1]
        """f32 [N, 2]: distance, metres, and bearing, radians, of the goal: from the current pose and from the start
        pose. The same tensor unless `keeps_start_goal(config)`."""
        self.goal_position, self.target = self.running.goal, self.running.goal
        if "goal_heading" in self.fields:
            self.goal_heading = self.running.goal_heading
        self.episode_info = {"start_distance": self.running.start_distance}
        self.target_radius = config.success_distance
        self._bind()

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents; last the goal in the agent's frame."""
        shown = torch.zeros(2 if cls.keeps_start_goal(config) else 1, n, 2, dtype=torch.float32, device=device)
        return *super().arrays(n, device, config), *shown

    @classmethod
    def keeps_start_goal(cls, config: Any) -> bool:
        """True if `start_goal` is a separate tensor, for agents that observe it instead of `live_goal`."""
        return False

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent searches for steps; on CUDA also for the episodes that are sampled at the same time."""
        return (num_envs, sampling_threads(num_envs)) if device.type == "cuda" else (chunks,)

    def score(self) -> None:
        """Compute reward and metrics of the step. A subclass may change `reward` afterwards.

        `docs/howto/change_reward.md` shows how.
        """
        self._score()

    def sample_episodes(self) -> None:
        """Sample the queued agents' next episodes."""
        self.sample_pairs()

    def kernel_parameters(self) -> Any:
        """The numbers and arrays that all kernels of the task read."""
        return GoalParameters.of(self.config)

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        sim, n, chunks = self.sim, self.sim.num_envs, self.sim.chunks
        nav, parameters = sim.bank.navmesh_view, self.kernel_parameters()
        bodies, queue, sampling, table = map(view, (sim.bodies, sim.queue, sim.sampling, self.episodes))
        state, transition, next_episode = map(view, (self.running, self.transition, self.next_episode))
        live_goal, start_goal = view(self.live_goal), view(self.start_goal)
        self.bind_advance(
            advance, nav, state, sim.body, parameters, self.scratch, bodies, transition, live_goal, sim.error_flags
        )
        scored = state, view(self.metric_tensors), view(self.reward)
        self._score: Callable[[], None] = self.score_kernel.bind(
            n, nav, bodies, transition, parameters, self.scratch, *scored, rows=chunks
        )
        self.bind_begin(begin, next_episode, bodies, state, queue, start_goal)
        self.sample_pairs: Callable[[], None] = self.sample_kernel.bind(
            queue, nav, bodies, sampling, table, parameters, self.sampling_scratch, next_episode, sim.error_flags,
            rows=chunks, threads=sampling_threads(n),
        )  # fmt: skip
        """Sample starts and goals of the queued agents' next episodes."""
