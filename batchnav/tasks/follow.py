"""Follow: find a person that walks, then keep at a distance of 1 to 2 m, facing it.

The task "social navigation" of Habitat 3.0 (Puig et al., "Habitat 3.0: a co-habitat for humans, avatars and robots",
ICLR 2024) with our bodies. Metrics are those of the paper: the finding success S, the finding success weighted by path
steps SPS, the following rate F and the collision rate CR. The action stop stands still; an episode ends after its last
step or, as an option, at a collision with a person. Rewards have the terms of habitat-lab's `SocialNavReward`.

The person is the first of the agent's world that does not follow a script. In a world without people nobody is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from batchnav.config import bounded, in_range
from batchnav.geometry.pose import goal_in_agent_frame, point_at, store_point
from batchnav.navmesh.file import FARTHEST
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.intrinsics import copy_fields
from batchnav.runtime.kernels.launch import Kernel, kernel
from batchnav.sim.bodies import end_episode, step_body
from batchnav.sim.simulator import Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.goal_free import ProgressTask
from batchnav.tasks.socialnav import ENDS, SOCIAL_FIELDS, observe_people
from batchnav.tasks.task import BatchTask, Field, flag_invalid, record_step_metrics
from batchnav.types import Metric

FACING = np.float32(0.5)
"""Cosine of the largest angle between the agent's heading and the direction to a person that it faces (habitat-lab)."""
PERSON = Spec("person", (2,), torch.float32, -np.inf, np.inf, torch.float32)
"""The person in polar form: [distance in metres, bearing in radians, positive to the agent's left]."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@dataclass(frozen=True)
class FollowConfig(TaskConfig):
    """Configuration of the Follow task. Defaults: distances and rewards of Habitat 3.0's social navigation."""

    least_distance: float = bounded(1.0, 0.0, 100.0)
    """Smallest distance at which an agent that faces the person follows it, metres, geodesic."""
    most_distance: float = 2.0
    """Largest distance at which an agent that faces the person follows it, metres, geodesic."""
    person_gps: bool = True
    """True: agents observe "person", distance and bearing of the person, through walls too. False: cameras alone."""
    human_collision_ends: Literal["never", "caused", "any"] = "any"
    """Collisions with people that end an episode: none, those that the robot causes, or all."""
    following_reward: float = bounded(2.0, -1e6, 1e6)
    """Reward of each step between both distances."""
    facing_reward: float = bounded(1.0, -1e6, 1e6)
    """Reward of each step within `facing_distance`, times the cosine of the angle to the person."""
    facing_distance: float = bounded(3.0, 0.0, 100.0)
    """Metres, geodesic."""
    human_collision_penalty: float = bounded(1.0, 0.0, 1e3)
    """Penalty of each collision with a person."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "most_distance", self.least_distance + 1e-3, 1e3)


class FollowParameters(NamedTuple):
    """Numbers of `FollowConfig` that kernels read."""

    max_steps: np.int32
    least_distance: np.float32
    most_distance: np.float32
    following_reward: np.float32
    facing_reward: np.float32
    facing_distance: np.float32
    human_collision_penalty: np.float32
    human_collision_ends: np.int8
    path_penalty: np.float32
    """0: `observe_people` need not predict paths."""
    step_length: np.float32
    """Length of the longest step, metres."""


# One agent.


@kernel(block=SEARCH_BLOCK)
def advance(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out, errors_out):
    """Move the body and record the step; an episode ends after `max_steps`, whatever the action."""
    flag_invalid(i, actions, body, errors_out)
    transition_out.moved[i] = step_body(i, actions, nav, body, scratch, row, bodies_out)
    end_episode(i, False, max_steps, bodies_out)
    copy_fields(i, bodies_out, transition_out)
    copy_fields(i, state, transition_out)


@lean_function
def _place_of_person(i, people, rules):
    """Whether there is a person to follow in the world of agent i, and where."""
    world = i // rules.agents
    row = world * rules.most + rules.scripted
    if people.count[world] <= rules.scripted:
        return False, (_ZERO, _ZERO, _ZERO)
    return True, point_at(row, people.position)


@kernel()
def locate_person(i, bodies, people, rules, there_out):
    """Write where the person is; the agent's own place where there is none."""
    found, there = _place_of_person(i, people, rules)
    store_point(i, there if found else point_at(i, bodies.position), there_out)


@kernel()
def observe_person(i, bodies, people, rules, values_out):
    """Write distance and bearing of the person; 0 where there is none."""
    found, there = _place_of_person(i, people, rules)
    distance, bearing = goal_in_agent_frame(point_at(i, bodies.position), bodies.heading[i], there)
    values_out[i, 0], values_out[i, 1] = (distance, bearing) if found else (_ZERO, _ZERO)


