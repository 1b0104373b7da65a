"""The policy's configuration, and the registries of encoders, memories and auxiliary losses."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchnav.config import CHOICES, Registry, Sections, all_settings, bounded, sectioned

ENCODERS = Registry()
"""Encoders by name, for `PolicyConfig.encoder`; `batchnav.policy.encoder` describes them."""
MEMORIES = Registry()
"""Memories by name, for `PolicyConfig.memory`: subclasses of `batchnav.policy.memory.Memory`."""
AUXILIARY = Registry()
"""Auxiliary losses by name, for `PolicyConfig.auxiliary`: subclasses of `batchnav.policy.auxiliary.Auxiliary`."""


@sectioned
@dataclass(frozen=True)
class PolicyConfig(Sections):
    """Architecture of the actor-critic. Defaults: the paper's agent, 10,988,085 parameters at 64x64 depth.

    Settings of encoder, memory and auxiliary losses are in the sections of their names, such as `lstm: {layers: 1}`.
    """

    encoder: str = field(default="se_resnet9", metadata={CHOICES: (ENCODERS,)})
    """Name of the image encoder in `batchnav.policy.ENCODERS`: se_resnet9, simple_cnn, scan or one of your own; or
    timm:NAME, a pretrained model of timm."""
    visual_size: int = bounded(512, 1, 8192)
    """Width of the encoder's output."""
    scan_encoder: str = field(default="scan", metadata={CHOICES: (ENCODERS,)})
    """Name of the encoder of scans [rows, beams], such as those of a LiDAR: scan, or an image encoder, which reads them
    as images [1, rows, beams]."""
    memory: str = field(default="lstm", metadata={CHOICES: (MEMORIES,)})
    """Name of the memory in `batchnav.policy.MEMORIES`: lstm, transformer or one of your own; "none": a feed-forward
    network."""
    hidden_size: int = bounded(512, 1, 8192)
    """Width of the memory's state and output, or of the feed-forward layers."""
    embedding_size: int = bounded(32, 1, 4096)
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
    mask_width: int = bounded(64, 2, 512)
    """Number of channels of the network that predicts the mask."""
    auxiliary: tuple[str, ...] = field(default=(), metadata={CHOICES: (AUXILIARY,)})
    """Names of auxiliary losses in `batchnav.policy.AUXILIARY`, which train the network beside the algorithm's loss:
    place (the goal's distance and direction, from the observation "true_goal"), or your own."""
    blind: bool = False
    """Ignore all images and scans, as a control experiment."""

    @property
    def labels(self) -> dict[str, str]:
        """Observations that the policy learns from and does not read, which an environment has in training only.

        The setting that asks for each, by name. ConfigError for an unknown auxiliary loss.
        """
        found = {self.predicted_mask: "predicted_mask"} if self.predicted_mask else {}
        for name, settings in all_settings(self, "auxiliary").items():
            found |= dict.fromkeys(AUXILIARY[name].labels(*settings), name)
        return found
