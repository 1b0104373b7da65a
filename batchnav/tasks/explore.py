"""Explore: visit as many cells as possible.

A task of Shacklett et al., "Large batch simulation for deep reinforcement learning" (ICLR 2021). Cells have sides of 1
m in the frame of the start, and a new cell gives a reward of 0.25, as in their release. The cell of the start does not
count. `tasks/visited_cells.py` defines the cells. One difference from the release: an episode has 500 actions instead
of 499.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.config import in_range
from batchnav.geometry.point import point_at
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.sim.episodes import NO_AGENT
from batchnav.sim.simulator import NO_EPISODE, Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.goal_free import ProgressTask, progress_metrics, score_progress
from batchnav.tasks.steps import bind
from batchnav.tasks.visited_cells import (
    MAX_MARKS,
    box_of_island,
    cell_of,
    clear_marks,
    count_marks,
    mark_island,
    start_frame,
    was_visited,
)
from batchnav.types import Metric

WARP = 32
"""CUDA: threads that count the cells of one agent's next episode."""
COUNTING_WARPS = 512
"""CUDA: maximum number of agents whose cells are counted in parallel."""
MAX_STEPS = 20_000
"""Maximum of `max_steps`: memory is kept for one new cell per step."""


@dataclass(frozen=True)
class ExploreConfig(TaskConfig):
    """Configuration of the Explore task. Defaults: the release of Shacklett et al."""

    cell_size: float = 1.0
    """Side of a cell, metres."""
    cell_reward: float = 0.25
    """Reward of each new cell."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "max_steps", 1, MAX_STEPS)
        in_range(self, "cell_size", 0.25, 100.0)
        in_range(self, "cell_reward", -1e6, 1e6)


class ExploreParameters(NamedTuple):
    """The numbers of `ExploreConfig` that kernels read."""

    cell_size: np.float32
    """Side of a cell, metres."""
    cell_reward: np.float32
    """Reward of each new cell."""


class ExploreState(NamedTuple):
    """The fields of `goal_free.ProgressState`, and the visited cells."""

    target: torch.Tensor
    """f32 [N, 3]: start position, metres."""
    reachable: torch.Tensor
    """f32 [N]: number of cells that can be visited, without the start's cell."""
    progress: torch.Tensor
    """f32 [N]: number of visited cells, without the start's cell."""
    episode_return: torch.Tensor
    """f32 [N]: after the last step."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, or -1."""
    cells: torch.Tensor
    """i32 [N, max_steps]: the first `progress` entries of a row are the visited cells."""


# One agent.


@lean_function
def score_one(i, transition, parameters, state_out, cells_out, area_out, metrics_out, reward_out):
    """Update visited cells, reward and metrics from the transition of a step."""
    progress = transition.progress[i]
    if transition.moved[i]:
        frame = start_frame(point_at(i, transition.start), transition.start_heading[i], parameters.cell_size)
        cell, count = cell_of(point_at(i, transition.position), frame), np.int32(progress)
        if count < cells_out.shape[1] and not was_visited(i, cell, count, cells_out):
            cells_out[i, count] = cell
            progress += np.float32(1.0)
    area_out[i] = progress * parameters.cell_size * parameters.cell_size
    reward = parameters.cell_reward * (progress - transition.progress[i])
    score_progress(i, transition, progress, reward, state_out, metrics_out, reward_out)


@lean_function
def surroundings(i, nav, next_episode, cell_size):
    """Island, start frame and bounding box of cells of the next episode, for counting its reachable cells."""
    scene, start = next_episode.scene[i], point_at(i, next_episode.position)
    polygon, _ = nearest_polygon(nav, scene, start)
    island = nav.polygon_island[max(polygon, np.int32(0))]
    frame = start_frame(start, next_episode.heading[i], cell_size)
    return island, frame, box_of_island(nav, scene, island, frame)


@lean_function
def count_one(i, nav, cell_size, row, marks_out, next_out, errors_out):
    """Count the cells that are reachable from an agent's next start, without the start's cell."""
    island, frame, box = surroundings(i, nav, next_out, cell_size)
    number = np.int64(box[3]) * np.int64(box[4]) * np.int64(box[5])
    if number > MAX_MARKS:
        errors_out[NO_EPISODE] = next_out.scene[i] + np.int32(1)
        return
    clear_marks(0, 1, number, row, marks_out)
    mark_island(0, 1, nav, next_out.scene[i], island, frame, box, row, marks_out)
    next_out.reachable[i] = np.float32(count_marks(0, 1, number, marks_out, row) - 1)


