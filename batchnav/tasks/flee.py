"""Flee: get as far away from the start as possible, in geodesic distance.

A task of Shacklett et al., "Large batch simulation for deep reinforcement learning" (ICLR 2021). The reward of a step
is the change of the geodesic distance from the start, as in their release. The return of an episode is therefore the
distance at its end. Two differences from the release: an agent without a path back to the start keeps its last
distance, where the release adds infinity; an episode has 500 actions instead of 499.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from batchnav.config import bounded
from batchnav.geometry.pose import point_at, store_point
from batchnav.navmesh.farthest import CANDIDATES, far_vertices
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import sync_team
from batchnav.sim.simulator import Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.formulas import path_efficiency
from batchnav.tasks.goal_free import ProgressTask, progress_metrics, score_progress, share_of
from batchnav.types import Metric

SAMPLING_THREADS = 32768
"""CUDA: maximum number of threads that sample episodes, CANDIDATES threads for each agent."""
BLOCK = 16
"""CUDA: threads per block that sample episodes. Blocks of 16 are 10% faster than of 128 (H200)."""
_INF = np.float32(np.inf)


@dataclass(frozen=True)
class FleeConfig(TaskConfig):
    """Configuration of the Flee task. Default: the release of Shacklett et al."""

    distance_reward: float = bounded(1.0, -1e6, 1e6)
    """Reward per metre of increase of the geodesic distance from the start."""


# One agent.


@lean_function
def distance_from_start(i, nav, transition, scratch, row):
    """Geodesic distance from the start, metres; the previous distance if the agent did not move or has no path."""
    if not transition.moved[i]:
        return transition.progress[i]
    start, place = point_at(i, transition.start), point_at(i, transition.position)
    distance = geodesic_distance(nav, transition.scene[i], start, place, scratch, row)
    return distance if distance < _INF else transition.progress[i]


@kernel(block=SEARCH_BLOCK)
def score_one(i, nav, transition, distance_reward, scratch, row, state_out, metrics_out, reward_out):
    """Update distance, reward and metrics from the transition of a step."""
    distance = distance_from_start(i, nav, transition, scratch, row)
    reward = distance_reward * (distance - transition.progress[i])
    share = share_of(distance, transition.reachable[i])
    metrics_out.ppl[i] = share * path_efficiency(distance, transition.path_length[i])
    score_progress(i, transition, distance, reward, state_out, metrics_out, reward_out)


@lean_function
def measure_candidate(i, k, nav, next_episode, scratch, row, candidates_out):
    """Replace a candidate's estimate by its geodesic distance; -1 where there is no path."""
    if candidates_out[i, k, 3] >= np.float32(0.0):
        vertex = candidates_out[i, k, 0], candidates_out[i, k, 1], candidates_out[i, k, 2]
        start = point_at(i, next_episode.position)
        distance = geodesic_distance(nav, next_episode.scene[i], start, vertex, scratch, row)
        candidates_out[i, k, 3] = distance if distance < _INF else np.float32(-1.0)


@lean_function
def keep_farthest(i, candidates, next_out):
    """Write the farthest candidate as the next episode's target, and its distance as `reachable`."""
    for k in range(CANDIDATES):
        if candidates[i, k, 3] > next_out.reachable[i]:
            next_out.reachable[i] = candidates[i, k, 3]
            vertex = candidates[i, k, 0], candidates[i, k, 1], candidates[i, k, 2]
            store_point(i, vertex, next_out.target)


@kernel(over="teams", lanes=CANDIDATES, block=BLOCK)
def find_farthest(lane, lanes, i, nav, scratch, row, candidates_out, next_out):
    """Find the place farthest from the agent's next start. The lanes share the candidates."""
    if lane == 0:
        far_vertices(i, nav, next_out.scene[i], point_at(i, next_out.position), scratch, row, candidates_out)
    sync_team(lane, lanes)
    for k in range(lane, CANDIDATES, lanes):
        measure_candidate(i, k, nav, next_out, scratch, row, candidates_out)
    sync_team(lane, lanes)
    if lane == 0:
        keep_farthest(i, candidates_out, next_out)


class Flee(ProgressTask):
    """The Flee task. Arguments as in `ProgressTask`.

    The target is the farthest place on the navmesh (`navmesh/farthest.py`); progress is the geodesic distance from the
    start. The metric "ppl" is progress weighted by path length (Wani et al., "MultiON", 2020): the fraction of the
    farthest distance that was reached, times geodesic distance over path length.
    """

    Config = FleeConfig
    title = "Flee"
    reference_agents = ("random", "forward", "shortest_path")
    metric_specs = (
        *progress_metrics(
            Metric("distance_from_start", headline=True), Metric("share_of_farthest", high=1.0, headline=True)
        ),
        Metric("ppl", high=1.0),
    )

    def __init__(self, sim: Simulator, config: FleeConfig, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.target, self.target_radius = self.running.target, 0.2

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents; the last holds candidate places, f32 [N, CANDIDATES, 4], see `far_vertices`."""
        return *super().arrays(n, device, config), torch.zeros(n, CANDIDATES, 4, dtype=torch.float32, device=device)

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent searches for steps; on CUDA also for the episodes that are sampled at the same time."""
        return (num_envs, sampling_threads(num_envs)) if device.type == "cuda" else (chunks,)

    def score(self) -> None:
        """Compute reward and metrics from the transition."""
        self._score()

    def sample_episodes(self) -> None:
        """Sample the queued agents' next starts, and find the places farthest from them."""
        self.sample_starts()
        self._find_farthest()

    def _bind(self) -> None:
        """Bind the kernels to their arguments."""
        super()._bind()
        sim, n, scale = self.sim, self.sim.num_envs, np.float32(self.config.distance_reward)
        nav, written = sim.bank.navmesh_view, map(view, (self.running, self.metric_tensors, self.reward))
        self._score: Callable[[], None] = score_one.bind(
            n, nav, view(self.transition), scale, self.scratch, *written, rows=sim.chunks
        )
        sampled = view(self.own[0]), view(self.next_episode)
        self._find_farthest: Callable[[], None] = find_farthest.bind(
            view(sim.queue), nav, self.sampling_scratch, *sampled, rows=sim.chunks, threads=sampling_threads(n)
        )


def sampling_threads(num_envs: int) -> int:
    """Number of CUDA threads that search for farthest places, in whole blocks: all threads of the last block search."""
    return -(-min(num_envs * CANDIDATES, SAMPLING_THREADS) // BLOCK) * BLOCK
