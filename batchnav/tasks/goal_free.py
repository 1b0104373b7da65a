"""`ProgressTask`, the base of tasks without a goal: agents start at random positions and are rewarded for progress.

The base class samples starts, moves bodies, ends episodes and computes metrics. A subclass measures progress: in torch,
as docs/tutorials/own_task.md shows, or in its own kernels, as `tasks/flee.py` and `tasks/explore.py` do.

A stop ends the episode. `score` runs concurrently with the begin of the next episodes. Therefore only `score` writes
progress and return; in the first step of an episode it starts from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from batchnav.geometry.pose import point_at, store_point
from batchnav.navmesh.data import scene_polygons
from batchnav.navmesh.file import FARTHEST
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.navmesh.sample import random_point
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.intrinsics import copy_fields
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.runtime.kernels.synchronization import enqueue
from batchnav.sim.bodies import begin_episode, keep_start
from batchnav.sim.episodes import FIRST_DRAW, agent_number, sample_scene
from batchnav.sim.simulator import NO_EPISODE, Simulator
from batchnav.tasks.episode_sampling import MAX_CANDIDATES, MIN_ISLAND_RADIUS, EpisodeTable, table_row
from batchnav.tasks.task import COMMON_FIELDS, BatchTask, Field, advance_body, flag_invalid, record_step_metrics
from batchnav.types import Metric


def progress_metrics(progress: Metric, share: Metric) -> tuple[Metric, ...]:
    """Metric specs of a `ProgressTask`. The first two are given.

    `progress`: in the unit of the task; `share`: over the most progress that can be made, 0 where that is unknown.
    """
    common = Metric("collisions"), Metric("path_length", shown=False), Metric("steps")
    return progress, share, *common, Metric("return", low=-math.inf, shown=False)


# One agent.


@kernel(block=SEARCH_BLOCK)
def advance(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out, errors_out):
    """Move the body, flag the end of its episode, and record the step for scoring."""
    first = bodies_out.steps[i] == np.int32(0)
    flag_invalid(i, actions, body, errors_out)
    advance_body(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out)
    if first:
        transition_out.progress[i], transition_out.episode_return[i] = np.float32(0.0), np.float32(0.0)


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


@kernel()
def begin(i, all_agents, next_episode, bodies_out, state_out, queue_out):
    """Begin the episode that was sampled ahead if it is due, and queue the agent for sampling."""
    due = all_agents or bodies_out.done[i]
    if due:
        begin_episode(i, next_episode, bodies_out)
        copy_fields(i, next_episode, state_out)
    enqueue(i, due, queue_out.agents, queue_out.count)


@lean_function
def keep_episode(i, scene, start, heading, table_index, next_out):
    """Write the agent's next start."""
    keep_start(i, scene, start, heading, next_out)
    store_point(i, start, next_out.target)
    next_out.reachable[i], next_out.table_index[i] = np.float32(0.0), table_index


@lean_function
def _widest_island(nav, scene):
    """Radius of the widest island of a scene, metres."""
    first, number = scene_polygons(nav, scene)
    widest = np.float32(0.0)
    for polygon in range(first, first + number):
        widest = max(widest, nav.island_radius[max(nav.polygon_island[polygon], np.int32(0))])
    return widest


@kernel(over="queue")
def sample_one(i, nav, bodies, sampling, table, least_width, next_out, errors_out):
    """Sample the agent's next start: its next row of the table, or uniform over the islands of radius >= 1.5 m.

    `least_width`: least radius of these islands, as a share of that of the scene's widest island.
    """
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        row, table_index = table_row(i, episode, table, bodies.scene.shape[0])
        keep_episode(i, table.scene[row], point_at(row, table.start), table.heading[row], table_index, next_out)
        return
    scene, heading = sample_scene(i, episode, sampling)
    agent, least = agent_number(i, sampling), MIN_ISLAND_RADIUS
    if least_width > np.float32(0.0):
        least = max(least, least_width * _widest_island(nav, scene))
    for candidate in range(MAX_CANDIDATES):
        u0, u1, u2, _ = uniform4(sampling.seed[0], agent, episode, FIRST_DRAW + candidate)
        polygon, start = random_point(nav, scene, (u0, u1, u2))
        island = nav.polygon_island[polygon]
        if island >= 0 and nav.island_radius[island] >= least:
            keep_episode(i, scene, start, heading, np.int32(-1), next_out)
            return
    errors_out[NO_EPISODE] = scene + np.int32(1)


