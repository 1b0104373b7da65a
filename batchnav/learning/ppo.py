"""Proximal policy optimisation (PPO, Schulman et al. 2017) with large batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from batchnav.config import bounded
from batchnav.learning.algorithm import Samples
from batchnav.learning.config import LearnerConfig
from batchnav.learning.learner import Learner
from batchnav.learning.losses import gae, ppo_loss
from batchnav.policy.actor_critic import Evaluation


@dataclass(frozen=True)
class PPOConfig(LearnerConfig):
    """Large-batch PPO. Defaults: the paper's released depth settings (`train_depth.sh`)."""

    gamma: float = bounded(0.99, 0.0, 1.0)
    """Discount per step."""
    gae_lambda: float = bounded(0.95, 0.0, 1.0)
    """Lambda of generalised advantage estimation."""
    clip: float = bounded(0.2, 1e-6, 10.0)
    """Clip range of the probability ratio."""
    value_coef: float = bounded(0.5, 0.0, 1e6)
    """Coefficient of the value loss."""
    entropy_coef: float = bounded(0.01, 0.0, 1e6)
    """Coefficient of the entropy bonus."""
    timeout_bootstrap: bool = False
    """Bootstrap at time-outs from the value of the final observation; the environment must return `final_obs`. False:
    the return ends with the last reward."""
    normalize_advantage: bool = False
    """Normalise advantages to mean 0 and standard deviation 1 over the rollout."""

    @property
    def reads_final_obs(self) -> bool:
        """True with `timeout_bootstrap`."""
        return self.timeout_bootstrap


class PPO(Learner):
    """PPO of one policy in one vectorised environment; the arguments are those of `Learner`."""

    Config = PPOConfig
    curves: ClassVar[Mapping[str, tuple[str, str]]] = {
        **Learner.curves,
        "approx_kl": ("KL divergence", "nats"),
        "policy_loss": ("policy loss", ""),
        "value_loss": ("value loss", ""),
        "explained_variance": ("explained variance of returns", ""),
    }

    def finish_rollout(self) -> None:
        """Compute advantages, normalised if configured, and returns of the rollout: f32 [T, N] each."""
        rollout, config = self.rollout, self.config
        advantage, returns = gae(
            rollout.reward, rollout.value, rollout.next_value, rollout.done, config.gamma, config.gae_lambda
        )
        if config.normalize_advantage:
            advantage = (advantage - self.ranks.mean(advantage)) / (self.ranks.std(advantage) + 1e-8)
        rollout.advantage.copy_(advantage)
        rollout.returns.copy_(returns)

    def loss(self, envs: torch.Tensor, evaluated: Evaluation) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """PPO's loss, with the statistics of `ppo_loss`."""
        rollout, config = self.rollout, self.config
        return ppo_loss(
            evaluated.log_prob,
            rollout.log_prob[:, envs],
            rollout.advantage[:, envs],
            evaluated.value,
            rollout.returns[:, envs],
            evaluated.entropy,
            clip=config.clip,
            value_coef=config.value_coef,
            entropy_coef=config.entropy_coef,
        )

    def summary(self) -> dict[str, torch.Tensor]:
        """Explained variance, 1 - Var(R - V) / Var(R): 1 for a critic that predicts every return, 0 for a constant."""
        rollout, ranks = self.rollout, self.ranks
        left = ranks.var(rollout.returns - rollout.value)
        return {"explained_variance": 1.0 - left / ranks.var(rollout.returns).clamp(min=1e-12)}

    def samples(self) -> Samples:
        """Tensors of the last rollout, advantages too."""
        images, numbers = super().samples()
        return Samples(images, {"value": numbers["value"], "advantage": self.rollout.advantage, **numbers})
