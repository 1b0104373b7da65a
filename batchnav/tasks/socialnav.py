"""Social navigation: PointNav among people that walk. Steps, success and episodes are those of `tasks/pointnav.py`.

After each step, every robot's distances to the people of its world are recorded: collisions, personal space, and how
far it stands on somebody's path. Metrics and reward terms follow Falcon (Gong et al., "From cognition to precognition:
a future-aware framework for social navigation", ICRA 2025) and the principles of arXiv 2306.16740.

Collisions are told apart as in SEAN 2.0 (Tsoi et al., RA-L 2022), which counts "robot on person" and "person on robot".
The robot causes a collision where its own motion, in the step in which contact begins or in the step before, brought it
closer to the person by more than `APPROACH`. A robot that stands, turns or moves away does not cause one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from batchnav.config import bounded
from batchnav.geometry.pose import point_at, store_point
from batchnav.navmesh.file import FARTHEST
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import record_type, view
from batchnav.runtime.kernels.decorators import device_function, inline_function, lean_function
from batchnav.runtime.kernels.launch import Kernel, kernel
from batchnav.sim.bodies import level_squared_distance
from batchnav.sim.others import CONTACT, STOREY
from batchnav.tasks.formulas import spl, step_reward
from batchnav.tasks.goal_task import METRIC_SPECS, GoalParameters, distance_to_goal, record_score
from batchnav.tasks.pointnav import PointNav, PointNavConfig
from batchnav.tasks.task import Field
from batchnav.types import Metric
from batchnav.world.people import walk_path

INTIMATE, PERSONAL = np.float32(0.5), np.float32(1.0)
"""Metres between the middles of a robot and a person that the two measures of personal space allow at least."""
APPROACH = np.float32(0.05)
"""Metres by which a robot's own motion in a step brings it closer to a person whom it collides with, at least."""
FAR = 10.0
"""Metres. Distances to people are limited to this."""
FUTURE = 5
"""Steps of a person's path ahead that a robot should not stand on, as in Falcon."""
ENDS = {"never": np.int8(0), "caused": np.int8(1), "any": np.int8(2)}
_CAUSED, _ANY = ENDS["caused"], ENDS["any"]
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)

SOCIAL_METRICS = (
    Metric("stl", high=1.0, headline=True),
    Metric("human_collision", high=1.0, binary=True, headline=True),
    Metric("robot_on_person", high=1.0, binary=True, headline=True),
    Metric("human_collisions"),
    Metric("psc_05", high=1.0),
    Metric("psc_10", high=1.0, headline=True),
    Metric("least_distance", high=FAR),
    Metric("stalled"),
)
"""Success weighted by time length: success * t / max(t, steps), t the fewest steps of the shortest path; whether the
robot touched a person, whether it caused such a collision, and how many there were; shares of steps with everybody at
0.5 and at 1.0 m or more; the least distance to a person, metres; steps without motion, turns included."""
_TERMS = (
    "progress_reward", "human_distance_penalty", "human_distance_scale", "human_collision_penalty",
    "collision_penalty", "path_penalty",
)  # fmt: skip
SocialParameters: Any = record_type(
    "SocialParameters", (*GoalParameters._fields, *_TERMS, "human_collision_ends", "step_length"), __name__
)
"""Numbers of `SocialNavConfig` that kernels read, and the length of the longest step, metres."""

SOCIAL_FIELDS = {
    # Of the last step; and, up to `stalled`, of the episode so far. Each begins with its value of `reset`.
    "human_distance": Field(reset=FAR, low=0.0, high=FAR), "on_path": Field(low=0.0),
    "began": Field(low=0.0, high=1.0), "collided": Field(low=0.0, high=1.0),
    "touching": Field(low=0.0, high=1.0), "human_collisions": Field(low=0.0), "close_steps": Field(low=0.0),
    "near_steps": Field(low=0.0), "collisions_before": Field(low=0.0),
    "robot_on_person": Field(low=0.0, high=1.0), "motion": Field(3, low=-FARTHEST, high=FARTHEST),
    "least_distance": Field(reset=FAR, low=0.0, high=FAR), "stalled": Field(low=0.0),
}  # fmt: skip
"""Tensors of a running episode that `observe_people` writes."""


