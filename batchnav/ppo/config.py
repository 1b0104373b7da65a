"""The learner's configuration: PPO, and imitation of an expert beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchnav.config import in_range
from batchnav.errors import ConfigError


@dataclass(frozen=True)
class PPOConfig:
    """Large-batch PPO. Defaults: the paper's released depth settings (`train_depth.sh`)."""

    num_envs: int = 512
    rollout_steps: int = 32
    epochs: int = 1
    minibatches: int = 2
    """Each holds whole sequences of num_envs / minibatches environments."""
    total_frames: int = 2_500_000_000
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 1.0
    optimizer: Literal["lamb", "adamw"] = "lamb"
    learning_rate: float = 5e-4
    """Base rate: scaled by sqrt(minibatch frames / 256) where that is above 1."""
    weight_decay: float = 1e-2
    lamb_min_trust: float = 0.01
    """LAMB's trust ratio is clipped to [this, 1 / this]; 1 is Adam."""
    timeout_bootstrap: bool = False
    """Bootstrap the value at a time-out (the environment must offer `final_obs`)."""
    normalize_advantage: bool = False

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "num_envs", 1, 2**24)
        in_range(self, "rollout_steps", 1, 100_000)
        in_range(self, "epochs", 1, 1000)
        in_range(self, "minibatches", 1, self.num_envs)
        in_range(self, "total_frames", 1, 10**13)
        in_range(self, "gamma", 0.0, 1.0)
        in_range(self, "gae_lambda", 0.0, 1.0)
        in_range(self, "clip", 1e-6, 10.0)
        in_range(self, "learning_rate", 0.0, 10.0)
        in_range(self, "max_grad_norm", 1e-9, 1e9)
        in_range(self, "lamb_min_trust", 1e-9, 1.0)
        if self.num_envs % self.minibatches:
            raise ConfigError(f"minibatches: found {self.minibatches}, expected a divisor of num_envs={self.num_envs}")

    @property
    def frames_per_update(self) -> int:
        """Environment steps between two updates of the policy."""
        return self.num_envs * self.rollout_steps


@dataclass(frozen=True)
class KickstartConfig:
    """Kickstarting (Schmitt et al. 2018): the policy imitates a reference agent too, less and less as it learns."""

    teacher: Literal["", "greedy", "planner"] = ""
    """One that goes by the observations alone, as the policy has to; "": none."""
    coef: float = 0.1
    """Of the teacher's actions' negative log probability in the loss, at first."""
    share: float = 1.0
    """Of the run, in which it falls to 0; with 2, half of it is left at the end."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "coef", 0.0, 1e6)
        in_range(self, "share", 1e-6, 1e6)