class Explore(ProgressTask):
    """The Explore task. Arguments as in `ProgressTask`.

    Progress is the number of visited cells. A cell is reachable if the island of the start overlaps it in plan view.
    """

    Config = ExploreConfig
    title = "Explore"
    reference_agents = ("random", "forward", "frontier")
    metric_specs = (
        *progress_metrics(Metric("cells", headline=True), Metric("share_of_reachable", high=1.0, headline=True)),
        Metric("area"),  # square metres
    )

    def __init__(self, sim: Simulator, config: ExploreConfig, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.no_episode_message += f", with at most {MAX_MARKS:,} cells of {config.cell_size:g} m in the box around it"
        self.cells, self._marks = self.own
        self.state = ExploreState(**self.progress_state._asdict(), cells=self.cells)
        self.ranges |= {"progress": (0.0, float(config.max_steps))}
        self._bind_counting()

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents; the last two are the visited cells, and marks for counting reachable cells."""
        cells = torch.zeros(n, config.max_steps, dtype=torch.int32, device=device)
        rows = min(n, COUNTING_WARPS)
        marks = torch.zeros(rows, MAX_MARKS, dtype=torch.uint8, device=device)
        return *super().arrays(n, device, config), cells, marks

    def score(self) -> None:
        """Compute reward and metrics from the transition."""
        self._score()

    def sample_episodes(self) -> None:
        """Sample the queued agents' next starts, and count the cells that are reachable from them."""
        self.sample_starts()
        self._count()

    def _bind_counting(self) -> None:
        """Bind the kernels of scoring and counting to their arguments."""
        sim, n, config = self.sim, self.sim.num_envs, self.config
        parameters = ExploreParameters(np.float32(config.cell_size), np.float32(config.cell_reward))
        area, transition = view(self.metrics["area"]), view(self.transition)
        written = view(self.progress_state), view(self.cells), area, view(self.metric_tensors), view(self.reward)
        self._score: Callable[[], Any] = bind(sim, (score_cpu, score_cuda), (transition, parameters), written)
        read = sim.bank.navmesh_view, view(sim.queue), parameters.cell_size
        rows = min(n, COUNTING_WARPS)
        self._count: Callable[[], Any] = bind(
            sim, (count_cpu, count_cuda), read, (view(self.next_episode), sim.error_flags), view(self._marks),
            chunks=min(rows, sim.chunks), threads=rows * WARP, block=WARP,
        )  # fmt: skip


# All agents.


@cpu_kernel
def score_cpu(transition, parameters, state_out, cells_out, area_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    for i in prange(reward_out.shape[0]):
        score_one(np.int64(i), transition, parameters, state_out, cells_out, area_out, metrics_out, reward_out)


@cpu_kernel
def count_cpu(nav, queued, cell_size, chunks, marks_out, next_out, errors_out):
    """Count the cells that are reachable from the next start of every queued agent."""
    n = np.int64(queued.count[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, for which every callee would be compiled again
        for place in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(queued.agents[place])
            if i != NO_AGENT:
                count_one(i, nav, cell_size, row, marks_out, next_out, errors_out)


@exact_cuda_kernel
def score_cuda(transition, parameters, state_out, cells_out, area_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    i = cuda.grid(1)
    if i < reward_out.shape[0]:
        score_one(i, transition, parameters, state_out, cells_out, area_out, metrics_out, reward_out)


@exact_cuda_kernel
def count_cuda(nav, queued, cell_size, marks_out, next_out, errors_out):
    """CUDA form of `count_cpu`: the threads of a warp share an agent's polygons and cells."""
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x
    for place in range(row, queued.count[0], cuda.gridDim.x):
        i = np.int64(queued.agents[place])
        island, frame, box = surroundings(i, nav, next_out, cell_size)
        number = np.int64(box[3]) * np.int64(box[4]) * np.int64(box[5])
        if number > MAX_MARKS:
            errors_out[NO_EPISODE] = next_out.scene[i] + np.int32(1)
            continue
        clear_marks(lane, WARP, number, row, marks_out)
        if lane == 0:
            next_out.reachable[i] = np.float32(-1.0)  # the start's own cell
        cuda.syncwarp()
        mark_island(lane, WARP, nav, next_out.scene[i], island, frame, box, row, marks_out)
        cuda.syncwarp()
        cuda.atomic.add(next_out.reachable, i, np.float32(count_marks(lane, WARP, number, marks_out, row)))
        cuda.syncwarp()
