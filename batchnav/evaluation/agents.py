"""Agents to compare with: random, forward-only, greedy, and the follower of shortest paths.

The first three know only the goal sensor, and stop where it says that the goal is near; the last knows the navmesh.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import prange

from batchnav.envs.nav import NavEnv
from batchnav.geometry.point import point_at, squared_distance
from batchnav.navmesh.geodesic import geodesic_distance, next_corner
from batchnav.navmesh.walk import try_step
from batchnav.runtime.arrays import view
from batchnav.runtime.kernels import cpu_kernel, cuda, cuda_kernel, device_function
from batchnav.runtime.launch import launch
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, ahead, collided, level_squared_distance
from batchnav.tasks.measures import goal_in_agent_frame

MIN_PROGRESS = np.float32(0.25)
"""Share of a step by which it should bring the goal nearer; else the oracle compares all directions."""
TURN_COST = np.float32(0.0125)
COLLISION_COST = np.float32(0.25)
"""What a turn and a collision cost, in steps: habitat-sim's GreedyGeodesicFollower."""


class ForwardAgent:
    """Goes forward, and stops within the success distance of the goal."""

    def __init__(self, env: NavEnv):
        self.success_distance = env.config.task.success_distance

    def reset(self, num_envs: int) -> None:
        """Nothing to forget."""

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        near = observations["pointgoal"][:, 0] < self.success_distance
        return torch.where(near, STOP, self.move(observations["pointgoal"]))

    def move(self, pointgoal: torch.Tensor) -> torch.Tensor:
        """What to do away from the goal: f32 [N, 2] -> i64 [N]."""
        return torch.full((len(pointgoal),), FORWARD, device=pointgoal.device)


class RandomAgent(ForwardAgent):
    """Goes forward, left or right with equal chances, and stops within the success distance of the goal."""

    def __init__(self, env: NavEnv, seed: int = 0):
        super().__init__(env)
        self.generator, self.seed = torch.Generator(env.device), seed

    def reset(self, num_envs: int) -> None:
        """Begin the random numbers anew."""
        self.generator.manual_seed(self.seed)

    def move(self, pointgoal: torch.Tensor) -> torch.Tensor:
        """Forward, left or right."""
        shape = (len(pointgoal),)
        return torch.randint(FORWARD, RIGHT + 1, shape, generator=self.generator, device=pointgoal.device)


class GreedyAgent(ForwardAgent):
    """Turns until the goal lies ahead to within half a turn, goes forward, and stops within the success distance."""

    def __init__(self, env: NavEnv):
        super().__init__(env)
        self.tolerance = math.radians(env.config.body.turn_angle_deg) / 2

    def move(self, pointgoal: torch.Tensor) -> torch.Tensor:
        """Forward, or a turn towards the goal."""
        angle = pointgoal[:, 1]
        turn = torch.where(angle > 0, LEFT, RIGHT)
        return torch.where(angle.abs() <= self.tolerance, FORWARD, turn)


@device_function
def _try_forward(i, turns, nav, bodies, goals, body, scratch, row):
    """One forward step after so many left turns: (geodesic distance after it, whether it collides)."""
    start, scene = point_at(i, bodies.position), bodies.scene[i]
    end = ahead(start, bodies.heading[i] + np.float32(turns) * body.turn, body.forward_step)
    reached = try_step(nav, scene, start, end, body.sliding, scratch, row)
    distance = geodesic_distance(nav, scene, reached, point_at(i, goals.goal), scratch, row)
    return distance, collided(squared_distance(start, reached), level_squared_distance(start, end))


@device_function
def _best_turns(i, nav, bodies, goals, body, scratch, row):
    """How many left turns (negative: right) to make before the next step.

    None where going straight on brings the goal nearer; else as many as make the step worth most.
    """
    half_circle = np.int32(math.ceil(np.float32(math.pi) / body.turn))
    best, best_worth = np.int32(0), -np.float32(np.inf)
    for k in range(2 * half_circle + 1):  # 0, 1, -1, 2, -2 ...
        turns = np.int32((k + 1) // 2 if k % 2 == 1 else -(k // 2))
        after, collides = _try_forward(i, turns, nav, bodies, goals, body, scratch, row)
        progress = (goals.distance[i] - after) / body.forward_step
        if k == 0 and progress >= MIN_PROGRESS:
            return best
        worth = progress - TURN_COST * np.float32(abs(turns))
        if collides:
            worth -= COLLISION_COST
        if worth > best_worth:
            best, best_worth = turns, worth
    return best


@device_function
def _follow(i, nav, bodies, goals, body, success_distance, scratch, row, plan_out):
    """The next action along the shortest path.

    Turns to the path's next corner and goes. Where that step would bring little (a wall is in the way of the quantised
    heading), it turns to the direction that brings most; `plan_out` [N, 2] holds whether such a turn is under way, and
    the left turns that remain.
    """
    if goals.distance[i] < success_distance:
        return STOP
    if plan_out[i, 0] == 0:
        position = point_at(i, bodies.position)
        _, corner = next_corner(nav, bodies.scene[i], position, point_at(i, goals.goal), scratch, row)
        _, angle = goal_in_agent_frame(position, bodies.heading[i], corner)
        if abs(angle) > np.float32(0.5) * body.turn:
            return LEFT if angle > np.float32(0.0) else RIGHT
        plan_out[i, 0] = 1
        plan_out[i, 1] = _best_turns(i, nav, bodies, goals, body, scratch, row)
    if plan_out[i, 1] > 0:
        plan_out[i, 1] -= 1
        return LEFT
    if plan_out[i, 1] < 0:
        plan_out[i, 1] += 1
        return RIGHT
    plan_out[i, 0] = 0
    return FORWARD


@cpu_kernel
def _follow_cpu(nav, bodies, goals, body, success_distance, chunks, scratch, plan_out, actions_out):
    n = actions_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            actions_out[i] = _follow(i, nav, bodies, goals, body, success_distance, scratch, row, plan_out)


@cuda_kernel
def _follow_cuda(nav, bodies, goals, body, success_distance, scratch, plan_out, actions_out):
    i = cuda.grid(1)
    if i < actions_out.shape[0]:
        actions_out[i] = _follow(i, nav, bodies, goals, body, success_distance, scratch, i, plan_out)


class OracleAgent:
    """Follows the shortest path on the navmesh, and stops within the success distance."""

    def __init__(self, env: NavEnv):
        sim = env.sim
        self._actions = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
        self._plan = torch.zeros(env.num_envs, 2, dtype=torch.int32, device=env.device)
        bodies, goals = view(sim.bodies), view(sim.task.state)
        success_distance = np.float32(env.config.task.success_distance)
        self._read = (sim.bank.navmesh_view, bodies, goals, sim.body, success_distance)
        self._scratch, self._chunks = sim.search_scratch(env.num_envs), sim.chunks
        self._written = view(self._plan), view(self._actions)

    def reset(self, num_envs: int) -> None:
        """Forget the turns under way."""
        self._plan.zero_()

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        self._plan.masked_fill_(episode_start.unsqueeze(1), 0)
        if self._actions.device.type == "cuda":
            launch(_follow_cuda, len(self._actions), *self._read, self._scratch, *self._written)
        else:
            _follow_cpu(*self._read, self._chunks, self._scratch, *self._written)
        return self._actions


REFERENCE_AGENTS = {"random": RandomAgent, "forward": ForwardAgent, "greedy": GreedyAgent, "oracle": OracleAgent}
"""By name; each is made from the environment it will act in."""
