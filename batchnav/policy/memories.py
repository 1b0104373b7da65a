"""Registry of memories."""

from __future__ import annotations

from batchnav.policy.lstm import EpisodicLSTM
from batchnav.policy.memory import FeedForward, Memory
from batchnav.policy.transformer import CausalTransformer

MEMORIES: dict[str, type[Memory]] = {"lstm": EpisodicLSTM, "transformer": CausalTransformer, "none": FeedForward}
"""Memories by name, for `PolicyConfig.memory`; "none" is a policy without memory."""
