"""The steps of sequences of goals: kernels for one agent that end subtasks, begin the next ones, and score steps.

`tasks/sequence.py` defines the task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from batchnav.geometry.pose import goal_in_agent_frame, point_at, store_point
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import record_type
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.intrinsics import copy_fields
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.runtime.kernels.synchronization import enqueue, first_lane
from batchnav.scene.goal_data import GoalData, field_distance, goal_places, goal_row, place_at
from batchnav.sim.bodies import (
    begin_episode,
    calls_stop,
    end_episode,
    keep_start,
    level_squared_distance,
    step_body,
)
from batchnav.sim.episodes import GOAL_DRAW, agent_number, sample_scene
from batchnav.sim.simulator import NO_EPISODE
from batchnav.tasks.episode_sampling import SAMPLING_BLOCK, SEARCHERS, table_row
from batchnav.tasks.formulas import path_efficiency, spl, step_reward
from batchnav.tasks.goal_task import GoalParameters
from batchnav.tasks.objectnav import (
    CANDIDATES,
    MAX_STARTS,
    NEAR,
    nearest_view_point,
    sampled_category,
    sees_goal,
    try_start,
)
from batchnav.tasks.task import flag_invalid, record_step_metrics

MOST_SUBTASKS = 32
"""Largest number of subtasks of an episode."""
_RIGHT, _SWITCHED = np.int32(1), np.int32(2)
"""Bits of the field `outcome`: the last step ended a subtask rightly; it began the next one."""
_IMAGE_DRAWS = 2**30
"""Number of the first draw that gives the image of a subtask."""
_INF, _NAN, _ZERO, _ONE = np.float32(np.inf), np.float32(np.nan), np.float32(0.0), np.float32(1.0)
_NUMBERS = ("max_subtask_steps", "wrong_ends", "any_order", "fewest", "most")
_TABLES = ("sequences", "subtasks", "places_of_subtasks", "of_category", "image_counts")
SequenceParameters = record_type(
    "SequenceParameters", (*GoalParameters._fields, *GoalData._fields, *_NUMBERS, *_TABLES), __name__
)
"""Numbers of the configuration, arrays of the goals, and the subtasks of fixed episodes, which the kernels read."""


# One agent. `key`: seed, number of the agent among those of all processes, number of the episode.


@lean_function
def reachable_category(k, scene, point, key, first, parameters):
    """Category k of a sampled episode: of those that can be reached from a point, in the episode's random order.

    `first`: rank of the first one. -1: there are fewer.
    """
    seed, agent, episode = key
    found = np.int32(-1)
    present = np.int32(0)
    for c in range(parameters.keys.shape[0]):
        begin, end = goal_places(parameters, goal_row(parameters, scene, c))
        present += np.int32(1 if begin < end else 0)
    for rank in range(first, first + present):
        category = sampled_category(agent, episode, scene, rank, seed, parameters)
        distance, _ = field_distance(parameters, scene, goal_row(parameters, scene, category), point)
        if distance < _INF:
            found += np.int32(1)
            if found == k:
                return category
    return np.int32(-1)


@lean_function
def subtask_at(k, row, scene, point, key, parameters):
    """Subtask k of an episode: numbers as the columns of `SequenceTable.subtasks`, and place.

    `row`: the first row of a fixed episode, or -1 minus the first rank of a sampled one, which begins at `point`.
    """
    if row >= 0:
        r = row + k
        numbers = parameters.subtasks
        return (
            numbers[r, 0], numbers[r, 1], numbers[r, 2], numbers[r, 3], point_at(r, parameters.places_of_subtasks),
        )  # fmt: skip
    category = reachable_category(k, scene, point, key, -1 - row, parameters)
    image = np.int32(0)
    if category < 0:
        return category, category, np.int32(0), image, point
    count = parameters.image_counts[goal_row(parameters, scene, category)]
    if count > 1:
        u, _, _, _ = uniform4(key[0], key[1], key[2], np.int64(_IMAGE_DRAWS) + np.int64(k))
        image = np.int32(min(np.int32(u * np.float32(count)), np.int32(count - np.int32(1))))
    return category, parameters.of_category[category, 0], parameters.of_category[category, 1], image, point


@lean_function
def distance_to_subtask(scene, category, place, point, exact, nav, parameters, scratch, row):
    """Detour's distance in metres from a point to a subtask's goal, and the place there; inf where there is no path.

    `exact`: the smallest distance over all view points, as for fixed episodes of ObjectNav; otherwise the distance to
    the view point that the field names as nearest, as for sampled ones.
    """
    first, last, nearest = np.int32(0), np.int32(0), np.int32(-1)
    if category >= 0:
        goal = goal_row(parameters, scene, category)
        _, nearest = field_distance(parameters, scene, goal, point)
        first, last = goal_places(parameters, goal)
        if nearest < 0 and not exact:
            return _INF, point
    best, found = _INF, point if category >= 0 else place
    for k in range(first - 1, last):  # the place, or the view point that the field names; then all view points
        target = place
        if k >= first or nearest >= 0:
            target, _ = place_at(parameters, nearest if k < first else k)
        known = category < 0 or nearest >= 0
        if (k < first and known) or (k >= first and level_squared_distance(point, target) < best * best):
            distance = geodesic_distance(nav, scene, point, target, scratch, row)  # the only call: it is compiled once
            if k < first or distance < best:
                best, found = distance, target
        if k < first and not exact and best >= NEAR:
            break
    return best, found


@lean_function
def is_found(i, category, place, nav, bodies, parameters, scratch, row):
    """True where the agent may stop for a subtask's goal."""
    scene = bodies.scene[i]
    if category >= 0:
        return sees_goal(i, nav, bodies, goal_row(parameters, scene, category), parameters, scratch, row)
    return (
        geodesic_distance(nav, scene, point_at(i, bodies.position), place, scratch, row) < parameters.success_distance
    )


