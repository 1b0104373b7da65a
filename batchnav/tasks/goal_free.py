"""`ProgressTask`, the base of tasks without a goal: agents start at random positions and are rewarded for progress.

The base class samples starts, moves bodies, ends episodes and computes metrics. A subclass measures progress: in torch,
as docs/tutorials/own_task.md shows, or in its own kernels, as `tasks/flee.py` and `tasks/explore.py` do.

A stop ends the episode. `score` runs concurrently with the begin of the next episodes. Therefore only `score` writes
progress and return; in the first step of an episode it starts from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.sample import random_point
from batchnav.observation import ObservationSource
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.runtime.kernels.rng import uniform4
from batchnav.sim.bodies import Bodies, begin_episode, is_invalid, keep_start
from batchnav.sim.episodes import FIRST_DRAW, NO_AGENT, agent_number, sample_scene
from batchnav.sim.simulator import BAD_ACTION, NO_EPISODE, Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import MAX_CANDIDATES, MIN_ISLAND_RADIUS, EpisodeTable, table_row
from batchnav.tasks.steps import FINITE, advance_body, bind, bind_advance, bind_begin, record_step_metrics
from batchnav.types import GoalKind, Metric


class ProgressState(NamedTuple):
    """Every agent's running episode."""

    target: torch.Tensor
    """f32 [N, 3]: position of the most progress, metres, if the task has one; else the start."""
    reachable: torch.Tensor
    """f32 [N]: the most progress that can be made; 0 where that is not known."""
    progress: torch.Tensor
    """f32 [N]: progress after the last step."""
    episode_return: torch.Tensor
    """f32 [N]: sum of the rewards after the last step."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table; -1 for sampled episodes and after the table's last row."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> ProgressState:
        """State of `n` agents before their first episode."""
        reachable, progress, earned = (torch.zeros(n, dtype=torch.float32, device=device) for _ in range(3))
        table_index = torch.full((n,), -1, dtype=torch.int32, device=device)
        return cls(torch.zeros(n, 3, dtype=torch.float32, device=device), reachable, progress, earned, table_index)


class ProgressTransition(NamedTuple):
    """One step, kept for scoring: the agent's next episode may begin before the step is scored."""

    moved: torch.Tensor
    """bool [N]: True where the agent's position changed."""
    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: after the step."""
    heading: torch.Tensor
    """f32 [N], radians: after the step."""
    path_length: torch.Tensor
    """f32 [N]: after the step."""
    collisions: torch.Tensor
    """i32 [N]: after the step."""
    steps: torch.Tensor
    """i32 [N]: after the step."""
    start: torch.Tensor
    """f32 [N, 3]: start position of the episode."""
    start_heading: torch.Tensor
    """f32 [N], radians."""
    reachable: torch.Tensor
    """f32 [N]: the most progress that can be made; 0 where that is not known."""
    progress: torch.Tensor
    """f32 [N]: before the step."""
    episode_return: torch.Tensor
    """f32 [N]: before the step."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> ProgressTransition:
        """Transition of `n` agents that have not moved."""
        bodies, state = Bodies.empty(n, device)._asdict(), ProgressState.empty(n, device)._asdict()
        return cls(torch.zeros(n, dtype=torch.bool, device=device), **{
            name: (state[name] if name in state else bodies[name]) for name in cls._fields if name != "moved"
        })  # fmt: skip


class NextStart(NamedTuple):
    """Every agent's next episode, sampled ahead during the running one."""

    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: start position, metres."""
    heading: torch.Tensor
    """f32 [N]: start heading, radians."""
    target: torch.Tensor
    """f32 [N, 3], as in `ProgressState`."""
    reachable: torch.Tensor
    """f32 [N], as in `ProgressState`."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, or -1."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> NextStart:
        """Next episodes of `n` agents before the first sampling."""
        bodies, state = Bodies.empty(n, device), ProgressState.empty(n, device)
        return cls(bodies.scene, bodies.position, bodies.heading, state.target, state.reachable, state.table_index)


