"""Flee: get as far away from the start as the house allows, by path. A task of Shacklett et al. 2021's simulator.

The reward of a step is the change of the geodesic distance from the start, as in their release: it adds up to the
distance at the end. Not taken over from there: an agent without a path back to the start keeps its last distance here,
where the release adds infinity; and 500 actions are 500, not 499.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numba import prange

from batchnav.config import in_range
from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.farthest import CANDIDATES, far_vertices
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.sim.episodes import NOBODY
from batchnav.sim.simulator import Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.formulas import path_efficiency
from batchnav.tasks.goal_free import ProgressTask, judge_progress, progress_metrics, share_of
from batchnav.types import Metric

DRAWING_THREADS = 32768
"""CUDA: threads that draw episodes at a time, CANDIDATES of them for one agent's."""
BLOCK = 16
"""CUDA: threads of a block that draws. Two agents': 9.3 ms for 16,384 episodes on an H200, 10.3 in blocks of 128."""
_INF = np.float32(np.inf)


@dataclass(frozen=True)
class FleeConfig(TaskConfig):
    """The Flee task."""

    distance_reward: float = 1.0
    """Reward of a metre farther from the start, by path."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "distance_reward", -1e6, 1e6)


# One agent.


@lean_function
def distance_from_start(i, nav, notes, scratch, row):
    """Metres by path from the start to where the agent is; as before where it has not moved or there is no path."""
    if not notes.moved[i]:
        return notes.progress[i]
    start, place = point_at(i, notes.start), point_at(i, notes.position)
    distance = geodesic_distance(nav, notes.scene[i], start, place, scratch, row)
    return distance if distance < _INF else notes.progress[i]


@lean_function
def judge_one(i, nav, notes, distance_reward, scratch, row, roam_out, ppl_out, figures_out, reward_out):
    """Distance, reward and figures of a step, from its notes."""
    distance = distance_from_start(i, nav, notes, scratch, row)
    reward = distance_reward * (distance - notes.progress[i])
    ppl_out[i] = share_of(distance, notes.reachable[i]) * path_efficiency(distance, notes.path_length[i])
    judge_progress(i, notes, distance, reward, roam_out, figures_out, reward_out)


@lean_function
def measure_candidate(i, k, nav, upcoming, scratch, row, candidates_out):
    """Put the true length in the place of a candidate's estimate; -1 where there is no path."""
    if candidates_out[i, k, 3] >= np.float32(0.0):
        vertex = candidates_out[i, k, 0], candidates_out[i, k, 1], candidates_out[i, k, 2]
        start = point_at(i, upcoming.position)
        distance = geodesic_distance(nav, upcoming.scene[i], start, vertex, scratch, row)
        candidates_out[i, k, 3] = distance if distance < _INF else np.float32(-1.0)


@lean_function
def keep_farthest(i, candidates, upcoming_out):
    """Write down the farthest of the measured candidates as the next episode's target."""
    for k in range(CANDIDATES):
        if candidates[i, k, 3] > upcoming_out.reachable[i]:
            upcoming_out.reachable[i] = candidates[i, k, 3]
            vertex = candidates[i, k, 0], candidates[i, k, 1], candidates[i, k, 2]
            keep_point(i, vertex, upcoming_out.target)


