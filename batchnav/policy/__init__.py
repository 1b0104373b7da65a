"""The policy: encoders, memories, auxiliary losses, actor-critic, weights on disk.

It reads observations by their spaces only.
"""

from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.config import AUXILIARY, ENCODERS, MEMORIES
from batchnav.policy.lstm import EpisodicLSTM
from batchnav.policy.transformer import CausalTransformer
from batchnav.policy.weights import load_policy, save_policy

MEMORIES.update({"lstm": EpisodicLSTM, "transformer": CausalTransformer})
__all__ = ["AUXILIARY", "ENCODERS", "MEMORIES", "ActorCritic", "PolicyAgent", "load_policy", "save_policy"]