class ProgressTask(BatchTask):
    """A task that rewards progress. A subclass defines `measure` and the names of its metrics.

    A subclass may declare further metrics after those of `progress_metrics`; it writes them to `self.metrics[name]`,
    f32 [N].

    Args:
        sim: simulator of the agents.
        config: configuration of the task.
        episodes: fixed starts instead of sampled ones; goals are ignored. EpisodeError for an invalid table.
    """

    title = "Progress"
    episode_file = "starts_{split}.json.gz"
    metric_specs: tuple[Metric, ...] = progress_metrics(
        Metric("progress", low=-math.inf, headline=True), Metric("share", high=1.0)
    )
    fields: ClassVar[dict[str, Field]] = {
        # position of the most progress, metres, if the task has one; else the start
        "target": Field(3, low=-FARTHEST, high=FARTHEST),
        "reachable": Field(),  # the most progress that can be made; 0 where that is not known
        "progress": Field(sampled=False),  # after the last step
        **COMMON_FIELDS,
    }
    body_fields = (*BatchTask.body_fields, "start", "start_heading")
    least_width: float = 0.0
    """Least radius of islands for sampled starts, as a share of that of the scene's widest island; 0: any of 1.5 m."""

    def __init__(self, sim: Simulator, config: Any, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.no_episode_message = (
            f"no start found in {MAX_CANDIDATES} tries, expected an island of radius >= {MIN_ISLAND_RADIUS:g} m"
        )
        self.episode_info: Mapping[str, torch.Tensor] = {"reachable": self.running.reachable}
        self._bind()

    @classmethod
    def metric_fields(cls) -> tuple[str, ...]:
        """Fields of `Metrics`: progress and share have these names in kernels."""
        return "progress", "share", *super().metric_fields()[2:]

    def measure(self) -> torch.Tensor:
        """Progress of every agent after the step, f32 [N], from `transition`. Torch operations only, no `.item()`."""
        raise NotImplementedError(f"{type(self).__name__}: found no method `measure`, expected one; define it")

    def reward_fn(self, progress: torch.Tensor) -> torch.Tensor:
        """Reward of the step, f32 [N]. Default: the increase of progress."""
        return progress - self.transition.progress

    def score(self) -> None:
        """Compute reward and metrics in torch; a CUDA graph can capture it."""
        transition, state, metrics = self.transition, self.running, self.metric_tensors
        progress = self.measure()
        reward = self.reward_fn(progress)
        state.progress.copy_(progress)
        self.reward.copy_(reward)
        torch.add(transition.episode_return, reward, out=state.episode_return)
        known = transition.reachable > 0.0
        share = torch.where(known, progress / torch.where(known, transition.reachable, 1.0), 0.0).clamp(max=1.0)
        values = progress, share, transition.collisions, transition.path_length, transition.steps, state.episode_return
        for metric, value in zip(metrics, values, strict=False):  # a subclass writes further metrics
            metric.copy_(value)

    def sample_episodes(self) -> None:
        """Sample the queued agents' next starts."""
        self.sample_starts()

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        sim, nav = self.sim, self.sim.bank.navmesh_view
        bodies, queue, sampling, table = map(view, (sim.bodies, sim.queue, sim.sampling, self.episodes))
        state, transition, next_episode = map(view, (self.running, self.transition, self.next_episode))
        max_steps, errors = np.int32(self.max_steps), sim.error_flags
        self.bind_advance(advance, nav, state, sim.body, max_steps, self.scratch, bodies, transition, errors)
        self.bind_begin(begin, next_episode, bodies, state, queue)
        read = nav, bodies, sampling, table, np.float32(self.least_width)
        self.sample_starts: Callable[[], None] = sample_one.bind(queue, *read, next_episode, errors)
