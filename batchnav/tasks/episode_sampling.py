"""Sampling of episodes with a start and a goal: rows of a table, or random pairs by the rules of Habitat's generator.

Episodes are sampled ahead, while the ones before them run. Candidate j of an episode is a pure function of (seed,
agent, episode, j). Most candidates are rejected: habitat-lab's rules discard most pairs with a nearly straight path. On
CUDA, neighbouring threads therefore try the candidates of one agent in parallel; a single thread would delay its warp.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.errors import EpisodeError
from batchnav.geometry.pose import point_at, squared_distance, store_point
from batchnav.navmesh.file import FARTHEST
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.sample import random_point
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.runtime.kernels.decorators import (
    device_function,
    inline_function,
    lean_function,
)
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.runtime.kernels.synchronization import first_lane
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import keep_start
from batchnav.sim.episodes import FIRST_DRAW, agent_number, sample_scene
from batchnav.sim.simulator import NO_EPISODE, check_positions

MIN_ISLAND_RADIUS = np.float32(1.5)
"""Metres. Start and goal lie on islands of at least this radius: Habitat's ISLAND_RADIUS_LIMIT."""
MAX_HEIGHT_DIFFERENCE = np.float32(0.5)
"""Metres. Start and goal lie on one storey."""
STARTS_PER_GOAL = 10
"""Number of starts that are tried for each goal: Habitat's number_retries_per_target."""
MAX_CANDIDATES = 1000
"""Number of candidates after which a scene counts as without episodes. Habitat's generator has no such limit."""
SEARCHERS = 16
"""CUDA: threads that try candidates of one agent in parallel; a power of two, at most a warp."""
SAMPLING_BLOCK = 128
"""CUDA: threads per block that sample episodes."""
SAMPLING_THREADS = 65536
"""CUDA: maximum number of threads that sample episodes, about as many as an H200 holds."""
_INF = np.float32(np.inf)


class EpisodeTable(NamedTuple):
    """M fixed episodes; 0 rows if episodes are sampled. Agent i plays rows i, i + N, i + 2N ..."""

    scene: torch.Tensor
    """i32 [M]: rows of the bank."""
    start: torch.Tensor
    """f32 [M, 3]: start positions on the navmesh, metres."""
    heading: torch.Tensor
    """f32 [M]: start headings, radians."""
    goal: torch.Tensor
    """f32 [M, 3]: goal positions on the navmesh, metres. Equal to the starts where the goal is a category."""
    category: torch.Tensor | None = None
    """i64 [M]: category of the goal, for ObjectNav; None or no rows for other tasks."""
    goal_heading: torch.Tensor | None = None
    """f32 [M]: heading of the goal, radians, for ImageNav; None: 0."""
    goal_image: torch.Tensor | None = None
    """i64 [M]: number of the image among those of the goal, for Instance ImageNav; None: 0."""

    @classmethod
    def of(cls, episodes: EpisodeTable | None, bank: SceneBank) -> EpisodeTable:
        """The table for a task in a bank's scenes: `episodes`, checked, with a tensor in every field; None: no rows."""
        if episodes is None:
            return cls.empty(bank.device)
        episodes.check(bank)
        return episodes.filled()

    def check(self, bank: SceneBank) -> None:
        """Check that the table can be played in a bank's scenes. Waits for the device.

        ArgumentError for a wrong shape, type or device. EpisodeError for a scene index or a heading out of range, a
        number that is not finite, and a start or goal off the navmesh.
        """
        rows = None
        kinds = {
            "scene": (torch.int32, ()), "start": (torch.float32, (3,)), "heading": (torch.float32, ()),
            "goal": (torch.float32, (3,)),
        }  # fmt: skip
        if self.goal_heading is not None:
            kinds["goal_heading"] = (torch.float32, ())
        for name, (dtype, width) in kinds.items():
            check_tensor(f"episodes.{name}", getattr(self, name), (rows, *width), dtype, bank.device)
            rows = len(self.scene)
        for name in kinds:
            value = getattr(self, name)
            low, high = (0, bank.num_scenes - 1) if name == "scene" else (-FARTHEST, FARTHEST)
            good = (value >= low) & (value <= high)
            bad = torch.nonzero(~(good.all(1) if good.ndim == 2 else good))
            if len(bad):
                row, expected = int(bad[0]), f"0 to {high}" if name == "scene" else f"numbers from {low:g} to {high:g}"
                raise EpisodeError(f"episodes.{name}[{row}]: found {value[row].tolist()}, expected {expected}")
        for name in ("start", "goal") if rows else ():
            check_positions(f"episodes.{name}", bank, self.scene, getattr(self, name), EpisodeError)

    @classmethod
    def empty(cls, device: torch.device) -> EpisodeTable:
        """A table without rows."""
        points = (torch.zeros(0, 3, dtype=torch.float32, device=device) for _ in range(2))
        start, goal = points
        return cls(
            torch.zeros(0, dtype=torch.int32, device=device),
            start,
            torch.zeros(0, dtype=torch.float32, device=device),
            goal,
        ).filled()

    def filled(self) -> EpisodeTable:
        """The table with a tensor in every field, as kernels need it."""
        device = self.scene.device
        category, heading, image = self.category, self.goal_heading, self.goal_image
        if category is None:
            category = torch.zeros(0, dtype=torch.int64, device=device)
        if heading is None:
            heading = torch.zeros(len(self.scene), dtype=torch.float32, device=device)
        if image is None:
            image = torch.zeros(len(self.scene), dtype=torch.int64, device=device)
        return self._replace(category=category, goal_heading=heading, goal_image=image)


# One agent.


