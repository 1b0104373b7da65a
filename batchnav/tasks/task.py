"""`BatchTask`, the base of all tasks: an episode's tensors, declared once, and the parts that kernels of a step share.

A task declares the tensors of a running episode in `fields`. Its records follow from them: the running episode, the
next one that is sampled ahead, and the transition of a step; also the valid ranges of saved states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from batchnav.errors import CheckpointError
from batchnav.navmesh.file import FARTHEST
from batchnav.observation import ObservationSource
from batchnav.runtime.kernels.arrays import record_type, view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import copy_fields
from batchnav.runtime.kernels.launch import Kernel
from batchnav.sim.bodies import Bodies, calls_stop, end_episode, is_invalid, step_body
from batchnav.sim.simulator import BAD_ACTION, Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.types import Metric

MAX_FLOAT = float(np.finfo(np.float32).max)
"""Largest finite float32."""
COORDINATES, ANGLES = (-FARTHEST, FARTHEST), (-1e7, 1e7)
"""Valid ranges of saved positions and distances, metres, and of angles, radians: sums of turns fit, and squares of
coordinates do not overflow."""


class Field(NamedTuple):
    """Declaration of a tensor of every agent's running episode."""

    columns: int = 1
    """1: [N]; 3: [N, 3], a point."""
    dtype: torch.dtype = torch.float32
    reset: float = 0
    """Value before the first episode."""
    low: float = -MAX_FLOAT
    high: float = MAX_FLOAT
    """Lowest and highest value that a saved state may have."""
    sampled: bool = True
    """True if it is known when the episode is sampled, and copied from the next episode when that begins."""

    def tensor(self, n: int, device: torch.device) -> torch.Tensor:
        """The tensor before the first episode."""
        shape = (n,) if self.columns == 1 else (n, self.columns)
        return torch.full(shape, self.reset, dtype=self.dtype, device=device)


COMMON_FIELDS = {
    "episode_return": Field(low=-np.inf, high=np.inf, sampled=False),  # sum of the rewards so far
    # row of the episode table; -1 for sampled episodes and after the table's last row
    "table_index": Field(dtype=torch.int32, reset=-1, low=-1, high=2**31 - 1),
}
"""Fields of all tasks."""


