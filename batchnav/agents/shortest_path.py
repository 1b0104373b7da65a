"""Shortest-path follower: discrete actions along the navmesh's shortest path, for N agents at a time.

Method: turn towards the next corner of the path and step. Where such a step is useless (walls, or a goal closer than
half a step), compare all headings with the costs of habitat-sim's GreedyGeodesicFollower, then sequences of two or
three turns and steps. Every sequence ends nearer to the goal than it began, so no agent walks in circles. Where none
does, the agent walks to the corner, since the geodesic distance (Detour's) is not the shortest and may jump up between
two steps; the number of such walks in an episode is limited. Then the agent stops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from batchnav.agents.simple import MAX_BEARING_TURNS
from batchnav.envs.nav import NavEnv
from batchnav.geometry.pose import goal_in_agent_frame, point_at, squared_distance
from batchnav.navmesh.geodesic import find_path, geodesic_distance
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function, separate_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, collided, level_squared_distance, point_ahead

MIN_PROGRESS = np.float32(0.25)
"""Progress of a forward step below which the follower compares all headings, as a share of the step length."""
LEAST_PROGRESS = np.float32(0.05)
"""Least progress of a sequence of turns and steps that ends outside the stopping distance, in step lengths."""
TURN_COST = np.float32(0.0125)
"""Cost of a turn, in step lengths (habitat-sim's GreedyGeodesicFollower)."""
COLLISION_COST = np.float32(0.25)
"""Cost of a collision, in step lengths (habitat-sim's GreedyGeodesicFollower)."""
NO_PATH = np.float32(1e30)
"""Distance above which there is no path, metres."""
INSIDE = np.float32(0.99)
"""Share of the stopping distance within which a sequence has to end to count as arriving."""
HALF_CIRCLE = np.int32(41)
"""Most headings to each side that are compared; for turns below 4.4 degrees, not all."""
MAX_SEQUENCES, MAX_STEPS = np.int32(7000), 3
"""Largest number of sequences that are compared, and of steps in each."""
MAX_WALKS, WALK_STEPS = np.int32(8), np.int32(16)
"""Most walks to a corner in an episode, and most steps of each."""
PLAN_COLUMNS = 4
"""Columns of `plan_out`: forward steps left of the sequence in progress (0: none), left turns before the next of them
(negative: right), the rest of the sequence (see `_try_sequence`), and the number of walks to a corner."""


@device_function
def _headings(body):
    """(number of headings to compare, turns from one to the next)."""
    half_circle = np.int32(math.ceil(np.float32(math.pi) / body.turn))
    stride = np.int32((half_circle + HALF_CIRCLE - 1) // HALF_CIRCLE)
    return np.int32(2 * (half_circle // stride) + 1), stride


@device_function
def _turns_of(digit, stride):
    """Left turns to a heading: 0, 1, -1, 2, -2 ... times `stride`."""
    return np.int32(stride * ((digit + 1) // 2 if digit % 2 == 1 else -(digit // 2)))


@separate_function
def _try_sequence(i, sequence, steps, nav, bodies, goal, body, scratch, row):
    """Outcome of a sequence of turns and steps: geodesic distance to the goal, and costs in step lengths.

    `sequence` is a number with a digit for the heading of each step, the first step's digit last.
    """
    headings, stride = _headings(body)
    position, scene, heading = point_at(i, bodies.position), bodies.scene[i], bodies.heading[i]
    cost = np.float32(0.0)
    for _ in range(steps):
        turns = _turns_of(sequence % headings, stride)
        sequence = np.int32(sequence // headings)
        heading += np.float32(turns) * body.turn
        cost += TURN_COST * np.float32(abs(turns))
        end = point_ahead(position, heading, body.forward_step)
        reached = try_step(nav, scene, position, end, body.sliding, scratch, row)
        if collided(squared_distance(position, reached), level_squared_distance(position, end)):
            cost += COLLISION_COST
        position = reached
    return geodesic_distance(nav, scene, position, goal, scratch, row), cost


@device_function
def _best_sequence(i, steps, distance, nav, bodies, goal, body, radius, scratch, row):
    """The sequence of this many steps with the most progress minus costs; -1 where none gets nearer to the goal.

    A single step straight ahead is the best where it makes enough progress.
    """
    headings, _ = _headings(body)
    count, best, best_worth = np.int32(1), np.int32(-1), -np.float32(np.inf)
    for _ in range(steps):
        count = np.int32(count * headings)
    for k in range(count if count <= MAX_SEQUENCES else np.int32(0)):
        after, cost = _try_sequence(i, np.int32(k), steps, nav, bodies, goal, body, scratch, row)
        progress = (distance - after) / body.forward_step
        if k == 0 and steps == 1 and progress >= MIN_PROGRESS:
            return np.int32(0)
        arrives = after < INSIDE * radius
        worth = progress - cost
        if arrives and steps > 1:  # whatever it costs
            worth += np.float32(2 * steps)
        if worth > best_worth and (arrives or progress >= LEAST_PROGRESS):
            best, best_worth = np.int32(k), worth
    return best


@device_function
def _plan(i, path, nav, bodies, goal, body, radius, scratch, row, plan_out):
    """Keep the shortest sequence of steps that gets nearer to the goal, or to the corner, as the plan of agent i.

    `path`: length of the path to the goal, and its next corner.
    """
    distance, corner = path
    for steps in range(1, MAX_STEPS + 1):
        best = _best_sequence(i, np.int32(steps), distance, nav, bodies, goal, body, radius, scratch, row)
        if best >= 0:
            plan_out[i, 0], plan_out[i, 2] = steps, best
            _next_turns(i, body, plan_out)
            return
    if distance > np.float32(MAX_STEPS) * body.forward_step + radius and plan_out[i, 3] < MAX_WALKS:
        ahead = math.sqrt(level_squared_distance(point_at(i, bodies.position), corner))
        plan_out[i, 0] = min(max(np.int32(ahead / body.forward_step), np.int32(1)), WALK_STEPS)
        plan_out[i, 1], plan_out[i, 2] = 0, 0
        plan_out[i, 3] += 1


@device_function
def _next_turns(i, body, plan_out):
    """Take the turns before the next step from the rest of the plan of agent i."""
    headings, stride = _headings(body)
    plan_out[i, 1], plan_out[i, 2] = _turns_of(plan_out[i, 2] % headings, stride), plan_out[i, 2] // headings


@device_function
def next_action(i, nav, bodies, targets, body, radius, scratch, row, plan_out):
    """The next action of agent i along the shortest path to `targets[i]`.

    STOP within `radius` metres of it, and where it gets no nearer.

    Args:
        i: agent.
        nav: packed navmeshes of all scenes.
        bodies: poses, `sim.bodies.Bodies`.
        targets: f32 [N, 3], metres.
        body: step length and turn angle, `sim.bodies.Body`.
        radius: stopping distance, metres.
        scratch: memory of path searches, `sim.search_scratch`.
        row: row of `scratch` to use.
        plan_out: i32 [N, PLAN_COLUMNS]: plans in progress.
    """
    if plan_out[i, 0] == 0:
        position, goal = point_at(i, bodies.position), point_at(i, targets)
        distance, _, corner = find_path(nav, bodies.scene[i], position, goal, scratch, row)
        if distance < radius or distance > NO_PATH:
            return STOP
        _, angle = goal_in_agent_frame(position, bodies.heading[i], corner)
        if abs(angle) > np.float32(MAX_BEARING_TURNS) * body.turn:
            return LEFT if angle > np.float32(0.0) else RIGHT
        _plan(i, (distance, corner), nav, bodies, goal, body, radius, scratch, row, plan_out)
        if plan_out[i, 0] == 0:
            return STOP
    if plan_out[i, 1] > 0:
        plan_out[i, 1] -= 1
        return LEFT
    if plan_out[i, 1] < 0:
        plan_out[i, 1] += 1
        return RIGHT
    plan_out[i, 0] -= 1
    _next_turns(i, body, plan_out)
    return FORWARD


@kernel(fastmath=True)
def follow(i, nav, bodies, targets, body, radius, scratch, row, plan_out, actions_out):
    """Write `next_action` of agent i."""
    actions_out[i] = next_action(i, nav, bodies, targets, body, radius, scratch, row, plan_out)


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
        self.plan = torch.zeros(env.num_envs, PLAN_COLUMNS, dtype=torch.int32, device=env.device)
        """i32 [N, PLAN_COLUMNS]: plans in progress, see `next_action`. Zero a row when its target changes."""
        read = env.sim.bank.navmesh_view, view(env.sim.bodies), view(targets), env.sim.body, np.float32(radius)
        written = view(self.plan), view(self.actions)
        self.step: Callable[[], Any] = follow.bind(env.num_envs, *read, scratch, *written, rows=env.sim.chunks)
        """Computes `actions` from the current poses and targets."""


class ShortestPathAgent:
    """Follows the shortest path on the navmesh to the task's target; stops at it, or where it gets no nearer.

    Args:
        env: environment to act in, of a task with a target.
        radius: stopping distance, metres; None: the task's success distance.
    """

    @torch.inference_mode(False)
    def __init__(self, env: NavEnv, radius: float | None = None):
        self.task, target, scratch = env.task, env.task.nearest_target, env.sim.search_scratch(env.num_envs)
        assert target is not None  # `make_reference_agent` refuses tasks without a target
        self.follower = PathFollower(env, target, env.task.target_radius if radius is None else radius, scratch)
        self._known = env.task.goal_number.clone() if env.task.changes_goals else None

    def reset(self, num_envs: int) -> None:
        """Cancel plans in progress."""
        self.follower.plan.zero_()

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        self.follower.plan.masked_fill_(episode_start.unsqueeze(1), 0)
        if self._known is not None:  # the limit of walks to corners is one for each goal
            self.follower.plan.masked_fill_((self._known != self.task.goal_number).unsqueeze(1), 0)
            self._known.copy_(self.task.goal_number)
        self.task.update_nearest_target()
        self.follower.step()
        return self.follower.actions
