"""Reference agents among people, which know where everybody is and how fast: ORCA, and wait-and-go.

Discrete actions hold no step of rest, so both wait by turning left and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.agents.shortest_path import PLAN_COLUMNS, next_action
from batchnav.agents.simple import MAX_BEARING_TURNS
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.geometry.pose import goal_in_agent_frame, point_at, wrapped
from batchnav.navmesh.geodesic import find_path
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP, level_squared_distance
from batchnav.sim.others import STOREY
from batchnav.world.orca import HORIZON, PLANE_ROWS, add_plane, avoidance_plane, best_velocity
from batchnav.world.people import SIGHT

SLOWEST = np.float32(0.5)
"""Share of its speed below which ORCA's velocity is a wait, since a step has one length."""
CAUTION = np.float32(1.3)
"""Metres between robot and person, now or `AHEAD` seconds later, within which wait-and-go waits."""
AHEAD = np.float32(0.75)
IN_FRONT = np.float32(math.cos(math.radians(75.0)))
"""Cosine of the largest bearing of a person in front."""
WALKS = np.float32(0.1)
"""Speed of a person that walks, m/s, at least. Wait-and-go does not wait for others: they may stand for good."""
WAITS = PLAN_COLUMNS
"""Column of `plan_out` after those of `next_action`: 1 between the two turns of a wait."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Steering(NamedTuple):
    """What the agents know about the robot's body."""

    turn: np.float32
    """Angle of a turn, radians."""
    speed: np.float32
    """m/s."""
    radius: np.float32
    """Metres from the target at which it stops."""


@lean_function
def turn_and_back(i, plan_out):
    """Turn left, and back at the next wait."""
    plan_out[i, WAITS] = 1 - plan_out[i, WAITS]
    return LEFT if plan_out[i, WAITS] == 1 else RIGHT


@lean_function
def _orca_velocity(i, here, corner, bodies, people, rules, steering, planes_out):
    """Velocity (x, z) of robot i by ORCA, with the direction to the path's next corner as the preferred one."""
    world, count = i // rules.agents, 0
    vx, vz = -math.sin(bodies.heading[i]) * steering.speed, -math.cos(bodies.heading[i]) * steering.speed
    share = _ONE - rules.reacts_to_robot
    for k in range(world * rules.most, world * rules.most + people.count[world]):
        there = point_at(k, people.position)
        if level_squared_distance(here, there) < SIGHT * SIGHT and abs(here[1] - there[1]) < STOREY:
            dx, dz = there[0] - here[0], there[2] - here[2]
            wx, wz = vx - people.velocity[k, 0], vz - people.velocity[k, 1]
            reach = rules.agent_radius + people.radius[k]
            plane = avoidance_plane(dx, dz, wx, wz, reach, HORIZON, rules.step_time)
            count = add_plane(i, count, (vx, vz), plane, max(share, np.float32(0.5)), planes_out)
    dx, dz = corner[0] - here[0], corner[2] - here[2]
    length = math.sqrt(dx * dx + dz * dz)
    preferred = (_ZERO, _ZERO)
    if length > _ZERO:
        preferred = (steering.speed * dx / length, steering.speed * dz / length)
    return best_velocity(i, count, steering.speed, preferred, planes_out)


@kernel()
def act_by_orca(
    i, nav, bodies, targets, people, rules, steering, scratch, row, planes_out, plan_out, actions_out
):  # fmt: skip
    """Write the action of agent i whose direction is nearest to ORCA's velocity."""
    here = point_at(i, bodies.position)
    distance, _, corner = find_path(nav, bodies.scene[i], here, point_at(i, targets), scratch, row)
    if not distance < np.float32(np.inf) or distance < steering.radius:
        actions_out[i] = STOP
        return
    vx, vz = _orca_velocity(i, here, corner, bodies, people, rules, steering, planes_out)
    if vx * vx + vz * vz < SLOWEST * SLOWEST * steering.speed * steering.speed:
        actions_out[i] = turn_and_back(i, plan_out)
        return
    plan_out[i, WAITS] = 0
    bearing = wrapped(np.float32(math.atan2(-vx, -vz)) - bodies.heading[i])
    if abs(bearing) <= np.float32(MAX_BEARING_TURNS) * steering.turn:
        actions_out[i] = FORWARD
    else:
        actions_out[i] = LEFT if bearing > _ZERO else RIGHT


@lean_function
def _in_the_way(i, bodies, people, rules):
    """True where a person that walks is in front of robot i, near it now or soon."""
    here, world = point_at(i, bodies.position), i // rules.agents
    fx, fz = -math.sin(bodies.heading[i]), -math.cos(bodies.heading[i])
    for k in range(world * rules.most, world * rules.most + people.count[world]):
        there, vx, vz = point_at(k, people.position), people.velocity[k, 0], people.velocity[k, 1]
        dx, dz = there[0] - here[0], there[2] - here[2]
        apart = math.sqrt(dx * dx + dz * dz)
        later = math.sqrt((dx + AHEAD * vx) * (dx + AHEAD * vx) + (dz + AHEAD * vz) * (dz + AHEAD * vz))
        walks = vx * vx + vz * vz > WALKS * WALKS and abs(there[1] - here[1]) < STOREY
        if walks and min(apart, later) < CAUTION and dx * fx + dz * fz > IN_FRONT * apart:
            return True
    return False