class Flee(ProgressTask):
    """The task of the N agents of a simulator: a `batchnav.types.Task`, made as `ProgressTask` is.

    Its target is the farthest place (`navmesh/farthest.py` says how it is found), its progress the distance. The metric
    "ppl" is progress weighted by path length (Wani et al., "MultiON", 2020): the share of the farthest that was
    reached, times the shortest way there over the way walked.
    """

    Config = FleeConfig
    title = "Flee"
    reference_agents = ("random", "forward", "oracle")
    metric_specs = (
        *progress_metrics(
            Metric("distance_from_start", headline=True), Metric("share_of_farthest", high=1.0, headline=True)
        ),
        Metric("ppl", high=1.0),
    )

    def __init__(self, sim: Simulator, config: FleeConfig, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.target, self.target_radius = self.roam.target, 0.2
        self._bind_measuring()

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All that the task keeps of `n` agents; the last: f32 [N, CANDIDATES, 4], see `far_vertices`."""
        return *super().arrays(n, device, config), torch.zeros(n, CANDIDATES, 4, device=device)

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """How many searches run at a time: of steps, and on CUDA of episodes that are drawn beside them."""
        return (num_envs, drawing_threads(num_envs)) if device.type == "cuda" else (chunks,)

    def judge(self) -> None:
        """Reward and figures, from the notes."""
        self._judge()

    def draw(self) -> None:
        """Draw the queued agents' next starts, and find the places farthest from them."""
        self.draw_starts()
        self._find_farthest()

    def _bind_measuring(self) -> None:
        """Lay out the launches of the kernels below."""
        sim, n = self.sim, self.sim.num_envs
        nav, scale, queue = sim.bank.navmesh_view, np.float32(self.config.distance_reward), view(sim.queue)
        notes, upcoming, candidates = view(self.notes), view(self.upcoming), view(self.own[0])
        written = view(self.roam), view(self.metrics["ppl"]), view(self.finished), view(self.reward)
        if sim.device.type == "cpu":
            chunks, scratch = sim.chunks, self.scratch
            self._judge: Callable[[], Any] = partial(judge_cpu, nav, notes, scale, chunks, scratch, *written)
            self._find_farthest: Callable[[], Any] = partial(
                farthest_cpu, nav, queue, chunks, scratch, candidates, upcoming
            )
            return
        self._judge = BoundKernel(judge_cuda, n, nav, notes, scale, self.scratch, *written, block=SEARCH_BLOCK)
        self._find_farthest = BoundKernel(
            farthest_cuda, drawing_threads(n), nav, queue, *self.scratch_beside, candidates, upcoming, block=BLOCK
        )


def drawing_threads(num_envs: int) -> int:
    """CUDA threads that look for farthest places: whole blocks, since those of a last one would search too."""
    return -(-min(num_envs * CANDIDATES, DRAWING_THREADS) // BLOCK) * BLOCK


# All agents.


@cpu_kernel
def judge_cpu(nav, notes, distance_reward, chunks, scratch, roam_out, ppl_out, figures_out, reward_out):
    """`judge_one` of every agent."""
    n = reward_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            judge_one(i, nav, notes, distance_reward, scratch, row, roam_out, ppl_out, figures_out, reward_out)


@cpu_kernel
def farthest_cpu(nav, queued, chunks, scratch, candidates_out, upcoming_out):
    """The place farthest from the next start of every queued agent."""
    n = np.int64(queued.count[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for place in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(queued.agents[place])
            if i != NOBODY:
                start = point_at(i, upcoming_out.position)
                far_vertices(i, nav, upcoming_out.scene[i], start, scratch, row, candidates_out)
                for k in range(CANDIDATES):
                    measure_candidate(i, k, nav, upcoming_out, scratch, row, candidates_out)
                keep_farthest(i, candidates_out, upcoming_out)


@exact_cuda_kernel
def judge_cuda(nav, notes, distance_reward, scratch, roam_out, ppl_out, figures_out, reward_out):
    """`judge_one` of every agent."""
    i = cuda.grid(1)
    if i < reward_out.shape[0]:
        judge_one(i, nav, notes, distance_reward, scratch, i, roam_out, ppl_out, figures_out, reward_out)


@exact_cuda_kernel
def farthest_cuda(nav, queued, scratch, candidates_out, upcoming_out):
    """As `farthest_cpu`; CANDIDATES neighbouring threads measure an agent's candidates side by side."""
    thread = cuda.grid(1)
    k = thread % CANDIDATES
    group = ((1 << CANDIDATES) - 1) << (cuda.laneid // CANDIDATES * CANDIDATES)
    for place in range(thread // CANDIDATES, queued.count[0], cuda.gridsize(1) // CANDIDATES):
        i = np.int64(queued.agents[place])
        if k == 0:
            start = point_at(i, upcoming_out.position)
            far_vertices(i, nav, upcoming_out.scene[i], start, scratch, thread, candidates_out)
        cuda.syncwarp(group)
        measure_candidate(i, k, nav, upcoming_out, scratch, thread, candidates_out)
        cuda.syncwarp(group)
        if k == 0:
            keep_farthest(i, candidates_out, upcoming_out)
