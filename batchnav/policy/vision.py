"""Colour encoders that learned on renders: their network, their files, and policies that start from their weights.

    image u8 [3, H, W] -- normalise -- trunk of `se_resnet9` -- feature maps --.-- decoder -- depth, normals, categories
                                                                               '-- mean -- embedding of the place

The trunk is that of the encoder `se_resnet9`, so a policy's encoder can start from its weights (`se_resnet9.weights`)
or keep them (`frozen_resnet9`). The decoder adds the feature maps from coarse to fine, as a feature pyramid does (Lin
et al., CVPR 2017).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.errors import CheckpointError, ConfigError
from batchnav.policy.config import PolicyConfig
from batchnav.policy.encoder import CELL, SEResNet9Trunk, he_normal
from batchnav.runtime.bundled import find_encoder
from batchnav.runtime.device import torch_defaults
from batchnav.runtime.weights import (
    Source,
    check_finite,
    check_names_and_shapes,
    read_settings,
    read_weights,
    save_weights,
)

CHANNELS = 3
"""Channels of colour images."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of each channel that the trunk's input is normalised by: those of ImageNet."""
NEAREST, FARTHEST = 0.1, 10.0
"""Range of predicted depth, metres."""
FORMAT = "batchnav encoder 1"
MAX_CATEGORIES, MAX_WIDTH = 4096, 128
"""Limits of a file: categories, base width."""
_DECODER, _EMBEDDING = 48, 128
"""Channels of the decoder; width of the embedding."""


class Predictions(NamedTuple):
    """What `VisionNet` predicts for B images."""

    log_depth: torch.Tensor
    """[B, 1, H, W]: natural logarithm of planar depth in metres."""
    normals: torch.Tensor
    """[B, 3, H / 4, W / 4]: directions of the normals (right, up, back) of one pixel in each cell (`cell_pixels`)."""
    categories: torch.Tensor
    """[B, C, H / 4, W / 4]: logits of the semantic categories of these pixels. A category's mask is that of a goal."""
    embedding: torch.Tensor
    """[B, 128], of unit length: near that of other views of the place."""


