"""PointGoal navigation: go to a point that the goal sensor tells, and stop there. Habitat's `habitat_pointnav_v1`.

In this order: settings, what is known of every agent, the functions for one agent, the task, and its kernels. How
episodes are drawn is in `tasks/episode_sampling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.config import in_range
from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import Bodies, BodyConfig, begin_episode, calls_stop, end_episode, is_invalid, step_body
from batchnav.sim.episodes import NO_AGENT
from batchnav.sim.simulator import BAD_ACTION, Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import (
    MAX_CANDIDATES,
    SAMPLING_BLOCK,
    EpisodeTable,
    NextEpisode,
    sample_cpu,
    sample_cuda,
    sampling_threads,
)
from batchnav.tasks.formulas import goal_in_agent_frame, soft_spl, spl, step_reward
from batchnav.types import Metric, ObservationSource, Spec, TaskObservation


@dataclass(frozen=True)
class PointNavConfig(TaskConfig):
    """The PointGoal task. Defaults: Habitat's `habitat_pointnav_v1`."""

    success_distance: float = 0.2
    """Success: stop was called and the geodesic distance to the goal is below this, in metres."""
    slack_reward: float = -0.01
    success_reward: float = 2.5
    """Times SPL, at a successful stop."""
    closest_goal: float = 1.0
    furthest_goal: float = 30.0
    """Sampled episodes have a geodesic distance in [closest_goal, furthest_goal] metres."""
    min_detour_ratio: float = 1.1
    """Sampled episodes of a lower geodesic over Euclidean distance are mostly rejected (Habitat's rule)."""
    gps_compass: bool = True
    """Whether "pointgoal" says where the goal lies now, as Habitat's `pointgoal_with_gps_compass` does, or all episode
    long where it lay at the start, as its `pointgoal` does: the agent is to keep track of itself."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "success_distance", 1e-3, 100.0)
        in_range(self, "slack_reward", -1e6, 1e6)
        in_range(self, "success_reward", -1e6, 1e6)
        in_range(self, "closest_goal", 0.0, 1e3)
        in_range(self, "furthest_goal", self.closest_goal + 1e-3, 1e4)
        in_range(self, "min_detour_ratio", 1.0, 10.0)


class PointNavParameters(NamedTuple):
    """The numbers of `PointNavConfig` that kernels need."""

    max_steps: np.int32
    success_distance: np.float32
    slack_reward: np.float32
    success_reward: np.float32
    closest_goal: np.float32
    furthest_goal: np.float32
    min_detour_ratio: np.float32

    @classmethod
    def of(cls, config: PointNavConfig) -> PointNavParameters:
        """The settings that a configuration describes."""
        values: dict[str, Any] = {name: np.float32(getattr(config, name)) for name in cls._fields}
        return cls(**values | {"max_steps": np.int32(config.max_steps)})


class GoalMetrics(NamedTuple):
    """f32 [N] each; a name's trailing underscore is Python's, and not part of the metric's name."""

    success: torch.Tensor
    spl: torch.Tensor
    soft_spl: torch.Tensor
    distance_to_goal: torch.Tensor
    collisions: torch.Tensor
    path_length: torch.Tensor
    steps: torch.Tensor
    return_: torch.Tensor


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
"""What is said of an episode, by name, in the order of `GoalMetrics`."""


