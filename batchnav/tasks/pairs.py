"""Start and goal by the rules of Habitat's generator: random pairs of points, thinned of those that are too easy.

Candidate j of an episode is a pure function of (seed, agent, episode, j). On CUDA neighbouring threads try an agent's
candidates side by side, since most are refused, and a thread that tried them in turn would keep its whole warp waiting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from batchnav.errors import EpisodeError
from batchnav.geometry.point import squared_distance
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.sample import random_point
from batchnav.runtime.arrays import check_tensor
from batchnav.runtime.kernels import device_function, lean_function
from batchnav.runtime.rng import uniform4
from batchnav.scene.bank import SceneBank
from batchnav.sim.episodes import FIRST_DRAW
from batchnav.sim.places import check_places

MIN_ISLAND_RADIUS = np.float32(1.5)
"""Metres; Habitat's ISLAND_RADIUS_LIMIT: neither end lies on a smaller island."""
MAX_HEIGHT_DIFFERENCE = np.float32(0.5)
"""Metres; both ends lie on one floor."""
STARTS_PER_GOAL = 10
"""Habitat's number_retries_per_target."""
MAX_CANDIDATES = 1000
"""Then the scene has no such episode. Habitat would go on for ever."""
_INF = np.float32(np.inf)


class EpisodeTable(NamedTuple):
    """Fixed episodes, M of them; empty where episodes are sampled. Agent i plays rows i, i + N, i + 2N ..."""

    scene: torch.Tensor
    """i32 [M]."""
    start: torch.Tensor
    """f32 [M, 3]."""
    heading: torch.Tensor
    """f32 [M], radians."""
    goal: torch.Tensor
    """f32 [M, 3]."""

    def check(self, bank: SceneBank) -> None:
        """ArgumentError or EpisodeError unless it can be played in a bank's scenes (waits for the device).

        Shapes and types fit, scene indices are in range, headings are finite, starts and goals on the navmesh.
        """
        rows = None
        for name, dtype, width in (
            ("scene", torch.int32, ()), ("start", torch.float32, (3,)), ("heading", torch.float32, ()),
            ("goal", torch.float32, (3,)),
        ):  # fmt: skip
            check_tensor(f"episodes.{name}", getattr(self, name), (rows, *width), dtype, bank.device)
            rows = len(self.scene)
        for name, value in self._asdict().items():
            good = (value >= 0) & (value < bank.num_scenes) if name == "scene" else torch.isfinite(value)
            bad = torch.nonzero(~(good.all(1) if good.ndim == 2 else good))
            if len(bad):
                row, expected = int(bad[0]), f"0 to {bank.num_scenes - 1}" if name == "scene" else "finite numbers"
                raise EpisodeError(f"episodes.{name}[{row}]: found {value[row].tolist()}, expected {expected}")
        for name in ("start", "goal") if rows else ():
            check_places(f"episodes.{name}", bank, self.scene, getattr(self, name), EpisodeError)

    @classmethod
    def empty(cls, device: torch.device) -> EpisodeTable:
        """No fixed episodes."""
        points = (torch.zeros(0, 3, device=device) for _ in range(2))
        start, goal = points
        return cls(torch.zeros(0, dtype=torch.int32, device=device), start, torch.zeros(0, device=device), goal)


@device_function
def keep_detour(distance, euclidean, u, min_ratio):
    """Habitat's thinning of easy episodes: a ratio below `min_ratio` is kept where u <= 20 (ratio - 0.98)^2."""
    ratio = distance / euclidean
    if ratio >= min_ratio:
        return True
    excess = ratio - np.float32(0.98)
    return u <= np.float32(20.0) * excess * excess


@lean_function
def sample_goal(agent, episode, candidate, nav, scene, seed):
    """The goal that a candidate shares with its neighbours: island and point. Each candidate takes two draws.

    `agent` is the agent's number among those of all processes (`sim.episodes.agent_number`).
    """
    first = candidate // STARTS_PER_GOAL * STARTS_PER_GOAL
    u0, u1, u2, _ = uniform4(seed, agent, episode, FIRST_DRAW + 2 * first + 1)
    polygon, point = random_point(nav, scene, (u0, u1, u2))
    return nav.polygon_island[polygon], point


@lean_function
def try_candidate(agent, episode, candidate, nav, scene, seed, goal, limits, scratch, row):
    """A random start for a goal, and whether they make an episode: found, start, geodesic distance.

    `pointnav_generator.generate_pointnav_episode` of habitat-lab: up to ten starts for each random goal; both on
    islands of radius >= 1.5 m, heights within 0.5 m, distance within [closest, furthest], and mostly not straight.
    `agent` and `goal` are as of `sample_goal`; `limits`: closest_goal, furthest_goal, min_detour_ratio.
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
    return keep_detour(distance, euclidean, u3, min_detour_ratio), start, distance
