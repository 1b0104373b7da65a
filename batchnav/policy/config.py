"""The policy's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from batchnav.config import in_range


@dataclass(frozen=True)
class PolicyConfig:
    """Architecture of the actor-critic. Defaults: the paper's agent, 10,988,085 parameters at 64x64 depth."""

    encoder: str = "se_resnet9"
    """Name of the image encoder in `batchnav.policy.ENCODERS`: se_resnet9, simple_cnn or one of your own."""
    base_width: int = 64
    """Channels of the encoder's first layers; later layers have multiples of it."""
    depth_bins: int = 10
    """Number of one-hot channels that se_resnet9 adds to a one-channel image, one per equal part of its range; 0:
    none."""
    visual_size: int = 512
    """Width of the encoder's output."""
    hidden_size: int = 512
    """Width of the memory's state and output, or of the feed-forward layers."""
    memory: str = "lstm"
    """Name of the memory in `batchnav.policy.MEMORIES`: lstm, transformer or one of your own; "none": a feed-forward
    network."""
    lstm_layers: int = 2
    """Number of layers of the memory, of an LSTM or a transformer; 0: no memory, as with `memory: none`."""
    attention_heads: int = 8
    """Number of attention heads of a transformer; `hidden_size` is a multiple of twice this number."""
    attention_window: int = 128
    """Number of steps that a transformer attends to, the current one included. State of an environment on CUDA: 4 *
    lstm_layers * attention_window * hidden_size bytes."""
    embedding_size: int = 32
    """Width of the embedding of each vector, each integer and the previous action."""
    polar: tuple[str, ...] = ("pointgoal",)
    """Vector observations [r, angle] that the network reads as [r, cos, sin]."""
    log_distance: bool = False
    """Read the r of `polar` as its logarithm, with sines and cosines of it (`policy.observations.log_distance`). This
    resolves centimetres near a goal and keeps the input small for large distances. False: metres, as in the paper."""
    normalized: tuple[str, ...] = ()
    """Images whose channels are normalised by their running mean and variance, as in the paper's RGB agent."""
    film: tuple[str, ...] = ()
    """Images that modulate the encoder of the other images of their size (`policy.film`), such as an image of the goal;
    they should stay the same during an episode. Images that are not named here are channels of the encoder."""
    predicted_mask: str = ""
    """Image of the goal's pixels that the policy predicts instead of reading it (`policy.mask_head`), such as
    "goal_mask": the environment renders it for training only. "": none."""
    blind: bool = False
    """Ignore all images, as a control experiment."""

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
        in_range(self, "attention_heads", 1, 64)
        in_range(self, "attention_window", 1, 4096)
        in_range(self, "embedding_size", 1, 4096)
