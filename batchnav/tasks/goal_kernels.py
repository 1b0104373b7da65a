"""Kernels of tasks with goals: functions for one agent, then their loops over all agents on the CPU and on CUDA.

A task with another rule of success or reward replaces the pair `SCORE` by its own kernels, which call
`distance_to_goal` and `record_score`.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from batchnav.geometry.angle import angle_between
from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, inline_function, lean_function
from batchnav.sim.bodies import begin_episode, is_invalid
from batchnav.sim.episodes import NO_AGENT
from batchnav.sim.simulator import BAD_ACTION
from batchnav.tasks.formulas import goal_in_agent_frame, soft_spl, spl, step_reward
from batchnav.tasks.steps import advance_body, record_step_metrics

_INF, _PI = np.float32(np.inf), np.float32(np.pi)


# One agent.


@inline_function
def advance_one(i, actions, nav, state, body, parameters, scratch, row, bodies_out, transition_out):
    """Move the body, flag the end of its episode, and record the step for scoring."""
    advance_body(i, actions, nav, body, parameters.max_steps, scratch, row, bodies_out, transition_out)
    keep_point(i, point_at(i, state.goal), transition_out.goal)
    transition_out.start_distance[i], transition_out.distance[i] = state.start_distance[i], state.distance[i]
    transition_out.episode_return[i], transition_out.table_index[i] = state.episode_return[i], state.table_index[i]
    if state.goal_heading.shape[0] > 0:
        transition_out.heading[i], transition_out.goal_heading[i] = bodies_out.heading[i], state.goal_heading[i]
    if state.angle.shape[0] > 0:
        transition_out.angle[i] = state.angle[i]
    if state.category.shape[0] > 0:
        transition_out.heading[i], transition_out.category[i] = bodies_out.heading[i], state.category[i]
    if state.goal_range.shape[0] > 0:
        first, last = state.goal_range[i, 0], state.goal_range[i, 1]
        transition_out.goal_range[i, 0], transition_out.goal_range[i, 1] = first, last


@inline_function
def nearest_place(i, nav, episode, parameters, scratch, row):
    """Geodesic distance in metres from `episode.position` to the nearest place of the goal, and the row of that place.

    `episode` is a `GoalTransition` or a `NextEpisode`. The distance is infinite if no place can be reached. The row is
    -1 if the goal is a single point.
    """
    places, position, scene = parameters.places, point_at(i, episode.position), episode.scene[i]
    single = places.shape[0] == 0
    first, last = np.int32(-1), np.int32(0)
    if not single:
        first, last = episode.goal_range[i, 0], episode.goal_range[i, 1]
    nearest, row_of_nearest = _INF, first
    for k in range(first, last):
        goal = point_at(i, episode.goal) if single else point_at(k, places)
        distance = geodesic_distance(nav, scene, position, goal, scratch, row)
        if distance < nearest:
            nearest, row_of_nearest = distance, np.int32(k)
    return nearest, row_of_nearest


@inline_function
def distance_to_goal(i, nav, transition, parameters, scratch, row):
    """Geodesic distance in metres to the nearest place of the goal after the step."""
    distance = transition.distance[i]
    if transition.moved[i]:
        distance, _ = nearest_place(i, nav, transition, parameters, scratch, row)
    return distance


@inline_function
def faces_goal(i, transition, parameters):
    """True if the agent's heading is within the success angle of the goal heading, or if any heading succeeds."""
    if parameters.success_angle >= _PI:
        return True
    return angle_between(transition.heading[i], transition.goal_heading[i]) <= parameters.success_angle


@inline_function
def record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out):
    """Write distance, reward and all metrics of a step. State is not written if the episode ended."""
    start_distance, path_length = transition.start_distance[i], transition.path_length[i]
    episode_return = transition.episode_return[i] + reward
    if not bodies.done[i]:
        state_out.distance[i], state_out.episode_return[i] = distance, episode_return
    metrics_out.success[i] = np.float32(1.0) if success else np.float32(0.0)
    metrics_out.spl[i] = spl(success, start_distance, path_length)
    metrics_out.soft_spl[i] = soft_spl(distance, start_distance, path_length)
    metrics_out.distance_to_goal[i] = distance
    record_step_metrics(i, transition, episode_return, metrics_out)
    reward_out[i] = reward