class GoalState(NamedTuple):
    """What every agent is to do, and how far it is."""

    goal: torch.Tensor
    """f32 [N, 3]."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance to the goal at the start, which SPL uses."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance to the goal now."""
    episode_return: torch.Tensor
    """f32 [N]."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, -1 where the episode was sampled or the table is used up."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> GoalState:
        """Of `n` agents before their first episode."""
        start_distance, distance, earned = (torch.zeros(n, device=device) for _ in range(3))
        table_index = torch.full((n,), -1, dtype=torch.int32, device=device)
        return cls(torch.zeros(n, 3, device=device), start_distance, distance, earned, table_index)


class GoalTransition(NamedTuple):
    """What a step leaves for judging it: the running episode as it was before the next one may have begun."""

    moved: torch.Tensor
    """bool [N]: the agent is elsewhere, so that its distance has to be found anew."""
    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: after the step."""
    path_length: torch.Tensor
    """f32 [N]: after the step."""
    collisions: torch.Tensor
    """i32 [N]: after the step."""
    steps: torch.Tensor
    """i32 [N]: after the step."""
    goal: torch.Tensor
    """f32 [N, 3]."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic, from the episode's start."""
    distance: torch.Tensor
    """f32 [N]: geodesic, before the step."""
    episode_return: torch.Tensor
    """f32 [N]: before the step."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, -1 where there is none."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> GoalTransition:
        """Of `n` agents that have not moved."""
        bodies, goals = Bodies.empty(n, device)._asdict(), GoalState.empty(n, device)._asdict()
        return cls(torch.zeros(n, dtype=torch.bool, device=device), **{
            name: (goals[name] if name in goals else bodies[name]) for name in cls._fields if name != "moved"
        })  # fmt: skip


# One agent.


@lean_function
def advance_one(i, actions, nav, goals, body, settings, scratch, row, bodies_out, transition_out):
    """Walk, end, and leave the transition for `score_one`."""
    transition_out.scene[i] = bodies_out.scene[i]
    transition_out.moved[i] = step_body(i, actions, nav, body, scratch, row, bodies_out)
    end_episode(i, calls_stop(i, actions, body), settings.max_steps, bodies_out)
    keep_point(i, point_at(i, bodies_out.position), transition_out.position)
    transition_out.path_length[i], transition_out.collisions[i] = bodies_out.path_length[i], bodies_out.collisions[i]
    transition_out.steps[i] = bodies_out.steps[i]
    keep_point(i, point_at(i, goals.goal), transition_out.goal)
    transition_out.start_distance[i], transition_out.distance[i] = goals.start_distance[i], goals.distance[i]
    transition_out.episode_return[i], transition_out.table_index[i] = goals.episode_return[i], goals.table_index[i]


@lean_function
def score_one(i, nav, bodies, transition, settings, scratch, row, state_out, metrics_out, reward_out):
    """Geodesic distance, reward and metrics of a step, from its transition."""
    distance = transition.distance[i]
    if transition.moved[i]:
        place, goal = point_at(i, transition.position), point_at(i, transition.goal)
        distance = geodesic_distance(nav, transition.scene[i], place, goal, scratch, row)
    start_distance, path_length = transition.start_distance[i], transition.path_length[i]
    success = bodies.terminated[i] and distance < settings.success_distance
    efficiency = spl(success, start_distance, path_length)
    reward = step_reward(transition.distance[i], distance, efficiency, settings.slack_reward, settings.success_reward)
    episode_return = transition.episode_return[i] + reward
    if not bodies.done[i]:
        state_out.distance[i], state_out.episode_return[i] = distance, episode_return
    metrics_out.success[i] = np.float32(1.0) if success else np.float32(0.0)
    metrics_out.spl[i] = efficiency
    metrics_out.soft_spl[i] = soft_spl(distance, start_distance, path_length)
    metrics_out.distance_to_goal[i] = distance
    metrics_out.collisions[i] = np.float32(transition.collisions[i])
    metrics_out.path_length[i] = path_length
    metrics_out.steps[i] = np.float32(transition.steps[i])
    metrics_out.return_[i] = episode_return
    reward_out[i] = reward


@lean_function
def begin_one(i, next_episode, bodies_out, state_out):
    """Begin the episode that was drawn ahead."""
    begin_episode(i, next_episode, bodies_out)
    state_out.table_index[i] = next_episode.table_index[i]
    keep_point(i, point_at(i, next_episode.goal), state_out.goal)
    state_out.start_distance[i], state_out.distance[i] = next_episode.distance[i], next_episode.distance[i]
    state_out.episode_return[i] = np.float32(0.0)


@lean_function
def observe_one(i, bodies, goals, pointgoal_out):
    """The goal in the agent's frame."""
    rho, minus_phi = goal_in_agent_frame(point_at(i, bodies.position), bodies.heading[i], point_at(i, goals.goal))
    pointgoal_out[i, 0], pointgoal_out[i, 1] = rho, minus_phi


@lean_function
def begin_due(i, everyone, next_episode, bodies_out, state_out, queue_out, pointgoal_out):
    """CPU: begin an episode that is due, and queue its agent; a write in the loop over agents itself would be lost."""
    due = everyone or bodies_out.done[i]
    if due:
        begin_one(i, next_episode, bodies_out, state_out)
        observe_one(i, bodies_out, state_out, pointgoal_out)
    queue_out.agents[i] = np.int32(i) if due else np.int32(NO_AGENT)


