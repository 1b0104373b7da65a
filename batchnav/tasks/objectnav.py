"""ObjectGoal navigation: find an object of a category, and stop at a view point of any such object.

Habitat's task `objectnav` (Batra et al., "ObjectNav Revisited", 2020). A view point is a place from which the object is
visible (`scene/goals.py`). Rewards are decreases of the distance to the nearest view point, which a precomputed field
gives (`scene/goal_data.py`); the distances of SPL and success are Detour's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from batchnav.config import in_range, shortened
from batchnav.errors import ArgumentError, ConfigError, EpisodeError
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.observation import ObservationSource, Spec, TaskObservation
from batchnav.runtime.kernels.arrays import check_tensor, view
from batchnav.sim.simulator import Simulator
from batchnav.tasks.episode_sampling import MIN_ISLAND_RADIUS, EpisodeTable
from batchnav.tasks.goal_state import METRIC_SPECS, GoalParameters
from batchnav.tasks.goal_task import GoalTask, GoalTaskConfig
from batchnav.tasks.objectnav_kernels import AIM, BEGIN, SAMPLE, SCORE, ObjectMetrics, ObjectParameters
from batchnav.tasks.steps import bind
from batchnav.types import GoalKind, Metric

HM3D = ("chair", "bed", "plant", "toilet", "tv_monitor", "sofa")
"""Categories of HM3D ObjectNav by number. Procedural houses have them too."""
MOST_CATEGORIES = 512
"""Largest number of categories."""


@dataclass(frozen=True)
class ObjectNavConfig(GoalTaskConfig):
    """Configuration of the ObjectGoal task. Defaults: Habitat's, for HM3D."""

    success_distance: float = 0.1
    """Geodesic distance to a view point in metres below which a stop succeeds."""
    slack_reward: float = -0.001
    success_reward: float = 2.5
    """Reward of a success."""
    min_detour_ratio: float = 1.05
    success_angle_deg: float = 180.0
    """Largest angle between the agent's heading and the object at a success, degrees; 180: any heading."""
    categories: tuple[str, ...] = HM3D
    """Names of the categories; the observation "objectgoal" is an index of this list. Empty: the categories of the
    scenes, sorted, at most 512."""
    rules: str = "hm3d_v2"
    """Name of the rules for making view points in scenes without goals (`batchnav.data.objectnav`)."""
    labels: str = "hm3d"
    """Name of the mapping from the labels of such scenes to categories."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "success_angle_deg", 0.0, 180.0)
        if len(set(self.categories)) != len(self.categories) or len(self.categories) > MOST_CATEGORIES:
            raise ConfigError(
                f"categories: found {shortened(list(self.categories))}, expected at most {MOST_CATEGORIES} different "
                "names"
            )


class ObjectNav(GoalTask):
    """The ObjectGoal task."""

    Config = ObjectNavConfig
    title = "ObjectGoal"
    goal_kind: GoalKind = "category"
    episode_file = "objectnav_{split}.json.gz"
    reference_agents: tuple[str, ...] = ("random", "forward", "map_searcher", "shortest_path")
    metric_specs = (*METRIC_SPECS, Metric("start_distance", shown=False), Metric("category", shown=False))
    Metrics = ObjectMetrics
    optional = frozenset({"category"})
    score_kernels, begin_kernels, sample_kernels = SCORE, BEGIN, SAMPLE

    def __init__(self, sim: Simulator, config: ObjectNavConfig, episodes: EpisodeTable | None = None):
        if sim.bank.goals is None:
            raise ArgumentError(
                "scenes: found a bank without goals, expected SceneBank.pack(..., goal_categories=config.categories)"
            )
        self.categories = sim.bank.goal_categories
        """Names of the categories by number."""
        super().__init__(sim, config, episodes)
        self.observations = {"objectgoal": self.goal_state.category}
        self.goal_category = self.goal_state.category
        self.ranges |= {"category": (0, len(self.categories) - 1)}
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

    @property
    def nearest_target(self) -> torch.Tensor:
        """f32 [N, 3]: the view point nearest to each agent at the last `update_nearest_target`."""
        return self._nearest

    def update_nearest_target(self) -> None:
        """Find the nearest view points from the agents' current positions."""
        self._aim()

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        self.check_table()
        super()._bind()
        sim = self.sim
        self._nearest = torch.zeros(sim.num_envs, 3, dtype=torch.float32, device=sim.device)
        bodies, state, nearest = map(view, (sim.bodies, self.goal_state, self._nearest))
        read = sim.bank.navmesh_view, bodies, state, self.kernel_parameters()
        self._aim = bind(sim, AIM, read, (nearest,), self._step_scratch, block=SEARCH_BLOCK)

    def begin_reads(self, parameters: Any) -> tuple[Any, ...]:
        """The parameters, which hold the distance fields."""
        return (parameters,)

    def kernel_parameters(self) -> Any:
        """Kernel arguments of configuration and goals."""
        general = GoalParameters.of(self.config, self.places, math.radians(self.config.success_angle_deg))
        # `places` is a field of both; the view points of the goals replace the general task's places.
        return ObjectParameters(**(general._asdict() | self.sim.bank.goals_view._asdict()))
