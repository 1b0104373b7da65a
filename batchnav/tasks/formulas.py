"""Formulas of tasks: SPL, soft SPL and reward. Float32 scalars in, scalars out."""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function


@device_function
def path_efficiency(start_distance, path_length):
    """Shortest over actual path length: start_distance / max(start_distance, path_length); 1 where both are 0."""
    longest = max(start_distance, path_length)
    if longest > np.float32(0.0):
        return start_distance / longest
    return np.float32(1.0)


@device_function
def spl(success, start_distance, path_length):
    """Success weighted by path length (Anderson et al., "On evaluation of embodied navigation agents", 2018).

    A success after 5 m where the shortest path is 4 m; a failure; a success just before the goal, after 3.9 of 4 m:

    >>> four, five = np.float32(4.0), np.float32(5.0)
    >>> float(round(spl(True, four, five), 6)), float(spl(False, four, four)), float(spl(True, four, np.float32(3.9)))
    (0.8, 0.0, 1.0)
    """
    if success:
        return path_efficiency(start_distance, path_length)
    return np.float32(0.0)


@device_function
def soft_spl(distance, start_distance, path_length):
    """SPL with progress max(0, 1 - distance / start_distance) in place of success.

    Source: Datta et al., "Integrating egocentric localization for more realistic point-goal navigation agents" (CoRL
    2020).

    The start is 4 m from the goal. 2 m are left after a path of 2 m; 2 m are left after 8 m; 6 m are left:

    >>> two, four, six, eight = map(np.float32, (2.0, 4.0, 6.0, 8.0))
    >>> float(soft_spl(two, four, two)), float(soft_spl(two, four, eight)), float(soft_spl(six, four, two))
    (0.5, 0.25, 0.0)

    0 where the goal cannot be reached or the start is the goal.
    """
    if not (start_distance > np.float32(0.0) and distance < np.float32(np.inf)):
        return np.float32(0.0)
    progress = max(np.float32(0.0), np.float32(1.0) - distance / start_distance)
    return progress * path_efficiency(start_distance, path_length)


@device_function
def step_reward(distance_before, distance_after, spl_at_success, slack_reward, success_reward):
    """Reward of a step: slack_reward + decrease of the geodesic distance + success_reward * SPL.

    A step that reduces the distance by 0.25 m; a successful stop with SPL 0.8:

    >>> before, after, zero, slack, weight = map(np.float32, (3.0, 2.75, 0.0, -0.01, 2.5))
    >>> float(round(step_reward(before, after, zero, slack, weight), 6))
    0.24
    >>> float(round(step_reward(after, after, np.float32(0.8), slack, weight), 6))
    1.99

    The decrease of the distance counts only if it is finite before and after the step.
    """
    progress = np.float32(0.0)
    if distance_before < np.float32(np.inf) and distance_after < np.float32(np.inf):
        progress = distance_before - distance_after
    return slack_reward + progress + success_reward * spl_at_success


@device_function
def angle_to_go(distance, angle, radius):
    """Angle to the goal's heading, radians, within `radius` metres of the goal; pi farther away.

    Source: the rewards of Al-Halah et al., "Zero experience required" (CVPR 2022).
    """
    return angle if distance <= radius else np.float32(math.pi)