@lean_function
def score_one(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step. Success: a stop within the success distance and angle. Reward: `formulas.step_reward`."""
    distance = distance_to_goal(i, nav, transition, parameters, scratch, row)
    near = bodies.terminated[i] and distance < parameters.success_distance
    success = near and faces_goal(i, transition, parameters)
    efficiency = spl(success, transition.start_distance[i], transition.path_length[i])
    slack_reward, success_reward = parameters.slack_reward, parameters.success_reward
    reward = step_reward(transition.distance[i], distance, efficiency, slack_reward, success_reward)
    record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out)


@lean_function
def begin_one(i, next_episode, bodies_out, state_out):
    """Begin the episode that was sampled ahead."""
    begin_episode(i, next_episode, bodies_out)
    state_out.table_index[i] = next_episode.table_index[i]
    keep_point(i, point_at(i, next_episode.goal), state_out.goal)
    state_out.start_distance[i], state_out.distance[i] = next_episode.distance[i], next_episode.distance[i]
    state_out.episode_return[i] = np.float32(0.0)
    begin_optional(i, next_episode, state_out)


@inline_function
def begin_optional(i, next_episode, state_out):
    """Set the optional fields in use. Scoring runs concurrently, and writes those of agents that go on."""
    if state_out.goal_heading.shape[0] > 0:
        state_out.goal_heading[i] = next_episode.goal_heading[i]
    if state_out.angle.shape[0] > 0:
        state_out.angle[i] = next_episode.angle[i]
    if state_out.category.shape[0] > 0:
        state_out.category[i] = next_episode.category[i]
    if state_out.goal_image.shape[0] > 0:
        state_out.goal_image[i] = next_episode.goal_image[i]
    if state_out.goal_range.shape[0] > 0:
        first, last = next_episode.goal_range[i, 0], next_episode.goal_range[i, 1]
        state_out.goal_range[i, 0], state_out.goal_range[i, 1] = first, last


@lean_function
def observe_one(i, bodies, state, relative_goal_out):
    """Write the goal in the agent's frame."""
    rho, minus_phi = goal_in_agent_frame(point_at(i, bodies.position), bodies.heading[i], point_at(i, state.goal))
    relative_goal_out[i, 0], relative_goal_out[i, 1] = rho, minus_phi


@lean_function
def begin_due(i, all_agents, next_episode, bodies_out, state_out, queue_out, relative_goal_out):
    """CPU: begin an episode that is due, and queue its agent. numba would lose these writes in the prange loop."""
    due = all_agents or bodies_out.done[i]
    if due:
        begin_one(i, next_episode, bodies_out, state_out)
        observe_one(i, bodies_out, state_out, relative_goal_out)
    queue_out.agents[i] = np.int32(i) if due else np.int32(NO_AGENT)


@lean_function
def measure_one(i, nav, parameters, scratch, row, next_out):
    """Set goal and distance of a next episode whose goal is a set of places: the place nearest to the start."""
    distance, nearest = nearest_place(i, nav, next_out, parameters, scratch, row)
    next_out.distance[i] = distance
    if nearest >= 0:
        keep_point(i, point_at(nearest, parameters.places), next_out.goal)


# All agents: on the CPU in chunks, each with one row of scratch memory; on CUDA one agent per thread.


@cpu_kernel
def advance_cpu(actions, nav, state, body, parameters, chunks, scratch, bodies_out, transition_out, relative_goal_out):
    """`advance_one` and `observe_one` of every agent."""
    n = actions.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, for which every callee would be compiled again
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            advance_one(i, actions, nav, state, body, parameters, scratch, row, bodies_out, transition_out)
            observe_one(i, bodies_out, state, relative_goal_out)


@cpu_kernel
def score_cpu(nav, bodies, transition, parameters, chunks, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    n = reward_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            score_one(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out)


@cpu_kernel
def begin_cpu(all_agents, next_episode, bodies_out, state_out, queue_out, relative_goal_out):
    """Begin the episodes that are due, and queue their agents for sampling."""
    n = relative_goal_out.shape[0]
    for i in prange(n):
        begin_due(np.int64(i), all_agents, next_episode, bodies_out, state_out, queue_out, relative_goal_out)
    queue_out.count[0] = n


@cpu_kernel
def measure_cpu(nav, queued, parameters, chunks, scratch, next_out):
    """`measure_one` of the queued agents."""
    n = np.int64(queued.count[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for k in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(queued.agents[k])
            if i != NO_AGENT:
                measure_one(i, nav, parameters, scratch, row, next_out)


@exact_cuda_kernel
def advance_cuda(
    actions, nav, state, body, parameters, scratch, bodies_out, transition_out, relative_goal_out, errors_out
):
    """`advance_one` and `observe_one` of every agent."""
    i = cuda.grid(1)
    if i < actions.shape[0]:
        if is_invalid(i, actions, body):
            errors_out[BAD_ACTION] = np.int32(i + 1)  # any agent's number is good enough where several write
        advance_one(i, actions, nav, state, body, parameters, scratch, i, bodies_out, transition_out)
        observe_one(i, bodies_out, state, relative_goal_out)


@exact_cuda_kernel
def score_cuda(nav, bodies, transition, parameters, scratch, state_out, metrics_out, reward_out):
    """`score_one` of every agent."""
    i = cuda.grid(1)
    if i < reward_out.shape[0]:
        score_one(i, nav, bodies, transition, parameters, scratch, i, state_out, metrics_out, reward_out)


@exact_cuda_kernel
def begin_cuda(all_agents, next_episode, bodies_out, state_out, queue_out, relative_goal_out):
    """Begin the episodes that are due, and queue their agents for sampling."""
    i = cuda.grid(1)
    if i < relative_goal_out.shape[0] and (all_agents or bodies_out.done[i]):
        begin_one(i, next_episode, bodies_out, state_out)
        queue_out.agents[cuda.atomic.add(queue_out.count, 0, 1)] = i
        observe_one(i, bodies_out, state_out, relative_goal_out)


@exact_cuda_kernel
def measure_cuda(nav, queued, parameters, scratch, next_out):
    """`measure_one` of the queued agents."""
    thread = cuda.grid(1)
    for k in range(thread, queued.count[0], cuda.gridsize(1)):
        measure_one(np.int64(queued.agents[k]), nav, parameters, scratch, thread, next_out)


ADVANCE, SCORE, BEGIN, MEASURE = (
    (advance_cpu, advance_cuda), (score_cpu, score_cuda), (begin_cpu, begin_cuda), (measure_cpu, measure_cuda)
)  # fmt: skip
"""Kernels in their CPU and CUDA forms."""
