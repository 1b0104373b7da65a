"""The policy's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import in_range


@dataclass(frozen=True)
class PolicyConfig:
    """The actor-critic. Defaults: the paper's agent, 10,988,085 parameters at 64x64 depth."""

    encoder: str = "se_resnet9"
    """A name from `batchnav.policy.ENCODERS`; an image observation is read by it."""
    base_width: int = 64
    depth_bins: int = 10
    """One-hot channels that se_resnet9 appends to a one-channel image, each a tenth of its range for 10; 0: none."""
    visual_size: int = 512
    hidden_size: int = 512
    memory: str = "lstm"
    """A name from `batchnav.policy.MEMORIES`; "none": a feed-forward network."""
    lstm_layers: int = 2
    """Layers of the memory; 0: no memory, as with `memory: none`."""
    embedding_size: int = 32
    """Width of each vector observation's and of the previous action's embedding."""
    polar: tuple[str, ...] = ("pointgoal",)
    """Vector observations [r, angle] that the network reads as [r, cos, sin]."""
    log_distance: bool = False
    """Read their r by its logarithm and sines and cosines of that (`policy.actor_critic.log_distance`): centimetres
    count at a goal then, and fifty metres more do not drown all else. The paper's agent reads metres."""
    normalized: tuple[str, ...] = ()
    """Images whose channels are centred and scaled by their running mean and variance, as the paper's RGB agent's."""
    blind: bool = False
    """Leave image observations out: the control experiment."""

    @property
    def memory_name(self) -> str:
        """The memory's name in `batchnav.policy.MEMORIES`: "none" without layers."""
        return self.memory if self.lstm_layers else "none"

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "base_width", 2, 512)
        in_range(self, "depth_bins", 0, 64)
        in_range(self, "visual_size", 1, 8192)
        in_range(self, "hidden_size", 1, 8192)
        in_range(self, "lstm_layers", 0, 8)
        in_range(self, "embedding_size", 1, 4096)