class ProgressMetrics(NamedTuple):
    """Metrics of every agent's episode, f32 [N] each. `return_` is the metric "return"."""

    progress: torch.Tensor
    """In the unit of the task."""
    share: torch.Tensor
    """Progress over the most progress that can be made, 0 to 1; 0 where the latter is unknown."""
    collisions: torch.Tensor
    path_length: torch.Tensor
    steps: torch.Tensor
    return_: torch.Tensor


def progress_metrics(progress: Metric, share: Metric) -> tuple[Metric, ...]:
    """Metric specs of a `ProgressTask` in the order of `ProgressMetrics`; the first two are given."""
    common = Metric("collisions"), Metric("path_length", shown=False), Metric("steps")
    return progress, share, *common, Metric("return", low=-math.inf, shown=False)


# One agent.


@lean_function
def advance_one(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out):
    """Move the body, flag the end of its episode, and record the step for scoring."""
    first = bodies_out.steps[i] == np.int32(0)
    advance_body(i, actions, nav, body, max_steps, scratch, row, bodies_out, transition_out)
    keep_point(i, point_at(i, bodies_out.start), transition_out.start)
    transition_out.heading[i], transition_out.start_heading[i] = bodies_out.heading[i], bodies_out.start_heading[i]
    transition_out.reachable[i] = state.reachable[i]
    transition_out.progress[i] = np.float32(0.0) if first else state.progress[i]
    transition_out.episode_return[i] = np.float32(0.0) if first else state.episode_return[i]


@lean_function
def score_progress(i, transition, progress, reward, state_out, metrics_out, reward_out):
    """Write progress, reward and all metrics of a step."""
    episode_return = transition.episode_return[i] + reward
    state_out.progress[i], state_out.episode_return[i] = progress, episode_return
    metrics_out.progress[i] = progress
    metrics_out.share[i] = share_of(progress, transition.reachable[i])
    record_step_metrics(i, transition, episode_return, metrics_out)
    reward_out[i] = reward


@lean_function
def share_of(progress, reachable):
    """Progress over the most progress that can be made, at most 1; 0 where the latter is unknown."""
    if not reachable > np.float32(0.0):
        return np.float32(0.0)
    return min(progress / reachable, np.float32(1.0))


@lean_function
def begin_one(i, next_episode, bodies_out, state_out):
    """Begin the episode that was sampled ahead."""
    begin_episode(i, next_episode, bodies_out)
    keep_point(i, point_at(i, next_episode.target), state_out.target)
    state_out.reachable[i], state_out.table_index[i] = next_episode.reachable[i], next_episode.table_index[i]


@lean_function
def begin_due(i, all_agents, next_episode, bodies_out, state_out, queue_out):
    """CPU: begin an episode that is due, and queue its agent. numba would lose these writes in the prange loop."""
    due = all_agents or bodies_out.done[i]
    if due:
        begin_one(i, next_episode, bodies_out, state_out)
    queue_out.agents[i] = np.int32(i) if due else np.int32(NO_AGENT)


@lean_function
def keep_episode(i, scene, start, heading, table_index, next_out):
    """Write the agent's next start."""
    keep_start(i, scene, start, heading, next_out)
    keep_point(i, start, next_out.target)
    next_out.reachable[i], next_out.table_index[i] = np.float32(0.0), table_index