@lean_function
def begin_subtask(i, k, scene, point, key, nav, parameters, scratch, row, state_out):
    """Make subtask k the current one of an agent at a point. `state_out`: the running or the next episode.

    The distance that rewards begin with is the field's where it is finite.
    """
    origin = point_at(i, state_out.origin)
    category, shown, number, image, place = subtask_at(
        np.int32(k), state_out.order[i, 0], scene, origin, key, parameters
    )
    exact = state_out.order[i, 0] >= 0
    distance, goal = distance_to_subtask(scene, category, place, point, exact, nav, parameters, scratch, row)
    state_out.category[i], state_out.shown_category[i] = np.int64(category), np.int64(shown)
    state_out.objectgoal[i], state_out.goal_image[i] = np.int64(number), np.int64(image)
    store_point(i, goal, state_out.goal)
    store_point(i, point, state_out.begun)
    state_out.start_distance[i], state_out.distance[i] = distance, distance
    if category >= 0:
        estimate, _ = field_distance(parameters, scene, goal_row(parameters, scene, category), point)
        if estimate < _INF:
            state_out.distance[i] = estimate
    state_out.order[i, 1] = np.int32(k)


@lean_function
def ended_subtask(i, key, nav, bodies, state, parameters, scratch, row):
    """The subtask that a stop ends, and whether the stop is right. In any order it ends a remaining one."""
    scene, current = bodies.scene[i], state.order[i, 1]
    first, last = current, current + np.int32(1)
    if parameters.any_order:
        first, last = np.int32(0), state.counts[i, 0]
    for k in range(first, last):
        if (state.remaining[i] >> np.int64(k)) & np.int64(1):
            category, place = np.int32(state.category[i]), point_at(i, state.goal)
            if k != current:
                origin = point_at(i, state.origin)
                category, _, _, _, place = subtask_at(np.int32(k), state.order[i, 0], scene, origin, key, parameters)
            if is_found(i, category, place, nav, bodies, parameters, scratch, row):
                return np.int32(k), True
    return current, False


@lean_function
def next_subtask(i, key, nav, bodies, state, parameters, scratch, row):
    """Number of the next subtask: the next of the list, or in any order the nearest of those that remain."""
    if not parameters.any_order:
        return np.int32(state.order[i, 1] + np.int32(1))
    best, nearest = _INF, np.int32(-1)
    scene, point, exact = bodies.scene[i], point_at(i, bodies.position), state.order[i, 0] >= 0
    for k in range(state.counts[i, 0]):
        if (state.remaining[i] >> np.int64(k)) & np.int64(1):
            origin = point_at(i, state.origin)
            category, _, _, _, place = subtask_at(np.int32(k), state.order[i, 0], scene, origin, key, parameters)
            distance, _ = distance_to_subtask(scene, category, place, point, exact, nav, parameters, scratch, row)
            if nearest < 0 or distance < best:
                best, nearest = distance, np.int32(k)
    return nearest