@kernel()
def keep_person(i, people, rules, transition_out):
    """Keep the person's place for scoring, since the next episode may begin before."""
    found, there = _place_of_person(i, people, rules)
    transition_out.has_person[i] = _ONE if found else _ZERO
    store_point(i, there, transition_out.person)


@lean_function
def _cosine_to(i, there, transition):
    """Cosine of the angle between heading and direction to a point; 1 at the point itself."""
    here, heading = point_at(i, transition.position), transition.heading[i]
    dx, dz = there[0] - here[0], there[2] - here[2]
    apart = math.sqrt(dx * dx + dz * dz)
    return (-dx * math.sin(heading) - dz * math.cos(heading)) / apart if apart > _ZERO else _ONE


@lean_function
def _fewest_steps(i, nav, there, transition, parameters, scratch, row):
    """Steps of the shortest path from the start to within reach of the person's place; steps + 1 if they are more."""
    start, steps = point_at(i, transition.start), np.float32(transition.steps[i])
    distance = geodesic_distance(nav, transition.scene[i], start, there, scratch, row)
    fewest = max(np.float32(math.ceil((distance - parameters.most_distance) / parameters.step_length)), _ONE)
    return steps if fewest <= steps else steps + _ONE


@kernel(block=SEARCH_BLOCK)
def score(i, nav, transition, parameters, scratch, row, state_out, metrics_out, reward_out):
    """Score a step: is the person found, and followed?"""
    first = transition.steps[i] == np.int32(1)
    steps, there = np.float32(transition.steps[i]), point_at(i, transition.person)
    found_step, following = transition.found_step[i], transition.following[i]
    fewest, before, total = transition.fewest[i], transition.progress[i], transition.episode_return[i]
    if first:  # what is left of the episode before
        found_step, following, fewest, before, total = _ZERO, _ZERO, _ZERO, -_ONE, _ZERO
    distance, reward = -_ONE, -parameters.human_collision_penalty * transition.began[i]
    if transition.has_person[i] > _ZERO:
        scene, here = transition.scene[i], point_at(i, transition.position)
        distance, cosine = geodesic_distance(nav, scene, here, there, scratch, row), _cosine_to(i, there, transition)
        if fewest <= _ZERO:
            least = _fewest_steps(i, nav, there, transition, parameters, scratch, row)
            fewest = least if least <= steps else _ZERO
        near = distance >= parameters.least_distance and distance <= parameters.most_distance
        if near and cosine > FACING:
            found_step = found_step if found_step > _ZERO else steps
            following += _ONE
        reward += _reward(distance, before, cosine, near, parameters)
        if not distance < np.float32(np.inf):
            distance = -_ONE
    state_out.found_step[i], state_out.following[i], state_out.fewest[i] = found_step, following, fewest
    state_out.progress[i], state_out.episode_return[i] = distance, total + reward
    found = found_step > _ZERO
    least = fewest if fewest > _ZERO else found_step
    metrics_out.found[i] = _ONE if found else _ZERO
    metrics_out.finding_spl[i] = least / max(least, found_step) if found else _ZERO
    metrics_out.following_rate[i] = min(following / max(np.float32(parameters.max_steps) - least, _ONE), _ONE)
    metrics_out.human_collision[i] = _ONE if transition.human_collisions[i] > _ZERO else _ZERO
    metrics_out.robot_on_person[i] = transition.robot_on_person[i]
    metrics_out.distance_to_person[i] = max(distance, _ZERO)
    record_step_metrics(i, transition, total + reward, metrics_out)
    reward_out[i] = reward


@lean_function
def _reward(distance, before, cosine, near, parameters):
    """Reward of a step as in habitat-lab: for being near, else for coming near; and for facing the person."""
    reward = _ZERO
    if near:
        reward = parameters.following_reward
    elif before >= _ZERO and distance < np.float32(np.inf):
        reward = distance - before if distance < parameters.least_distance else before - distance
    if distance < parameters.facing_distance:
        reward += parameters.facing_reward * cosine
    return reward


