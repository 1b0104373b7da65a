"""Predictive planner among people: a reference agent that knows where everybody walks, and steps aside in time.

Method: trajectory rollouts with the agent's own discrete actions (Gerkey and Konolige, "Planning and control in
unstructured terrain", 2008) against the people's known paths. While the shortest path is free of people for `HORIZON`
steps, the agent follows it. Else it compares waiting for some steps before it goes on, and manoeuvres of one or two
straight legs at whose end it stands. The manoeuvre without contact that leaves the shortest path to the goal, and keeps
most distance, wins; where contact cannot be avoided, the one with the latest contact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.agents.simple import MAX_BEARING_TURNS
from batchnav.agents.social import SocialAgent, turn_and_back
from batchnav.envs.nav import NavEnv
from batchnav.geometry.pose import point_at, store_point, wrapped
from batchnav.navmesh.geodesic import find_path, geodesic_distance
from batchnav.navmesh.heap import search_scratch, search_size
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, level_squared_distance, point_ahead
from batchnav.sim.others import STOREY
from batchnav.types import MAX_BODIES
from batchnav.world.people import CORNERS, WAYPOINTS, walk_path

HORIZON = 24
"""Steps that are predicted."""
MARGIN = np.float32(0.05)
"""Metres between a robot and a person below which a prediction counts as contact."""
WANDER, FARTHEST_WANDER = np.float32(0.5), np.float32(0.6)
"""A person at the end of its path turns to a new goal: it may then be anywhere within this share of the distance that
it walks in the time since, and at most so many metres."""
COMFORT = np.float32(0.3)
"""Metres between a robot and a person below which distance is worth a detour."""
DISCOMFORT = np.float32(2.0)
"""Metres of detour that a metre less distance during one step is worth."""
TOLERABLE = np.float32(0.5)
"""Discomfort on the path, metres, up to which no other manoeuvre is tried."""
CONTACT_COST = np.float32(1e3)
"""Cost of contact in each step that it comes earlier; more than any path."""
HOLDS = 5
"""Waits that are compared: 2, 4, 8, 16 and `HORIZON` steps."""
LEG_STEPS, SECOND_LEG_STEPS = 8, 6
"""Most forward steps of the first and of the second leg of a manoeuvre."""
SECOND_LEGS = 12
"""Directions of a second leg."""
FULL_STEP = np.float32(0.9)
"""Share of a step below which a wall ends a leg."""
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_NEVER, _TINY = np.float32(1e30), np.float32(1e-6)


class Plans(NamedTuple):
    """Scratch memory of N agents, as kernels see it."""

    future: torch.Tensor
    """f32 [N * MAX_BODIES * HORIZON, 3]: places (x, z) of people after each step, and the radius around it, metres,
    within which they may be."""
    corners: torch.Tensor
    """f32 [N * CORNERS, 3]: corners of the path to the goal."""
    plan: torch.Tensor
    """i32 [N, columns]: the agent's wait in progress, see `turn_and_back`."""


