"""Kernels of ImageNav: functions for one agent, then their loops over all agents on the CPU and on CUDA.

The goal is a pose: position and heading. Episodes are sampled as in PointNav (`tasks/episode_sampling.py`); the
kernels `AIM_GOAL` then add the goal's heading.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from batchnav.geometry.angle import angle_between
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.runtime.kernels.rng import uniform4
from batchnav.sim.episodes import GOAL_DRAW, NO_AGENT, agent_number
from batchnav.tasks.episode_sampling import table_row
from batchnav.tasks.formulas import angle_to_go, step_reward
from batchnav.tasks.goal_kernels import distance_to_goal, faces_goal, record_score

_TWO_PI, _ZERO, _ONE = np.float32(2.0 * math.pi), np.float32(0.0), np.float32(1.0)


class ImageMetrics(NamedTuple):
    """Metrics of every agent's episode, f32 [N] each: those of `GoalMetrics`, and those that a heading adds."""

    success: Any
    spl: Any
    soft_spl: Any
    distance_to_goal: Any
    collisions: Any
    path_length: Any
    steps: Any
    return_: Any
    angle_success: Any
    """1 where an episode succeeds with a heading within `facing_angle` of the goal's."""
    angle_to_goal: Any
    """Angle between the agent's heading and the goal's, radians."""
    start_distance: Any


class ImageParameters(NamedTuple):
    """Numbers and places that the kernels read: those of `GoalParameters`, and those of the reward."""

    max_steps: np.int32
    success_distance: np.float32
    success_angle: np.float32
    slack_reward: np.float32
    success_reward: np.float32
    """Reward of a success."""
    closest_goal: np.float32
    furthest_goal: np.float32
    min_detour_ratio: np.float32
    places: Any
    """No rows: goals are points."""
    facing_reward: np.float32
    """Further reward of a success with a heading within `facing_angle` of the goal's."""
    facing_angle: np.float32
    """Radians."""
    angle_weight: np.float32
    """Reward per radian by which the angle to go (`formulas.angle_to_go`) decreases."""
    angle_radius: np.float32
    """Distance to the goal within which the angle counts, metres."""


# One agent.


@lean_function
def score_one(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step. Success: a stop within the success distance and angle. Reward: see `ImageParameters`."""
    distance = distance_to_goal(i, nav, transition, parameters, scratch, row)
    angle = angle_between(transition.heading[i], transition.goal_heading[i])
    to_go = angle_to_go(distance, angle, parameters.angle_radius)
    near = bodies.terminated[i] and distance < parameters.success_distance
    success = near and faces_goal(i, transition, parameters)
    facing = success and angle <= parameters.facing_angle
    bonus, facing_bonus = _ONE if success else _ZERO, _ONE if facing else _ZERO
    reward = step_reward(transition.distance[i], distance, bonus, parameters.slack_reward, parameters.success_reward)
    reward += parameters.angle_weight * (transition.angle[i] - to_go) + parameters.facing_reward * facing_bonus
    record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out)
    if not bodies.done[i]:
        state_out.angle[i] = to_go
    metrics_out.angle_success[i], metrics_out.angle_to_goal[i] = facing_bonus, angle
    metrics_out.start_distance[i] = transition.start_distance[i]


@lean_function
def aim_goal_one(i, bodies, sampling, table, parameters, next_out):
    """Write the goal's heading and the angle to go of the agent's next episode: the table's, or a random heading."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        k, _ = table_row(i, episode, table, bodies.scene.shape[0])
        heading = table.goal_heading[k]
    else:
        u, _, _, _ = uniform4(sampling.seed[0], agent_number(i, sampling), episode, GOAL_DRAW)
        heading = u * _TWO_PI
    angle = angle_between(next_out.heading[i], heading)
    next_out.goal_heading[i] = heading
    next_out.angle[i] = angle_to_go(next_out.distance[i], angle, parameters.angle_radius)


# All agents.


@cpu_kernel
def score_cpu(nav, bodies, transition, parameters, chunks, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    n = reward_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            score_one(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out)


@cpu_kernel
def aim_goal_cpu(bodies, queued, sampling, table, parameters, next_out):
    """`aim_goal_one` of the queued agents."""
    n = np.int64(queued.count[0])
    for k in prange(n):
        i = np.int64(queued.agents[k])
        if i != NO_AGENT:
            aim_goal_one(i, bodies, sampling, table, parameters, next_out)


@exact_cuda_kernel
def score_cuda(nav, bodies, transition, parameters, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    i = cuda.grid(1)
    if i < reward_out.shape[0]:
        score_one(i, nav, bodies, transition, parameters, scratch, i, state_out, metrics_out, reward_out)


@exact_cuda_kernel
def aim_goal_cuda(bodies, queued, sampling, table, parameters, next_out):
    """`aim_goal_one` of the queued agents."""
    k = cuda.grid(1)
    if k < queued.count[0]:
        aim_goal_one(np.int64(queued.agents[k]), bodies, sampling, table, parameters, next_out)


SCORE, AIM_GOAL = (score_cpu, score_cuda), (aim_goal_cpu, aim_goal_cuda)
"""Kernels in their CPU and CUDA forms."""