def cell_pixels(image: torch.Tensor) -> torch.Tensor:
    """The pixels [B, C, H / 4, W / 4] of an image [B, C, H, W] whose normals and categories are predicted."""
    return image[:, :, CELL // 2 :: CELL, CELL // 2 :: CELL]


class VisionNet(nn.Module):
    """A trunk of `se_resnet9` for colour images, with heads for depth, normals, categories and places.

    Args:
        base_width: channels of the trunk's first layers.
        categories: names of the semantic categories; number 0 is no category.
        info: values that JSON can hold, which the file keeps, such as how it was trained.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, base_width: int, categories: Sequence[str], info: Mapping[str, Any] | None = None):
        super().__init__()
        self.base_width, self.categories, self.info = base_width, tuple(categories), dict(info or {})
        settings = SEResNet9Trunk.Config(base_width=base_width)
        self.trunk = SEResNet9Trunk((CHANNELS, 16 * CELL, 16 * CELL), PolicyConfig(), settings)
        self.lateral = nn.ModuleList(nn.Conv2d(width, _DECODER, 1) for width in self.trunk.channels)
        self.merge = nn.ModuleList(nn.Conv2d(_DECODER, _DECODER, 3, padding=1) for _ in self.trunk.channels)
        self.depth_head = nn.Conv2d(_DECODER, CELL * CELL, 1)
        self.normal_head = nn.Conv2d(_DECODER, 3, 1)
        self.category_head = nn.Conv2d(_DECODER, len(self.categories), 1)
        last = self.trunk.channels[-1]
        self.embed = nn.Sequential(nn.Linear(last, last), nn.ReLU(), nn.Linear(last, _EMBEDDING))
        for module in (*self.lateral, *self.merge, self.depth_head, self.normal_head, self.category_head):
            he_normal(cast(torch.Tensor, module.weight), 0.5)
            nn.init.zeros_(cast(torch.Tensor, module.bias))
        for name, values in (("mean", MEAN), ("std", STD)):
            column = torch.tensor(values, dtype=torch.float32, device=torch.get_default_device())[:, None, None]
            self.register_buffer(name, column, persistent=False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # annotation of torch

    def forward(self, image: torch.Tensor) -> Predictions:
        """Predictions for images [B, 3, H, W], bytes or floats in 0..1; H and W are multiples of 4."""
        x = image.float() / 255.0 if image.dtype == torch.uint8 else image
        x, maps = ((x - self.mean) / self.std).contiguous(memory_format=torch.channels_last), []
        for stage in self.trunk.stages():
            x = stage(x)
            maps.append(x)
        y = torch.zeros_like(maps[-1][:, :1])
        for feature, lateral, merge in reversed(list(zip(maps, self.lateral, self.merge, strict=True))):
            y = F.interpolate(y, feature.shape[2:]) + lateral(feature)
            y = y + merge(F.relu(y))
        y = F.relu(y)
        depth = F.pixel_shuffle(self.depth_head(y), CELL)
        embedding = F.normalize(self.embed(maps[-1].mean((2, 3))).float(), dim=1)
        return Predictions(depth, self.normal_head(y), self.category_head(y), embedding)

    @torch.no_grad()
    def depth(self, rgb: torch.Tensor) -> torch.Tensor:
        """Planar depth f32 [B, 1, H, W] in metres, 0.1 to 10, predicted from images [B, 3, H, W] as in `forward`."""
        height, width = rgb.shape[2:]
        padding = (0, -width % CELL, 0, -height % CELL)
        image = F.pad(rgb, padding) if any(padding) else rgb
        log_depth = self(image).log_depth[:, :, :height, :width]
        return log_depth.float().exp().clamp(NEAREST, FARTHEST)


def save_vision(path: Path, network: VisionNet) -> None:
    """Write weights in bfloat16, settings and `info`, atomically. CheckpointError where that fails."""
    settings = {"base_width": network.base_width, "categories": network.categories, "info": network.info}
    save_weights(path, network, {"format": FORMAT, "encoder": json.dumps(settings)})


def load_vision(name: str | Path) -> VisionNet:
    """The network of a file that `save_vision` wrote, or of bundled weights by name, on the CPU.

    ConfigError for a missing file, CheckpointError for another kind of file and for a damaged one.
    """
    path = find_encoder(name)
    tensors, metadata = read_weights(path, FORMAT, "expected weights that `batchnav train encoder` wrote")
    settings = read_settings(path, metadata.get("encoder"), MAX_CATEGORIES)
    width = settings.get("base_width")
    if type(width) is not int or not 2 <= width <= MAX_WIDTH:
        raise CheckpointError(f"{path}: damaged metadata (base_width {width!r})")
    with torch_defaults("cpu"):
        network = VisionNet(width, settings["categories"], settings["info"])
    check_names_and_shapes(tensors, network.state_dict(), f"{path}")
    check_finite(tensors, path)
    network.load_state_dict(tensors)
    return network


def trunk_source(name: str, base_width: int) -> Source:
    """Origin of the weights of a file, for policy files and model cards."""
    path = find_encoder(name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Source(source_of_width(base_width), path.name, digest, "MIT")


def source_of_width(base_width: int) -> str:
    """Name of the model in `Source`."""
    return f"se_resnet9 of batchnav, base width {base_width}"


def load_trunk(trunk: SEResNet9Trunk, weights: str, first_channel: int, section: str) -> None:
    """Replace the weights of a trunk by those of a file, for the colour image at channels `first_channel` and two on.

    The weights of the stem for all other channels become 0, so the features begin as those of the colour image.

    ConfigError for a trunk of another width; it names the setting in `section`.
    """
    network = load_vision(weights)
    width = trunk.stem.out_channels
    if width != network.base_width:
        raise ConfigError(
            f"{section}.base_width: found {width}, expected {network.base_width}, that of the weights {weights}"
        )
    state = network.trunk.state_dict()
    stem = state.pop("stem.weight")
    pixels = CELL * CELL
    with torch.no_grad():
        trunk.stem.weight.zero_()
        trunk.stem.weight[:, first_channel * pixels : (first_channel + CHANNELS) * pixels].copy_(stem)
        for name, value in trunk.blocks.state_dict().items():
            value.copy_(state[f"blocks.{name}"])