@lean_function
def record_subtask(i, k, right, start_distance, bodies, state_out, results_out):
    """Count an ended subtask: right or wrong, SPL since its begin, and the tour up to the last right one."""
    efficiency = spl(right, start_distance, bodies.path_length[i] - state_out.sums[i, 0])
    place = state_out.counts[i, 1]
    results_out[i, place, 0], results_out[i, place, 1] = (_ONE if right else _ZERO), efficiency
    results_out[i, place, 2], results_out[i, place, 3] = np.float32(bodies.steps[i]), np.float32(k)
    state_out.counts[i, 1] += np.int32(1)
    state_out.sums[i, 1] += efficiency
    state_out.remaining[i] &= ~(np.int64(1) << np.int64(k))
    if right:
        state_out.counts[i, 2] += np.int32(1)
        state_out.tours[i, 1], state_out.tours[i, 2] = state_out.tours[i, 0], bodies.path_length[i]


@lean_function
def switch_subtask(i, stops, key, nav, bodies, parameters, scratch, row, state_out, results_out):
    """End the current subtask, and begin the next one. Returns whether the episode ends, and the bits of `outcome`."""
    scene, point = bodies.scene[i], point_at(i, bodies.position)
    k, right, start_distance = state_out.order[i, 1], False, state_out.start_distance[i]
    if stops:
        k, right = ended_subtask(i, key, nav, bodies, state_out, parameters, scratch, row)
    category, place = np.int32(state_out.category[i]), point_at(i, state_out.goal)
    if k != state_out.order[i, 1]:  # another one than the nearest was found
        origin, begun = point_at(i, state_out.origin), point_at(i, state_out.begun)
        category, _, _, _, place = subtask_at(k, state_out.order[i, 0], scene, origin, key, parameters)
        exact = state_out.order[i, 0] >= 0
        distance, _ = distance_to_subtask(scene, category, place, begun, exact, nav, parameters, scratch, row)
        state_out.tours[i, 0] += distance - start_distance
        start_distance = distance
    record_subtask(i, k, right, start_distance, bodies, state_out, results_out)
    outcome = _RIGHT if right else np.int32(0)
    if state_out.counts[i, 1] == state_out.counts[i, 0] or (stops and not right and parameters.wrong_ends):
        return True, outcome
    following = next_subtask(i, key, nav, bodies, state_out, parameters, scratch, row)
    begin_subtask(i, following, scene, point, key, nav, parameters, scratch, row, state_out)
    leg = state_out.start_distance[i]
    if category < 0:  # MultiON's tour leads from place to place
        following, goal = np.int32(state_out.category[i]), point_at(i, state_out.goal)
        leg, _ = distance_to_subtask(scene, following, goal, place, True, nav, parameters, scratch, row)
    state_out.tours[i, 0] += leg
    state_out.sums[i, 0], state_out.order[i, 2] = bodies.path_length[i], bodies.steps[i]
    state_out.goal_number[i] += np.int32(1)
    return False, outcome | _SWITCHED


class Observed(NamedTuple):
    """What tasks and agents read after a step."""

    relative_goal: Any
    """f32 [N, 2]: distance and bearing of the goal where it is a place, else zeros."""
    results: Any
    """f32 [N, MOST_SUBTASKS, 4]: results of subtasks in the order in which they ended; NaN for those that did not."""


@kernel(block=SEARCH_BLOCK)
def advance(
    i, actions, nav, body, parameters, scratch, row, bodies_out, state_out, transition_out, observed_out, errors_out
):
    """Move the body, record the step for scoring, and end the subtask where the agent stops or its steps are used up.

    A step that ends the episode's steps ends the subtask too. Where steps are used up the episode is truncated.
    """
    flag_invalid(i, actions, body, errors_out)
    transition_out.moved[i] = step_body(i, actions, nav, body, scratch, row, bodies_out)
    copy_fields(i, bodies_out, transition_out)
    copy_fields(i, state_out, transition_out)
    steps, ends, outcome = bodies_out.steps[i], False, np.int32(0)
    if steps == 1:
        for k in range(observed_out.results.shape[1]):
            for column in range(observed_out.results.shape[2]):
                observed_out.results[i, k, column] = _NAN
    stops = calls_stop(i, actions, body)
    if stops or steps - state_out.order[i, 2] >= parameters.max_subtask_steps or steps >= parameters.max_steps:
        key = body.seed[0], agent_number(i, body), bodies_out.episode[i]
        results = observed_out.results
        ends, outcome = switch_subtask(i, stops, key, nav, bodies_out, parameters, scratch, row, state_out, results)
        for column in range(3):
            transition_out.counts[i, column] = state_out.counts[i, column]
            transition_out.sums[i, column] = state_out.sums[i, column]
            transition_out.tours[i, column] = state_out.tours[i, column]
    transition_out.outcome[i] = outcome
    terminated = ends and stops
    end_episode(i, terminated, parameters.max_steps, bodies_out)
    if ends and not stops:
        bodies_out.truncated[i], bodies_out.done[i] = True, True
    observe_place(i, bodies_out, state_out, observed_out.relative_goal)


