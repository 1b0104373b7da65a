"""Sequences of goals: places, categories and objects in images, one after another in one episode.

The action stop ends a subtask. In GOAT-Bench (Khanna et al., 2024, `subtask_stop`) the next one begins, whether the
stop was right or wrong; in MultiON (Wani et al., 2020, FOUND) a wrong stop ends the episode. An agent that ends all
its subtasks ends the episode, so no further action is needed for that. Goal, distance and observations of the goal
belong to the next subtask from the step of the stop on; the reward of this step is still that of the old one.

Subtask k of a sampled episode is a pure function of (seed, agent, episode, k), so that none is stored: categories in a
random order without repetition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from batchnav.config import bounded, shortened
from batchnav.errors import ArgumentError, CheckpointError, ConfigError, EpisodeError, few
from batchnav.navmesh.file import FARTHEST
from batchnav.observation import ObservationSource, Spec, TaskObservation
from batchnav.runtime.kernels.arrays import view
from batchnav.scene.bank import SceneBank
from batchnav.scene.goal_data import GOAL_COLUMNS, GoalData
from batchnav.sim.simulator import Simulator, check_positions
from batchnav.tasks.episode_sampling import EpisodeTable, sampling_threads
from batchnav.tasks.goal_task import METRIC_SPECS, GoalParameters, GoalTask
from batchnav.tasks.imagenav import ImageNav
from batchnav.tasks.instance_imagenav import goal_images_of
from batchnav.tasks.objectnav import CANDIDATES, MAX_STARTS, MOST_CATEGORIES, ObjectNavConfig
from batchnav.tasks.pointnav import POINTGOAL
from batchnav.tasks.subtasks import (
    MOST_SUBTASKS,
    Observed,
    SequenceParameters,
    advance,
    begin,
    find_nearest_target,
    sample_one,
    score,
)
from batchnav.tasks.task import Field
from batchnav.types import Metric

GOAL_KINDS = ("point", "cylinder", "category", "instance", "description")
"""Kinds of the goals of subtasks: a place, a place where a cylinder stands, any object of a category, the object that
an image shows, the object that words describe."""
_SINGLE = frozenset({"instance", "description"})
"""Kinds of goals that are single objects."""
INSTANCE_PREFIX = "object "
"""Begin of the names of single objects among the goals of a bank, beside the names of categories."""
NO_CAMERA = 1e6
"""Height of the camera of a goal without an image, metres."""
RESULTS = ("success", "spl", "steps", "subtask")
"""Columns of `Sequence.results`: 1 for a right stop, else 0; SPL; steps of the episode at its end; its number in the
list. NaN for subtasks that did not end."""


class SequenceTable(NamedTuple):
    """M fixed episodes with R subtasks in all."""

    episodes: EpisodeTable
    """Scenes, starts and headings. Goals are those of the subtasks."""
    sequences: torch.Tensor
    """i32 [M, 2]: first subtask of each episode, and number of its subtasks, 1 to `MOST_SUBTASKS`."""
    subtasks: torch.Tensor
    """i32 [R, 4]: number of the goal among those of the bank, -1 for a place; number of its category there, which goal
    masks show, -1 for none; number of its category among `categories`; number of the image, -1 for none."""
    places: torch.Tensor
    """f32 [R, 3]: the places, metres on the navmesh; of objects, any point."""
    categories: tuple[str, ...]
    """Names of categories, "" for none."""

    @property
    def scene(self) -> torch.Tensor:
        """i32 [M]: rows of the bank."""
        return self.episodes.scene

    def check(self, bank: SceneBank) -> None:
        """EpisodeError and ArgumentError as `EpisodeTable.check`; also for a place off the navmesh of its scene."""
        self.episodes.check(bank)
        counts = self.sequences[:, 1].long()
        if len(counts) != len(self.episodes.scene) or ((counts < 1) | (counts > MOST_SUBTASKS)).any():
            raise EpisodeError(
                f"episodes.sequences: found {shortened(counts.tolist())} subtasks, expected 1 to {MOST_SUBTASKS} for "
                "each episode"
            )
        scene = self.episodes.scene.repeat_interleave(counts)
        points = self.subtasks[:, 0] < 0
        if points.any():
            check_positions("episodes.places", bank, scene[points], self.places[points], EpisodeError)


def is_instance(name: str) -> bool:
    """True for the name of a single object among the goals of a bank."""
    return name.startswith(INSTANCE_PREFIX)


@dataclass(frozen=True)
class SequenceConfig(ObjectNavConfig):
    """Configuration of sequences of goals. Defaults: GOAT-Bench's rules, with the categories of HM3D ObjectNav."""

    success_target = "the goal of the subtask: its place, or the nearest of its view points"
    goals: tuple[str, ...] = ("category",)
    """Kinds of the goals, which decide what agents observe. "point": the place, as "pointgoal", which is 0 for objects.
    "cylinder", "category", "instance" and "description": the number of the category, as "objectgoal". "instance": also
    the object's image, as "imagegoal", which is black for other goals. The sensor "goal_embedding" shows words."""
    subtasks: tuple[int, ...] = (5, 10)
    """Smallest and largest number of subtasks of sampled episodes; there are at most as many as the scene has goals."""
    order: Literal["given", "any"] = "given"
    """"any": a stop at any remaining goal is right, and the nearest of them is the next goal."""
    wrong_stop: Literal["continue", "end"] = "continue"
    """What follows a wrong stop: the next subtask, as in GOAT-Bench, or the end of the episode, as in MultiON."""
    max_steps: int = 5000
    """Steps of all subtasks together, after which an episode is truncated."""
    max_subtask_steps: int = bounded(500, 1, 2**31 - 1)
    """Steps after which a subtask ends as a failure, and the next one begins."""
    goal_height: int = bounded(512, 4, 1024)
    """Rows of the image of an object, pixels."""
    goal_width: int = bounded(512, 4, 1024)
    """Columns of the image of an object, pixels."""
    success_distance: float = 0.25
    """Geodesic distance to a place, or to a view point, in metres below which a stop is right."""
    success_reward: float = 5.0
    """Reward of a right stop."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        if not self.goals or set(self.goals) - set(GOAL_KINDS) or len(set(self.goals)) < len(self.goals):
            found = shortened(list(self.goals))
            raise ConfigError(f"goals: found {found}, expected one or more of {', '.join(GOAL_KINDS)}, once each")
        if len(self.subtasks) != 2 or not 1 <= self.subtasks[0] <= self.subtasks[1] <= MOST_SUBTASKS:
            raise ConfigError(
                f"subtasks: found {shortened(list(self.subtasks))}, expected the smallest and the largest number, from "
                f"1 to {MOST_SUBTASKS}"
            )

    @property
    def asks_for_objects(self) -> bool:
        """True where goals are objects of the scenes."""
        return bool({"category", *_SINGLE} & set(self.goals))


class Sequence(GoalTask):
    """The task of sequences of goals. Metrics:

    success: all stops were right. subtask_success: share of the subtasks that ended with a right stop, MultiON's
    progress. subtask_spl: mean of the SPL of the subtasks, each from the place where the one before it ended, as in
    GOAT-Bench. spl: SPL of the episode, whose shortest path is the tour from goal to goal. ppl: subtask_success times
    the path efficiency up to the last right stop, as in MultiON.
    """

    Config = SequenceConfig
    title = "Goals in sequence"
    goal_kind = "sequence"
    changes_goals = True
    episode_file = "sequence_{split}.json.gz"
    reference_agents = ("random", "forward", "map_searcher", "map_searcher_forgetful", "shortest_path")
    metric_specs = (
        Metric("success", high=1.0, binary=True, headline=True), Metric("subtask_success", high=1.0, headline=True),
        Metric("subtask_spl", high=1.0, headline=True), Metric("spl", high=1.0), Metric("ppl", high=1.0),
        Metric("subtasks", shown=False), *METRIC_SPECS[3:],
    )  # fmt: skip
    fields: ClassVar[dict[str, Field]] = {
        **GoalTask.fields,
        # Of the current subtask: goal and category of its goal among those of the bank (-1: a place, or none), number
        # of the category that agents observe, number of the image (-1: none).
        "category": Field(dtype=torch.int64, low=-1, high=2**31 - 1),
        "shown_category": Field(dtype=torch.int64, low=-1, high=2**31 - 1),
        "objectgoal": Field(dtype=torch.int64, low=0, high=MOST_CATEGORIES - 1),
        "goal_image": Field(dtype=torch.int64, low=-1, high=2**31 - 1),
        "goal_number": Field(dtype=torch.int32, reset=-1, low=-1, high=2**31 - 1),  # differs for every goal
        "origin": Field(3, low=-FARTHEST, high=FARTHEST),  # start of the episode, metres
        "begun": Field(3, low=-FARTHEST, high=FARTHEST),  # where the current subtask began, metres
        # first row of the list, or -1 minus the first rank; current subtask; steps at its begin
        "order": Field(3, dtype=torch.int32, low=-(2**31), high=2**31 - 1),
        "counts": Field(3, dtype=torch.int32, low=0, high=MOST_SUBTASKS),  # subtasks: all, ended, right
        "remaining": Field(dtype=torch.int64, low=0, high=2**MOST_SUBTASKS - 1),  # a bit for each subtask
        # path length at the begin of the subtask, metres; sum of SPL; distance to the first goal at the start, metres
        "sums": Field(3, low=0.0, high=math.inf),
        # metres: tour up to the current goal, and up to the last right stop; path length at the last right stop
        "tours": Field(3, low=0.0, high=math.inf),
        "outcome": Field(dtype=torch.int32, low=0, high=3),  # of the last step, in transitions
    }

    def __init__(self, sim: Simulator, config: SequenceConfig, episodes: SequenceTable | None = None):
        bank = sim.bank
        if config.asks_for_objects and bank.goals is None:
            raise ArgumentError(
                "scenes: found a bank without goals, expected SceneBank.pack(..., goal_categories=config.categories)"
            )
        if episodes is None and not config.asks_for_objects:
            raise EpisodeError(
                "episodes: found none with goals 'point', expected a file of episodes; sampled episodes have objects"
            )
        if episodes is not None:
            episodes.check(bank)
        self._table = episodes
        self._names = bank.goal_categories if config.asks_for_objects else ()
        super().__init__(sim, config, None if episodes is None else episodes.episodes)
        state = self.running
        self.observations = {"pointgoal": self.live_goal, "objectgoal": state.objectgoal}
        self.relative_goal = self.live_goal if "point" in config.goals and not config.asks_for_objects else None
        self.goal_category = state.shown_category if config.asks_for_objects else None
        self.episode_info = {"start_distance": state.sums[:, 2]}
        self.goal_number, self.goal_index = state.goal_number, state.order[:, 1]
        if self.goal_images(config):
            self._image_rows, self._images = goal_images_of(bank, all_goals=False)
        observed = {source.spec.name: source.spec for source in self.sources(config)}
        self.observations = {name: self.observations[name] for name in observed}
        self.ranges |= {"pointgoal": (-FARTHEST, FARTHEST)}
        self.ranges |= dict.fromkeys(("category", "shown_category"), (-1, len(self._names) - 1))
        if "objectgoal" in observed:
            self.ranges |= {"objectgoal": (0, int(observed["objectgoal"].high))}
        self.episode_details = {
            f"{name}_{k + 1}": self.results[:, k, column]
            for column, name in enumerate(RESULTS)
            for k in range(self.most_subtasks)
        }
        """f32 [N] by name: `results` of the k-th subtask of episodes that ended, as `success_k`; NaN for none."""

    @property
    def most_subtasks(self) -> int:
        """Largest number of subtasks of an episode."""
        return self.config.subtasks[1] if self._table is None else int(self._table.sequences[:, 1].max())

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...] | None:
        """Names of the goals that the scene bank holds; None where all goals are places."""
        if not config.asks_for_objects:
            return None
        return () if _SINGLE & set(config.goals) else config.categories

    @staticmethod
    def goal_images(config: Any) -> Mapping[str, str]:
        """The image of an object, where goals are such objects."""
        return ImageNav.goal_images(config) if "instance" in config.goals else {}

    @staticmethod
    def goal_image_size(config: SequenceConfig) -> tuple[int, int]:
        """Height and width of the images of objects."""
        return config.goal_height, config.goal_width

    @property
    def goal_camera(self) -> torch.Tensor:
        """f32 [N, 6]: cameras of the goals' images, with the columns of `scene.goals.ObjectGoal.images`.

        Goals without an image have a camera far above the scene, which sees nothing.
        """
        state = self.running
        goal = self.sim.bodies.scene.long() * len(self._names) + state.category.clamp(min=0)
        first, count = self._image_rows[goal].long().unbind(1)
        has_image = (state.category >= 0) & (state.goal_image >= 0) & (count > 0)
        camera = self._images[torch.where(has_image, first + state.goal_image.minimum(count - 1), 0)]
        camera[:, 1].masked_fill_(~has_image, NO_CAMERA)
        return camera

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """The place of the goal in polar form, and the number of its category, where goals have them."""
        found: list[ObservationSource] = []
        if "point" in config.goals:
            found.append(TaskObservation(POINTGOAL, relative=True))
        if config.asks_for_objects or "cylinder" in config.goals:
            most = (len(config.categories) or MOST_CATEGORIES) - 1
            found.append(TaskObservation(Spec("objectgoal", (), torch.int64, 0, most, torch.int64)))
        return tuple(found)

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents; the results of subtasks, and last the goal in the agent's frame."""
        *arrays, shown = super().arrays(n, device, config)
        results = torch.full((n, MOST_SUBTASKS, len(RESULTS)), math.nan, dtype=torch.float32, device=device)
        return *arrays, shown, results, shown

    @property
    def nearest_target(self) -> torch.Tensor:
        """f32 [N, 3]: the place of each agent's goal, the nearest one at the last `update_nearest_target`."""
        return self._nearest

    def update_nearest_target(self) -> None:
        """Find the nearest places of the goals from the agents' current positions."""
        self._find_nearest_target()

    def check_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """CheckpointError for numbers of goals and subtasks that do not fit together."""
        counts, order = state["counts"].cpu(), state["order"].cpu()
        names = max(len(self._names), 1)
        bad = (counts[:, 1] >= counts[:, 0]) | (order[:, 1] < 0) | (order[:, 1] >= counts[:, 0])
        rows = 0 if self._table is None else len(self._table.subtasks)
        listed = order[:, 0] >= 0
        bad |= listed & (order[:, 0] + counts[:, 0] > rows)
        bad |= ~listed & ((counts[:, 0] > names) | (order[:, 0] < -MAX_STARTS // CANDIDATES))
        if bad.any():
            i = int(bad.nonzero()[0])
            raise CheckpointError(
                f"environment state 'order'[{i}]: found {order[i].tolist()} with counts {counts[i].tolist()}, expected "
                "a subtask of the agent's episode, with a goal of the scenes"
            )

    def kernel_parameters(self) -> Any:
        """Kernel arguments of configuration, goals and subtasks."""
        config, device = self.config, self.sim.device
        general = GoalParameters.of(config, math.radians(config.success_angle_deg))
        goals = self.sim.bank.goals_view if config.asks_for_objects else view(_no_goals(device))
        fewest, most = config.subtasks
        return SequenceParameters(
            *general, *goals, np.int32(config.max_subtask_steps), config.wrong_stop == "end", config.order == "any",
            np.int32(fewest), np.int32(most), *map(view, self._subtask_arrays()),
        )  # fmt: skip

    def _subtask_arrays(self) -> tuple[torch.Tensor, ...]:
        """Subtasks of fixed episodes, and the numbers of the goals of sampled ones."""
        config, bank, device = self.config, self.sim.bank, self.sim.device
        categories = config.categories or tuple(name for name in self._names if not is_instance(name))
        of_category = np.zeros((max(len(self._names), 1), 2), np.int32)
        for k, name in enumerate(self._names):
            of_category[k] = k, categories.index(name) if name in categories else 0
        counts = np.zeros(max(bank.num_scenes * len(self._names), 1), np.int32)
        numbers = torch.from_numpy(of_category).to(device), torch.from_numpy(counts).to(device)
        if self._table is None:
            i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
            places = torch.zeros(1, 3, dtype=torch.float32, device=device)
            return torch.zeros(1, 2, **i32), torch.zeros(1, 4, **i32), places, *numbers
        observed = np.array([_number_of(name, categories) for name in self._table.categories], np.int32)
        subtasks = self._table.subtasks.clone()
        subtasks[:, 2] = torch.from_numpy(observed).to(device)[subtasks[:, 2].long()]
        return self._table.sequences.contiguous(), subtasks, self._table.places.contiguous(), *numbers

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        sim, n, chunks = self.sim, self.sim.num_envs, self.sim.chunks
        self.results = self.own[1]
        """f32 [N, MOST_SUBTASKS, 4]: `RESULTS` of the subtasks in the order in which they ended, until the next step
        of an agent whose episode ended."""
        nav, parameters, shown = sim.bank.navmesh_view, self.kernel_parameters(), view(self.live_goal)
        bodies, queue, sampling, table = map(view, (sim.bodies, sim.queue, sim.sampling, self.episodes))
        state, transition, next_episode = map(view, (self.running, self.transition, self.next_episode))
        written = bodies, state, transition, Observed(shown, view(self.results)), sim.error_flags
        self.bind_advance(advance, nav, sim.body, parameters, self.scratch, *written)
        self.bind_begin(begin, next_episode, bodies, state, queue, shown)
        scored = state, view(self.metric_tensors), view(self.reward)
        self._score = score.bind(n, nav, bodies, transition, parameters, self.scratch, *scored, rows=chunks)
        self.sample_pairs = sample_one.bind(
            queue, nav, bodies, sampling, table, parameters, self.sampling_scratch, next_episode, sim.error_flags,
            rows=chunks, threads=sampling_threads(n),
        )  # fmt: skip
        self._nearest = torch.zeros(n, 3, dtype=torch.float32, device=sim.device)
        self._find_nearest_target: Callable[[], None] = find_nearest_target.bind(
            n, nav, bodies, state, parameters, self.scratch, view(self._nearest), rows=chunks
        )


def _number_of(name: str, categories: tuple[str, ...]) -> int:
    """Number of a category that agents observe; 0 for goals without one. EpisodeError for an unknown category."""
    if not name or not categories:
        return 0
    if name not in categories:
        raise EpisodeError(
            f"episodes: found the category {name!r}, expected one of the task's: {few(categories, 30)}; presets "
            "(--preset) have the categories of published datasets"
        )
    return categories.index(name)


def _no_goals(device: torch.device) -> GoalData[torch.Tensor]:
    """Goals of a bank without objects."""
    return GoalData(*(
        torch.zeros(0 if columns is None else (0, columns), dtype=dtype, device=device)
        for columns, dtype in GOAL_COLUMNS
    ))  # fmt: skip