class PointNav:
    """The task of the N agents of a simulator: a `batchnav.types.Task`.

    Args:
        sim: whose bodies walk.
        config: the settings.
        episodes: fixed episodes to play instead of sampled ones. EpisodeError where kernels could not play them.
    """

    Config = PointNavConfig
    title = "PointGoal"
    episode_file = "{split}.json.gz"
    reference_agents = (
        "random", "forward", "greedy", "map_planner", "map_planner_anticipation", "shortest_path",
    )  # fmt: skip
    metric_specs = METRIC_SPECS
    goal_images: Mapping[str, str] = {}

    def __init__(self, sim: Simulator, config: PointNavConfig, episodes: EpisodeTable | None = None):
        n, device = sim.num_envs, sim.device
        self.config, self.sim = config, sim
        self.episodes = EpisodeTable.empty(device) if episodes is None else episodes
        self.episodes.check(sim.bank)
        self.max_steps, self.num_fixed = config.max_steps, len(self.episodes.scene)
        self.no_episode_message = (
            f"no episode found in {MAX_CANDIDATES} tries, expected an island of radius >= 1.5 m with points "
            f"{config.closest_goal:g} to {config.furthest_goal:g} m apart"
        )
        self.state, self.transition, self.next_episode, self.metric_tensors, shown = self.arrays(n, device, config)
        self.reward, pointgoal, *self._unread = shown
        self.metrics: Mapping[str, torch.Tensor] = dict(zip(METRICS, self.metric_tensors, strict=True))
        self.observations: Mapping[str, torch.Tensor] = {"pointgoal": pointgoal}
        self.relative_goal: torch.Tensor | None = pointgoal if config.gps_compass else None
        finite = -float(np.finfo(np.float32).max), float(np.finfo(np.float32).max)
        self.ranges = {"goal": finite, "table_index": (-1, self.num_fixed - 1)}
        self.episode_info: Mapping[str, torch.Tensor] = {"start_distance": self.state.start_distance}
        self.target: torch.Tensor | None = self.state.goal
        self.target_radius = config.success_distance
        self._bind()

    @staticmethod
    def sources(config: PointNavConfig) -> tuple[ObservationSource, ...]:
        """The goal in polar form, [distance in metres, bearing in radians]."""
        return (TaskObservation(Spec("pointgoal", (2,), torch.float32, -np.inf, np.inf, torch.float32)),)

    @staticmethod
    def arrays(
        n: int, device: torch.device, config: PointNavConfig
    ) -> tuple[GoalState, GoalTransition, NextEpisode, GoalMetrics, tuple[torch.Tensor, ...]]:
        """All that the task keeps of `n` agents; the last are the reward, and the goal in the agent's frame.

        Without GPS and compass that is as of the start, and where it lies now goes to one tensor more.
        """
        metrics = GoalMetrics(*torch.zeros(len(GoalMetrics._fields), n, device=device))
        goals = (torch.zeros(n, 2, device=device) for _ in range(1 if config.gps_compass else 2))
        shown = torch.zeros(n, device=device), *goals
        return GoalState.empty(n, device), GoalTransition.empty(n, device), NextEpisode.empty(n, device), metrics, shown

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """How many searches run at a time: of steps, and on CUDA of episodes that are drawn beside them."""
        return (num_envs, sampling_threads(num_envs)) if device.type == "cuda" else (chunks,)

    def _bind(self) -> None:
        """Lay out the launches: actions are all that changes from step to step."""
        sim, n, table = self.sim, self.sim.num_envs, view(self.episodes)
        nav, body, settings, error_flags = (
            sim.bank.navmesh_view,
            sim.body,
            PointNavParameters.of(self.config),
            sim.error_flags,
        )
        bodies, queue, sampling = map(view, (sim.bodies, sim.queue, sim.sampling))
        goals, transition, next_episode, metrics = map(
            view, (self.state, self.transition, self.next_episode, self.metric_tensors)
        )
        reward, pointgoal = view(self.reward), view(self.observations["pointgoal"])
        followed = view(self._unread[0]) if self._unread else pointgoal
        scratch, *beside = (sim.search_scratch(rows) for rows in self.search_rows(n, sim.device, sim.chunks))
        begun = bodies, goals, queue, pointgoal
        if sim.device.type == "cpu":
            chunks, moved = sim.chunks, (bodies, transition, followed)
            self.advance = lambda actions: advance_cpu(
                actions.numpy(), nav, goals, body, settings, chunks, scratch, *moved
            )
            self.score: Callable[[], Any] = partial(
                score_cpu, nav, bodies, transition, settings, chunks, scratch, goals, metrics, reward
            )
            self.begin_episodes = lambda everyone: begin_cpu(everyone, next_episode, *begun)
            self.sample_episodes: Callable[[], Any] = partial(
                sample_cpu, nav, bodies, queue, sampling, table, settings, chunks, scratch, next_episode, error_flags
            )
            return
        actions = view(sim.body_config.empty_actions(n, sim.device))
        advance_all = BoundKernel(
            advance_cuda, n, actions, nav, goals, body, settings, scratch, bodies, transition, followed, error_flags,
            block=SEARCH_BLOCK,
        )  # fmt: skip

        def advance(actions: torch.Tensor) -> None:
            advance_all.change(0, actions.data_ptr())
            advance_all()

        self.advance = advance
        self.score = BoundKernel(
            score_cuda, n, nav, bodies, transition, settings, scratch, goals, metrics, reward, block=SEARCH_BLOCK
        )
        begins = [BoundKernel(begin_cuda, n, everyone, next_episode, *begun) for everyone in (False, True)]
        self.begin_episodes = lambda everyone: begins[everyone]()
        self.sample_episodes = BoundKernel(
            sample_cuda, sampling_threads(n), nav, bodies, queue, sampling, table, settings, *beside, next_episode, error_flags,
            block=SAMPLING_BLOCK,
        )  # fmt: skip