@kernel()
def wait_and_go(
    i, nav, bodies, targets, people, rules, body, radius, scratch, row, plan_out, actions_out
):  # fmt: skip
    """Write the action of agent i along the shortest path; it waits while somebody walks in the way."""
    if plan_out[i, WAITS] == 1 or _in_the_way(i, bodies, people, rules):
        actions_out[i] = turn_and_back(i, plan_out)
        return
    actions_out[i] = next_action(i, nav, bodies, targets, body, radius, scratch, row, plan_out)


@kernel()
def follow(i, nav, bodies, targets, body, radius, scratch, row, plan_out, actions_out):  # fmt: skip
    """Write the action of agent i: along the shortest path to a person, else turn to face it, else stand."""
    here, there = point_at(i, bodies.position), point_at(i, targets)
    distance, _, _ = find_path(nav, bodies.scene[i], here, there, scratch, row)
    if distance >= radius:
        actions_out[i] = next_action(i, nav, bodies, targets, body, radius, scratch, row, plan_out)
        return
    _, bearing = goal_in_agent_frame(here, bodies.heading[i], there)
    plan_out[i, 0] = 0
    if abs(bearing) <= np.float32(MAX_BEARING_TURNS) * body.turn:
        actions_out[i] = STOP
    else:
        actions_out[i] = LEFT if bearing > _ZERO else RIGHT


class SocialAgent:
    """Base of the agents: tensors, and their reset. ConfigError in an environment without a world of people."""

    @torch.inference_mode(False)
    def __init__(self, env: NavEnv, radius: float):
        if env.sim.world is None:
            raise ConfigError("people: found an environment without people, expected people=(lowest, highest)")
        n, device = env.num_envs, env.device
        self.actions = torch.zeros(n, dtype=torch.int64, device=device)
        self.plan = torch.zeros(n, PLAN_COLUMNS + 1, dtype=torch.int32, device=device)
        self.task, target = env.task, env.task.nearest_target
        assert target is not None  # `make_reference_agent` refuses tasks without a target
        self._step = self._bind(env, view(target), radius, env.sim.search_scratch(n))

    def _bind(self, env: NavEnv, target: Any, radius: float, scratch: Any) -> Callable[[], None]:
        raise NotImplementedError

    def reset(self, num_envs: int) -> None:
        """Cancel plans and waits in progress."""
        self.plan.zero_()

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        self.plan.masked_fill_(episode_start.unsqueeze(1), 0)
        self.task.update_nearest_target()
        self._step()
        return self.actions


class OrcaAgent(SocialAgent):
    """Follows the shortest path and avoids people by ORCA.

    Args:
        env: environment with people to act in.
        radius: stopping distance, metres.
    """

    def _bind(self, env: NavEnv, target: Any, radius: float, scratch: Any) -> Callable[[], None]:
        n, sim = env.num_envs, env.sim
        world, body = sim.world, env.config.body
        speed = body.longest_step / float(world.rules.step_time)
        steering = Steering(np.float32(math.radians(body.widest_turn_deg)), np.float32(speed), np.float32(radius))
        self.planes = torch.zeros(n, PLANE_ROWS, 4, dtype=torch.float32, device=env.device)
        read = sim.bank.navmesh_view, view(sim.bodies), target, world.people, world.rules, steering, scratch
        return act_by_orca.bind(n, *read, *map(view, (self.planes, self.plan, self.actions)), rows=sim.chunks)


class WaitAndGoAgent(SocialAgent):
    """Follows the shortest path, and waits while a person walks in the way.

    Args:
        env: environment with people to act in.
        radius: stopping distance, metres.
    """

    def _bind(self, env: NavEnv, target: Any, radius: float, scratch: Any) -> Callable[[], None]:
        sim, world = env.sim, env.sim.world
        read = sim.bank.navmesh_view, view(sim.bodies), target, world.people, world.rules, sim.body, np.float32(radius)
        written = map(view, (self.plan, self.actions))
        return wait_and_go.bind(env.num_envs, *read, scratch, *written, rows=sim.chunks)


class FollowerAgent(SocialAgent):
    """Walks to a person by the shortest path, and faces it; it stands where it is near. For the task `follow`.

    Args:
        env: environment with people to act in.
        radius: distance from the person at which it stands, metres.
    """

    def _bind(self, env: NavEnv, target: Any, radius: float, scratch: Any) -> Callable[[], None]:
        sim = env.sim
        read = sim.bank.navmesh_view, view(sim.bodies), target, sim.body, np.float32(radius), scratch
        return follow.bind(env.num_envs, *read, view(self.plan), view(self.actions), rows=sim.chunks)
