"""The protocol of an algorithm: all that training, run folder, resume, progress, validation and bench know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from batchnav.learning.config import ImitationConfig, LearnerConfig
from batchnav.learning.stats import UpdateStats
from batchnav.policy.actor_critic import ActorCritic
from batchnav.runtime.distributed import Ranks
from batchnav.types import VecEnv

OWN = "own"
"""Key of the part of an algorithm's state that differs between ranks; all other keys are equal on all ranks."""

Expert = Callable[[dict[str, torch.Tensor], torch.Tensor], torch.Tensor]
"""Function from observations [N, ...], by the names that the policy reads, and a mask bool [N] to the expert's actions,
i64 [N], or f32 [N, A] for a Box. The mask is set where an episode begins, or where another action than the expert's
last one was executed; the expert keeps no plan there. It must not synchronise with the device, since a CUDA graph may
record it."""


class Samples(NamedTuple):
    """Tensors of the last rollout, for TensorBoard."""

    images: dict[str, torch.Tensor]
    """Latest observations [N, ...] by name; those that are images are shown."""
    numbers: dict[str, torch.Tensor]
    """Tensors of any shape by name, for histograms."""


class Algorithm(Protocol):
    """Learns a policy in one vectorised environment, on the environment's device, by name in `ALGORITHMS`.

    `Learner` has every member but the loss; an algorithm that learns from rollouts by gradient steps inherits it.

    Several processes may train one policy. They call the same methods in the same order, with equal settings and seed
    but different environments, and keep equal weights.
    """

    Config: ClassVar[type[LearnerConfig]]
    """Dataclass of its settings; the configuration's section with the algorithm's name holds them."""
    curves: ClassVar[Mapping[str, tuple[str, str]]]
    """Title and unit of the scalars among its statistics that pages of runs plot, by name (without "loss/")."""
    policy: ActorCritic
    """The network that learns, on `device`."""
    device: torch.device
    ranks: Ranks
    """The processes that train together."""
    frames: int
    """Environment steps of all ranks so far."""
    frames_per_update: int
    """Environment steps of all ranks in one update."""

    def __init__(
        self,
        policy: ActorCritic,
        env: VecEnv,
        config: LearnerConfig,
        seed: int = 0,
        compile: bool = False,
        graphs: bool = False,
        ranks: Ranks | None = None,
        expert: Expert | None = None,
        imitation: ImitationConfig | None = None,
    ):
        """As in `Learner`. ConfigError where environment, policy and settings do not fit."""
        ...

    def update(self, progress: float) -> UpdateStats:
        """Collect experience and learn from it. `progress`: finished fraction of the run, 0 to 1, for schedules.

        Returns statistics on the device; `read()` copies them to the host as numbers by name.
        """
        ...

    def schedules(self, progress: float) -> dict[str, float]:
        """Values that change over the run, by name, at this progress of the run, 0 to 1; empty where none does."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """State from which training continues: nested dicts and lists of numbers, and of tensors on the CPU.

        What differs between ranks is under the key OWN. "frames" is the number of frames done.
        """
        ...

    def load_state_dict(self, state: dict[str, Any], new_episodes: bool = False) -> None:
        """Continue from a result of `state_dict`; with `new_episodes` without OWN. CheckpointError for a misfit."""
        ...

    def samples(self) -> Samples:
        """Tensors of the last rollout, for TensorBoard."""
        ...
