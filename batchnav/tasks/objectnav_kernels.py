"""Kernels of ObjectNav: functions for one agent, then their loops over all agents on the CPU and on CUDA.

Rewards read the distance field of the goal's category. Detour's searches give the distance at the start of an episode
and at its end, and decide success.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from batchnav.geometry.angle import angle_between
from batchnav.geometry.point import keep_point, point_at, squared_distance
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.sample import random_point
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, inline_function, lean_function
from batchnav.runtime.kernels.rng import uniform4
from batchnav.scene.goal_data import field_distance, goal_places, goal_row, place_at
from batchnav.sim.bodies import level_squared_distance
from batchnav.sim.episodes import FIRST_DRAW, NO_AGENT, agent_number, sample_scene
from batchnav.sim.simulator import NO_EPISODE
from batchnav.tasks.episode_sampling import MIN_ISLAND_RADIUS, SEARCHERS, keep_detour, keep_episode, table_row
from batchnav.tasks.formulas import spl, step_reward
from batchnav.tasks.goal_kernels import begin_one as begin_goal_episode
from batchnav.tasks.goal_kernels import observe_one, record_score

CANDIDATES = 256
"""Starts that are tried for a category before another category of the scene is tried."""
MAX_CANDIDATES = 16 * CANDIDATES
"""Starts after which a scene counts as without episodes."""
NEAR = np.float32(1.0)
"""Metres: distances below this are the smallest over all view points; see `nearest_view_point`."""
_INF, _PI, _ZERO, _ONE = np.float32(np.inf), np.float32(np.pi), np.float32(0.0), np.float32(1.0)
_FIELD_SLACK = np.float32(0.5)
"""Largest difference between field and Detour's distance for which a start is searched, metres."""
_NONE = np.int32(-1)
"""`table_index` of a sampled episode: no row."""
_CATEGORY_DRAWS = 2**31
"""Number of the first draw that depends on a category."""


class ObjectMetrics(NamedTuple):
    """Metrics of every agent's episode, f32 [N] each: those of `GoalMetrics`, start distance and category."""

    success: Any
    spl: Any
    soft_spl: Any
    distance_to_goal: Any
    collisions: Any
    path_length: Any
    steps: Any
    return_: Any
    start_distance: Any
    category: Any


class ObjectParameters(NamedTuple):
    """Numbers of the configuration and arrays of the goals (`scene.goal_data.GoalData`) that the kernels read."""

    max_steps: np.int32
    success_distance: np.float32
    """Geodesic distance to a view point below which a stop succeeds, metres."""
    success_angle: np.float32
    """Largest angle between the agent's heading and that of the view point at a success, radians; pi: any heading."""
    slack_reward: np.float32
    success_reward: np.float32
    closest_goal: np.float32
    furthest_goal: np.float32
    """Limits of the geodesic distance of sampled episodes, metres."""
    min_detour_ratio: np.float32
    keys: Any
    rows: Any
    grids: Any
    columns: Any
    heights: Any
    field: Any
    nearest: Any
    places: Any
    """The fields of `GoalData`."""


# One agent.


@inline_function
def nearest_view_point(nav, scene, goal, point, parameters, scratch, row):
    """Detour's distance in metres from a point to the view point that the field names as nearest, and that view point.

    A distance below NEAR is the smallest over all view points of the goal. inf and -1 where none can be reached.
    """
    _, nearest = field_distance(parameters, scene, goal, point)
    if nearest < 0:
        return _INF, nearest
    place, _ = place_at(parameters, nearest)
    best = geodesic_distance(nav, scene, point, place, scratch, row)
    if best < NEAR:
        best, nearest = closer_view_point(nav, scene, goal, point, best, nearest, parameters, scratch, row)
    return best, nearest


@lean_function
def closer_view_point(nav, scene, goal, point, best, nearest, parameters, scratch, row):
    """Smallest of Detour's distances to all view points of a goal, and the view point, given one of them."""
    first, last = goal_places(parameters, goal)
    for k in range(first, last):
        place, _ = place_at(parameters, k)
        if level_squared_distance(point, place) < best * best:
            distance = geodesic_distance(nav, scene, point, place, scratch, row)
            if distance < best:
                best, nearest = distance, np.int32(k)
    return best, nearest


