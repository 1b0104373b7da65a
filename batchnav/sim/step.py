"""The kernels of a PointGoal step, in the order in which they run: see `pointnav.py`."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.walk import try_step
from batchnav.runtime.kernels import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.sim.episodes import MAX_CANDIDATES, STARTS_PER_GOAL, draw_scene, sample_goal, try_candidate
from batchnav.sim.measures import collided, goal_in_agent_frame, soft_spl, spl, step_reward
from batchnav.sim.state import FORWARD, LEFT, NUM_ACTIONS, RIGHT, STOP

SEARCHERS = 16
"""CUDA: threads that try candidates for one agent's episode at a time; a power of two, at most a warp."""


@lean_function
def _walk(i, action, nav, task, state, scratch, row):
    """Apply an action: (squared length moved, squared length wanted). Turning moves nothing."""
    zero = np.float32(0.0)
    if action == LEFT or action == RIGHT:
        state.turns[i] += np.int32(1) if action == LEFT else np.int32(-1)
        state.heading[i] = state.start_heading[i] + np.float32(state.turns[i]) * task.turn
        return zero, zero
    if action != FORWARD:
        return zero, zero
    x, y, z = state.position[i, 0], state.position[i, 1], state.position[i, 2]
    heading = state.heading[i]
    end_x = x - task.forward_step * np.float32(math.sin(heading))
    end_z = z - task.forward_step * np.float32(math.cos(heading))
    start, end = (x, y, z), (end_x, y, end_z)
    nx, ny, nz = try_step(nav, state.scene[i], start, end, task.sliding, scratch, row)
    state.position[i, 0], state.position[i, 1], state.position[i, 2] = nx, ny, nz
    moved = (nx - x) * (nx - x) + (ny - y) * (ny - y) + (nz - z) * (nz - z)
    wanted = (end_x - x) * (end_x - x) + (end_z - z) * (end_z - z)
    return moved, wanted


@lean_function
def _advance(i, action, nav, task, state, walked, result, scratch, row):
    """Walk, count, end, and leave the notes for `_judge`."""
    walked.distance[i], walked.episode_return[i] = state.distance[i], state.episode_return[i]
    moved, wanted = _walk(i, action, nav, task, state, scratch, row)
    if moved > np.float32(0.0):
        state.path_length[i] += np.float32(math.sqrt(moved))
    if collided(moved, wanted):
        state.collisions[i] += np.int32(1)
    state.steps[i] += np.int32(1)
    walked.moved[i] = moved > np.float32(0.0)
    walked.scene[i], walked.start_distance[i] = state.scene[i], state.start_distance[i]
    for axis in range(3):
        walked.position[i, axis], walked.goal[i, axis] = state.position[i, axis], state.goal[i, axis]
    result.terminated[i] = action == STOP
    result.truncated[i] = action != STOP and state.steps[i] >= task.max_steps
    result.done[i] = result.terminated[i] or result.truncated[i]
    result.finished_index[i] = state.table_index[i]
    result.metrics[4, i] = np.float32(state.collisions[i])
    result.metrics[5, i] = state.path_length[i]
    result.metrics[6, i] = np.float32(state.steps[i])


@lean_function
def _judge(i, nav, task, walked, state, result, scratch, row):
    """Geodesic distance, reward and metrics of a step, from its notes: the next episode may have begun meanwhile."""
    before = walked.distance[i]
    distance = before
    if walked.moved[i]:
        start, goal = point_at(i, walked.position), point_at(i, walked.goal)
        distance = geodesic_distance(nav, walked.scene[i], start, goal, scratch, row)
    start_distance, path_length = walked.start_distance[i], result.metrics[5, i]
    success = result.terminated[i] and distance < task.success_distance
    efficiency = spl(success, start_distance, path_length)
    reward = step_reward(task.slack_reward, before, distance, task.success_reward, efficiency)
    episode_return = walked.episode_return[i] + reward
    if not result.done[i]:
        state.distance[i], state.episode_return[i] = distance, episode_return
    result.reward[i] = reward
    result.metrics[0, i] = np.float32(1.0) if success else np.float32(0.0)
    result.metrics[1, i] = efficiency
    result.metrics[2, i] = soft_spl(distance, start_distance, path_length)
    result.metrics[3, i] = distance
    result.metrics[7, i] = episode_return


