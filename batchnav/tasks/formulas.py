"""The formulas of tasks: SPL, soft-SPL, reward, and the goal in the agent's frame. Scalars in, scalars out."""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function


@device_function
def path_efficiency(start_distance, path_length):
    """d0 / max(d0, p), the share of the walked path that the shortest path would have taken; 1 where both are 0."""
    longest = max(start_distance, path_length)
    if longest > np.float32(0.0):
        return start_distance / longest
    return np.float32(1.0)


@device_function
def spl(success, start_distance, path_length):
    """Success weighted by path length (Anderson et al., "On evaluation of embodied navigation agents", 2018)."""
    if success:
        return path_efficiency(start_distance, path_length)
    return np.float32(0.0)


@device_function
def soft_spl(distance, start_distance, path_length):
    """SPL with the progress made, max(0, 1 - d / d0), in place of success (Datta et al. 2020)."""
    if not (start_distance > np.float32(0.0) and distance < np.float32(np.inf)):
        return np.float32(0.0)
    progress = max(np.float32(0.0), np.float32(1.0) - distance / start_distance)
    return progress * path_efficiency(start_distance, path_length)


@device_function
def step_reward(distance_before, distance_after, spl_at_success, slack_reward, success_reward):
    """slack + decrease of geodesic distance + success_reward * SPL; progress counts only between finite distances."""
    progress = np.float32(0.0)
    if distance_before < np.float32(np.inf) and distance_after < np.float32(np.inf):
        progress = distance_before - distance_after
    return slack_reward + progress + success_reward * spl_at_success


@device_function
def goal_in_agent_frame(point, heading, goal):
    """(rho, -phi) of Habitat's polar goal sensor: metres in the plane, radians, positive to the agent's left."""
    dx, dz = goal[0] - point[0], goal[2] - point[2]
    sine, cosine = np.float32(math.sin(heading)), np.float32(math.cos(heading))
    right = dx * cosine - dz * sine
    forward = -dx * sine - dz * cosine
    return np.float32(math.sqrt(dx * dx + dz * dz)), np.float32(-math.atan2(right, forward))
