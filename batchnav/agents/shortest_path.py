"""Shortest-path follower: discrete actions along the navmesh's shortest path, for N agents at a time.

Method: turn towards the next corner of the path and step. Where walls make such a step useless, compare all headings
with the costs of habitat-sim's GreedyGeodesicFollower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from batchnav.envs.nav import NavEnv
from batchnav.geometry.pose import point_at, squared_distance
from batchnav.navmesh.geodesic import find_path, geodesic_distance
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, collided, level_squared_distance, point_ahead
from batchnav.tasks.formulas import goal_in_agent_frame

MIN_PROGRESS = np.float32(0.25)
"""Progress of a forward step below which the follower compares all headings, as a share of the step length."""
TURN_COST = np.float32(0.0125)
"""Cost of a turn, in step lengths (habitat-sim's GreedyGeodesicFollower)."""
COLLISION_COST = np.float32(0.25)
"""Cost of a collision, in step lengths (habitat-sim's GreedyGeodesicFollower)."""


@device_function
def _try_forward(i, turns, nav, bodies, goal, body, scratch, row):
    """Outcome of a forward step after `turns` left turns: geodesic distance to the goal, True where it collides."""
    start, scene = point_at(i, bodies.position), bodies.scene[i]
    end = point_ahead(start, bodies.heading[i] + np.float32(turns) * body.turn, body.forward_step)
    reached = try_step(nav, scene, start, end, body.sliding, scratch, row)
    distance = geodesic_distance(nav, scene, reached, goal, scratch, row)
    return distance, collided(squared_distance(start, reached), level_squared_distance(start, end))


@device_function
def _best_turns(i, nav, bodies, goal, distance, body, scratch, row):
    """Number of left turns (negative: right) before the next forward step.

    0 where a step straight ahead makes enough progress; else the number with the most progress minus costs.
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
def next_action(i, nav, bodies, targets, body, radius, scratch, row, turns_out):
    """The next action of agent i along the shortest path to `targets[i]`; STOP within `radius` metres of it.

    Args:
        i: agent.
        nav: packed navmeshes of all scenes.
        bodies: poses, `sim.bodies.Bodies`.
        targets: f32 [N, 3], metres.
        body: step length and turn angle, `sim.bodies.Body`.
        radius: stopping distance, metres.
        scratch: memory of path searches, `sim.search_scratch`.
        row: row of `scratch` to use.
        turns_out: i32 [N, 2]: 1 while a sequence of turns and a step is in progress, and its remaining left turns
            (negative: right).
    """
    if turns_out[i, 0] == 0:
        position, goal = point_at(i, bodies.position), point_at(i, targets)
        distance, _, corner = find_path(nav, bodies.scene[i], position, goal, scratch, row)
        if distance < radius:
            return STOP
        _, angle = goal_in_agent_frame(position, bodies.heading[i], corner)
        if abs(angle) > np.float32(0.5) * body.turn:
            return LEFT if angle > np.float32(0.0) else RIGHT
        turns_out[i, 0] = 1
        turns_out[i, 1] = _best_turns(i, nav, bodies, goal, distance, body, scratch, row)
    if turns_out[i, 1] > 0:
        turns_out[i, 1] -= 1
        return LEFT
    if turns_out[i, 1] < 0:
        turns_out[i, 1] += 1
        return RIGHT
    turns_out[i, 0] = 0
    return FORWARD


@kernel(fastmath=True)
def follow(i, nav, bodies, targets, body, radius, scratch, row, turns_out, actions_out):
    """Write `next_action` of agent i."""
    actions_out[i] = next_action(i, nav, bodies, targets, body, radius, scratch, row, turns_out)


class PathFollower:
    """Actions along shortest paths from the agents' positions to targets that may change at every step.

    Args:
        env: environment whose agents are steered.
        targets: f32 [N, 3], metres; read at every `step`.
        radius: stopping distance, metres.
        scratch: search memory from `sim.search_scratch`.
    """

    @torch.inference_mode(False)
    def __init__(self, env: NavEnv, targets: torch.Tensor, radius: float, scratch: Any):
        self.actions = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
        """i64 [N]: the actions of the last `step`."""
        self.turns = torch.zeros(env.num_envs, 2, dtype=torch.int32, device=env.device)
        """i32 [N, 2]: turns in progress, see `next_action`. Zero a row when its target changes."""
        read = env.sim.bank.navmesh_view, view(env.sim.bodies), view(targets), env.sim.body, np.float32(radius)
        written = view(self.turns), view(self.actions)
        self.step: Callable[[], Any] = follow.bind(env.num_envs, *read, scratch, *written, rows=env.sim.chunks)
        """Computes `actions` from the current poses and targets."""


class ShortestPathAgent:
    """Follows the shortest path on the navmesh to the task's target, and stops within `radius` of it.

    Args:
        env: environment to act in, of a task with a target.
        radius: stopping distance, metres; None: the task's success distance.
    """

    @torch.inference_mode(False)
    def __init__(self, env: NavEnv, radius: float | None = None):
        self.task, target, scratch = env.task, env.task.nearest_target, env.sim.search_scratch(env.num_envs)
        assert target is not None  # `make_reference_agent` refuses tasks without a target
        self.follower = PathFollower(env, target, env.task.target_radius if radius is None else radius, scratch)

    def reset(self, num_envs: int) -> None:
        """Cancel turns in progress."""
        self.follower.turns.zero_()

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        self.follower.turns.masked_fill_(episode_start.unsqueeze(1), 0)
        self.task.update_nearest_target()
        self.follower.step()
        return self.follower.actions