@lean_function
def _draw_from_table(i, episode, nav, table, state, upcoming, scratch, row):
    """The agent's next episode is the table's next for it."""
    # Agent i plays rows i, i + N, i + 2N ...; beyond the table's end it begins again, which evaluation ignores.
    rows, n = table.scene.shape[0], state.scene.shape[0]
    index = np.int64(i) + np.int64(episode) * np.int64(n)
    upcoming.table_index[i] = np.int32(index) if index < rows else np.int32(-1)
    index %= rows
    scene = table.scene[index]
    start, goal = point_at(index, table.start), point_at(index, table.goal)
    distance = geodesic_distance(nav, scene, start, goal, scratch, row)
    _keep(i, scene, table.heading[index], start, goal, distance, upcoming)


@lean_function
def _keep(i, scene, heading, start, goal, distance, upcoming):
    upcoming.scene[i], upcoming.heading[i], upcoming.distance[i] = scene, heading, distance
    keep_point(i, start, upcoming.start)
    keep_point(i, goal, upcoming.goal)


@lean_function
def _draw(i, nav, task, seed, scene_ranges, table, state, upcoming, result, scratch, row):
    """Draw the agent's next episode: the table's next for this agent, or the first candidate that makes one."""
    episode = state.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        _draw_from_table(i, episode, nav, table, state, upcoming, scratch, row)
        return
    scene, heading = draw_scene(seed[0], i, episode, scene_ranges[i, 0], scene_ranges[i, 1])
    island, goal = sample_goal(nav, scene, seed[0], i, episode, 0)
    for candidate in range(MAX_CANDIDATES):
        if candidate > 0 and candidate % STARTS_PER_GOAL == 0:
            island, goal = sample_goal(nav, scene, seed[0], i, episode, candidate)
        found, start, distance = try_candidate(
            nav, task, scene, seed[0], i, episode, candidate, island, goal, scratch, row
        )
        if found:
            _keep(i, scene, heading, start, goal, distance, upcoming)
            return
    result.flags[1] = scene + np.int32(1)


@lean_function
def _begin(i, upcoming, state):
    """Begin the episode that was drawn ahead."""
    state.episode[i] += np.int32(1)
    state.table_index[i] = upcoming.table_index[i]
    state.scene[i] = upcoming.scene[i]
    for axis in range(3):
        state.position[i, axis] = upcoming.start[i, axis]
        state.goal[i, axis] = upcoming.goal[i, axis]
    heading, distance = upcoming.heading[i], upcoming.distance[i]
    state.start_heading[i], state.heading[i], state.turns[i] = heading, heading, np.int32(0)
    state.start_distance[i], state.distance[i] = distance, distance
    state.path_length[i], state.episode_return[i] = np.float32(0.0), np.float32(0.0)
    state.collisions[i], state.steps[i] = np.int32(0), np.int32(0)


@lean_function
def _observe(i, task, state, result):
    """The goal in the agent's frame and the camera's place."""
    x, y, z = state.position[i, 0], state.position[i, 1], state.position[i, 2]
    rho, minus_phi = goal_in_agent_frame(x, z, state.heading[i], state.goal[i, 0], state.goal[i, 2])
    result.pointgoal[i, 0], result.pointgoal[i, 1] = rho, minus_phi
    result.camera[i, 0], result.camera[i, 1], result.camera[i, 2] = x, y + task.camera_height, z