@lean_function
def _predict(i, here, people, rules, plans_out):
    """Write the places of people on the storey of robot i after each of the next steps.

    Returns their number, and the distance between a robot and the widest of them at which they touch.
    """
    first, count, reach = i // rules.agents * rules.most, 0, _ZERO
    for k in range(people.count[i // rules.agents]):
        if abs(people.position[first + k, 1] - here[1]) < STOREY:
            at = (np.int64(i) * MAX_BODIES + count) * HORIZON
            _predict_one(first + k, at, k < rules.scripted, people, rules, plans_out)
            count, reach = count + 1, max(reach, rules.agent_radius + people.radius[first + k])
    return count, reach


@lean_function
def _predict_one(row, at, scripted, people, rules, plans_out):
    """Write the places of a person that walks along its path at its own speed. A scripted body keeps its velocity."""
    x, _, z = point_at(row, people.position)
    corner, around = people.corner[row], _ZERO
    stays = scripted or people.leg[row] >= WAYPOINTS
    for t in range(HORIZON):
        if scripted:
            x, z = x + people.velocity[row, 0] * rules.step_time, z + people.velocity[row, 1] * rules.step_time
        left = _ZERO if stays else people.speed[row] * rules.step_time
        x, z, corner, left = walk_path(row, x, z, corner, left, people)
        around = min(around + WANDER * left, FARTHEST_WANDER)
        plans_out.future[at + t, 0], plans_out.future[at + t, 1], plans_out.future[at + t, 2] = x, z, around


# Below, `crowd` is (i, number of people, distance at which they touch, plans), and `ground` is (nav, scene, goal,
# scratch, row).


@device_function
def _cost_of_step(t, point, crowd):
    """Cost of being at a point after step t: contact, or a distance that is not comfortable."""
    i, count, reach, plans = crowd
    nearest, likely = _NEVER, _NEVER
    for k in range(count):
        at = (np.int64(i) * MAX_BODIES + k) * HORIZON + t
        dx, dz = plans.future[at, 0] - point[0], plans.future[at, 1] - point[2]
        gap = np.float32(math.sqrt(dx * dx + dz * dz)) - reach
        likely, nearest = min(likely, gap), min(nearest, gap - plans.future[at, 2])
    if likely < MARGIN:
        return CONTACT_COST * np.float32(HORIZON - t)
    return DISCOMFORT * max(COMFORT - nearest, _ZERO)


@device_function
def _cost_of_standing(first, end, point, crowd):
    """Cost of standing at a point from one step to another; contact is the last that counts."""
    total = _ZERO
    for t in range(first, min(end, HORIZON)):
        cost = _cost_of_step(t, point, crowd)
        total += cost
        if cost >= CONTACT_COST:
            break
    return total


@device_function
def _bearing(point, heading, corner):
    """Angle to the left from a heading to a corner, radians."""
    return wrapped(np.float32(math.atan2(point[0] - corner[0], point[2] - corner[2])) - heading)


@lean_function
def _cost_of_path(hold, start, heading, path, crowd, body, radius):
    """Cost of following the path, without forward steps before step `hold`: people on it, and what is left of it.

    `path`: its length and its number of corners.
    """
    left, corners = path
    i, plans = crowd[0], crowd[3]
    point, corner, total = start, 0, _ZERO
    for t in range(HORIZON):
        to = point_at(np.int64(i) * CORNERS + corner, plans.corners)
        bearing = _bearing(point, heading, to)
        if abs(bearing) > np.float32(MAX_BEARING_TURNS) * body.turn:
            heading += body.turn if bearing > _ZERO else -body.turn
        elif t >= hold:
            apart = np.float32(math.sqrt(level_squared_distance(point, to)))
            share = min(body.forward_step / max(apart, _TINY), _ONE)
            point = point[0] + share * (to[0] - point[0]), point[1], point[2] + share * (to[2] - point[2])
            left -= share * apart
            if share >= _ONE:
                corner += 1
        cost = _cost_of_step(t, point, crowd)
        total += cost
        if cost >= CONTACT_COST or left < radius or corner >= corners:
            break
    return total + max(left, _ZERO)


@lean_function
def _turns_to(k, count, body):
    """Turns to the left to the k-th of `count` directions all around."""
    angle = np.float32(2.0 * math.pi) * np.float32(k) / np.float32(count)
    if angle > np.float32(math.pi):
        angle -= np.float32(2.0 * math.pi)
    return np.int32(math.floor(angle / body.turn + _HALF))


@lean_function
def _walked(point, heading, ground, body):
    """Whether a step along a heading meets no wall, and where it ends."""
    nav, scene, _, scratch, row = ground
    reached = try_step(nav, scene, point, point_ahead(point, heading, body.forward_step), False, scratch, row)
    least = FULL_STEP * body.forward_step
    return level_squared_distance(point, reached) >= least * least, reached


@device_function
def _cost_of_end(t, point, total, best, ground, crowd):
    """The lower of `best` and the cost of standing at a point from step t on, after costs of `total`."""
    nav, scene, goal, scratch, row = ground
    standing = total + _cost_of_standing(t, HORIZON, point, crowd)
    if standing < best:
        standing += geodesic_distance(nav, scene, point, goal, scratch, row)
    return min(best, standing)


@lean_function
def _second_legs(t, total, best, start, heading, ground, crowd, body):
    """The lower of `best` and the least cost of manoeuvres that turn at `start` before step t and walk on."""
    for k in range(1, SECOND_LEGS):
        turns = _turns_to(k, SECOND_LEGS, body)
        spent = total + _cost_of_standing(t, t + abs(turns), start, crowd)
        point, free = start, spent < best and spent < CONTACT_COST
        for each in range(t + abs(turns), min(t + abs(turns) + SECOND_LEG_STEPS, HORIZON)):
            if free:
                free, point = _walked(point, heading + np.float32(turns) * body.turn, ground, body)
            if free:
                cost = _cost_of_step(each, point, crowd)
                spent, free = spent + cost, cost < CONTACT_COST
                best = _cost_of_end(each + 1, point, spent, best, ground, crowd) if free else min(best, spent)
    return best


@lean_function
def _first_leg(t, total, best, start, heading, second, ground, crowd, body):
    """The lower of `best` and the least cost of manoeuvres that walk from `start` along a heading from step t on.

    They end after each number of steps; `second`: or go on with a second leg.
    """
    point, free = start, True
    for each in range(t, min(t + LEG_STEPS, HORIZON)):
        if free:
            free, point = _walked(point, heading, ground, body)
        if free:
            cost = _cost_of_step(each, point, crowd)
            total, free = total + cost, cost < CONTACT_COST
            best = _cost_of_end(each + 1, point, total, best, ground, crowd) if free else min(best, total)
            if free and second:
                best = _second_legs(each + 1, total, best, point, heading, ground, crowd, body)
    return best


@lean_function
def _best_turns(best, start, heading, ground, crowd, body):
    """Least cost of a manoeuvre, and the turns to the left to its first leg; `best` and 0 where none is lower."""
    around = np.int32(math.ceil(np.float32(2.0 * math.pi) / body.turn))
    chosen = np.int32(0)
    for second in range(2):
        if second == 0 or best >= CONTACT_COST:
            for k in range(around):
                turns = _turns_to(k, around, body)
                spent = _cost_of_standing(0, abs(turns), start, crowd)
                if spent < best and spent < CONTACT_COST:
                    ahead = heading + np.float32(turns) * body.turn
                    cost = _first_leg(abs(turns), spent, best, start, ahead, second == 1, ground, crowd, body)
                    if cost < best:
                        best, chosen = cost, turns
    return best, chosen


@kernel()
def act_with_foresight(
    i, nav, bodies, targets, people, rules, body, radius, scratch, row, plans_out, actions_out
):  # fmt: skip
    """Write the action of agent i: along the path, a wait, or the first of a manoeuvre."""
    here, goal, scene, heading = point_at(i, bodies.position), point_at(i, targets), bodies.scene[i], bodies.heading[i]
    distance, corners, _ = find_path(nav, scene, here, goal, scratch, row)
    if not distance < np.float32(np.inf) or distance < radius:
        actions_out[i] = STOP
        return
    corners = min(corners - 1, CORNERS)
    for c in range(corners):
        at = row * scratch.max_corners + c + 1
        store_point(np.int64(i) * CORNERS + c, point_at(at, scratch.corners), plans_out.corners)
    count, reach = _predict(i, here, people, rules, plans_out)
    path, crowd, hold = (distance, corners), (i, count, reach, plans_out), 0
    best = _cost_of_path(0, here, heading, path, crowd, body, radius)
    if best > distance + TOLERABLE:
        for k in range(HOLDS):
            steps = min(2 << k, HORIZON)
            cost = _cost_of_path(steps, here, heading, path, crowd, body, radius)
            if cost < best:
                best, hold = cost, steps
        cost, turns = _best_turns(best, here, heading, (nav, scene, goal, scratch, row), crowd, body)
        if cost < best:
            actions_out[i] = FORWARD if turns == 0 else LEFT if turns > 0 else RIGHT
            return
    bearing = _bearing(here, heading, point_at(np.int64(i) * CORNERS, plans_out.corners))
    if abs(bearing) > np.float32(MAX_BEARING_TURNS) * body.turn:
        actions_out[i] = LEFT if bearing > _ZERO else RIGHT
    else:
        actions_out[i] = turn_and_back(i, plans_out.plan) if hold > 0 else FORWARD


class PredictiveAgent(SocialAgent):
    """Follows the shortest path, and steps aside or waits where it predicts contact with a person.

    Args:
        env: environment with people to act in.
        radius: stopping distance, metres.
    """

    def _bind(self, env: NavEnv, target: Any, radius: float, scratch: Any) -> Callable[[], None]:
        n, sim, world, device = env.num_envs, env.sim, env.sim.world, env.device
        f32: dict[str, Any] = {"dtype": torch.float32, "device": device}
        rows = n if device.type == "cuda" else sim.chunks
        searches = view(search_scratch(search_size(sim.bank.navmesh), rows, device, CORNERS + 1))
        self.plans = Plans(
            torch.zeros(n * MAX_BODIES * HORIZON, 3, **f32), torch.zeros(n * CORNERS, 3, **f32), self.plan
        )
        read = sim.bank.navmesh_view, view(sim.bodies), target, world.people, world.rules, sim.body, np.float32(radius)
        written = map(view, (self.plans, self.actions))
        return act_with_foresight.bind(n, *read, searches, *written, rows=sim.chunks)
