"""Large-batch PPO: rollout, advantages, losses, optimiser, learner. It uses environments through `VecEnv` only."""

from batchnav.ppo.gae import gae
from batchnav.ppo.imitation import Imitation
from batchnav.ppo.lamb import Lamb
from batchnav.ppo.learner import Learner
from batchnav.ppo.loss import imitation_loss, ppo_loss

__all__ = ["Imitation", "Lamb", "Learner", "gae", "imitation_loss", "ppo_loss"]
