"""Algorithms that learn a policy: what they share, and a registry of them. They see environments through `VecEnv` only.

`ALGORITHMS` holds them by name, for the setting `algorithm`. Register one of your own:

    batchnav.learning.ALGORITHMS["a2c"] = A2C       # then `algorithm: a2c`, with its settings in the section `a2c`
"""

from batchnav.config import Registry
from batchnav.learning.algorithm import OWN, Algorithm, Expert, Samples
from batchnav.learning.config import ImitationConfig, LearnerConfig
from batchnav.learning.dagger import DAgger, DAggerConfig
from batchnav.learning.learner import Learner
from batchnav.learning.losses import gae, imitation_loss, mask_loss, ppo_loss
from batchnav.learning.optimizers import Lamb
from batchnav.learning.ppo import PPO, PPOConfig
from batchnav.learning.rollout import Rollout

ALGORITHMS = Registry({"ppo": PPO, "dagger": DAgger})
"""Algorithms by name."""

__all__ = [
    "ALGORITHMS", "OWN", "PPO", "Algorithm", "DAgger", "DAggerConfig", "Expert", "ImitationConfig", "Lamb", "Learner",
    "LearnerConfig", "PPOConfig", "Rollout", "Samples", "gae", "imitation_loss", "mask_loss", "ppo_loss",
]  # fmt: skip
