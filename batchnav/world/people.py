"""People of all worlds: their state, and the kernels of a step.

A step of the people is two kernels with a person an item: each chooses a velocity by ORCA from the places and
velocities of all at the start of the step, then all walk. Nobody's step depends on the order of the others.

A person walks along the corners of a shortest path to its next waypoint. Walls stop it or let it slide as a robot
does, so it stays on the navmesh. Where it makes no progress for `PATIENCE` steps, it looks for the path again.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.geometry.pose import point_at, squared_distance, store_point
from batchnav.navmesh.geodesic import find_path
from batchnav.navmesh.locate import nearest_polygon
from batchnav.navmesh.sample import random_point
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.arrays import record_type
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.sim.bodies import level_squared_distance
from batchnav.sim.episodes import agent_number
from batchnav.sim.others import CONTACT, STOREY
from batchnav.types import NUM_APPEARANCES, PERSON, MovingBodies
from batchnav.world.orca import HORIZON, add_plane, avoidance_plane, best_velocity

WAYPOINTS = 2
"""Waypoints of a person, as in Social-HM3D."""
CORNERS = 16
"""Corners of a path that a person keeps. At the last of them it looks for the rest of the path."""
SIGHT = np.float32(5.0)
"""Metres within which a person takes others into account."""
HURRY = np.float32(1.25)
"""Greatest speed of a person that makes way, as a multiple of its own."""
ARRIVED = np.float32(0.1)
"""Metres from a corner at which a person turns to the next, at least."""
ARRIVED_STEPS = np.float32(0.6)
"""The same in lengths of a step: a longer step could pass the corner and turn back."""
PATIENCE = 8
"""Steps without progress after which a person looks for its path again."""
SLOW = np.float32(0.25)
"""Share of a person's speed below which a step is no progress."""
MIN_WALK = np.float32(2.0)
"""Metres between a waypoint and the one before it, at least, as the crow flies."""
START_GAP = np.float32(0.5)
"""Metres between a person and every other body at the start of an episode, at least."""
MAX_TRIES = 64
"""Random points that are tried for the start of a person, or for a waypoint."""
HIDDEN = np.float32(0.0), np.float32(-1e4), np.float32(0.0)
"""Place of a scripted body while it is absent."""
FIRST_DRAW, DRAWS = 1 << 24, 1 << 16
"""Number of a person's first draw in its episode: FIRST_DRAW + person * DRAWS."""
_TRAITS, _START, _GOALS = 0, 1, 1 + MAX_TRIES
"""A person's draws: speed and appearance; tries of the start; tries of waypoints."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Walk(NamedTuple):
    """What people do besides what is drawn of them (`MovingBodies`)."""

    speed: torch.Tensor
    """f32 [W, K]: preferred speed, m/s."""
    waypoint: torch.Tensor
    """f32 [W, K, WAYPOINTS, 3], metres."""
    leg: torch.Tensor
    """i32 [W, K]: row of the waypoint that the person walks to; WAYPOINTS where it stands for good."""
    draws: torch.Tensor
    """i32 [W, K]: waypoints drawn so far in this episode, tries included."""
    path: torch.Tensor
    """f32 [W, K, CORNERS, 3]: corners of the path to the waypoint."""
    corners: torch.Tensor
    """i32 [W, K]: number of corners in `path`; 0: the path is not known yet."""
    corner: torch.Tensor
    """i32 [W, K]: the next corner."""
    slow: torch.Tensor
    """i32 [W, K]: steps without progress."""
    new_velocity: torch.Tensor
    """f32 [W, K, 2]: the velocity that ORCA chose in this step, m/s."""
    robot_position: torch.Tensor
    """f32 [N, 3]: positions of all robots at the start of the last step, metres."""


WALK_ROW = {"waypoint": 3, "path": 3, "position": 3, "robot_position": 3, "velocity": 2, "new_velocity": 2}
"""Columns of the arrays that kernels see as [rows, columns]; the others have one number a row."""
People: Any = record_type("People", (*MovingBodies._fields, *Walk._fields), __name__)
"""Fields of `MovingBodies` and `Walk` as kernels see them: a row a person."""


class Rules(NamedTuple):
    """The numbers of `WorldConfig` that kernels read."""

    step_time: np.float32
    """Seconds."""
    reacts_to_robot: np.float32
    agent_radius: np.float32
    """Metres."""
    turns_back: bool
    draws_goals: bool
    most: np.int64
    """K: places for bodies in a world."""
    scripted: np.int64
    """Bodies 0 to scripted - 1 of each world follow a script."""
    agents: np.int64
    """Robots of a world."""
    fewest_people: np.int32
    most_people: np.int32
    radius: np.float32
    height: np.float32
    slowest: np.float32
    fastest: np.float32


class Script(NamedTuple):
    """Places of scripted bodies by time, for kernels."""

    position: torch.Tensor
    """f32 [T, S, 3]: metres; NaN where the body is absent."""
    interval: np.float32
    """Seconds between rows."""


class PeopleTable(NamedTuple):
    """People of M fixed episodes; 0 rows if they are drawn."""

    count: torch.Tensor  # type: ignore[assignment]  # hides `tuple.count`
    """i32 [M]: people of the episode; -1: they are drawn."""
    start: torch.Tensor
    """f32 [M * K, 3], metres."""
    waypoint: torch.Tensor
    """f32 [M * K * WAYPOINTS, 3], metres."""


# A step.


@kernel()
def choose_velocities(i, bodies, people, rules, planes_out, people_out):
    """Write the velocity of person i: along its path, without collisions."""
    world = i // rules.most
    k = i - world * rules.most
    if k < rules.scripted or k >= people.count[world]:
        return
    here = point_at(i, people.position)
    velocity = people.velocity[i, 0], people.velocity[i, 1]
    count, first = 0, world * rules.most
    for j in range(first, first + people.count[world]):
        if j != i:
            there = point_at(j, people.position)
            if _is_near(here, there):
                walks = j - first >= rules.scripted and people.leg[j] < WAYPOINTS
                share = np.float32(0.5) if walks else _ONE
                other = people.velocity[j, 0], people.velocity[j, 1]
                reach = people.radius[i] + people.radius[j]
                plane = _plane(here, velocity, there, other, reach, rules.step_time)
                count = add_plane(i, count, velocity, plane, share, planes_out)
    if rules.reacts_to_robot > _ZERO:
        for agent in range(world * rules.agents, (world + 1) * rules.agents):
            there, before = point_at(agent, bodies.position), point_at(agent, people.robot_position)
            if _is_near(here, there):
                other = (there[0] - before[0]) / rules.step_time, (there[2] - before[2]) / rules.step_time
                reach = people.radius[i] + rules.agent_radius
                plane = _plane(here, velocity, there, other, reach, rules.step_time)
                count = add_plane(i, count, velocity, plane, rules.reacts_to_robot, planes_out)
    preferred = _preferred(i, here, people, rules)
    chosen = best_velocity(i, count, HURRY * people.speed[i], preferred, planes_out)
    people_out.new_velocity[i, 0], people_out.new_velocity[i, 1] = chosen


@inline_function
def _is_near(here, there):
    """True where a person takes another body into account."""
    return level_squared_distance(here, there) < SIGHT * SIGHT and abs(here[1] - there[1]) < STOREY


@inline_function
def _plane(here, velocity, there, other, reach, step_time):
    """`avoidance_plane` of another body at `there` with velocity `other`."""
    dx, dz = there[0] - here[0], there[2] - here[2]
    return avoidance_plane(dx, dz, velocity[0] - other[0], velocity[1] - other[1], reach, HORIZON, step_time)


@inline_function
def _preferred(i, here, people, rules):
    """Velocity towards the next corner of person i, m/s; 0 without a path."""
    if people.leg[i] >= WAYPOINTS or people.corner[i] >= people.corners[i]:
        return _ZERO, _ZERO
    corner = point_at(i * CORNERS + people.corner[i], people.path)
    dx, dz = corner[0] - here[0], corner[2] - here[2]
    length = math.sqrt(dx * dx + dz * dz)
    if length <= _ZERO:
        return _ZERO, _ZERO
    speed = people.speed[i]
    if people.corner[i] == people.corners[i] - 1:  # do not pass the last one
        speed = min(speed, length / rules.step_time)
    return speed * dx / length, speed * dz / length


@kernel(strided=True, block=8)
def walk(i, nav, bodies, sampling, script, rules, scratch, row, people_out):
    """Move body i: a person by its new velocity, a scripted body to its place at the end of the step."""
    world = i // rules.most
    k = i - world * rules.most
    agent = world * rules.agents
    if k == 0:
        for each in range(agent, agent + rules.agents):
            store_point(each, point_at(each, bodies.position), people_out.robot_position)
    if k >= people_out.count[world]:
        return
    if k < rules.scripted:
        _follow_script(i, k, bodies.steps[agent] + 1, script, rules, people_out)
        return
    scene, here = bodies.scene[agent], point_at(i, people_out.position)
    vx, vz = people_out.new_velocity[i, 0], people_out.new_velocity[i, 1]
    end = here[0] + vx * rules.step_time, here[1], here[2] + vz * rules.step_time
    reached = try_step(nav, scene, here, end, True, scratch, row)
    store_point(i, reached, people_out.position)
    vx, vz = (reached[0] - here[0]) / rules.step_time, (reached[2] - here[2]) / rules.step_time
    people_out.velocity[i, 0], people_out.velocity[i, 1] = vx, vz
    speed, own = math.sqrt(vx * vx + vz * vz), people_out.speed[i]
    if speed > SLOW * own:
        people_out.heading[i], people_out.slow[i] = math.atan2(-vx, -vz), 0
    else:
        people_out.slow[i] += 1
    if people_out.leg[i] < WAYPOINTS:
        _pass_corners(i, reached, rules, people_out)
        if people_out.corner[i] >= people_out.corners[i] or people_out.slow[i] >= PATIENCE:
            _plan(i, nav, scene, world, bodies, sampling, rules, scratch, row, people_out)


@inline_function
def _follow_script(i, k, step, script, rules, people_out):
    """Move scripted body k to its place `step` steps after the start of the episode; it stands after the last row."""
    last = script.position.shape[0] - 1
    time = np.float32(step) * rules.step_time / script.interval
    before = min(np.int64(time), last)
    after, share = min(before + 1, last), min(time - np.float32(before), _ONE)
    x, y, z = script.position[before, k, 0], script.position[before, k, 1], script.position[before, k, 2]
    nx, ny, nz = script.position[after, k, 0], script.position[after, k, 1], script.position[after, k, 2]
    if math.isnan(x):
        x, y, z = HIDDEN
    elif not math.isnan(nx):
        x, y, z = x + share * (nx - x), y + share * (ny - y), z + share * (nz - z)
    vx, vz = (x - people_out.position[i, 0]) / rules.step_time, (z - people_out.position[i, 2]) / rules.step_time
    people_out.velocity[i, 0], people_out.velocity[i, 1] = vx, vz
    if vx * vx + vz * vz > CONTACT:
        people_out.heading[i] = math.atan2(-vx, -vz)
    store_point(i, (x, y, z), people_out.position)


@inline_function
def _pass_corners(i, here, rules, people_out):
    """Turn to the next corner of the path where this one is reached."""
    near = max(ARRIVED, ARRIVED_STEPS * people_out.speed[i] * rules.step_time)
    while people_out.corner[i] < people_out.corners[i]:
        corner = point_at(i * CORNERS + people_out.corner[i], people_out.path)
        if level_squared_distance(here, corner) > near * near:
            return
        people_out.corner[i] += 1


@inline_function
def walk_path(row, x, z, corner, left, people):
    """Where a person that goes on for `left` metres from (x, z) along its path is: x, z, next corner, metres left."""
    while left > _ZERO and corner < people.corners[row]:
        to = point_at(row * CORNERS + corner, people.path)
        dx, dz = to[0] - x, to[2] - z
        length = np.float32(math.sqrt(dx * dx + dz * dz))
        if length > left:
            x, z, left = x + left * dx / length, z + left * dz / length, _ZERO
        else:
            x, z, left, corner = to[0], to[2], left - length, corner + 1
    return x, z, corner, left


@inline_function
def _plan(i, nav, scene, world, bodies, sampling, rules, scratch, row, people_out):
    """Find the path of person i to its waypoint; where it is there, turn to the next waypoint first."""
    near = max(ARRIVED, ARRIVED_STEPS * people_out.speed[i] * rules.step_time)
    here, waypoint = point_at(i, people_out.position), point_at(i * WAYPOINTS + people_out.leg[i], people_out.waypoint)
    people_out.slow[i] = 0
    if squared_distance(here, waypoint) <= near * near + CONTACT:
        people_out.leg[i] += 1
        if people_out.leg[i] >= WAYPOINTS and rules.turns_back:
            people_out.leg[i] = 0
        if people_out.leg[i] >= WAYPOINTS and rules.draws_goals:
            agent = world * rules.agents
            found, goal = _draw_goal(i, nav, scene, here, agent, bodies.episode[agent], sampling, rules, people_out)
            store_point(i * WAYPOINTS + WAYPOINTS - 1, goal, people_out.waypoint)
            people_out.leg[i] = WAYPOINTS - 1 if found else WAYPOINTS
    people_out.corner[i], people_out.corners[i] = 0, 0
    if people_out.leg[i] < WAYPOINTS:
        _find_path(i, nav, scene, here, scratch, row, people_out)


@inline_function
def _find_path(i, nav, scene, here, scratch, row, people_out):
    """Write the first corners of the path of person i to its waypoint; without a path it stands for good."""
    goal = point_at(i * WAYPOINTS + people_out.leg[i], people_out.waypoint)
    length, corners, _ = find_path(nav, scene, here, goal, scratch, row)
    if not length < np.float32(np.inf):
        people_out.leg[i] = WAYPOINTS
        return
    kept = min(corners - 1, CORNERS)  # without the first, which is the start
    for c in range(kept):
        at = row * scratch.max_corners + c + 1
        store_point(i * CORNERS + c, point_at(at, scratch.corners), people_out.path)
    people_out.corners[i] = kept


# The start of an episode.


@kernel(block=32)
def begin(world, all_worlds, nav, bodies, sampling, script, table, rules, people_out):
    """Draw the people of a world whose first robot begins an episode, or take them from the table."""
    agent = world * rules.agents
    for each in range(agent, agent + rules.agents):
        if all_worlds or bodies.done[each]:
            store_point(each, point_at(each, bodies.position), people_out.robot_position)
    if not (all_worlds or bodies.done[agent]):
        return
    first, number, episode = world * rules.most, agent_number(agent, sampling), bodies.episode[agent]
    for k in range(rules.scripted):
        _follow_script(first + k, k, 0, script, rules, people_out)
        people_out.velocity[first + k, 0], people_out.velocity[first + k, 1] = _ZERO, _ZERO
    count, row = -1, np.int64(0)
    if table.count.shape[0] > 0:
        row = (np.int64(agent) + np.int64(episode) * bodies.scene.shape[0]) % table.count.shape[0]
        count = table.count[row]
    fixed = count >= 0
    if not fixed:
        u, _, _, _ = uniform4(sampling.seed[0], number, episode, FIRST_DRAW - 1)
        span = rules.most_people - rules.fewest_people
        count = rules.fewest_people + min(np.int32(u * np.float32(span + 1)), span)
    people_out.count[world] = rules.scripted
    for k in range(rules.scripted, min(rules.scripted + count, rules.most)):
        i = first + people_out.count[world]
        _give_traits(i, k, number, episode, sampling, rules, people_out)
        if fixed:
            source = row * (rules.most - rules.scripted) + k - rules.scripted
            store_point(i, point_at(source, table.start), people_out.position)
            for w in range(WAYPOINTS):
                point = point_at(source * WAYPOINTS + w, table.waypoint)
                store_point(i * WAYPOINTS + w, point, people_out.waypoint)
            placed = True
        else:
            placed = _place(i, k, nav, world, bodies, number, episode, sampling, rules, people_out)
        people_out.count[world] += np.int32(placed)


@inline_function
def _give_traits(i, k, number, episode, sampling, rules, people_out):
    """Write speed, size and looks of person i, at rest."""
    u, v, w, _ = uniform4(sampling.seed[0], number, episode, FIRST_DRAW + k * DRAWS + _TRAITS)
    people_out.speed[i] = rules.slowest + u * (rules.fastest - rules.slowest)
    people_out.appearance[i] = min(np.int32(v * np.float32(NUM_APPEARANCES)), NUM_APPEARANCES - 1)
    people_out.heading[i] = (w - np.float32(0.5)) * np.float32(2.0 * math.pi)
    people_out.radius[i], people_out.height[i], people_out.shape[i] = rules.radius, rules.height, PERSON
    people_out.velocity[i, 0], people_out.velocity[i, 1] = _ZERO, _ZERO
    people_out.leg[i], people_out.draws[i], people_out.slow[i] = 0, 0, 0
    people_out.corners[i], people_out.corner[i] = 0, 0


@lean_function
def _place(i, k, nav, world, bodies, number, episode, sampling, rules, people_out):
    """Draw start and waypoints of person i on the island of the robot. False where there is no room."""
    agent = world * rules.agents
    scene, robot = bodies.scene[agent], point_at(agent, bodies.position)
    polygon, _ = nearest_polygon(nav, scene, robot)
    if polygon < 0:
        return False
    island, base = nav.polygon_island[polygon], FIRST_DRAW + k * DRAWS
    for attempt in range(MAX_TRIES):
        u, v, w, _ = uniform4(sampling.seed[0], number, episode, base + _START + attempt)
        found, start = random_point(nav, scene, (u, v, w))
        if nav.polygon_island[found] == island and _has_room(i, start, world, bodies, rules, people_out):
            store_point(i, start, people_out.position)
            previous, whole = start, True
            for leg in range(WAYPOINTS):
                drawn, goal = _draw_goal(i, nav, scene, previous, agent, episode, sampling, rules, people_out)
                whole = whole and drawn
                store_point(i * WAYPOINTS + leg, goal, people_out.waypoint)
                previous = goal
            if not whole:
                people_out.leg[i] = WAYPOINTS
            return True
    return False


@inline_function
def _has_room(i, start, world, bodies, rules, people):
    """True where nobody is within START_GAP of a person who starts there."""
    own = rules.radius + START_GAP
    for j in range(world * rules.most, i):
        reach = own + people.radius[j]
        if squared_distance(start, point_at(j, people.position)) < reach * reach:
            return False
    for agent in range(world * rules.agents, (world + 1) * rules.agents):
        reach = own + rules.agent_radius
        if squared_distance(start, point_at(agent, bodies.position)) < reach * reach:
            return False
    return True


@lean_function
def _draw_goal(i, nav, scene, here, agent, episode, sampling, rules, people_out):
    """Whether a random point on the island of `here`, at least MIN_WALK away, was found, and the point."""
    polygon, _ = nearest_polygon(nav, scene, here)
    if polygon < 0:
        return False, here
    k = i - i // rules.most * rules.most
    number, base = agent_number(agent, sampling), FIRST_DRAW + k * DRAWS + _GOALS
    for _ in range(MAX_TRIES):
        draw = people_out.draws[i] % np.int32(DRAWS - _GOALS)
        people_out.draws[i] += 1
        u, v, w, _ = uniform4(sampling.seed[0], number, episode, base + draw)
        found, goal = random_point(nav, scene, (u, v, w))
        far = squared_distance(here, goal) >= MIN_WALK * MIN_WALK
        if far and nav.polygon_island[found] == nav.polygon_island[polygon]:
            return True, goal
    return False, here


# What cameras see: robots of worlds with several, then people.


@kernel()
def show(world, bodies, people, rules, drawn_out):
    """Write the robots and the people of a world as bodies to draw, the robots first."""
    width, agent, first = rules.agents + rules.most, world * rules.agents, world * rules.most
    drawn_out.count[world] = rules.agents + people.count[world]
    for k in range(rules.agents):
        to, source = world * width + k, agent + k
        store_point(to, point_at(source, bodies.position), drawn_out.position)
        drawn_out.heading[to] = bodies.heading[source]
    for k in range(people.count[world]):
        to, source = world * width + rules.agents + k, first + k
        store_point(to, point_at(source, people.position), drawn_out.position)
        drawn_out.heading[to], drawn_out.shape[to] = people.heading[source], people.shape[source]
        drawn_out.radius[to], drawn_out.height[to] = people.radius[source], people.height[source]
        drawn_out.velocity[to, 0], drawn_out.velocity[to, 1] = people.velocity[source, 0], people.velocity[source, 1]
        drawn_out.appearance[to] = people.appearance[source]
