"""Episodes: drawn fresh by the rules of Habitat's generator, or read in turn from a table.

Candidate j of an episode is a pure function of (seed, environment, episode, j), so the episode an agent gets does not
depend on what its neighbours do, nor on the device.
"""

import math

import numpy as np

from batchnav import rng
from batchnav.device import device_function, lean_function
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.sample import random_point

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
def sample_episode(nav, task, scene, seed, env, episode, scratch, row):
    """Start, goal and their geodesic distance: (found, sx, sy, sz, gx, gy, gz, distance).

    `pointnav_generator.generate_pointnav_episode` of habitat-lab: up to ten starts for each random goal; both on
    islands of radius >= 1.5 m, heights within 0.5 m, distance within [closest, furthest], and mostly not straight.
    """
    gx, gy, gz = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    goal_island = np.int32(-1)
    for candidate in range(MAX_CANDIDATES):
        draw = _FIRST_CANDIDATE + 2 * candidate
        if candidate % STARTS_PER_GOAL == 0:
            u0, u1, u2, _ = rng.uniform4(seed, env, episode, draw + 1)
            polygon, gx, gy, gz = random_point(nav, scene, u0, u1, u2)
            goal_island = nav.polygon_island[polygon]
        if nav.island_radius[goal_island] < MIN_ISLAND_RADIUS:
            continue
        u0, u1, u2, u3 = rng.uniform4(seed, env, episode, draw)
        polygon, sx, sy, sz = random_point(nav, scene, u0, u1, u2)
        if nav.polygon_island[polygon] != goal_island or abs(sy - gy) > MAX_HEIGHT_DIFFERENCE:
            continue
        dx, dy, dz = gx - sx, gy - sy, gz - sz
        euclidean = np.float32(math.sqrt(dx * dx + dy * dy + dz * dz))
        if euclidean > task.furthest_goal or euclidean <= np.float32(0.0):
            continue
        distance = geodesic_distance(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row)
        if distance < task.closest_goal or distance > task.furthest_goal or distance == _INF:
            continue
        if keep_detour(distance, euclidean, task.min_detour_ratio, u3):
            return True, sx, sy, sz, gx, gy, gz, distance
    zero = np.float32(0.0)
    return False, zero, zero, zero, zero, zero, zero, zero