@dataclass(frozen=True)
class SocialNavConfig(PointNavConfig):
    """Configuration of social navigation. Defaults: PointNav's reward and end of an episode."""

    human_collision_ends: Literal["never", "caused", "any"] = "never"
    """Collisions with people that end an episode without success: none, those that the robot causes, or all."""
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
    nearest, touching, caused, ahead = np.float32(FAR), False, False, _ZERO
    for k in range(people.count[world]):
        row = world * rules.most + k
        there = point_at(row, people.position)
        if abs(here[1] - there[1]) < STOREY:
            apart = np.float32(math.sqrt(level_squared_distance(here, there)))
            reach = rules.agent_radius + people.radius[row]
            nearest = min(nearest, apart)
            if apart <= reach + CONTACT:
                touching, caused = True, caused or _approached(i, here, there, people, state_out)
            if k >= rules.scripted and parameters.path_penalty > _ZERO:
                ahead += _on_path(row, here, reach, people, rules)
    began = touching and state_out.touching[i] <= _ZERO
    before = point_at(i, people.robot_position)
    store_point(i, (here[0] - before[0], here[1] - before[1], here[2] - before[2]), state_out.motion)
    state_out.robot_on_person[i] = _ONE if began and caused else state_out.robot_on_person[i]
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
    if _ends(touching, state_out.robot_on_person[i], parameters):
        bodies_out.terminated[i], bodies_out.truncated[i], bodies_out.done[i] = True, False, True


@device_function
def _ends(touching, caused, parameters):
    """True where a collision ends the episode. `caused`: 1 after a collision that the robot caused."""
    ends = parameters.human_collision_ends
    return (touching and ends == _ANY) or (caused > _ZERO and ends >= _CAUSED)


@lean_function
def _approached(i, here, there, people, state):
    """True where the motion of robot i in this step, or in the one before, brought it closer to a person at `there`."""
    before = point_at(i, people.robot_position)
    dx, dz = there[0] - before[0], there[2] - before[2]
    apart = np.float32(math.sqrt(dx * dx + dz * dz))
    now = (here[0] - before[0]) * dx + (here[2] - before[2]) * dz
    last = state.motion[i, 0] * dx + state.motion[i, 2] * dz
    return max(now, last) > APPROACH * apart


@inline_function
def _keep(i, state, transition_out):
    """Copy what was recorded after the step, since the next episode may begin before scoring."""
    transition_out.human_collisions[i], transition_out.began[i] = state.human_collisions[i], state.began[i]
    transition_out.close_steps[i], transition_out.near_steps[i] = state.close_steps[i], state.near_steps[i]
    transition_out.least_distance[i], transition_out.stalled[i] = state.least_distance[i], state.stalled[i]
    transition_out.on_path[i], transition_out.human_distance[i] = state.on_path[i], state.human_distance[i]
    transition_out.collided[i], transition_out.robot_on_person[i] = state.collided[i], state.robot_on_person[i]


@lean_function
def _on_path(row, here, reach, people, rules):
    """Sum of 1 / (1 + t) over the next steps t after which a person will be within `reach` of a point."""
    x, _, z = point_at(row, people.position)
    corner, total = people.corner[row], _ZERO
    for t in range(FUTURE):
        x, z, corner, _ = walk_path(row, x, z, corner, people.speed[row] * rules.step_time, people)
        if (x - here[0]) * (x - here[0]) + (z - here[2]) * (z - here[2]) < reach * reach:
            total += _ONE / np.float32(1 + t)
    return total


@kernel(block=SEARCH_BLOCK)
def score(i, nav, bodies, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step. Success: a stop within the success distance; never after a collision that ends the episode."""
    distance, steps = distance_to_goal(i, nav, transition, scratch, row), np.float32(transition.steps[i])
    hit, caused = transition.human_collisions[i] > _ZERO, transition.robot_on_person[i]
    success = bodies.terminated[i] and distance < parameters.success_distance
    success = success and not _ends(hit, caused, parameters)
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
    metrics_out.robot_on_person[i] = caused
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
        "wait_and_go", "predictive",
    )  # fmt: skip
    metric_specs = (*METRIC_SPECS[:2], *SOCIAL_METRICS, Metric("soft_spl", high=1.0), *METRIC_SPECS[3:])
    fields: ClassVar[dict[str, Field]] = {
        **PointNav.fields,
        **SOCIAL_FIELDS,
    }
    score_kernel: Kernel = score

    def kernel_parameters(self) -> Any:
        """Those of a task with a goal, the weights of the reward's terms, and the length of a step."""
        config = self.config
        terms = {name: np.float32(getattr(config, name)) for name in _TERMS}
        return SocialParameters(
            **GoalParameters.of(config)._asdict(), **terms, human_collision_ends=ENDS[config.human_collision_ends],
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
