"""The policy: image encoder, actor-critic with memory, and its weights on disk. Knows observations by shape alone."""

from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.encoder import ENCODERS
from batchnav.policy.memories import MEMORIES
from batchnav.policy.weights import load_policy, save_policy

__all__ = ["ENCODERS", "MEMORIES", "ActorCritic", "PolicyAgent", "load_policy", "save_policy"]