@cpu_kernel
def advance_cpu(actions, nav, task, state, walked, scratch, chunks, result):
    """Walk, judge and observe every agent."""
    n = actions.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            _advance(i, actions[i], nav, task, state, walked, result, scratch, row)
            _judge(i, nav, task, walked, state, result, scratch, row)
            _observe(i, task, state, result)


@cpu_kernel
def reset_cpu(everyone, nav, task, seed, scene_ranges, table, state, scratch, chunks, upcoming, result):
    """Begin the episodes that are due, and draw those that follow."""
    n = result.done.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            if everyone or result.done[i]:
                _begin(i, upcoming, state)
                _observe(i, task, state, result)
                _draw(i, nav, task, seed, scene_ranges, table, state, upcoming, result, scratch, row)


@cpu_kernel
def draw_cpu(nav, task, seed, scene_ranges, table, state, scratch, chunks, upcoming, result):
    """`_draw` of the queued agents."""
    n = np.int64(upcoming.queued[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for k in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(upcoming.queue[k])
            _draw(i, nav, task, seed, scene_ranges, table, state, upcoming, result, scratch, row)


@exact_cuda_kernel
def advance_cuda(actions, nav, task, state, walked, scratch, result):
    """Walk and observe every agent, one per thread."""
    i = cuda.grid(1)
    if i < actions.shape[0]:
        action = actions[i]
        if action < 0 or action >= NUM_ACTIONS:
            cuda.atomic.add(result.flags, 0, 1)
        _advance(i, action, nav, task, state, walked, result, scratch, i)
        _observe(i, task, state, result)


@exact_cuda_kernel
def judge_cuda(nav, task, walked, state, scratch, result):
    """`_judge` of every agent, one per thread."""
    i = cuda.grid(1)
    if i < result.done.shape[0]:
        _judge(i, nav, task, walked, state, result, scratch, i)


@exact_cuda_kernel
def begin_cuda(everyone, task, upcoming, state, result):
    """Begin the episodes that are due, one agent per thread, and queue their agents for drawing."""
    i = cuda.grid(1)
    if i < result.done.shape[0] and (everyone or result.done[i]):
        _begin(i, upcoming, state)
        upcoming.queue[cuda.atomic.add(upcoming.queued, 0, 1)] = i
        _observe(i, task, state, result)


@exact_cuda_kernel
def draw_cuda(nav, task, seed, scene_ranges, table, state, scratch, upcoming, result):
    """`_draw` of the queued agents; SEARCHERS neighbouring threads try an agent's candidates side by side.

    Most candidates are refused, and a thread that tried them in turn would keep its whole warp waiting.
    """
    thread = cuda.grid(1)
    searcher = thread % SEARCHERS
    shift = cuda.laneid // SEARCHERS * SEARCHERS
    group = ((1 << SEARCHERS) - 1) << shift
    for k in range(thread // SEARCHERS, upcoming.queued[0], cuda.gridsize(1) // SEARCHERS):
        i = np.int64(upcoming.queue[k])
        episode = state.episode[i] + np.int32(1)
        if table.scene.shape[0] > 0:
            if searcher == 0:
                _draw_from_table(i, episode, nav, table, state, upcoming, scratch, thread)
            continue
        scene, heading = draw_scene(seed[0], i, episode, scene_ranges[i, 0], scene_ranges[i, 1])
        hits, first = 0, 0
        while hits == 0 and first < MAX_CANDIDATES:
            candidate = first + searcher
            island, goal = sample_goal(nav, scene, seed[0], i, episode, candidate)
            found, start, distance = try_candidate(
                nav, task, scene, seed[0], i, episode, candidate, island, goal, scratch, thread
            )
            hits = (cuda.ballot_sync(group, found and candidate < MAX_CANDIDATES) & group) >> shift
            if hits & ((2 << searcher) - 1) == 1 << searcher:  # found, and by none before
                _keep(i, scene, heading, start, goal, distance, upcoming)
            first += SEARCHERS
        if hits == 0 and searcher == 0:
            result.flags[1] = scene + np.int32(1)