@inline_function
def observe_place(i, bodies, state, relative_goal_out):
    """Write the goal in the agent's frame where it is a place, else zeros: agents do not know where objects are."""
    rho, minus_phi = _ZERO, _ZERO
    if state.category[i] < 0:
        position, goal = point_at(i, bodies.position), point_at(i, state.goal)
        rho, minus_phi = goal_in_agent_frame(position, bodies.heading[i], goal)
    relative_goal_out[i, 0], relative_goal_out[i, 1] = rho, minus_phi


@kernel()
def begin(i, all_agents, next_episode, bodies_out, state_out, queue_out, relative_goal_out):
    """Begin the episode that was sampled ahead if it is due, and queue the agent for sampling."""
    due = all_agents or bodies_out.done[i]
    if due:
        begin_episode(i, next_episode, bodies_out)
        copy_fields(i, next_episode, state_out)
        state_out.episode_return[i] = _ZERO
        observe_place(i, bodies_out, state_out, relative_goal_out)
    enqueue(i, due, queue_out.agents, queue_out.count)


@kernel(block=SEARCH_BLOCK)
def score(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step by the goal that it was made for: progress, and the reward of a right stop."""
    scene, before, category = transition.scene[i], transition.distance[i], transition.category[i]
    distance, position, goes_on = before, point_at(i, transition.position), not bodies.done[i]
    outcome = transition.outcome[i]
    keeps_goal = goes_on and not (outcome & _SWITCHED)
    if transition.moved[i] and category < 0:
        distance = geodesic_distance(nav, scene, position, point_at(i, transition.goal), scratch, row)
    elif transition.moved[i]:
        found, nearest = field_distance(parameters, scene, goal_row(parameters, scene, category), position)
        if found < _INF:
            distance = found
            if keeps_goal:
                place, _ = place_at(parameters, nearest)
                store_point(i, place, state_out.goal)
    bonus = _ONE if outcome & _RIGHT else _ZERO
    reward = step_reward(before, distance, bonus, parameters.slack_reward, parameters.success_reward)
    episode_return = transition.episode_return[i] + reward
    if goes_on:
        state_out.episode_return[i] = episode_return
    if keeps_goal:
        state_out.distance[i] = distance
    elif category >= 0:
        goal = goal_row(parameters, scene, category)
        distance, _ = nearest_view_point(nav, scene, goal, position, parameters, scratch, row)
    record_metrics(i, transition, distance, episode_return, metrics_out)
    reward_out[i] = reward


@inline_function
def record_metrics(i, transition, distance, episode_return, metrics_out):
    """Write the metrics of an episode up to a step. `distance`: to the goal of its last subtask, metres."""
    number, right = np.float32(transition.counts[i, 0]), np.float32(transition.counts[i, 2])
    share = right / number
    weighted = share * path_efficiency(transition.tours[i, 1], transition.tours[i, 2]) if right > _ZERO else _ZERO
    metrics_out.success[i] = _ONE if right == number else _ZERO
    metrics_out.subtask_success[i], metrics_out.subtask_spl[i] = share, transition.sums[i, 1] / number
    metrics_out.spl[i], metrics_out.ppl[i] = (weighted if right == number else _ZERO), weighted
    metrics_out.subtasks[i], metrics_out.distance_to_goal[i] = number, distance
    record_step_metrics(i, transition, episode_return, metrics_out)


@kernel(block=SEARCH_BLOCK)
def find_nearest_target(i, nav, bodies, state, parameters, scratch, row, target_out):
    """Write the place of the agent's goal, or its view point that is nearest to the agent; without one none."""
    category = state.category[i]
    if category < 0:
        store_point(i, point_at(i, state.goal), target_out)
        return
    scene = bodies.scene[i]
    goal = goal_row(parameters, scene, category)
    _, nearest = nearest_view_point(nav, scene, goal, point_at(i, bodies.position), parameters, scratch, row)
    if nearest >= 0:
        place, _ = place_at(parameters, nearest)
        store_point(i, place, target_out)


@lean_function
def keep_sequence(i, begin_at, order, table_index, key, nav, parameters, scratch, row, next_out):
    """Write the agent's next episode.

    `begin_at`: scene, start and heading. `order`: first row or rank as in `subtask_at`, and number of subtasks.
    """
    scene, start, heading = begin_at
    keep_start(i, scene, start, heading, next_out)
    store_point(i, start, next_out.origin)
    next_out.table_index[i] = table_index
    next_out.order[i, 0], next_out.order[i, 2] = order[0], np.int32(0)
    for column in range(3):
        next_out.sums[i, column], next_out.tours[i, column] = _ZERO, _ZERO
    next_out.counts[i, 0], next_out.counts[i, 1], next_out.counts[i, 2] = order[1], np.int32(0), np.int32(0)
    next_out.remaining[i] = (np.int64(1) << np.int64(order[1])) - np.int64(1)
    next_out.outcome[i], next_out.goal_number[i] = np.int32(0), key[2] * np.int32(MOST_SUBTASKS)
    first = np.int32(0)
    if parameters.any_order:
        best, exact = _INF, order[0] >= 0
        for k in range(order[1]):
            category, _, _, _, place = subtask_at(np.int32(k), order[0], scene, start, key, parameters)
            distance, _ = distance_to_subtask(scene, category, place, start, exact, nav, parameters, scratch, row)
            if distance < best:
                best, first = distance, np.int32(k)
    begin_subtask(i, first, scene, start, key, nav, parameters, scratch, row, next_out)
    next_out.tours[i, 0], next_out.sums[i, 2] = next_out.start_distance[i], next_out.start_distance[i]


@lean_function
def number_of_subtasks(scene, start, rank, key, parameters):
    """A random number of subtasks, at most that of the goals which can be reached."""
    u, _, _, _ = uniform4(key[0], key[1], key[2], GOAL_DRAW)
    fewest, most = parameters.fewest, parameters.most
    number = fewest + min(np.int32(u * np.float32(most - fewest + np.int32(1))), most - fewest)
    while number > 1 and reachable_category(np.int32(number - np.int32(1)), scene, start, key, rank, parameters) < 0:
        number -= np.int32(1)
    return np.int32(number)


@kernel(over="teams", lanes=SEARCHERS, block=SAMPLING_BLOCK)
def sample_one(lane, lanes, i, nav, bodies, sampling, table, parameters, scratch, row, next_out, errors_out):
    """Sample the agent's next episode: its next row of the table, or the first candidate that is accepted."""
    episode = bodies.episode[i] + np.int32(1)
    seed, agent = sampling.seed[0], agent_number(i, sampling)
    key = seed, agent, episode
    if table.scene.shape[0] > 0:
        k, index = table_row(i, episode, table, bodies.scene.shape[0])
        scene, start, heading = table.scene[k], point_at(k, table.start), table.heading[k]
        order, winner = (parameters.sequences[k, 0], parameters.sequences[k, 1]), 0
    else:
        scene, heading = sample_scene(i, episode, sampling)
        start, order, index, winner = (_ZERO, _ZERO, _ZERO), (np.int32(0), np.int32(0)), np.int32(-1), -1
        category, first, rank = np.int32(0), 0, 0
        while first < MAX_STARTS and category >= 0 and winner < 0:
            rank = first // CANDIDATES
            if first % CANDIDATES == 0:
                category = sampled_category(agent, episode, scene, rank, seed, parameters)
            if category >= 0:
                goal, tried = goal_row(parameters, scene, category), first + lane
                found, start, _, _ = try_start(agent, episode, tried, nav, scene, goal, seed, parameters, scratch, row)
                winner = first_lane(found, lane, lanes)
                first += lanes
        if lane == winner:
            order = np.int32(-1 - rank), number_of_subtasks(scene, start, rank, key, parameters)
    if lane == winner:
        keep_sequence(i, (scene, start, heading), order, index, key, nav, parameters, scratch, row, next_out)
    if lane == 0 and winner < 0:
        errors_out[NO_EPISODE] = scene + np.int32(1)
