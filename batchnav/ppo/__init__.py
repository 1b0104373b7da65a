"""Large-batch PPO: rollout, advantages, loss, optimiser, learner. Knows environments by the VecEnv protocol alone."""

from batchnav.ppo.gae import gae
from batchnav.ppo.kickstart import Kickstart
from batchnav.ppo.lamb import Lamb
from batchnav.ppo.learner import Learner
from batchnav.ppo.loss import ppo_loss

__all__ = ["Kickstart", "Lamb", "Learner", "gae", "ppo_loss"]