def pointnav_simulator(
    bank: SceneBank,
    num_envs: int,
    config: PointNavConfig | None = None,
    body: BodyConfig | None = None,
    seed: int = 0,
    episodes: EpisodeTable | None = None,
) -> Simulator:
    """The simulator of an environment without sensors; the arguments are as of `NavEnv`."""
    config = config or PointNavConfig()
    return Simulator(bank, num_envs, body or BodyConfig(), lambda sim: PointNav(sim, config, episodes), seed)


# All agents: on the CPU in chunks, each with a row of memory to search in; on CUDA one per thread.


@cpu_kernel
def advance_cpu(actions, nav, goals, body, settings, chunks, scratch, bodies_out, transition_out, pointgoal_out):
    """`advance_one` of every agent."""
    n = actions.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            advance_one(i, actions, nav, goals, body, settings, scratch, row, bodies_out, transition_out)
            observe_one(i, bodies_out, goals, pointgoal_out)


@cpu_kernel
def score_cpu(nav, bodies, transition, settings, chunks, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    n = reward_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            score_one(i, nav, bodies, transition, settings, scratch, row, state_out, metrics_out, reward_out)


@cpu_kernel
def begin_cpu(everyone, next_episode, bodies_out, state_out, queue_out, pointgoal_out):
    """Begin the episodes that are due, and queue their agents for drawing."""
    n = pointgoal_out.shape[0]
    for i in prange(n):
        begin_due(np.int64(i), everyone, next_episode, bodies_out, state_out, queue_out, pointgoal_out)
    queue_out.count[0] = n


@exact_cuda_kernel
def advance_cuda(actions, nav, goals, body, settings, scratch, bodies_out, transition_out, pointgoal_out, errors_out):
    """`advance_one` of every agent."""
    i = cuda.grid(1)
    if i < actions.shape[0]:
        if is_invalid(i, actions, body):
            errors_out[BAD_ACTION] = np.int32(i + 1)  # several may write; any of them will do
        advance_one(i, actions, nav, goals, body, settings, scratch, i, bodies_out, transition_out)
        observe_one(i, bodies_out, goals, pointgoal_out)


@exact_cuda_kernel
def score_cuda(nav, bodies, transition, settings, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    i = cuda.grid(1)
    if i < reward_out.shape[0]:
        score_one(i, nav, bodies, transition, settings, scratch, i, state_out, metrics_out, reward_out)


@exact_cuda_kernel
def begin_cuda(everyone, next_episode, bodies_out, state_out, queue_out, pointgoal_out):
    """Begin the episodes that are due, and queue their agents for drawing."""
    i = cuda.grid(1)
    if i < pointgoal_out.shape[0] and (everyone or bodies_out.done[i]):
        begin_one(i, next_episode, bodies_out, state_out)
        queue_out.agents[cuda.atomic.add(queue_out.count, 0, 1)] = i
        observe_one(i, bodies_out, state_out, pointgoal_out)
