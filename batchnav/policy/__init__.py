"""The policy: encoders, memories, actor-critic, and weights on disk. It reads observations by their spaces only."""

from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.encoder import ENCODERS
from batchnav.policy.memories import MEMORIES
from batchnav.policy.weights import load_policy, save_policy

__all__ = ["ENCODERS", "MEMORIES", "ActorCritic", "PolicyAgent", "load_policy", "save_policy"]
