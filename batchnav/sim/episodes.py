"""Episodes: drawn fresh by the rules of Habitat's generator, or read in turn from a table.

Candidate j of an episode is a pure function of (seed, environment, episode, j), so the episode an agent gets does not
depend on what its neighbours do, nor on the device.
"""

import math

import numpy as np

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
    """The goal that a candidate shares with its neighbours: (island, x, y, z)."""
    first = candidate // STARTS_PER_GOAL * STARTS_PER_GOAL
    u0, u1, u2, _ = rng.uniform4(seed, env, episode, _FIRST_CANDIDATE + 2 * first + 1)
    polygon, x, y, z = random_point(nav, scene, u0, u1, u2)
    return nav.polygon_island[polygon], x, y, z


@lean_function
def try_candidate(nav, task, scene, seed, env, episode, candidate, island, gx, gy, gz, scratch, row):
    """A random start for a goal, and whether they make an episode: (found, x, y, z, geodesic distance).

    `pointnav_generator.generate_pointnav_episode` of habitat-lab: up to ten starts for each random goal; both on
    islands of radius >= 1.5 m, heights within 0.5 m, distance within [closest, furthest], and mostly not straight.
    """
    u0, u1, u2, u3 = rng.uniform4(seed, env, episode, _FIRST_CANDIDATE + 2 * candidate)
    polygon, x, y, z = random_point(nav, scene, u0, u1, u2)
    if nav.island_radius[island] < MIN_ISLAND_RADIUS:
        return False, x, y, z, _INF
    if nav.polygon_island[polygon] != island or abs(y - gy) > MAX_HEIGHT_DIFFERENCE:
        return False, x, y, z, _INF
    dx, dy, dz = gx - x, gy - y, gz - z
    euclidean = np.float32(math.sqrt(dx * dx + dy * dy + dz * dz))
    if euclidean > task.furthest_goal or euclidean <= np.float32(0.0):
        return False, x, y, z, _INF
    distance = geodesic_distance(nav, scene, x, y, z, gx, gy, gz, scratch, row)
    if distance < task.closest_goal or distance > task.furthest_goal or distance == _INF:
        return False, x, y, z, distance
    return keep_detour(distance, euclidean, task.min_detour_ratio, u3), x, y, z, distance
