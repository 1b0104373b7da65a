"""CartPole's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchnav.config import CHOICES, bounded, chosen_settings, sectioned
from batchnav.learning import ALGORITHMS, LearnerConfig
from batchnav.policy.config import PolicyConfig


@sectioned
@dataclass(frozen=True)
class CartPoleRun:
    """Training run on CartPole."""

    policy: PolicyConfig = field(default_factory=lambda: PolicyConfig(memory="none", hidden_size=64))
    """Architecture of the policy, without memory."""
    algorithm: str = field(default="ppo", metadata={CHOICES: (ALGORITHMS,)})
    """Name of the algorithm in `batchnav.learning.ALGORITHMS`. The section of its name has its settings."""
    imports: tuple[str, ...] = ()
    """Modules of your own that register parts by name: dotted names, or files beside the configuration. They are
    imported, so executed, before the rest of the configuration is read; `--import` adds to them."""
    device: str = "auto"
    """Device: "cpu", "cuda", or "auto" for a GPU if there is one."""
    seed: int = bounded(0, 0, 2**62)
    """Seed of initial weights, start states and action sampling."""

    @property
    def learner(self) -> LearnerConfig:
        """Settings of the algorithm. ConfigError for an unknown name."""
        (settings,) = chosen_settings(self, "algorithm")
        return settings