class BatchTask:
    """A `batchnav.types.Task`, for the N agents of a simulator.

    Args:
        sim: simulator of the agents.
        config: configuration of the task.
        episodes: fixed episodes instead of sampled ones. EpisodeError for an invalid table.
    """

    Config: type = TaskConfig
    title = "Task"
    goal_kind: str = ""
    episode_file = "{split}.json.gz"
    reference_agents: tuple[str, ...] = ("random", "forward")
    metric_specs: tuple[Metric, ...] = ()
    among_people: bool = False
    """True where the simulator always has a world of people, though nobody may be in it."""
    changes_goals: bool = False
    """True where an episode may have several goals, one after another."""
    fields: ClassVar[dict[str, Field]] = COMMON_FIELDS
    """Tensors of a running episode, by name."""
    body_fields: ClassVar[tuple[str, ...]] = ("scene", "position", "heading", "path_length", "collisions", "steps")
    """Fields of `Bodies` that the transition of a step holds, after the step."""
    State: Any
    """NamedTuple of `fields`: every agent's running episode."""
    Next: Any
    """NamedTuple of every agent's next episode, sampled ahead: scene, position, heading, and the sampled fields."""
    Transition: Any
    """NamedTuple of one step, kept for scoring, as the next episode may begin before: `moved`, bool [N], true where the
    position changed; `body_fields` after the step; `fields` before it."""
    Metrics: Any
    """NamedTuple of the metrics of every agent's episode, f32 [N], in the order of `metric_specs`."""

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        sampled = (name for name, field in cls.fields.items() if field.sampled)
        cls._record("State", cls.fields)
        cls._record("Next", ("scene", "position", "heading", *sampled))
        cls._record("Transition", ("moved", *cls.body_fields, *cls.fields))
        cls._record("Metrics", cls.metric_fields())

    @classmethod
    def _record(cls, name: str, fields: Iterable[str]) -> None:
        """Make a NamedTuple class, unless that of a base class has the same fields: kernels are compiled for it."""
        names = tuple(fields)
        if getattr(getattr(cls, name, None), "_fields", None) != names:
            record = record_type(name, names, cls.__module__)
            record.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, record)

    @classmethod
    def metric_fields(cls) -> tuple[str, ...]:
        """Fields of `Metrics`."""
        return tuple("return_" if metric.name == "return" else metric.name for metric in cls.metric_specs)

    def __init__(self, sim: Simulator, config: Any, episodes: EpisodeTable | None = None):
        n, device = sim.num_envs, sim.device
        self.config, self.sim = config, sim
        self.episodes = EpisodeTable.of(episodes, sim.bank)
        self.max_steps, self.num_fixed = config.max_steps, len(self.episodes.scene)
        self.running, self.transition, self.next_episode, self.metric_tensors, self.reward, *self.own = self.arrays(
            n, device, config
        )
        self.state: Any = self.running
        names = (metric.name for metric in self.metric_specs)
        self.metrics: Mapping[str, torch.Tensor] = dict(zip(names, self.metric_tensors, strict=True))
        self.observations: Mapping[str, torch.Tensor] = {}
        self.episode_info: Mapping[str, torch.Tensor] = {}
        self.episode_details: Mapping[str, torch.Tensor] = {}
        self.relative_goal: torch.Tensor | None = None
        self.goal_position: torch.Tensor | None = None
        self.goal_heading: torch.Tensor | None = None
        self.goal_category: torch.Tensor | None = None
        self.goal_number: torch.Tensor = sim.bodies.episode
        self.goal_index: torch.Tensor | None = None
        self.ranges: dict[str, tuple[float, float]] = {
            name: (field.low, field.high) for name, field in self.fields.items()
        } | {"table_index": (-1, self.num_fixed - 1)}
        self.target: torch.Tensor | None = None
        self.target_radius = 0.0
        self.scratch, *separate = (sim.search_scratch(rows) for rows in self.search_rows(n, device, sim.chunks))
        """Memory of the searches of steps, which no other kernel of a step uses at the same time."""
        self.sampling_scratch = separate[0] if separate else self.scratch
        """Scratch memory for searches of episode sampling, which runs at the same time as steps on CUDA."""

    @property
    def nearest_target(self) -> torch.Tensor | None:
        """`target`: there is one for the whole episode."""
        return self.target

    @property
    def goal_camera(self) -> torch.Tensor | None:
        """None: images of the goal have no cameras of their own, or there are none."""
        return None

    def update_nearest_target(self) -> None:
        """Do nothing: `nearest_target` does not change within an episode."""

    def check_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """CheckpointError where tensors of a saved state, each within `ranges`, do not fit together."""

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """None. A subclass returns what agents observe of the task."""
        return ()

    @staticmethod
    def goal_images(config: Any) -> Mapping[str, str]:
        """None. A subclass returns names of camera sensors by the name of the observation."""
        return {}

    @staticmethod
    def goal_image_size(config: Any) -> tuple[int, int] | None:
        """None: images of the goal are the main camera's, or there are none."""
        return None

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...] | None:
        """Categories of the goals that the scene bank holds (`SceneBank.pack`); None: the task needs none."""
        return None

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents: running episode, transition, next episode, metrics, reward. A subclass appends."""

        def record(kind: Any) -> Any:
            bodies = Bodies.empty(n, device)._asdict() | {"moved": torch.zeros(n, dtype=torch.bool, device=device)}
            return kind(*(
                cls.fields[name].tensor(n, device) if name in cls.fields else bodies[name] for name in kind._fields
            ))  # fmt: skip

        metrics = cls.Metrics(*torch.zeros(len(cls.Metrics._fields), n, dtype=torch.float32, device=device))
        reward = torch.zeros(n, dtype=torch.float32, device=device)
        return *map(record, (cls.State, cls.Transition, cls.Next)), metrics, reward

    @staticmethod
    def search_rows(num_envs: int, device: torch.device, chunks: int) -> tuple[int, ...]:
        """Number of concurrent path searches in a step; a second number: in the sampling of episodes, on CUDA."""
        return (num_envs if device.type == "cuda" else chunks,)

    def bind_advance(self, kernel: Kernel, *args: Any) -> None:
        """Make `advance`: a kernel of the actions; its other arguments, `args`, are prepared once."""
        actions = view(self.sim.body_config.empty_actions(self.sim.num_envs, self.sim.device))
        self.advance: Callable[[torch.Tensor], None] = kernel.bind(
            self.sim.num_envs, actions, *args, rows=self.sim.chunks, live=(0,)
        )

    def bind_begin(self, kernel: Kernel, *args: Any) -> None:
        """Make `begin_episodes`: a kernel of `all_agents`; its other arguments, `args`, are prepared once."""
        on_due, on_all = (kernel.bind(self.sim.num_envs, all_agents, *args) for all_agents in (False, True))
        self.begin_episodes: Callable[[bool], None] = lambda all_agents: on_all() if all_agents else on_due()


def refuse_where(bad: torch.Tensor, name: str, found: torch.Tensor, expected: str) -> None:
    """CheckpointError for the first agent of `bad`, bool [N]."""
    if bad.any():
        i = int(bad.nonzero()[0])
        raise CheckpointError(f"environment state {name!r}[{i}]: found {found[i].item()}, expected {expected}")


@inline_function
def advance_body(i, actions, nav, state, body, max_steps, scratch, row, bodies_out, transition_out):
    """Move the body, flag the end of its episode, and record the step."""
    transition_out.moved[i] = step_body(i, actions, nav, body, scratch, row, bodies_out)
    end_episode(i, calls_stop(i, actions, body), max_steps, bodies_out)
    copy_fields(i, bodies_out, transition_out)
    copy_fields(i, state, transition_out)


@inline_function
def flag_invalid(i, actions, body, errors_out):
    """Record an invalid action. On the CPU actions are checked before."""
    if is_invalid(i, actions, body):
        errors_out[BAD_ACTION] = np.int32(i + 1)  # any agent's number is good enough where several write


@inline_function
def record_step_metrics(i, transition, episode_return, metrics_out):
    """Write the metrics that all tasks have: collisions, path length, steps and return."""
    metrics_out.collisions[i] = np.float32(transition.collisions[i])
    metrics_out.path_length[i] = transition.path_length[i]
    metrics_out.steps[i] = np.float32(transition.steps[i])
    metrics_out.return_[i] = episode_return
