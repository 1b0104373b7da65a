"""3x3 convolutions of images of at most 2x2 pixels as matrix products: as convolutions, most taps read zero padding."""

from __future__ import annotations

import torch
from torch.nn import functional as F

SIDE = 2
"""Largest side of a small image, pixels. At 2x2 every output pixel depends on all four input pixels, and 20 of 36 taps
read padding."""


def is_small(height: int, width: int) -> bool:
    """True where no side exceeds SIDE."""
    return max(height, width) <= SIDE


def dense_weight(weight: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Matrix [H * W * C_out, H * W * C_in] of a zero-padded 3x3 convolution of images of H x W pixels.

    weight is [C_out, C_in, 3, 3]. Rows and columns are ordered by pixel, then by channel, as in channels_last images.
    """
    for dim, size in (2, height), (3, width):  # tap 1 - o + i takes pixel i to pixel o
        weight = torch.stack([weight.narrow(dim, 1 - o, size) for o in range(size)], dim=-1)
    c_out, c_in, *_ = weight.shape
    return weight.permute(4, 5, 0, 2, 3, 1).reshape(height * width * c_out, height * width * c_in)


def conv3x3(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`F.conv2d` of x [B, C_in, H, W] with weight [C_out, C_in, 3, 3] and padding 1.

    Small images on CUDA are convolved by a matrix product. On the CPU, with up to 64 images, building the matrix takes
    longer than the matrix product saves.
    """
    batch, _, height, width = x.shape
    if not (x.is_cuda and is_small(height, width)):
        return F.conv2d(x, weight, bias, padding=1)
    rows = x.permute(0, 2, 3, 1).flatten(1)
    y = F.linear(rows, dense_weight(weight, height, width), bias.repeat(height * width))
    return y.view(batch, height, width, len(weight)).permute(0, 3, 1, 2)
