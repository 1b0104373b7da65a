"""Advantage actor-critic: a toy of the seam `learning.ALGORITHMS`, in a file outside the package."""

from dataclasses import dataclass

from batchnav.learning import ALGORITHMS, Learner, LearnerConfig, gae


@dataclass(frozen=True)
class A2CConfig(LearnerConfig):
    """Settings of advantage actor-critic."""

    gamma: float = 0.95
    """Discount per step."""


class A2C(Learner):
    """Advantage actor-critic (Mnih et al. 2016), one step a rollout."""

    Config = A2CConfig

    def finish_rollout(self):
        """Compute advantages and returns."""
        rollout = self.rollout
        found = gae(rollout.reward, rollout.value, rollout.next_value, rollout.done, self.config.gamma, 1.0)
        rollout.advantage.copy_(found[0])
        rollout.returns.copy_(found[1])

    def loss(self, envs, evaluated):
        """The policy gradient and half the squared error of the values."""
        policy_loss = -(self.rollout.advantage[:, envs] * evaluated.log_prob).mean()
        value_loss = 0.5 * (evaluated.value - self.rollout.returns[:, envs]).square().mean()
        stats = {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
        return policy_loss + 0.5 * value_loss, stats


ALGORITHMS["a2c"] = A2C
