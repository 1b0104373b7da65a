"""Data of tasks with goals: the running episode, the next one, one step, metrics, and the numbers that kernels read.

A field that a task does not use has no rows. `OPTIONAL` names the fields that a task asks for.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.sim.bodies import Bodies
from batchnav.types import Metric

OPTIONAL = ("goal_heading", "category", "goal_range")
"""Fields of `GoalState` and `NextEpisode` that exist only where a task asks for them."""
METRIC_SPECS = (
    Metric("success", high=1.0, binary=True, headline=True),
    Metric("spl", high=1.0, headline=True),
    Metric("soft_spl", high=1.0, headline=True),
    Metric("distance_to_goal"),
    Metric("collisions"),
    Metric("path_length", shown=False),
    Metric("steps"),
    Metric("return", low=-math.inf, shown=False),
)
METRICS = tuple(metric.name for metric in METRIC_SPECS)
"""Names of the metrics of an episode, in the order of `GoalMetrics`."""


class GoalParameters(NamedTuple):
    """Numbers and places that the kernels of a task with goals read."""

    max_steps: np.int32
    success_distance: np.float32
    """Metres."""
    success_angle: np.float32
    """Radians between the agent's heading and the goal heading; pi or more: any heading succeeds."""
    slack_reward: np.float32
    success_reward: np.float32
    closest_goal: np.float32
    furthest_goal: np.float32
    """Limits of the geodesic distance of sampled episodes, metres."""
    min_detour_ratio: np.float32
    places: torch.Tensor
    """f32 [P, 3]: places of all goals of the bank, which `goal_range` indexes. P = 0: `goal` is the only place."""

    @classmethod
    def of(cls, config: Any, places: torch.Tensor, success_angle: float = math.pi) -> GoalParameters:
        """Parameters of a `GoalTaskConfig`."""
        names = set(cls._fields) - {"max_steps", "success_angle", "places"}
        values: dict[str, Any] = {name: np.float32(getattr(config, name)) for name in names}
        return cls(
            max_steps=np.int32(config.max_steps), success_angle=np.float32(success_angle), places=places, **values
        )


class GoalMetrics(NamedTuple):
    """Metrics of every agent's episode, f32 [N] each. `return_` is the metric "return"."""

    success: torch.Tensor
    spl: torch.Tensor
    soft_spl: torch.Tensor
    distance_to_goal: torch.Tensor
    collisions: torch.Tensor
    path_length: torch.Tensor
    steps: torch.Tensor
    return_: torch.Tensor


class GoalState(NamedTuple):
    """Every agent's goal, and its progress in the running episode."""

    goal: torch.Tensor
    """f32 [N, 3]: the goal, or the place nearest to the start of a goal that is a set of places."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance from the start to the nearest place, which SPL uses; metres."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance from the agent to the nearest place, metres."""
    episode_return: torch.Tensor
    """f32 [N]."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table; -1 for sampled episodes and after the table's last row."""
    goal_heading: torch.Tensor
    """f32 [N], radians: heading of the goal pose. Optional."""
    category: torch.Tensor
    """i64 [N]: category of the goal. Optional."""
    goal_range: torch.Tensor
    """i32 [N, 2]: first row of the goal's places in `GoalParameters.places`, and the row after the last. Optional."""

    @classmethod
    def empty(cls, n: int, device: torch.device, fields: frozenset[str] = frozenset()) -> GoalState:
        """State of `n` agents before their first episode; `fields`: names of `OPTIONAL` that are in use."""
        start_distance, distance, episode_return = (torch.zeros(n, device=device) for _ in range(3))
        table_index = torch.full((n,), -1, dtype=torch.int32, device=device)
        optional = _optional(n, device, fields)
        return cls(torch.zeros(n, 3, device=device), start_distance, distance, episode_return, table_index, **optional)

    def in_use(self) -> Any:
        """A NamedTuple of the fields that are in use: the state to resume from."""
        fields = {name: tensor for name, tensor in self._asdict().items() if len(tensor)}
        return namedtuple("GoalStateInUse", fields)(**fields)


class NextEpisode(NamedTuple):
    """Every agent's next episode. It is sampled during the running episode, so that no step waits for its search."""

    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: start position."""
    heading: torch.Tensor
    """f32 [N]: start heading, radians."""
    goal: torch.Tensor
    """f32 [N, 3], as in `GoalState`."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance from the start to the nearest place of the goal, metres."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, or -1."""
    goal_heading: torch.Tensor
    category: torch.Tensor
    goal_range: torch.Tensor
    """The optional fields of `GoalState`."""

    @classmethod
    def empty(cls, n: int, device: torch.device, fields: frozenset[str] = frozenset()) -> NextEpisode:
        """For `n` agents; `fields`: names of `OPTIONAL` that are in use."""
        bodies, state = Bodies.empty(n, device), GoalState.empty(n, device, fields)
        optional = {name: getattr(state, name) for name in OPTIONAL}
        return cls(
            bodies.scene, bodies.position, bodies.heading, state.goal, state.distance, state.table_index, **optional
        )


class GoalTransition(NamedTuple):
    """One step, kept for scoring: the agent's next episode may begin before the step is scored."""

    moved: torch.Tensor
    """bool [N]: True where the agent's position changed, so that its distance must be computed again."""
    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: after the step."""
    path_length: torch.Tensor
    """f32 [N]: after the step, metres."""
    collisions: torch.Tensor
    """i32 [N]: after the step."""
    steps: torch.Tensor
    """i32 [N]: after the step."""
    goal: torch.Tensor
    """f32 [N, 3]."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance at the episode's start, metres."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance before the step, metres."""
    episode_return: torch.Tensor
    """f32 [N]: before the step."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, or -1."""
    heading: torch.Tensor
    """f32 [N], radians: after the step. It exists where `goal_heading` does."""
    goal_heading: torch.Tensor
    goal_range: torch.Tensor
    """Optional fields of `GoalState`."""

    @classmethod
    def empty(cls, n: int, device: torch.device, fields: frozenset[str] = frozenset()) -> GoalTransition:
        """Transition of `n` agents that have not moved; `fields`: names of `OPTIONAL` that are in use."""
        bodies, state = Bodies.empty(n, device)._asdict(), GoalState.empty(n, device, fields)._asdict()
        heading = torch.zeros(len(state["goal_heading"]), device=device)
        given = {**bodies, **state, "heading": heading, "moved": torch.zeros(n, dtype=torch.bool, device=device)}
        return cls(**{name: given[name] for name in cls._fields})


def _optional(n: int, device: torch.device, fields: frozenset[str]) -> dict[str, torch.Tensor]:
    """The tensors of `OPTIONAL`, by name; without rows where a field is not in use."""
    rows = {name: n if name in fields else 0 for name in OPTIONAL}
    return {
        "goal_heading": torch.zeros(rows["goal_heading"], device=device),
        "category": torch.zeros(rows["category"], dtype=torch.int64, device=device),
        "goal_range": torch.zeros(rows["goal_range"], 2, dtype=torch.int32, device=device),
    }
