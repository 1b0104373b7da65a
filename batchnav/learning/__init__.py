"""Large-batch PPO: rollout, advantages, losses, optimiser, learner. It uses environments through `VecEnv` only."""

from batchnav.learning.gae import gae
from batchnav.learning.imitation import Imitation
from batchnav.learning.lamb import Lamb
from batchnav.learning.learner import Learner
from batchnav.learning.loss import imitation_loss, ppo_loss

__all__ = ["Imitation", "Lamb", "Learner", "gae", "imitation_loss", "ppo_loss"]
