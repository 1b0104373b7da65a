"""ObjectGoal navigation: find an object of a category, and stop at a view point of any such object.

Habitat's task `objectnav` (Batra et al., "ObjectNav Revisited", 2020). A view point is a place from which the object is
visible (`scene/goals.py`). Rewards are decreases of the distance to the nearest view point, which a precomputed field
gives (`scene/goal_data.py`); the distances of SPL and success are Detour's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from batchnav.config import bounded, shortened
from batchnav.errors import ArgumentError, ConfigError, EpisodeError
from batchnav.geometry.pose import angle_between, point_at, squared_distance, store_point
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.navmesh.sample import random_point
from batchnav.observation import ObservationSource, Spec, TaskObservation
from batchnav.runtime.kernels.arrays import check_tensor, record_type, view
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.launch import Kernel, kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.runtime.kernels.synchronization import first_lane
from batchnav.scene.goal_data import GoalData, field_distance, goal_places, goal_row, place_at
from batchnav.sim.bodies import level_squared_distance
from batchnav.sim.episodes import FIRST_DRAW, agent_number, sample_scene
from batchnav.sim.simulator import NO_EPISODE, Simulator
from batchnav.tasks.config import SuccessRule
from batchnav.tasks.episode_sampling import (
    MIN_ISLAND_RADIUS,
    SAMPLING_BLOCK,
    SEARCHERS,
    EpisodeTable,
    accept_detour,
    keep_episode,
    table_row,
)
from batchnav.tasks.formulas import spl, step_reward
from batchnav.tasks.goal_task import METRIC_SPECS, GoalParameters, GoalTask, GoalTaskConfig, record_score
from batchnav.tasks.task import Field, refuse_where
from batchnav.types import Metric

HM3D = ("chair", "bed", "plant", "toilet", "tv_monitor", "sofa")
"""Categories of HM3D ObjectNav by number. Procedural houses have them too."""
MOST_CATEGORIES = 512
"""Largest number of categories."""


CANDIDATES = 256
"""Starts that are tried for a category before another category of the scene is tried."""
MAX_STARTS = 16 * CANDIDATES
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
ObjectParameters = record_type("ObjectParameters", (*GoalParameters._fields, *GoalData._fields), __name__)
"""Numbers of the configuration and arrays of the goals that the kernels read. Angles are those of view points."""


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


@kernel(block=SEARCH_BLOCK)
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
                store_point(i, place, state_out.goal)
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


@kernel(block=SEARCH_BLOCK)
def find_nearest_target(i, nav, bodies, state, parameters, scratch, row, target_out):
    """Write the view point of the agent's goal that is nearest to the agent; without one the target stays."""
    scene = bodies.scene[i]
    goal = goal_row(parameters, scene, state.category[i])
    _, nearest = nearest_view_point(nav, scene, goal, point_at(i, bodies.position), parameters, scratch, row)
    if nearest >= 0:
        place, _ = place_at(parameters, nearest)
        store_point(i, place, target_out)


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
    kept = euclidean > _ZERO and accept_detour(distance, euclidean, u3, parameters.min_detour_ratio)
    return kept, start, nearest, distance


@lean_function
def keep_object_episode(i, scene, heading, start, nearest, distance, category, table_index, parameters, next_out):
    """Write the agent's next episode. Its goal is the view point `nearest`, or the start where that is -1.

    The distance that rewards begin with is the field's where it is finite.
    """
    place = start
    if nearest >= 0:
        place, _ = place_at(parameters, nearest)
    keep_episode(i, scene, heading, start, place, distance, table_index, next_out)
    estimate, _ = field_distance(parameters, scene, goal_row(parameters, scene, category), start)
    if estimate < _INF:
        next_out.distance[i] = estimate
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


@kernel(over="teams", lanes=SEARCHERS, block=SAMPLING_BLOCK)
def sample_one(lane, lanes, i, nav, bodies, sampling, table, parameters, scratch, row, next_out, errors_out):
    """Sample the agent's next episode: its next row of the table, or the first candidate that is accepted."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        if lane == 0:
            take_from_table(i, episode, nav, table, bodies.scene.shape[0], parameters, scratch, row, next_out)
        return
    seed, agent = sampling.seed[0], agent_number(i, sampling)
    scene, heading = sample_scene(i, episode, sampling)
    category, first = np.int32(0), 0
    while first < MAX_STARTS:
        if first % CANDIDATES == 0:
            category = sampled_category(agent, episode, scene, first // CANDIDATES, seed, parameters)
        if category < 0:
            break
        goal = goal_row(parameters, scene, category)
        found, start, nearest, distance = try_start(
            agent, episode, first + lane, nav, scene, goal, seed, parameters, scratch, row
        )
        winner = first_lane(found, lane, lanes)
        if winner >= 0:
            if lane == winner:
                keep_object_episode(i, scene, heading, start, nearest, distance, category, _NONE, parameters, next_out)
            return
        first += lanes
    if lane == 0:
        errors_out[NO_EPISODE] = scene + np.int32(1)


# The task.


@dataclass(frozen=True)
class ObjectNavConfig(GoalTaskConfig):
    """Configuration of the ObjectGoal task. Defaults: Habitat's, for HM3D."""

    success_target = "the nearest view point of any object of the category"
    success_distance: float = 0.1
    """Geodesic distance to a view point in metres below which a stop succeeds."""
    slack_reward: float = -0.001
    success_reward: float = 2.5
    """Reward of a success."""
    min_detour_ratio: float = 1.05
    success_angle_deg: float = bounded(180.0, 0.0, 180.0)
    """Largest angle between the agent's heading and the object at a success, degrees; 180: any heading."""
    categories: tuple[str, ...] = HM3D
    """Names of the categories; the observation "objectgoal" is an index of this list. Empty: the categories of the
    scenes, sorted, at most 512."""
    rules: str = "hm3d_v2"
    """Name of the rules for making view points in scenes without goals (`batchnav.data.goals.rules`)."""
    labels: str = "hm3d"
    """Mapping from the labels of such scenes to categories: a name, or a .yaml file of patterns."""

    @property
    def success_rule(self) -> SuccessRule:
        """Stop near the goal, within the largest angle."""
        return super().success_rule._replace(max_angle_deg=self.success_angle_deg)

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        if len(set(self.categories)) != len(self.categories) or len(self.categories) > MOST_CATEGORIES:
            raise ConfigError(
                f"categories: found {shortened(list(self.categories))}, expected at most {MOST_CATEGORIES} different "
                "names"
            )