class PersonObservation(ObservationSource):
    """Distance and bearing of the person, f32 [N, 2]. People of new episodes are known when it is written."""

    def __init__(self) -> None:
        self.spec, self.requires = PERSON, Requirements(goal=frozenset({"observe_person"}))
        self._bound: tuple[Any, Callable[[torch.Tensor], None]] | None = None

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the current values."""
        if self._bound is None or self._bound[0] is not frame.task:
            self._bound = frame.task, frame.task.observe_person(out)
        self._bound[1](out)


# The task.


class Follow(ProgressTask):
    """Find and follow a person. Arguments as in `ProgressTask`."""

    Config = FollowConfig
    title = "Follow"
    episode_file = "follow_{split}.json.gz"
    among_people = True
    least_width = 0.5  # people and robots walk on floors, not on beds and tables
    reference_agents = ("random", "forward", "shortest_path", "follower")
    metric_specs = (
        Metric("found", high=1.0, binary=True, headline=True), Metric("finding_spl", high=1.0, headline=True),
        Metric("following_rate", high=1.0, headline=True),
        Metric("human_collision", high=1.0, binary=True, headline=True),
        Metric("robot_on_person", high=1.0, binary=True), Metric("distance_to_person"), Metric("collisions"),
        Metric("path_length", shown=False), Metric("steps"), Metric("return", low=-math.inf, shown=False),
    )  # fmt: skip
    """Whether the agent was within reach of the person, facing it; the fewest steps that this takes over the steps
    taken; share of the remaining steps in which it was; whether it touched a person, and caused that; the last geodesic
    distance, metres."""
    fields: ClassVar[dict[str, Field]] = {
        **ProgressTask.fields,  # `progress` is the geodesic distance to the person, -1 without a path
        **SOCIAL_FIELDS,
        "person": Field(3, low=-FARTHEST, high=FARTHEST), "has_person": Field(low=0.0, high=1.0),
        # Written by `score` alone: steps up to the first success, 0: none yet; successful steps; fewest steps, 0: more
        "found_step": Field(low=0.0, sampled=False), "following": Field(low=0.0, sampled=False),
        "fewest": Field(low=0.0, sampled=False),
    }  # fmt: skip
    score_kernel: Kernel = score

    def __init__(self, sim: Simulator, config: FollowConfig, episodes: EpisodeTable | None = None):
        self._there = torch.zeros(sim.num_envs, 3, dtype=torch.float32, device=sim.device)
        super().__init__(sim, config, episodes)
        self.target_radius = (config.least_distance + config.most_distance) / 2.0
        self.episode_info = {}

    @staticmethod
    def sources(config: FollowConfig) -> tuple[ObservationSource, ...]:
        """The person in polar form, where the configuration says so."""
        return (PersonObservation(),) if config.person_gps else ()

    @classmethod
    def metric_fields(cls) -> tuple[str, ...]:
        """Fields of `Metrics`: the names of the metrics."""
        return super(ProgressTask, cls).metric_fields()

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent searches for steps."""
        return BatchTask.search_rows(num_envs, device, chunks)

    @property
    def nearest_target(self) -> torch.Tensor:
        """Places of the persons at the last `update_nearest_target`: f32 [N, 3]."""
        return self._there

    def update_nearest_target(self) -> None:
        """Find where the persons are now."""
        self._locate()

    def observe_person(self, example: torch.Tensor) -> Callable[[torch.Tensor], None]:
        """A kernel that writes distance and bearing of the person; `example` has the shape of its output."""
        world = self.sim.world
        read = view(self.sim.bodies), world.people, world.rules
        return observe_person.bind(self.sim.num_envs, *read, view(example), live=(3,))

    def score(self) -> None:
        """Compute reward and metrics from the transition."""
        self._score()

    def sample_episodes(self) -> None:
        """Sample the queued agents' next starts."""
        self.sample_starts()

    def kernel_parameters(self) -> FollowParameters:
        """The numbers that kernels read."""
        config, named = self.config, set(FollowParameters._fields) - {"max_steps", "human_collision_ends"}
        numbers: dict[str, Any] = {name: np.float32(getattr(config, name, 0.0)) for name in named}
        numbers |= {
            "max_steps": np.int32(config.max_steps), "human_collision_ends": ENDS[config.human_collision_ends],
            "step_length": np.float32(self.sim.body_config.longest_step),
        }  # fmt: skip
        return FollowParameters(**numbers)

    def _bind(self) -> None:
        """Bind the kernels; people are observed after every step."""
        super()._bind()
        sim, n = self.sim, self.sim.num_envs
        nav, bodies, world, parameters = sim.bank.navmesh_view, view(sim.bodies), sim.world, self.kernel_parameters()
        state, transition = view(self.running), view(self.transition)
        steps = np.int32(self.max_steps)
        self.bind_advance(advance, nav, state, sim.body, steps, self.scratch, bodies, transition, sim.error_flags)
        move, people = self.advance, (world.people, world.rules)
        observe = observe_people.bind(n, bodies, *people, parameters, state, transition, bodies)
        keep = keep_person.bind(n, *people, transition)
        self._locate: Callable[[], None] = locate_person.bind(n, bodies, *people, view(self._there))

        def step(actions: torch.Tensor) -> None:
            move(actions)
            observe()
            keep()

        self.advance = step
        written = state, view(self.metric_tensors), view(self.reward)
        self._score: Callable[[], None] = self.score_kernel.bind(
            n, nav, transition, parameters, self.scratch, *written, rows=sim.chunks
        )
