"""Social navigation: PointNav among people that walk. Steps, success and episodes are those of `tasks/pointnav.py`.

After each step, every robot's distances to the people of its world are recorded: collisions, personal space, and how
far it stands on somebody's path. Metrics and reward terms follow Falcon (Gong et al., "From cognition to precognition:
a future-aware framework for social navigation", ICRA 2025) and the principles of arXiv 2306.16740.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from batchnav.config import bounded
from batchnav.geometry.pose import point_at
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import record_type, view
from batchnav.runtime.kernels.decorators import inline_function, lean_function
from batchnav.runtime.kernels.launch import Kernel, kernel
from batchnav.sim.bodies import level_squared_distance
from batchnav.sim.others import CONTACT, STOREY
from batchnav.tasks.formulas import spl, step_reward
from batchnav.tasks.goal_task import METRIC_SPECS, GoalParameters, distance_to_goal, record_score
from batchnav.tasks.pointnav import PointNav, PointNavConfig
from batchnav.tasks.task import Field
from batchnav.types import Metric
from batchnav.world.people import CORNERS

INTIMATE, PERSONAL = np.float32(0.5), np.float32(1.0)
"""Metres between the middles of a robot and a person that the two measures of personal space allow at least."""
FAR = 10.0
"""Metres. Distances to people are limited to this."""
FUTURE = 5
"""Steps of a person's path ahead that a robot should not stand on, as in Falcon."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)

SOCIAL_METRICS = (
    Metric("stl", high=1.0, headline=True),
    Metric("human_collision", high=1.0, binary=True, headline=True),
    Metric("human_collisions"),
    Metric("psc_05", high=1.0),
    Metric("psc_10", high=1.0, headline=True),
    Metric("least_distance", high=FAR),
    Metric("stalled"),
)
"""Success weighted by time length: success * t / max(t, steps), t the fewest steps of the shortest path; whether the
robot touched a person, and how often; shares of steps with everybody at 0.5 and at 1.0 m or more; the least distance to
a person, metres; steps without motion, turns included."""
_TERMS = (
    "progress_reward", "human_distance_penalty", "human_distance_scale", "human_collision_penalty",
    "collision_penalty", "path_penalty",
)  # fmt: skip
SocialParameters: Any = record_type(
    "SocialParameters", (*GoalParameters._fields, *_TERMS, "human_collision_ends", "step_length"), __name__
)
"""Numbers of `SocialNavConfig` that kernels read, and the length of the longest step, metres."""


@dataclass(frozen=True)
class SocialNavConfig(PointNavConfig):
    """Configuration of social navigation. Defaults: PointNav's reward and end of an episode."""

    human_collision_ends: bool = False
    """True: a collision with a person ends the episode without success."""
    progress_reward: float = bounded(1.0, 0.0, 1e3)
    """Reward of each metre by which the geodesic distance to the goal decreases."""
    human_distance_penalty: float = bounded(0.0, 0.0, 1e3)
    """Penalty of a step at distance 0 from the nearest person; it falls off exponentially with the distance."""
    human_distance_scale: float = bounded(1.0, 1e-2, 100.0)
    """Distance at which that penalty is 1/e of its greatest value, metres."""
    human_collision_penalty: float = bounded(0.0, 0.0, 1e3)
    """Penalty of each collision with a person."""
    collision_penalty: float = bounded(0.0, 0.0, 1e3)
    """Penalty of each collision with the scene."""
    path_penalty: float = bounded(0.0, 0.0, 1e3)
    """Penalty of standing where a person will be within five steps: 1 / (1 + t) of it for t steps ahead."""


# One agent.


@kernel()
def observe_people(i, bodies, people, rules, parameters, state_out, transition_out, bodies_out):
    """Record agent i's distances to the people of its world after a step; a collision may end the episode."""
    here, world = point_at(i, bodies.position), i // rules.agents
    nearest, touching, ahead = np.float32(FAR), False, _ZERO
    for k in range(people.count[world]):
        row = world * rules.most + k
        there = point_at(row, people.position)
        if abs(here[1] - there[1]) < STOREY:
            apart = np.float32(math.sqrt(level_squared_distance(here, there)))
            reach = rules.agent_radius + people.radius[row]
            nearest, touching = min(nearest, apart), touching or apart <= reach + CONTACT
            if k >= rules.scripted and parameters.path_penalty > _ZERO:
                ahead += _on_path(row, here, reach, people, rules)
    began = touching and state_out.touching[i] <= _ZERO
    state_out.touching[i] = _ONE if touching else _ZERO
    state_out.human_collisions[i] += _ONE if began else _ZERO
    state_out.close_steps[i] += _ONE if nearest < INTIMATE else _ZERO
    state_out.near_steps[i] += _ONE if nearest < PERSONAL else _ZERO
    state_out.least_distance[i] = min(state_out.least_distance[i], nearest)
    state_out.stalled[i] += _ZERO if transition_out.moved[i] else _ONE
    state_out.on_path[i], state_out.human_distance[i] = ahead, nearest
    new_collision = state_out.collisions_before[i] < np.float32(bodies.collisions[i])
    state_out.collided[i] = _ONE if new_collision else _ZERO
    state_out.collisions_before[i] = np.float32(bodies.collisions[i])
    state_out.began[i] = _ONE if began else _ZERO
    _keep(i, state_out, transition_out)
    if touching and parameters.human_collision_ends:
        bodies_out.terminated[i], bodies_out.truncated[i], bodies_out.done[i] = True, False, True


