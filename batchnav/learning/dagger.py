"""DAgger: imitation of an expert that labels the states which the learner visits (Ross, Gordon, Bagnell, AISTATS 2011).

Each update rolls out a mixture of expert and learner: in each step the expert's action is executed with probability
beta, which falls from 1 to 0, else the learner's. The expert labels every state, and the policy takes steps on the
cross entropy of these labels over the rollout's sequences.

The paper trains on the aggregate of all iterations. Here a rollout holds 10^4 to 10^6 states, and new ones cost no
more than stored ones, so each update learns from its own rollout only (its epochs times): online gradient descent, one
of the no-regret learners that the paper's theorem 3.1 asks for. No buffer grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from batchnav.config import bounded
from batchnav.errors import ConfigError
from batchnav.learning.config import LearnerConfig
from batchnav.learning.learner import Learner
from batchnav.learning.losses import imitation_loss
from batchnav.policy.actor_critic import Act, Evaluation


@dataclass(frozen=True)
class DAggerConfig(LearnerConfig):
    """Imitation of an expert by DAgger."""

    expert: str = "shortest_path"
    """Name of the reference agent to imitate. It may know the navmesh, which the policy does not observe."""
    expert_until: float = bounded(0.2, 0.0, 1.0)
    """Fraction of the run in which the probability that the expert's action is executed falls linearly from 1 to 0."""
    entropy_coef: float = bounded(0.0, 0.0, 1e6)
    """Coefficient of the entropy bonus."""

    def validate(self) -> None:
        """ConfigError without an expert."""
        super().validate()
        if not self.expert:
            raise ConfigError("expert: found none, expected the name of a reference agent to imitate")

    def beta(self, progress: float) -> float:
        """Probability that the expert's action is executed, at this progress of the run, 0 to 1."""
        return max(1.0 - progress / self.expert_until, 0.0) if self.expert_until else 0.0


class DAgger(Learner):
    """DAgger of one policy in one vectorised environment; the arguments are those of `Learner`, with an expert."""

    Config = DAggerConfig
    curves: ClassVar[Mapping[str, tuple[str, str]]] = {
        **Learner.curves,
        "agreement": ("mean probability of the expert's action", ""),
        "beta": ("probability that the expert acts", ""),
    }
    learns_values = False
    adds_imitation = False

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.expert is None:
            raise ConfigError("expert: found none, expected a function that labels observations with actions")
        self.beta = torch.tensor(0.0, dtype=torch.float32, device=self.device)
        self.mixing = torch.zeros(self.rollout.reward.shape, dtype=torch.float32, device=self.device)

    def schedules(self, progress: float) -> dict[str, float]:
        """Learning rate, and the probability that the expert acts."""
        return {**super().schedules(progress), "probability of the expert's actions": self.config.beta(progress)}

    def begin_update(self, progress: float) -> None:
        """Set the mixture of the next rollout."""
        self.beta.fill_(self.config.beta(progress))
        self.fill_uniform_(self.mixing)

    def choose(self, t: int, act: Act) -> torch.Tensor:
        """The expert's action where the step's random number is below beta, else the policy's."""
        by_expert = self.mixing[t] < self.beta
        by_expert = by_expert.reshape(-1, *[1] * (act.action.dim() - 1))
        return torch.where(by_expert, self.rollout.expert_action[t], act.action)

    def loss(self, envs: torch.Tensor, evaluated: Evaluation) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Cross entropy of the expert's actions; "agreement" is their mean probability."""
        log_prob, entropy = self.expert_log_prob(envs, evaluated), evaluated.entropy.mean()
        loss = imitation_loss(log_prob) - self.config.entropy_coef * entropy
        return loss, {"entropy": entropy.detach(), "agreement": log_prob.detach().exp().mean()}

    def summary(self) -> dict[str, torch.Tensor]:
        """The probability "beta" that the expert acted."""
        return {"beta": self.beta.clone()}
