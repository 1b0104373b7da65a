"""The table of memories."""

from __future__ import annotations

from batchnav.policy.lstm import EpisodicLSTM
from batchnav.policy.memory import FeedForward, Memory

MEMORIES: dict[str, type[Memory]] = {"lstm": EpisodicLSTM, "none": FeedForward}
"""Memories by the name that `PolicyConfig.memory` gives; "none" is their absence."""