@device_function
def accept_detour(distance, euclidean, u, min_ratio):
    """True to keep an episode (Habitat's rule): ratio of distances >= `min_ratio`, or u <= 20 (ratio - 0.98)^2.

    `distance` is geodesic; `u` is uniform in (0, 1). Few straight paths are kept.
    """
    ratio = distance / euclidean
    if ratio >= min_ratio:
        return True
    excess = ratio - np.float32(0.98)
    return u <= np.float32(20.0) * excess * excess


@lean_function
def sample_goal(agent, episode, candidate, nav, scene, seed):
    """The goal of a group of STARTS_PER_GOAL candidates: its island, and its position in metres.

    `agent` is the agent's number among the agents of all processes (`sim.episodes.agent_number`). Each candidate uses
    two draws.
    """
    first = candidate // STARTS_PER_GOAL * STARTS_PER_GOAL
    u0, u1, u2, _ = uniform4(seed, agent, episode, FIRST_DRAW + 2 * first + 1)
    polygon, point = random_point(nav, scene, (u0, u1, u2))
    return nav.polygon_island[polygon], point


@lean_function
def try_candidate(agent, episode, candidate, nav, scene, seed, goal, limits, scratch, row):
    """A random start for a goal. Returns whether the pair is accepted, the start, and the geodesic distance, metres.

    The rules of habitat-lab's `pointnav_generator.generate_pointnav_episode`: up to ten starts for each random goal;
    both on islands of radius >= 1.5 m; heights within 0.5 m; distance in [closest, furthest]; few straight paths.
    `agent` as in `sample_goal`; `goal`: its result; `limits`: closest_goal, furthest_goal, min_detour_ratio.
    """
    island, goal_point = goal
    closest, furthest, min_detour_ratio = limits
    u0, u1, u2, u3 = uniform4(seed, agent, episode, FIRST_DRAW + 2 * candidate)
    polygon, start = random_point(nav, scene, (u0, u1, u2))
    if nav.island_radius[island] < MIN_ISLAND_RADIUS:
        return False, start, _INF
    if nav.polygon_island[polygon] != island or abs(start[1] - goal_point[1]) > MAX_HEIGHT_DIFFERENCE:
        return False, start, _INF
    euclidean = np.float32(math.sqrt(squared_distance(start, goal_point)))
    if euclidean > furthest or euclidean <= np.float32(0.0):
        return False, start, _INF
    distance = geodesic_distance(nav, scene, start, goal_point, scratch, row)
    if distance < closest or distance > furthest or distance == _INF:
        return False, start, distance
    return accept_detour(distance, euclidean, u3, min_detour_ratio), start, distance


@lean_function
def keep_episode(i, scene, heading, start, goal, distance, table_index, next_out):
    """Write the agent's next episode."""
    keep_start(i, scene, start, heading, next_out)
    store_point(i, goal, next_out.goal)
    next_out.start_distance[i], next_out.distance[i], next_out.table_index[i] = distance, distance, table_index


@inline_function
def table_row(i, episode, table, num_agents):
    """Row of the table that agent i plays next, and its `table_index`.

    After the last row an agent plays the table again; `table_index` is -1 then, and evaluation ignores the episode.
    """
    rows = table.scene.shape[0]
    index = np.int64(i) + np.int64(episode) * np.int64(num_agents)
    return index % rows, np.int32(index) if index < rows else np.int32(-1)


@lean_function
def take_from_table(i, episode, nav, table, num_agents, scratch, row, next_out):
    """Write the agent's next row of the table as its next episode."""
    k, table_index = table_row(i, episode, table, num_agents)
    start, goal = point_at(k, table.start), point_at(k, table.goal)
    distance = geodesic_distance(nav, table.scene[k], start, goal, scratch, row)
    keep_episode(i, table.scene[k], table.heading[k], start, goal, distance, table_index, next_out)


@lean_function
def limits_of(parameters):
    """The argument `limits` of `try_candidate`."""
    return parameters.closest_goal, parameters.furthest_goal, parameters.min_detour_ratio


@kernel(over="teams", lanes=SEARCHERS, block=SAMPLING_BLOCK)
def sample_one(lane, lanes, i, nav, bodies, sampling, table, parameters, scratch, row, next_out, errors_out):
    """Sample the agent's next episode: its next row of the table, or the first candidate that is accepted."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        if lane == 0:
            take_from_table(i, episode, nav, table, bodies.scene.shape[0], scratch, row, next_out)
        return
    seed, limits = sampling.seed[0], limits_of(parameters)
    scene, heading = sample_scene(i, episode, sampling)
    agent, first = agent_number(i, sampling), 0
    goal = sample_goal(agent, episode, lane, nav, scene, seed)
    while first < MAX_CANDIDATES:
        candidate = first + lane
        if first > 0 and (lanes > 1 or candidate % STARTS_PER_GOAL == 0):
            goal = sample_goal(agent, episode, candidate, nav, scene, seed)
        found, start, distance = try_candidate(agent, episode, candidate, nav, scene, seed, goal, limits, scratch, row)
        winner = first_lane(found and candidate < MAX_CANDIDATES, lane, lanes)
        if winner >= 0:
            if lane == winner:
                keep_episode(i, scene, heading, start, goal[1], distance, np.int32(-1), next_out)
            return
        first += lanes
    if lane == 0:
        errors_out[NO_EPISODE] = scene + np.int32(1)


def sampling_threads(num_envs: int) -> int:
    """Number of CUDA threads that sample episodes, in whole blocks, since every thread of the last block searches."""
    return -(-min(num_envs * SEARCHERS, SAMPLING_THREADS) // SAMPLING_BLOCK) * SAMPLING_BLOCK