@lean_function
def sample_one(i, nav, bodies, sampling, table, next_out, errors_out):
    """Sample the agent's next start: its next row of the table, or uniform over the islands of radius >= 1.5 m."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        row, table_index = table_row(i, episode, table, bodies.scene.shape[0])
        keep_episode(i, table.scene[row], point_at(row, table.start), table.heading[row], table_index, next_out)
        return
    scene, heading = sample_scene(i, episode, sampling)
    agent = agent_number(i, sampling)
    for candidate in range(MAX_CANDIDATES):
        u0, u1, u2, _ = uniform4(sampling.seed[0], agent, episode, FIRST_DRAW + candidate)
        polygon, start = random_point(nav, scene, (u0, u1, u2))
        island = nav.polygon_island[polygon]
        if island >= 0 and nav.island_radius[island] >= MIN_ISLAND_RADIUS:
            keep_episode(i, scene, start, heading, np.int32(-1), next_out)
            return
    errors_out[NO_EPISODE] = scene + np.int32(1)


class ProgressTask:
    """A `batchnav.types.Task` that rewards progress. A subclass defines `measure` and the names of its metrics.

    A subclass may declare further metrics after those of `ProgressMetrics`; it writes them to `self.metrics[name]`,
    f32 [N].

    Args:
        sim: simulator of the agents.
        config: configuration of the task.
        episodes: fixed starts instead of sampled ones; goals are ignored. EpisodeError for an invalid table.
    """

    Config: type = TaskConfig
    title = "Progress"
    goal_kind: GoalKind = ""
    episode_file = "starts_{split}.json.gz"
    reference_agents: tuple[str, ...] = ("random", "forward")
    metric_specs = progress_metrics(Metric("progress", low=-math.inf, headline=True), Metric("share", high=1.0))
    goal_images: Mapping[str, str] = {}

    def __init__(self, sim: Simulator, config: Any, episodes: EpisodeTable | None = None):
        n, device = sim.num_envs, sim.device
        self.config, self.sim = config, sim
        self.episodes = EpisodeTable.of(episodes, sim.bank)
        self.max_steps, self.num_fixed = config.max_steps, len(self.episodes.scene)
        self.no_episode_message = (
            f"no start found in {MAX_CANDIDATES} tries, expected an island of radius >= {MIN_ISLAND_RADIUS:g} m"
        )
        self.progress_state, self.transition, self.next_episode, *kept = self.arrays(n, device, config)
        self.metric_tensors, self.reward, further, *self.own = kept
        self.state: Any = self.progress_state
        names = (metric.name for metric in self.metric_specs)
        self.metrics: Mapping[str, torch.Tensor] = dict(zip(names, (*self.metric_tensors, *further), strict=True))
        self.observations: Mapping[str, torch.Tensor] = {}
        self.relative_goal: torch.Tensor | None = None
        self.episode_info: Mapping[str, torch.Tensor] = {"reachable": self.progress_state.reachable}
        self.ranges: dict[str, tuple[float, float]] = {
            "target": FINITE, "progress": FINITE, "table_index": (-1, self.num_fixed - 1)
        }  # fmt: skip
        self.target: torch.Tensor | None = None
        self.target_radius = 0.0
        self.scratch, *separate = (sim.search_scratch(rows) for rows in self.search_rows(n, device, sim.chunks))
        self.sampling_scratch = separate[0] if separate else self.scratch
        """Scratch memory for searches of episode sampling, which runs at the same time as steps on CUDA."""
        self._bind()

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """None: agents observe nothing of the task."""
        return ()

    @property
    def nearest_target(self) -> torch.Tensor | None:
        """`target`: there is one for the whole episode."""
        return self.target

    def update_nearest_target(self) -> None:
        """Do nothing: `nearest_target` does not change within an episode."""

    @staticmethod
    def goal_image_size(config: Any) -> tuple[int, int] | None:
        """None: there are no images of a goal."""
        return None

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...] | None:
        """None: the scenes need no goals."""
        return None

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents. A subclass appends its own."""
        common, further = len(ProgressMetrics._fields), max(0, len(cls.metric_specs) - len(ProgressMetrics._fields))
        metrics, rewards = (
            ProgressMetrics(*torch.zeros(common, n, dtype=torch.float32, device=device)),
            torch.zeros(n, dtype=torch.float32, device=device),
        )
        records = ProgressState.empty(n, device), ProgressTransition.empty(n, device), NextStart.empty(n, device)
        return *records, metrics, rewards, torch.zeros(further, n, dtype=torch.float32, device=device)

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent path searches in a step."""
        return (num_envs if device.type == "cuda" else chunks,)

    def measure(self) -> torch.Tensor:
        """Progress of every agent after the step, f32 [N], from `transition`. Torch operations only, no `.item()`."""
        raise NotImplementedError(f"{type(self).__name__}: found no method `measure`, expected one; define it")

    def reward_fn(self, progress: torch.Tensor) -> torch.Tensor:
        """Reward of the step, f32 [N]. Default: the increase of progress."""
        return progress - self.transition.progress

    def score(self) -> None:
        """Compute reward and metrics in torch; a CUDA graph can capture it."""
        transition, state, metrics = self.transition, self.progress_state, self.metric_tensors
        progress = self.measure()
        reward = self.reward_fn(progress)
        state.progress.copy_(progress)
        self.reward.copy_(reward)
        torch.add(transition.episode_return, reward, out=state.episode_return)
        known = transition.reachable > 0.0
        share = torch.where(known, progress / torch.where(known, transition.reachable, 1.0), 0.0).clamp(max=1.0)
        values = progress, share, transition.collisions, transition.path_length, transition.steps, state.episode_return
        for metric, value in zip(metrics, values, strict=True):
            metric.copy_(value)

    def sample_episodes(self) -> None:
        """Sample the queued agents' next starts."""
        self.sample_starts()

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        sim, max_steps = self.sim, np.int32(self.max_steps)
        nav, errors = sim.bank.navmesh_view, sim.error_flags
        bodies, queue, sampling, table = map(view, (sim.bodies, sim.queue, sim.sampling, self.episodes))
        state, transition, next_episode = map(view, (self.progress_state, self.transition, self.next_episode))
        moved = nav, state, sim.body, max_steps
        self.advance = bind_advance(sim, (advance_cpu, advance_cuda), moved, (bodies, transition), self.scratch)
        self.begin_episodes = bind_begin(sim, (begin_cpu, begin_cuda), next_episode, (bodies, state, queue))
        read = nav, bodies, queue, sampling, table
        self.sample_starts: Callable[[], Any] = bind(sim, (sample_cpu, sample_cuda), read, (next_episode, errors))


