"""3x3 convolutions of images so small that most of a kernel's taps see the zeros around them, as matrix products."""

from __future__ import annotations

import torch
from torch.nn import functional as F

SIDE = 2
"""Pixels a side, at most: of 2x2 pixels each sees every other one, and 20 of 36 taps see zeros."""


def is_small(height: int, width: int) -> bool:
    """Whether images of so many pixels are small."""
    return max(height, width) <= SIDE


def dense_weight(weight: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """A 3x3 convolution with zeros around, of small images, as a matrix: [H * W * C_out, H * W * C_in].

    weight [C_out, C_in, 3, 3]; columns and rows go by pixel, then by channel, as images lie in channels_last.
    """
    for dim, size in (2, height), (3, width):  # tap 1 - o + i takes pixel i to pixel o
        weight = torch.stack([weight.narrow(dim, 1 - o, size) for o in range(size)], dim=-1)
    c_out, c_in, *_ = weight.shape
    return weight.permute(4, 5, 0, 2, 3, 1).reshape(height * width * c_out, height * width * c_in)


def conv3x3(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`F.conv2d` of [B, C_in, H, W] by [C_out, C_in, 3, 3], zeros around; on CUDA a matrix product if H, W are small.

    On the CPU making the matrix takes longer than the product saves, with up to 64 images.
    """
    batch, _, height, width = x.shape
    if not (x.is_cuda and is_small(height, width)):
        return F.conv2d(x, weight, bias, padding=1)
    rows = x.permute(0, 2, 3, 1).flatten(1)
    y = F.linear(rows, dense_weight(weight, height, width), bias.repeat(height * width))
    return y.view(batch, height, width, len(weight)).permute(0, 3, 1, 2)
