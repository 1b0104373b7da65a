"""Following shortest paths, in batches: what the oracle does, and the walk to the frontier on its legs."""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import prange

from batchnav.envs.nav import NavEnv
from batchnav.geometry.point import point_at, squared_distance
from batchnav.navmesh.geodesic import find_path, geodesic_distance
from batchnav.navmesh.walk import try_step
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.launch import launch
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, collided, level_squared_distance, point_ahead
from batchnav.tasks.formulas import goal_in_agent_frame

MIN_PROGRESS = np.float32(0.25)
"""Share of a step by which it should bring the goal nearer; else the oracle compares all directions."""
TURN_COST = np.float32(0.0125)
COLLISION_COST = np.float32(0.25)
"""What a turn and a collision cost, in steps: habitat-sim's GreedyGeodesicFollower."""


@device_function
def _try_forward(i, turns, nav, bodies, goal, body, scratch, row):
    """One forward step after so many left turns: (geodesic distance after it, whether it collides)."""
    start, scene = point_at(i, bodies.position), bodies.scene[i]
    end = point_ahead(start, bodies.heading[i] + np.float32(turns) * body.turn, body.forward_step)
    reached = try_step(nav, scene, start, end, body.sliding, scratch, row)
    distance = geodesic_distance(nav, scene, reached, goal, scratch, row)
    return distance, collided(squared_distance(start, reached), level_squared_distance(start, end))


@device_function
def _best_turns(i, nav, bodies, goal, distance, body, scratch, row):
    """How many left turns (negative: right) to make before the next step.

    None where going straight on brings the goal nearer; else as many as make the step worth most.
    """
    half_circle = np.int32(math.ceil(np.float32(math.pi) / body.turn))
    best, best_worth = np.int32(0), -np.float32(np.inf)
    for k in range(2 * half_circle + 1):  # 0, 1, -1, 2, -2 ...
        turns = np.int32((k + 1) // 2 if k % 2 == 1 else -(k // 2))
        after, collides = _try_forward(i, turns, nav, bodies, goal, body, scratch, row)
        progress = (distance - after) / body.forward_step
        if k == 0 and progress >= MIN_PROGRESS:
            return best
        worth = progress - TURN_COST * np.float32(abs(turns))
        if collides:
            worth -= COLLISION_COST
        if worth > best_worth:
            best, best_worth = turns, worth
    return best


@device_function
def follow(i, nav, bodies, targets, body, radius, scratch, row, plan_out):
    """The next action along the shortest path to row i of targets f32 [N, 3]; STOP within `radius` metres of it.

    Turns to the path's next corner and goes. Where that step would bring little (a wall is in the way of the quantised
    heading), it turns to the direction that brings most; `plan_out` [N, 2] holds whether such a turn is under way, and
    the left turns that remain.
    """
    if plan_out[i, 0] == 0:
        position, goal = point_at(i, bodies.position), point_at(i, targets)
        distance, _, corner = find_path(nav, bodies.scene[i], position, goal, scratch, row)
        if distance < radius:
            return STOP
        _, angle = goal_in_agent_frame(position, bodies.heading[i], corner)
        if abs(angle) > np.float32(0.5) * body.turn:
            return LEFT if angle > np.float32(0.0) else RIGHT
        plan_out[i, 0] = 1
        plan_out[i, 1] = _best_turns(i, nav, bodies, goal, distance, body, scratch, row)
    if plan_out[i, 1] > 0:
        plan_out[i, 1] -= 1
        return LEFT
    if plan_out[i, 1] < 0:
        plan_out[i, 1] += 1
        return RIGHT
    plan_out[i, 0] = 0
    return FORWARD


@cpu_kernel
def follow_cpu(nav, bodies, targets, body, radius, chunks, scratch, plan_out, actions_out):
    """`follow` of every agent."""
    n = actions_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            actions_out[i] = follow(i, nav, bodies, targets, body, radius, scratch, row, plan_out)


@cuda_kernel
def follow_cuda(nav, bodies, targets, body, radius, scratch, plan_out, actions_out):
    """`follow` of every agent."""
    i = cuda.grid(1)
    if i < actions_out.shape[0]:
        actions_out[i] = follow(i, nav, bodies, targets, body, radius, scratch, i, plan_out)


class OracleAgent:
    """Follows the shortest path on the navmesh to the task's target, and stops within its radius."""

    def __init__(self, env: NavEnv):
        sim = env.sim
        self._actions = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
        self._plan = torch.zeros(env.num_envs, 2, dtype=torch.int32, device=env.device)
        self._read = (
            sim.bank.navmesh_view, view(sim.bodies), view(env.task.target), sim.body, np.float32(env.task.target_radius)
        )  # fmt: skip
        self._scratch, self._chunks = sim.search_scratch(env.num_envs), sim.chunks
        self._written = view(self._plan), view(self._actions)

    def reset(self, num_envs: int) -> None:
        """Forget the turns under way."""
        self._plan.zero_()

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        self._plan.masked_fill_(episode_start.unsqueeze(1), 0)
        if self._actions.device.type == "cuda":
            launch(follow_cuda, len(self._actions), *self._read, self._scratch, *self._written)
        else:
            follow_cpu(*self._read, self._chunks, self._scratch, *self._written)
        return self._actions