@inline_function
def sees_goal(i, nav, transition, goal, parameters, scratch, row):
    """True if the agent is within the success distance of a view point and within the success angle of its heading."""
    point, scene, limit = point_at(i, transition.position), transition.scene[i], parameters.success_distance
    first, last = goal_places(parameters, goal)
    for k in range(first, last):
        place, heading = place_at(parameters, k)
        if level_squared_distance(point, place) < limit * limit:
            angle = angle_between(transition.heading[i], heading)
            faces = parameters.success_angle >= _PI or angle <= parameters.success_angle
            if faces and geodesic_distance(nav, scene, point, place, scratch, row) < limit:
                return True
    return False


@lean_function
def score_one(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step: reward by the field's distance; at the end of an episode, success and Detour's distance.

    The goal becomes the view point that is nearest now.
    """
    scene, before = transition.scene[i], transition.distance[i]
    goal, distance = goal_row(parameters, scene, transition.category[i]), before
    if transition.moved[i]:
        found, nearest = field_distance(parameters, scene, goal, point_at(i, transition.position))
        if found < _INF:
            distance = found
            if not bodies.done[i]:
                place, _ = place_at(parameters, nearest)
                keep_point(i, place, state_out.goal)
    success, measured = False, distance
    if bodies.done[i]:
        position = point_at(i, transition.position)
        measured, _ = nearest_view_point(nav, scene, goal, position, parameters, scratch, row)
        success = bodies.terminated[i] and sees_goal(i, nav, transition, goal, parameters, scratch, row)
    efficiency = spl(success, transition.start_distance[i], transition.path_length[i])
    bonus = _ONE if efficiency > _ZERO else _ZERO
    reward = step_reward(before, distance, bonus, parameters.slack_reward, parameters.success_reward)
    record_score(i, bodies, transition, measured, success, reward, state_out, metrics_out, reward_out)
    metrics_out.start_distance[i] = transition.start_distance[i]
    metrics_out.category[i] = np.float32(transition.category[i])


@lean_function
def aim_one(i, nav, bodies, state, parameters, scratch, row, target_out):
    """Write the view point of the agent's goal that is nearest to the agent; without one the target stays."""
    scene = bodies.scene[i]
    goal = goal_row(parameters, scene, state.category[i])
    _, nearest = nearest_view_point(nav, scene, goal, point_at(i, bodies.position), parameters, scratch, row)
    if nearest >= 0:
        place, _ = place_at(parameters, nearest)
        keep_point(i, place, target_out)


@lean_function
def begin_one(i, next_episode, parameters, bodies_out, state_out):
    """Begin the episode that was sampled ahead. The distance is the field's where it is finite."""
    begin_goal_episode(i, next_episode, bodies_out, state_out)
    start, scene, category = point_at(i, next_episode.position), next_episode.scene[i], next_episode.category[i]
    distance, _ = field_distance(parameters, scene, goal_row(parameters, scene, category), start)
    if distance < _INF:
        state_out.distance[i] = distance


@lean_function
def begin_due(i, all_agents, next_episode, parameters, bodies_out, state_out, queue_out, relative_goal_out):
    """CPU: begin an episode that is due, and queue its agent."""
    due = all_agents or bodies_out.done[i]
    if due:
        begin_one(i, next_episode, parameters, bodies_out, state_out)
        observe_one(i, bodies_out, state_out, relative_goal_out)
    queue_out.agents[i] = np.int32(i) if due else np.int32(NO_AGENT)


@lean_function
def sampled_category(agent, episode, scene, rank, seed, parameters):
    """The category of an episode, uniform over those of the scene; -1 for none.

    Every category has a random number that depends on its name; the category with the largest one has rank 0, and rank
    0 follows the last rank. Thus other categories of a scene do not change the episodes of a category.
    """
    present = 0
    for c in range(parameters.keys.shape[0]):
        first, last = goal_places(parameters, goal_row(parameters, scene, c))
        present += 1 if first < last else 0
    bound, bound_key, category = np.float32(2.0), np.int64(0), np.int32(-1)
    for _ in range(rank % max(present, 1) + 1):
        best, best_key, category = np.float32(-1.0), np.int64(-1), np.int32(-1)
        for c in range(parameters.keys.shape[0]):
            first, last = goal_places(parameters, goal_row(parameters, scene, c))
            if first == last:
                continue
            key = parameters.keys[c]
            u, _, _, _ = uniform4(seed, agent, episode, np.int64(_CATEGORY_DRAWS) + (key & np.int64(0x7FFFFFFF)))
            below = u < bound or (u == bound and key < bound_key)
            if below and (u > best or (u == best and key > best_key)):
                best, best_key, category = u, key, np.int32(c)
        bound, bound_key = best, best_key
    return category


@lean_function
def try_start(agent, episode, candidate, nav, scene, goal, seed, parameters, scratch, row):
    """A random start: (True if it is accepted, start, nearest view point, geodesic distance in metres).

    Rules: an island of radius >= 1.5 m; distance in [closest_goal, furthest_goal]; few straight paths.
    """
    u0, u1, u2, u3 = uniform4(seed, agent, episode, FIRST_DRAW + candidate)
    polygon, start = random_point(nav, scene, (u0, u1, u2))
    if nav.island_radius[nav.polygon_island[polygon]] < MIN_ISLAND_RADIUS:
        return False, start, np.int32(-1), _INF
    estimate, nearest = field_distance(parameters, scene, goal, start)
    closest, furthest = parameters.closest_goal, parameters.furthest_goal
    if nearest < 0 or estimate < closest - _FIELD_SLACK or estimate > furthest + _FIELD_SLACK:
        return False, start, nearest, _INF
    distance, nearest = nearest_view_point(nav, scene, goal, start, parameters, scratch, row)
    if distance < closest or distance > furthest or distance == _INF:
        return False, start, nearest, distance
    place, _ = place_at(parameters, nearest)
    euclidean = np.float32(math.sqrt(squared_distance(start, place)))
    kept = euclidean > _ZERO and keep_detour(distance, euclidean, u3, parameters.min_detour_ratio)
    return kept, start, nearest, distance


@lean_function
def keep_object_episode(i, scene, heading, start, nearest, distance, category, table_index, parameters, next_out):
    """Write the agent's next episode. Its goal is the view point `nearest`, or the start where that is -1."""
    place = start
    if nearest >= 0:
        place, _ = place_at(parameters, nearest)
    keep_episode(i, scene, heading, start, place, distance, table_index, next_out)
    next_out.category[i] = category


@lean_function
def take_from_table(i, episode, nav, table, num_agents, parameters, scratch, row, next_out):
    """Write the agent's next row of the table. Its distance is the smallest over all view points, as in Habitat."""
    k, table_index = table_row(i, episode, table, num_agents)
    scene, start, category = table.scene[k], point_at(k, table.start), table.category[k]
    goal = goal_row(parameters, scene, category)
    distance, nearest = nearest_view_point(nav, scene, goal, start, parameters, scratch, row)
    distance, nearest = closer_view_point(nav, scene, goal, start, distance, nearest, parameters, scratch, row)
    heading = table.heading[k]
    keep_object_episode(i, scene, heading, start, nearest, distance, category, table_index, parameters, next_out)


@lean_function
def sample_one(i, nav, bodies, sampling, table, parameters, scratch, row, next_out, errors_out):
    """Sample the agent's next episode: its next row of the table, or the first candidate that is accepted."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        take_from_table(i, episode, nav, table, bodies.scene.shape[0], parameters, scratch, row, next_out)
        return
    seed, agent = sampling.seed[0], agent_number(i, sampling)
    scene, heading = sample_scene(i, episode, sampling)
    category = np.int32(-1)
    for candidate in range(MAX_CANDIDATES):
        if candidate % CANDIDATES == 0:
            category = sampled_category(agent, episode, scene, candidate // CANDIDATES, seed, parameters)
        if category < 0:
            break
        goal = goal_row(parameters, scene, category)
        found, start, nearest, distance = try_start(
            agent, episode, candidate, nav, scene, goal, seed, parameters, scratch, row
        )
        if found:
            keep_object_episode(i, scene, heading, start, nearest, distance, category, _NONE, parameters, next_out)
            return
    errors_out[NO_EPISODE] = scene + np.int32(1)


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
def aim_cpu(nav, bodies, state, parameters, chunks, scratch, target_out):
    """`aim_one` of every agent."""
    n = target_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            aim_one(i, nav, bodies, state, parameters, scratch, row, target_out)


@cpu_kernel
def begin_cpu(all_agents, next_episode, parameters, bodies_out, state_out, queue_out, relative_goal_out):
    """Begin the episodes that are due, and queue their agents for sampling."""
    n = relative_goal_out.shape[0]
    for k in prange(n):
        i = np.int64(k)
        begin_due(i, all_agents, next_episode, parameters, bodies_out, state_out, queue_out, relative_goal_out)
    queue_out.count[0] = n


@cpu_kernel
def sample_cpu(nav, bodies, queued, sampling, table, parameters, chunks, scratch, next_out, errors_out):
    """`sample_one` of the queued agents."""
    n = np.int64(queued.count[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for k in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(queued.agents[k])
            if i != NO_AGENT:
                sample_one(i, nav, bodies, sampling, table, parameters, scratch, row, next_out, errors_out)


@exact_cuda_kernel
def score_cuda(nav, bodies, transition, parameters, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    i = cuda.grid(1)
    if i < reward_out.shape[0]:
        score_one(i, nav, bodies, transition, parameters, scratch, i, state_out, metrics_out, reward_out)


@exact_cuda_kernel
def aim_cuda(nav, bodies, state, parameters, scratch, target_out):
    """`aim_one` of every agent."""
    i = cuda.grid(1)
    if i < target_out.shape[0]:
        aim_one(i, nav, bodies, state, parameters, scratch, i, target_out)


@exact_cuda_kernel
def begin_cuda(all_agents, next_episode, parameters, bodies_out, state_out, queue_out, relative_goal_out):
    """Begin the episodes that are due, and queue their agents for sampling."""
    i = cuda.grid(1)
    if i < relative_goal_out.shape[0] and (all_agents or bodies_out.done[i]):
        begin_one(i, next_episode, parameters, bodies_out, state_out)
        queue_out.agents[cuda.atomic.add(queue_out.count, 0, 1)] = i
        observe_one(i, bodies_out, state_out, relative_goal_out)


@exact_cuda_kernel
def sample_cuda(nav, bodies, queued, sampling, table, parameters, scratch, next_out, errors_out):
    """`sample_one` of the queued agents; SEARCHERS neighbouring threads try an agent's candidates in parallel."""
    thread = cuda.grid(1)
    searcher = thread % SEARCHERS
    shift = cuda.laneid // SEARCHERS * SEARCHERS
    group = ((1 << SEARCHERS) - 1) << shift
    seed = sampling.seed[0]
    for k in range(thread // SEARCHERS, queued.count[0], cuda.gridsize(1) // SEARCHERS):
        i = np.int64(queued.agents[k])
        episode = bodies.episode[i] + np.int32(1)
        if table.scene.shape[0] > 0:
            if searcher == 0:
                take_from_table(i, episode, nav, table, bodies.scene.shape[0], parameters, scratch, thread, next_out)
            continue
        agent = agent_number(i, sampling)
        scene, heading = sample_scene(i, episode, sampling)
        hits, first, category = 0, 0, np.int32(0)
        while hits == 0 and first < MAX_CANDIDATES:
            if first % CANDIDATES == 0:
                category = sampled_category(agent, episode, scene, first // CANDIDATES, seed, parameters)
            if category < 0:
                break
            goal = goal_row(parameters, scene, category)
            found, start, nearest, distance = try_start(
                agent, episode, first + searcher, nav, scene, goal, seed, parameters, scratch, thread
            )
            hits = (cuda.ballot_sync(group, found) & group) >> shift
            if hits & ((2 << searcher) - 1) == 1 << searcher:  # this thread has the first accepted candidate
                keep_object_episode(i, scene, heading, start, nearest, distance, category, _NONE, parameters, next_out)
            first += SEARCHERS
        if hits == 0 and searcher == 0:
            errors_out[NO_EPISODE] = scene + np.int32(1)


SCORE, BEGIN, SAMPLE = (score_cpu, score_cuda), (begin_cpu, begin_cuda), (sample_cpu, sample_cuda)
AIM = aim_cpu, aim_cuda
"""Kernels in their CPU and CUDA forms."""
