"""Data of tasks with goals: running and next episode, transition of a step, metrics, and parameters of the kernels.

Optional fields (`OPTIONAL`) have no rows unless the task uses them.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.sim.bodies import Bodies
from batchnav.types import Metric

OPTIONAL = ("goal_heading", "angle", "category", "goal_image", "goal_range")
"""Names of the optional fields of `GoalState` and `NextEpisode`."""
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
    """Steps after which an episode is truncated."""
    success_distance: np.float32
    """Geodesic distance to the goal below which a stop succeeds, metres."""
    success_angle: np.float32
    """Largest angle between agent and goal heading at which a stop succeeds, radians; pi or more: any heading."""
    slack_reward: np.float32
    """Reward of every step."""
    success_reward: np.float32
    """Reward of a success, multiplied by SPL."""
    closest_goal: np.float32
    furthest_goal: np.float32
    """Limits of the geodesic distance of sampled episodes, metres."""
    min_detour_ratio: np.float32
    """Ratio of geodesic to Euclidean distance below which most sampled episodes are rejected."""
    places: torch.Tensor
    """f32 [P, 3]: places of all goals in the bank's scenes, metres, which `goal_range` indexes. P = 0: point goals."""

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
    """f32 [N, 3]: the goal, metres. If the goal is a set of places: the place nearest to the start; in ObjectNav the
    one nearest to the agent."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance from the start to the nearest place, which SPL uses; metres."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance from the agent to the nearest place, metres."""
    episode_return: torch.Tensor
    """f32 [N]: sum of the rewards so far."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table; -1 for sampled episodes and after the table's last row."""
    goal_heading: torch.Tensor
    """f32 [N], radians: heading of the goal pose. Optional."""
    angle: torch.Tensor
    """f32 [N], radians: angle to go (`formulas.angle_to_go`) after the last step. Optional."""
    category: torch.Tensor
    """i64 [N]: category of the goal. Optional."""
    goal_image: torch.Tensor
    """i64 [N]: number of the image among those of the goal. Optional."""
    goal_range: torch.Tensor
    """i32 [N, 2]: first row of the goal's places in `GoalParameters.places`, and the row after the last. Optional."""

    @classmethod
    def empty(cls, n: int, device: torch.device, fields: frozenset[str] = frozenset()) -> GoalState:
        """State of `n` agents before their first episode. `fields`: optional fields in use."""
        start_distance, distance, episode_return = (
            torch.zeros(n, dtype=torch.float32, device=device) for _ in range(3)
        )
        table_index = torch.full((n,), -1, dtype=torch.int32, device=device)
        optional = _optional(n, device, fields)
        return cls(
            torch.zeros(n, 3, dtype=torch.float32, device=device),
            start_distance,
            distance,
            episode_return,
            table_index,
            **optional,
        )

    def in_use(self) -> Any:
        """A NamedTuple of the fields that are in use: the state to resume from."""
        fields = {name: tensor for name, tensor in self._asdict().items() if len(tensor)}
        return namedtuple("GoalStateInUse", fields)(**fields)


class NextEpisode(NamedTuple):
    """Every agent's next episode. It is sampled during the running episode, so that no step waits for its search."""

    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: start position, metres."""
    heading: torch.Tensor
    """f32 [N]: start heading, radians."""
    goal: torch.Tensor
    """f32 [N, 3], as in `GoalState`."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance from the start to the nearest place of the goal, metres."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, or -1."""
    goal_heading: torch.Tensor
    """As in `GoalState`. Optional."""
    angle: torch.Tensor
    """As in `GoalState`. Optional."""
    category: torch.Tensor
    """As in `GoalState`. Optional."""
    goal_image: torch.Tensor
    """As in `GoalState`. Optional."""
    goal_range: torch.Tensor
    """As in `GoalState`. Optional."""

    @classmethod
    def empty(cls, n: int, device: torch.device, fields: frozenset[str] = frozenset()) -> NextEpisode:
        """Next episodes of `n` agents before the first sampling. `fields`: optional fields in use."""
        bodies, state = Bodies.empty(n, device), GoalState.empty(n, device, fields)
        optional = {name: getattr(state, name) for name in OPTIONAL}
        return cls(
            bodies.scene, bodies.position, bodies.heading, state.goal, state.distance, state.table_index, **optional
        )


class GoalTransition(NamedTuple):
    """One step, kept for scoring: the agent's next episode may begin before the step is scored."""

    moved: torch.Tensor
    """bool [N]: True where the agent's position changed, so that its distance must be recomputed."""
    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: after the step, metres."""
    path_length: torch.Tensor
    """f32 [N]: after the step, metres."""
    collisions: torch.Tensor
    """i32 [N]: after the step."""
    steps: torch.Tensor
    """i32 [N]: after the step."""
    goal: torch.Tensor
    """f32 [N, 3], as in `GoalState`."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance at the episode's start, metres."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance before the step, metres."""
    episode_return: torch.Tensor
    """f32 [N]: before the step."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, or -1."""
    heading: torch.Tensor
    """f32 [N], radians: after the step. In use if `goal_heading` or `category` is."""
    goal_heading: torch.Tensor
    """As in `GoalState`. Optional."""
    angle: torch.Tensor
    """As in `GoalState`. Optional."""
    category: torch.Tensor
    """As in `GoalState`. Optional."""
    goal_range: torch.Tensor
    """As in `GoalState`. Optional."""

    @classmethod
    def empty(cls, n: int, device: torch.device, fields: frozenset[str] = frozenset()) -> GoalTransition:
        """Transition of `n` agents that have not moved. `fields`: optional fields in use."""
        bodies, state = Bodies.empty(n, device)._asdict(), GoalState.empty(n, device, fields)._asdict()
        heading_rows = max(len(state["goal_heading"]), len(state["category"]))
        heading = torch.zeros(heading_rows, dtype=torch.float32, device=device)
        given = {**bodies, **state, "heading": heading, "moved": torch.zeros(n, dtype=torch.bool, device=device)}
        return cls(**{name: given[name] for name in cls._fields})


def _optional(n: int, device: torch.device, fields: frozenset[str]) -> dict[str, torch.Tensor]:
    """Tensors of the optional fields, by name; without rows where a field is not in use."""
    rows = {name: n if name in fields else 0 for name in OPTIONAL}
    return {
        "goal_heading": torch.zeros(rows["goal_heading"], dtype=torch.float32, device=device),
        "angle": torch.zeros(rows["angle"], dtype=torch.float32, device=device),
        "category": torch.zeros(rows["category"], dtype=torch.int64, device=device),
        "goal_image": torch.zeros(rows["goal_image"], dtype=torch.int64, device=device),
        "goal_range": torch.zeros(rows["goal_range"], 2, dtype=torch.int32, device=device),
    }
