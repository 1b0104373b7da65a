"""Episodes: drawn fresh by the rules of Habitat's generator, or read in turn from a table.

Candidate j of an episode is a pure function of (seed, environment, episode, j), so the episode an agent gets does not
depend on what its neighbours do, nor on the device.
"""

import math

import numpy as np

from batchnav.geometry.point import distance
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.sample import random_point
from batchnav.runtime import rng
from batchnav.runtime.kernels import device_function, lean_function

MIN_ISLAND_RADIUS = np.float32(1.5)
"""Metres; Habitat's ISLAND_RADIUS_LIMIT: neither end lies on a smaller island."""
MAX_HEIGHT_DIFFERENCE = np.float32(0.5)
"""Metres; both ends lie on one floor."""
STARTS_PER_GOAL = 10
"""Habitat's number_retries_per_target."""
MAX_CANDIDATES = 1000
"""Then the scene has no such episode. Habitat would go on for ever."""

# Draw numbers of one episode: its candidates take two each, from 2 on.
_SCENE_AND_HEADING = 0
_FIRST_CANDIDATE = 2
_TWO_PI = np.float32(2.0 * math.pi)
_INF = np.float32(np.inf)


@device_function
def keep_detour(distance, euclidean, min_ratio, u):
    """Habitat's thinning of easy episodes: a ratio below `min_ratio` is kept where u <= 20 (ratio - 0.98)^2."""
    ratio = distance / euclidean
    if ratio >= min_ratio:
        return True
    excess = ratio - np.float32(0.98)
    return u <= np.float32(20.0) * excess * excess


@device_function
def draw_scene(seed, env, episode, first_scene, num_scenes):
    """A scene out of an environment's range, and a start heading in [0, 2 pi)."""
    u, v, _, _ = rng.uniform4(seed, env, episode, _SCENE_AND_HEADING)
    offset = min(np.int32(u * np.float32(num_scenes)), np.int32(num_scenes - 1))
    return np.int32(first_scene + offset), v * _TWO_PI


@lean_function
def sample_goal(nav, scene, seed, env, episode, candidate):
    """The goal that a candidate shares with its neighbours: (island, point)."""
    first = candidate // STARTS_PER_GOAL * STARTS_PER_GOAL
    u0, u1, u2, _ = rng.uniform4(seed, env, episode, _FIRST_CANDIDATE + 2 * first + 1)
    polygon, goal = random_point(nav, scene, (u0, u1, u2))
    return nav.polygon_island[polygon], goal


@lean_function
def try_candidate(nav, task, scene, seed, env, episode, candidate, island, goal, scratch, row):
    """A random start for a goal, and whether they make an episode: (found, start, geodesic distance).

    `pointnav_generator.generate_pointnav_episode` of habitat-lab: up to ten starts for each random goal; both on
    islands of radius >= 1.5 m, heights within 0.5 m, distance within [closest, furthest], and mostly not straight.
    """
    u0, u1, u2, u3 = rng.uniform4(seed, env, episode, _FIRST_CANDIDATE + 2 * candidate)
    polygon, start = random_point(nav, scene, (u0, u1, u2))
    if nav.island_radius[island] < MIN_ISLAND_RADIUS:
        return False, start, _INF
    if nav.polygon_island[polygon] != island or abs(start[1] - goal[1]) > MAX_HEIGHT_DIFFERENCE:
        return False, start, _INF
    euclidean = np.float32(distance(start, goal))
    if euclidean > task.furthest_goal or euclidean <= np.float32(0.0):
        return False, start, _INF
    geodesic = geodesic_distance(nav, scene, start, goal, scratch, row)
    if geodesic < task.closest_goal or geodesic > task.furthest_goal or geodesic == _INF:
        return False, start, geodesic
    return keep_detour(geodesic, euclidean, task.min_detour_ratio, u3), start, geodesic