@inline_function
def _keep(i, state, transition_out):
    """Copy what was recorded after the step, since the next episode may begin before scoring."""
    transition_out.human_collisions[i], transition_out.began[i] = state.human_collisions[i], state.began[i]
    transition_out.close_steps[i], transition_out.near_steps[i] = state.close_steps[i], state.near_steps[i]
    transition_out.least_distance[i], transition_out.stalled[i] = state.least_distance[i], state.stalled[i]
    transition_out.on_path[i], transition_out.human_distance[i] = state.on_path[i], state.human_distance[i]
    transition_out.collided[i] = state.collided[i]


@lean_function
def _on_path(row, here, reach, people, rules):
    """Sum of 1 / (1 + t) over the next steps t after which a person will be within `reach` of a point."""
    x, _, z = point_at(row, people.position)
    corner, total = people.corner[row], _ZERO
    for t in range(FUTURE):
        left = people.speed[row] * rules.step_time
        while left > _ZERO and corner < people.corners[row]:
            to = point_at(row * CORNERS + corner, people.path)
            dx, dz = to[0] - x, to[2] - z
            length = np.float32(math.sqrt(dx * dx + dz * dz))
            if length > left:
                x, z, left = x + left * dx / length, z + left * dz / length, _ZERO
            else:
                x, z, left, corner = to[0], to[2], left - length, corner + 1
        if (x - here[0]) * (x - here[0]) + (z - here[2]) * (z - here[2]) < reach * reach:
            total += _ONE / np.float32(1 + t)
    return total


@kernel(block=SEARCH_BLOCK)
def score(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step. Success: a stop within the success distance; never after a collision that ends the episode."""
    distance, steps = distance_to_goal(i, nav, transition, scratch, row), np.float32(transition.steps[i])
    hit = transition.human_collisions[i] > _ZERO
    success = bodies.terminated[i] and distance < parameters.success_distance
    success = success and not (hit and parameters.human_collision_ends)
    efficiency = spl(success, transition.start_distance[i], transition.path_length[i])
    weight = parameters.progress_reward
    before, after = weight * transition.distance[i], weight * distance
    reward = step_reward(before, after, efficiency, parameters.slack_reward, parameters.success_reward)
    near = np.float32(math.exp(-transition.human_distance[i] / parameters.human_distance_scale))
    reward -= parameters.human_distance_penalty * near + parameters.human_collision_penalty * transition.began[i]
    reward -= parameters.collision_penalty * transition.collided[i] + parameters.path_penalty * transition.on_path[i]
    record_score(i, bodies, transition, distance, success, reward, state_out, metrics_out, reward_out)
    fewest = transition.start_distance[i] / parameters.step_length
    metrics_out.stl[i] = spl(success, fewest, steps)
    metrics_out.human_collision[i] = _ONE if hit else _ZERO
    metrics_out.human_collisions[i] = transition.human_collisions[i]
    metrics_out.psc_05[i] = _ONE - transition.close_steps[i] / steps
    metrics_out.psc_10[i] = _ONE - transition.near_steps[i] / steps
    metrics_out.least_distance[i] = transition.least_distance[i]
    metrics_out.stalled[i] = transition.stalled[i]


# The task.


class SocialNav(PointNav):
    """PointNav among people."""

    Config = SocialNavConfig
    title = "Social navigation"
    episode_file = "socialnav_{split}.json.gz"
    among_people = True
    reference_agents = (
        "random", "forward", "greedy", "map_planner", "map_planner_anticipation", "shortest_path", "orca",
        "wait_and_go",
    )  # fmt: skip
    metric_specs = (*METRIC_SPECS[:2], *SOCIAL_METRICS, *METRIC_SPECS[2:])
    fields: ClassVar[dict[str, Field]] = {
        **PointNav.fields,
        # Of the last step; and, up to `stalled`, of the episode so far. Each begins with its value of `reset`.
        "human_distance": Field(reset=FAR, low=0.0, high=FAR), "on_path": Field(low=0.0),
        "began": Field(low=0.0, high=1.0), "collided": Field(low=0.0, high=1.0),
        "touching": Field(low=0.0, high=1.0), "human_collisions": Field(low=0.0), "close_steps": Field(low=0.0),
        "near_steps": Field(low=0.0), "collisions_before": Field(low=0.0),
        "least_distance": Field(reset=FAR, low=0.0, high=FAR), "stalled": Field(low=0.0),
    }  # fmt: skip
    score_kernel: Kernel = score

    def kernel_parameters(self) -> Any:
        """Those of a task with a goal, the weights of the reward's terms, and the length of a step."""
        config = self.config
        terms = {name: np.float32(getattr(config, name)) for name in _TERMS}
        return SocialParameters(
            **GoalParameters.of(config)._asdict(), **terms, human_collision_ends=bool(config.human_collision_ends),
            step_length=self.sim.body.forward_step,
        )  # fmt: skip

    def _bind(self) -> None:
        """Bind the kernels; people are observed after every step."""
        super()._bind()
        world, move = self.sim.world, self.advance
        bodies = view(self.sim.bodies)
        observe = observe_people.bind(
            self.sim.num_envs, bodies, world.people, world.rules, self.kernel_parameters(), view(self.running),
            view(self.transition), bodies,
        )  # fmt: skip

        def advance(actions: Any) -> None:
            move(actions)
            observe()

        self.advance = advance
