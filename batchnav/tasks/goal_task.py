"""`GoalTask`, the base of tasks with a goal, such as PointNav.

Steps, success, SPL, reward, fixed episodes and resuming are here and in `tasks/goal_kernels.py`. A subclass defines
what differs.

A goal is a point, or a set of places of which the nearest counts, such as the view points of all objects of a category:
`goal_places` returns the places of all goals, and `next_episode.goal_range` selects those of an episode. An episode may
also have a goal heading and a category. `optional` names the fields in use, and `sample_episodes` fills them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from batchnav.config import in_range
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.observation import ObservationSource
from batchnav.runtime.kernels.arrays import view
from batchnav.sim.simulator import Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import (
    MAX_CANDIDATES,
    MIN_ISLAND_RADIUS,
    SAMPLE,
    SAMPLING_BLOCK,
    EpisodeTable,
    sampling_threads,
)
from batchnav.tasks.goal_kernels import ADVANCE, BEGIN, MEASURE, SCORE
from batchnav.tasks.goal_state import (
    METRIC_SPECS,
    GoalMetrics,
    GoalParameters,
    GoalState,
    GoalTransition,
    NextEpisode,
)
from batchnav.tasks.steps import FINITE, KernelPair, bind, bind_advance, bind_begin
from batchnav.types import GoalKind, Metric


@dataclass(frozen=True)
class GoalTaskConfig(TaskConfig):
    """Base of the configurations of tasks with a goal. Defaults: Habitat's `habitat_pointnav_v1`."""

    success_distance: float = 0.2
    """Geodesic distance to the goal in metres below which a stop succeeds."""
    slack_reward: float = -0.01
    """Reward of every step."""
    success_reward: float = 2.5
    """Reward of a success, multiplied by SPL."""
    closest_goal: float = 1.0
    """Smallest geodesic distance from start to goal in sampled episodes, metres."""
    furthest_goal: float = 30.0
    """Largest geodesic distance from start to goal in sampled episodes, metres."""
    min_detour_ratio: float = 1.1
    """Ratio of geodesic to Euclidean distance below which most sampled episodes are rejected (Habitat's rule)."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        in_range(self, "success_distance", 1e-3, 100.0)
        in_range(self, "slack_reward", -1e6, 1e6)
        in_range(self, "success_reward", -1e6, 1e6)
        in_range(self, "closest_goal", 0.0, 1e3)
        in_range(self, "furthest_goal", self.closest_goal + 1e-3, 1e4)
        in_range(self, "min_detour_ratio", 1.0, 10.0)


class GoalTask:
    """A `batchnav.types.Task` with a goal, for the N agents of a simulator.

    Args:
        sim: simulator of the agents.
        config: configuration of the task.
        episodes: fixed episodes instead of sampled ones. EpisodeError for an invalid table.
    """

    Config: type = GoalTaskConfig
    title = "Goal"
    goal_kind: GoalKind = "point"
    episode_file = "{split}.json.gz"
    reference_agents: tuple[str, ...] = ("random", "forward", "shortest_path")
    metric_specs: tuple[Metric, ...] = METRIC_SPECS
    Metrics: Any = GoalMetrics
    """NamedTuple of the metrics' tensors, in the order of `metric_specs`."""
    goal_images: Mapping[str, str] = {}
    optional: frozenset[str] = frozenset()
    """Fields of `goal_state.OPTIONAL` that the task uses."""
    success_angle = math.pi
    """Largest angle between agent and goal heading at which a stop succeeds, radians; pi: any heading."""
    score_kernels: KernelPair = SCORE
    """Kernels that score a step. Override them for another rule of success or reward."""
    begin_kernels: KernelPair = BEGIN
    """Kernels that begin episodes; they also take `begin_reads`."""
    sample_kernels: KernelPair = SAMPLE
    """Kernels that sample starts and goals. Override them for other rules."""

    def __init__(self, sim: Simulator, config: Any, episodes: EpisodeTable | None = None):
        n, device = sim.num_envs, sim.device
        self.config, self.sim = config, sim
        self.episodes = EpisodeTable.of(episodes, sim.bank)
        self.max_steps, self.num_fixed = config.max_steps, len(self.episodes.scene)
        self.no_episode_message = (
            f"no episode found in {MAX_CANDIDATES} tries, expected an island of radius >= {MIN_ISLAND_RADIUS:g} m "
            f"with points {config.closest_goal:g} to {config.furthest_goal:g} m apart"
        )
        kept = self.arrays(n, device, config)
        self.goal_state, self.transition, self.next_episode, self.metric_tensors, self.reward, *shown = kept
        self.live_goal, self.start_goal = shown[0], shown[-1]
        """f32 [N, 2]: distance, metres, and bearing, radians, of the goal: from the current pose and from the start
        pose. The same tensor unless `keeps_start_goal(config)`."""
        self.state: Any = self.goal_state.in_use()
        self.metrics: Mapping[str, torch.Tensor] = dict(
            zip((metric.name for metric in self.metric_specs), self.metric_tensors, strict=True)
        )
        self.observations: Mapping[str, torch.Tensor] = {}
        self.relative_goal: torch.Tensor | None = None
        self.goal_position, self.goal_heading = self.goal_state.goal, self.goal_state.goal_heading
        self.places = self.goal_places()
        used = {"goal": FINITE, "table_index": (-1, self.num_fixed - 1)}
        optional = {
            "goal_heading": FINITE, "angle": (0.0, float(np.float32(np.pi))), "goal_range": (0, len(self.places)),
            "category": (0, 2**31 - 1), "goal_image": (0, 2**31 - 1),
        }  # fmt: skip
        self.ranges: dict[str, tuple[float, float]] = used | {name: optional[name] for name in self.optional}
        self.episode_info: Mapping[str, torch.Tensor] = {"start_distance": self.goal_state.start_distance}
        self.target: torch.Tensor | None = self.goal_state.goal
        self.target_radius = config.success_distance
        self._bind()

    @property
    def nearest_target(self) -> torch.Tensor | None:
        """`target`: there is one for the whole episode."""
        return self.target

    def update_nearest_target(self) -> None:
        """Do nothing: `nearest_target` does not change within an episode."""

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """No observations. A subclass returns what agents observe of the goal."""
        return ()

    @staticmethod
    def goal_image_size(config: Any) -> tuple[int, int] | None:
        """None: images of the goal are the main camera's."""
        return None

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...] | None:
        """Categories of the goals that the scene bank holds (`SceneBank.pack`); None: the task needs none."""
        return None

    def goal_places(self) -> torch.Tensor:
        """Places of all goals in the bank's scenes, f32 [P, 3], metres. No rows if goals are points."""
        return torch.zeros(0, 3, dtype=torch.float32, device=self.sim.device)

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents: state, transition, next episode, metrics, reward, goal in the agent's frame."""
        records = (record.empty(n, device, cls.optional) for record in (GoalState, GoalTransition, NextEpisode))
        metrics = cls.Metrics(*torch.zeros(len(cls.Metrics._fields), n, dtype=torch.float32, device=device))
        reward = torch.zeros(n, dtype=torch.float32, device=device)
        shown = (
            torch.zeros(n, 2, dtype=torch.float32, device=device)
            for _ in range(2 if cls.keeps_start_goal(config) else 1)
        )
        return *records, metrics, reward, *shown

    @classmethod
    def keeps_start_goal(cls, config: Any) -> bool:
        """True if `start_goal` is a separate tensor, for agents that observe it instead of `live_goal`."""
        return False

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent searches for steps; on CUDA also for the episodes that are sampled at the same time."""
        return (num_envs, sampling_threads(num_envs)) if device.type == "cuda" else (chunks,)

    def score(self) -> None:
        """Compute reward and metrics of the step. A subclass may change `reward` afterwards.

        `docs/howto/change_reward.md` shows how.
        """
        self._score()

    def sample_episodes(self) -> None:
        """Sample the queued agents' next episodes."""
        self.sample_pairs()

    def kernel_parameters(self) -> Any:
        """The numbers and arrays that all kernels of the task read."""
        return view(GoalParameters.of(self.config, self.places, self.success_angle))

    def begin_reads(self, parameters: Any) -> tuple[Any, ...]:
        """Arguments that `begin_kernels` read besides the next episode: none."""
        return ()

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        sim, n = self.sim, self.sim.num_envs
        nav, parameters = sim.bank.navmesh_view, self.kernel_parameters()
        bodies, queue, sampling, table = map(view, (sim.bodies, sim.queue, sim.sampling, self.episodes))
        state, transition, next_episode = map(view, (self.goal_state, self.transition, self.next_episode))
        metrics, reward = view(self.metric_tensors), view(self.reward)
        live_goal, start_goal = view(self.live_goal), view(self.start_goal)
        scratch, *separate = (sim.search_scratch(rows) for rows in self.search_rows(n, sim.device, sim.chunks))
        self._step_scratch = scratch
        """Memory of the searches of steps, which no other kernel of a step uses at the same time."""
        sampling_scratch, moved = separate[0] if separate else scratch, (bodies, transition, live_goal)
        self.advance = bind_advance(sim, ADVANCE, (nav, state, sim.body, parameters), moved, scratch)
        self._score: Callable[[], Any] = bind(
            sim, self.score_kernels, (nav, bodies, transition, parameters), (state, metrics, reward), scratch,
            block=SEARCH_BLOCK,
        )  # fmt: skip
        begun = bodies, state, queue, start_goal
        self.begin_episodes = bind_begin(sim, self.begin_kernels, next_episode, begun, self.begin_reads(parameters))
        threads = sampling_threads(n)
        self.sample_pairs: Callable[[], Any] = bind(
            sim, self.sample_kernels, (nav, bodies, queue, sampling, table, parameters),
            (next_episode, sim.error_flags), sampling_scratch, threads=threads, block=SAMPLING_BLOCK,
        )  # fmt: skip
        if len(self.places):
            self.measure_goals: Callable[[], Any] = bind(
                sim, MEASURE, (nav, queue, parameters), (next_episode,), sampling_scratch, threads=threads,
                block=SAMPLING_BLOCK,
            )  # fmt: skip
            """Set goal and distance of the queued agents' next episodes from `next_episode.goal_range`."""
