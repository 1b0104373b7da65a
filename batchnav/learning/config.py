"""Settings that all algorithms share, and those of the imitation of an expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchnav.config import bounded
from batchnav.errors import ConfigError


@dataclass(frozen=True)
class LearnerConfig:
    """Settings of every algorithm; an algorithm's own `Config` inherits them and adds its own."""

    num_envs: int = bounded(512, 1, 2**24)
    """Number of environments."""
    rollout_steps: int = bounded(32, 1, 100_000)
    """Number of steps of each environment in a rollout."""
    epochs: int = bounded(1, 1, 1000)
    """Number of passes over a rollout."""
    minibatches: int = bounded(2, 1, 2**24)
    """Number of minibatches in a pass; each has the whole sequences of num_envs / minibatches environments."""
    total_frames: int = bounded(2_500_000_000, 1, 10**13)
    """Length of the run, environment steps of all processes."""
    schedule_frames: int = bounded(0, 0, 10**13)
    """Length of the schedules, such as that of the learning rate, frames; their final values hold afterwards. 0:
    `total_frames`. A finished run that continues with its former length here stays at its final learning rate."""
    mask_coef: float = bounded(1.0, 0.0, 1e6)
    """Coefficient of the mask loss, for a policy with `predicted_mask`."""
    max_grad_norm: float = bounded(1.0, 1e-9, 1e9)
    """Largest norm of the gradient; a larger gradient is scaled down to it."""
    optimizer: Literal["lamb", "adamw"] = "lamb"
    """Optimiser; LAMB is AdamW with a trust ratio per tensor."""
    learning_rate: float = bounded(5e-4, 0.0, 10.0)
    """Base learning rate, multiplied by sqrt(minibatch frames / 256) if that is above 1."""
    weight_decay: float = bounded(1e-2, 0.0, 1e3)
    """Coefficient of decoupled weight decay."""

    def validate(self) -> None:
        """ConfigError where the minibatches do not divide the environments."""
        if self.num_envs % self.minibatches:
            raise ConfigError(f"minibatches: found {self.minibatches}, expected a divisor of num_envs={self.num_envs}")

    def progress(self, frames: int) -> float:
        """Finished fraction of the schedules after `frames` environment steps, 0 to 1."""
        return min(frames / (self.schedule_frames or self.total_frames), 1.0)

    @property
    def frames_per_update(self) -> int:
        """Environment steps in one rollout of this process."""
        return self.num_envs * self.rollout_steps

    @property
    def reads_final_obs(self) -> bool:
        """True where the environment must return `final_obs`, from whose value time-outs are bootstrapped."""
        return False


@dataclass(frozen=True)
class ImitationConfig:
    """Imitation of an expert while the policy learns: kickstarting (Schmitt et al. 2018, arXiv:1803.03835).

    coef * `imitation_loss` is added to the loss of each optimiser step. The policy chooses the actions in the
    environment; the expert only labels the observations of the rollout. Statistics report the loss without this term.
    """

    expert: str = ""
    """Name of the reference agent to imitate; "": none. It must act on the observations that the policy reads."""
    coef: float = bounded(0.1, 0.0, 1e6)
    """Initial coefficient of the imitation loss, the mean negative log probability of the expert's actions."""
    schedule: Literal["linear", "constant"] = "linear"
    """linear: the coefficient falls linearly to 0 over the run; constant: it does not change."""

    def coef_at(self, progress: float) -> float:
        """Coefficient at this progress of the run, 0 to 1."""
        return self.coef if self.schedule == "constant" else self.coef * max(1.0 - progress, 0.0)