# All agents: on the CPU in chunks, each with one row of scratch memory; on CUDA one agent per thread.


@cpu_kernel
def advance_cpu(actions, nav, state, body, max_steps, chunks, scratch, bodies_out, transition_out):
    """`advance_one` of every agent."""
    n = actions.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, for which every callee would be compiled again
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            advance_one(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out)


@cpu_kernel
def begin_cpu(all_agents, next_episode, bodies_out, state_out, queue_out):
    """Begin the episodes that are due, and queue their agents for sampling."""
    n = queue_out.agents.shape[0]
    for i in prange(n):
        begin_due(np.int64(i), all_agents, next_episode, bodies_out, state_out, queue_out)
    queue_out.count[0] = n


@cpu_kernel
def sample_cpu(nav, bodies, queued, sampling, table, next_out, errors_out):
    """`sample_one` of the queued agents."""
    for k in prange(queued.count[0]):
        i = np.int64(queued.agents[k])
        if i != NO_AGENT:
            sample_one(i, nav, bodies, sampling, table, next_out, errors_out)


@exact_cuda_kernel
def advance_cuda(actions, nav, state, body, max_steps, scratch, bodies_out, transition_out, errors_out):
    """`advance_one` of every agent."""
    i = cuda.grid(1)
    if i < actions.shape[0]:
        if is_invalid(i, actions, body):
            errors_out[BAD_ACTION] = np.int32(i + 1)  # any agent's number is good enough where several write
        advance_one(i, actions, nav, state, body, max_steps, scratch, i, bodies_out, transition_out)


@exact_cuda_kernel
def begin_cuda(all_agents, next_episode, bodies_out, state_out, queue_out):
    """Begin the episodes that are due, and queue their agents for sampling."""
    i = cuda.grid(1)
    if i < bodies_out.scene.shape[0] and (all_agents or bodies_out.done[i]):
        begin_one(i, next_episode, bodies_out, state_out)
        queue_out.agents[cuda.atomic.add(queue_out.count, 0, 1)] = i


@exact_cuda_kernel
def sample_cuda(nav, bodies, queued, sampling, table, next_out, errors_out):
    """`sample_one` of the queued agents."""
    for k in range(cuda.grid(1), queued.count[0], cuda.gridsize(1)):
        sample_one(np.int64(queued.agents[k]), nav, bodies, sampling, table, next_out, errors_out)
