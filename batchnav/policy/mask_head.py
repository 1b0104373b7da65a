"""Prediction of the goal's mask: a small segmentation network beside the encoder.

A policy without a recognised goal learns which pixels show it from a mask that the simulator renders for training only.
The predicted mask is a channel of the encoder's images. No gradient of PPO reaches this network, and none of its own
loss reaches the rest of the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.policy.depth_bins import CELL
from batchnav.policy.encoder import he_normal
from batchnav.policy.observations import embed_rows

DILATIONS = (1, 2, 4)
"""Dilation of the convolutions of each block, cells (Yu and Koltun, ICLR 2016): together they see 14 cells, or 56
pixels, on each side."""
PRIOR = 0.02
"""Probability of pixels before training, about the share of pixels that show the goal (focal loss's prior: Lin et
al., ICCV 2017)."""
LOGITS_GAIN = 0.1
"""Scale of the last layer's initial weights, so that a new network predicts about PRIOR everywhere."""


class MaskHead(nn.Module):
    """Logits of each pixel, that it shows the goal: space-to-depth, residual blocks that the goal modulates, a layer.

    Args:
        channels: channels of the images.
        categories: number of values of each integer observation, such as the goal's category.
        width: channels inside.
    """

    def __init__(self, channels: int, categories: Sequence[int], width: int):
        super().__init__()
        self.stem = nn.Conv2d(channels * CELL * CELL, width, 1)
        self.blocks = nn.ModuleList(_Block(width, dilation) for dilation in DILATIONS)
        self.modulation = nn.ModuleList(nn.Embedding(size, 2 * width * len(DILATIONS)) for size in categories)
        self.logits = nn.Conv2d(width, CELL * CELL, 1)
        for weight, gain in ((self.stem.weight, 1.0), (self.logits.weight, LOGITS_GAIN)):
            he_normal(weight, gain)
        nn.init.zeros_(self.stem.get_parameter("bias"))
        nn.init.constant_(self.logits.get_parameter("bias"), math.log(PRIOR / (1.0 - PRIOR)))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # annotation of torch

    def forward(self, image: torch.Tensor, categories: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits [B, 1, H, W] of images [B, C, H, W] and of each integer observation, i64 [B]."""
        height, width = image.shape[2:]
        image = F.pad(image, (0, -width % CELL, 0, -height % CELL))
        x = F.relu(self.stem(F.pixel_unshuffle(image, CELL)))
        film = x.new_zeros(len(x), 2 * x.shape[1] * len(DILATIONS))
        for embedding, value in zip(self.modulation, categories, strict=True):
            film = film + embed_rows(cast(nn.Embedding, embedding), value)
        for block, part in zip(self.blocks, film.chunk(len(DILATIONS), dim=1), strict=True):
            x = block(x, part)
        return F.pixel_shuffle(self.logits(x), CELL)[:, :, :height, :width]


class _Block(nn.Module):
    """Residual block of two dilated convolutions with FiLM between them (Perez et al., AAAI 2018)."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation) for _ in range(2))
        for convolution in (self.conv1, self.conv2):
            he_normal(convolution.weight)
            nn.init.zeros_(convolution.get_parameter("bias"))

    def forward(self, x: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] and [B, 2 C]: scales relative to 1, and shifts."""
        scale, shift = film[:, :, None, None].chunk(2, dim=1)
        y = F.relu(self.conv1(x) * (1.0 + scale) + shift)
        return F.relu(x + self.conv2(y))