class ObjectNav(GoalTask):
    """The ObjectGoal task."""

    Config = ObjectNavConfig
    title = "ObjectGoal"
    goal_kind: str = "category"
    episode_file = "objectnav_{split}.json.gz"
    reference_agents: tuple[str, ...] = ("random", "forward", "map_searcher", "shortest_path")
    metric_specs = (*METRIC_SPECS, Metric("start_distance", shown=False), Metric("category", shown=False))
    fields: ClassVar[dict[str, Field]] = {
        **GoalTask.fields,
        "category": Field(dtype=torch.int64, low=0, high=2**31 - 1),  # of the goal
        # Number of the image among those of the goal; always 0 here. Instance ImageNav has the same fields, so that its
        # kernels are those of ObjectNav.
        "goal_image": Field(dtype=torch.int64, low=0, high=2**31 - 1),
    }
    score_kernel: Kernel = score_one
    sample_kernel: Kernel = sample_one

    def __init__(self, sim: Simulator, config: ObjectNavConfig, episodes: EpisodeTable | None = None):
        if sim.bank.goals is None:
            raise ArgumentError(
                "scenes: found a bank without goals, expected SceneBank.pack(..., goal_categories=config.categories)"
            )
        self.categories = sim.bank.goal_categories
        """Names of the categories by number."""
        super().__init__(sim, config, episodes)
        self.observations = {"objectgoal": self.running.category}
        self.goal_category = self.running.category
        self.ranges |= dict.fromkeys(("category", "objectgoal"), (0, len(self.categories) - 1))
        self.no_episode_message = self._no_episode_of(f"a goal of {', '.join(self.categories[:8])}")

    def _no_episode_of(self, goal: str) -> str:
        """`no_episode_message` of a task that needs `goal` in every scene."""
        closest, furthest = self.config.closest_goal, self.config.furthest_goal
        return (
            f"no episode found, expected {goal}, and starts {closest:g} to {furthest:g} m away on an island of radius "
            f">= {MIN_ISLAND_RADIUS:g} m"
        )

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...]:
        """Categories of the goals that the scene bank holds."""
        return config.categories

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """The number of the goal's category."""
        most = (len(config.categories) or MOST_CATEGORIES) - 1
        return (TaskObservation(Spec("objectgoal", (), torch.int64, 0, most, torch.int64)),)

    def check_table(self) -> None:
        """EpisodeError for an episode whose category has no goal in its scene."""
        table, count, goals = self.episodes, len(self.categories), self.sim.bank.goals
        if not len(table.scene):
            return
        category = table.category
        check_tensor("episodes.category", category, (len(table.scene),), torch.int64, self.sim.device)
        assert category is not None and goals is not None
        bad = (category < 0) | (category >= count)
        rows = goals.rows[table.scene.long() * count + category.clamp(0, count - 1)]
        bad |= rows[:, 0] == rows[:, 1]
        if bad.any():
            row = int(bad.nonzero()[0])
            found, scene = int(category[row]), self.sim.bank.names[int(table.scene[row])]
            name = repr(self.categories[found]) if 0 <= found < count else f"of {count} categories"
            raise EpisodeError(
                f"episodes.category[{row}]: found {found} ({name}), expected a category with goals in {scene!r}"
            )

    def check_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """CheckpointError for a category without a goal in the agent's scene."""
        goals, names, scene = self.sim.bank.goals, self.categories, state["scene"].cpu().long()
        assert goals is not None
        for name in ("category", "objectgoal"):
            if name in state:
                found = state[name].cpu()
                rows = goals.rows.cpu()[scene * len(names) + found]
                expected = f"one of the {len(names)} categories that has goals in the agent's scene"
                refuse_where(rows[:, 0] == rows[:, 1], name, found, expected)

    @property
    def nearest_target(self) -> torch.Tensor:
        """f32 [N, 3]: the view point nearest to each agent at the last `update_nearest_target`."""
        return self._nearest

    def update_nearest_target(self) -> None:
        """Find the nearest view points from the agents' current positions."""
        self._find_nearest_target()

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        self.check_table()
        super()._bind()
        sim = self.sim
        self._nearest = torch.zeros(sim.num_envs, 3, dtype=torch.float32, device=sim.device)
        read = sim.bank.navmesh_view, view(sim.bodies), view(self.running), self.kernel_parameters()
        self._find_nearest_target: Callable[[], None] = find_nearest_target.bind(
            sim.num_envs, *read, self.scratch, view(self._nearest), rows=sim.chunks
        )

    def kernel_parameters(self) -> Any:
        """Kernel arguments of configuration and goals."""
        general = GoalParameters.of(self.config, math.radians(self.config.success_angle_deg))
        return ObjectParameters(*general, *self.sim.bank.goals_view)
