"""Image encoders by name: SE-ResNet9 without normalisation layers, the paper's network; a small CNN; one for scans.

An encoder is a callable `(image_shape, config) -> nn.Module`, where image_shape is (channels, height, width) and config
the `PolicyConfig`. The module maps float images [B, C, H, W] in 0..1 to [B, output_size] and has the attribute
`output_size`. Register your own encoder before the policy is made or loaded:

    batchnav.policy.ENCODERS["my_cnn"] = MyCNN        # then PolicyConfig(encoder="my_cnn")

An encoder with settings of its own has a frozen dataclass `Config` and takes an instance as third argument. The section
of its name configures it: `policy: {encoder: my_cnn, my_cnn: {width: 32}}`.

Encoders for `PolicyConfig.film` have an attribute `Trunk`, the class of their convolutional stages, whose feature maps
`film` reads and modulates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from batchnav.config import bounded, chosen_settings
from batchnav.errors import ConfigError
from batchnav.policy.config import ENCODERS, PolicyConfig
from batchnav.runtime.device import has_triton
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.intrinsics import bits_float, store4
from batchnav.runtime.kernels.launch import launch

# 3x3 convolutions of images of at most 2x2 pixels as matrix products: most taps of a convolution would read padding

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


# Input layer of the paper's network on CUDA: space-to-depth cells with the one-hot channels of their depth bins.
#
# A kernel of our own, since the one that torch.compile generates takes seven times as long as writing the output, a
# quarter of the time of `act` on an H200.

CELL = 4
"""Side of a cell, pixels."""
_PIXELS = CELL * CELL
_ONE = np.int32(0x3F80)
"""Bits of 1.0 in bfloat16, which is the upper half of a float32."""
_CELLS_PER_LAUNCH = 2**22
"""Largest number of cells in a launch, since `store4` computes offsets in 32 bits."""


@torch.library.custom_op("batchnav::one_hot_cells", mutates_args=(), device_types="cuda")
def one_hot_cells(image: torch.Tensor, bins: int) -> torch.Tensor:
    """Pixels and one-hot depth bins of each 4x4 cell. No gradient.

    Args:
        image: bf16 [B, 1, H, W] in 0..1; H and W are multiples of 4.
        bins: number of depth bins, equal ranges of 0..1.

    Returns:
        bf16 [B * H / 4 * W / 4, 16 * (1 + bins)]: the 16 pixels, then for each bin 16 numbers that are 1 where the
        pixel is in the bin, else 0.
    """
    batch, _, height, width = image.shape
    cells = batch * (height // CELL) * (width // CELL)
    out = torch.empty(cells, _PIXELS * (1 + bins), dtype=image.dtype, device=image.device)
    rows = image.contiguous().view(torch.int32).view(-1, width // CELL, CELL // 2)
    for first in range(0, cells, _CELLS_PER_LAUNCH):
        part = out[first : first + _CELLS_PER_LAUNCH].view(torch.int32)
        launch(_one_hot_cells, 2 * len(part), view(rows), first, bins, view(part))
    return out


@one_hot_cells.register_fake
def _(image, bins):
    batch, _, height, width = image.shape
    return image.new_empty(batch * (height // CELL) * (width // CELL), _PIXELS * (1 + bins))


@cuda_kernel
def _one_hot_cells(rows, first, bins, cells_out):
    """Each thread reads half a cell, two rows of four pixels, and writes 16 bytes for the pixels and for each bin.

    rows is i32 [B * H, W / 4, 2], cells_out i32 [cells, 8 * (1 + bins)], both with two bfloat16 per element.
    """
    thread = cuda.grid(1)
    cell, half = np.int32(thread // 2), np.int32(thread % 2)
    if cell >= cells_out.shape[0]:
        return
    columns = np.int64(rows.shape[1])
    row, column = (first + cell) // columns * CELL + 2 * half, (first + cell) % columns
    a, b = rows[row, column, 0], rows[row, column, 1]
    c, d = rows[row + 1, column, 0], rows[row + 1, column, 1]
    store4(cells_out, cell, half * np.int32(4), (a, b, c, d))
    a0, a1, b0, b1 = _bin(a << 16, bins), _bin(a, bins), _bin(b << 16, bins), _bin(b, bins)
    c0, c1, d0, d1 = _bin(c << 16, bins), _bin(c, bins), _bin(d << 16, bins), _bin(d, bins)
    for k in range(np.int32(bins)):
        words = _pair(a0, a1, k), _pair(b0, b1, k), _pair(c0, c1, k), _pair(d0, d1, k)
        store4(cells_out, cell, np.int32(8 + 8 * k) + half * np.int32(4), words)


@device_function
def _bin(bits, bins):
    """Bin of a bfloat16 in the upper half of 32 bits, 0 to bins - 1."""
    value = bits_float(np.int32(bits & -65536))
    return min(max(np.int32(value * np.float32(bins)), np.int32(0)), np.int32(bins - 1))


@device_function
def _pair(low, high, k):
    """Two bfloat16 in 32 bits, each 1 where its pixel is in bin k, else 0."""
    return np.int32((_ONE if low == k else np.int32(0)) | ((_ONE << 16) if high == k else np.int32(0)))


SMALLEST_IMAGE = 16
"""Smallest side of an image, pixels: the strides of the blocks reduce it to less than one pixel below this."""

CHUNK = 1024
"""Number of cells whose one-hot rows the CPU's backward pass builds at a time: 0.7 MB for ten bins, which fits the
cache."""

FUSED_WIDTHS, FUSED_BINS = (16, 32, 64), 15
"""Base widths, and the largest number of depth bins, that the tiles of `encoder_triton` support."""

SE_REDUCTION = 16
"""Factor by which squeeze-and-excitation reduces the number of channels."""


class SEFixupBlock(nn.Module):
    """Residual block of two 3x3 convolutions with squeeze-and-excitation on the residual branch.

    Fixup (Zhang et al. 2019) replaces normalisation by four scalar biases and a scale per block. The first convolution
    is scaled down by depth and the second one starts at zero, so that a deep network starts as the identity. SE is
    squeeze-and-excitation (Hu et al. 2018). A scalar after a convolution is applied as its bias or to
    its weight, which saves passes over the images.
    """

    fixup_bias1a: nn.Parameter
    fixup_bias1b: nn.Parameter
    fixup_bias2a: nn.Parameter
    fixup_bias2b: nn.Parameter

    def __init__(self, channels_in: int, channels_out: int, stride: int, num_blocks: int):
        super().__init__()
        self.stride, device = stride, torch.get_default_device()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        for name in ("fixup_bias1a", "fixup_bias1b", "fixup_bias2a", "fixup_bias2b"):
            self.register_parameter(name, nn.Parameter(torch.zeros((), dtype=torch.float32, device=device)))
        self.fixup_scale = nn.Parameter(torch.ones((), dtype=torch.float32, device=device))
        squeezed = max(channels_out // SE_REDUCTION, 1)
        self.squeeze = nn.Linear(channels_out, squeezed)
        self.excite = nn.Linear(squeezed, channels_out)
        self.skip = nn.Conv2d(channels_in, channels_out, 1, bias=False) if stride > 1 else None
        he_normal(self.conv1.weight, gain=num_blocks**-0.5)
        nn.init.zeros_(self.conv2.weight)
        if self.skip is not None:
            he_normal(self.skip.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C_in, H, W] -> [B, C_out, ceil(H / stride), ceil(W / stride)]."""
        y = x + self.fixup_bias1a
        shortcut = x if self.skip is None else self.skip(_mean_pool(y, self.stride))
        bias1b = self.fixup_bias1b.expand(self.conv1.out_channels)
        y = F.conv2d(y, self.conv1.weight, bias1b, self.stride, padding=1)
        y = F.relu(y) + self.fixup_bias2a
        bias2b = self.fixup_bias2b.expand(self.conv2.out_channels)
        y = conv3x3(y, self.conv2.weight * self.fixup_scale, bias2b)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3))))))
        return F.relu(torch.addcmul(shortcut, y, gate[:, :, None, None]))


class Trunk(nn.Module):
    """Convolutional stages of an encoder."""

    channels: tuple[int, ...]
    """Number of channels of the feature map after each stage."""

    def stages(self) -> Sequence[Callable[[torch.Tensor], torch.Tensor]]:
        """The stages in order: the first one reads images [B, C, H, W] in 0..1, each next one a feature map."""
        raise NotImplementedError(f"{type(self).__name__}: found no method `stages`, expected one; define it")


class SEResNet9Trunk(Trunk):
    """SpaceToDepth, a 1x1 convolution and four SE-Fixup blocks.

    A one-channel image (depth, 0..1) gets `depth_bins` further one-hot channels, one per equal range of 0..1.
    Sides that are not multiples of 4 are padded with zeros. ConfigError for a side below SMALLEST_IMAGE.
    """

    @dataclass(frozen=True)
    class Config:
        """Settings of the encoder `se_resnet9`."""

        base_width: int = bounded(64, 2, 512)
        """Channels of the first layers; later layers have multiples of it."""
        depth_bins: int = bounded(10, 0, 64)
        """Number of one-hot channels added to a one-channel image, one per equal part of its range; 0: none."""
        weights: str = ""
        """Initial weights: a file of `batchnav train encoder`, of the same base width, or the name of a bundled one.
        The encoder starts with the features of the first colour image that it reads, which `normalized` must name; all
        weights learn. "": random weights."""

    def __init__(self, image_shape: tuple[int, int, int], config: PolicyConfig, settings: Config | None = None):
        super().__init__()
        settings = settings or self.Config()
        channels, height, width = image_shape
        base = settings.base_width
        self.depth_bins = settings.depth_bins if channels == 1 else 0
        self.padding = _to_whole_cells(height, width)
        self.stem = nn.Conv2d(CELL * CELL * channels * (1 + self.depth_bins), base, 1, bias=False)
        he_normal(self.stem.weight)
        widths, strides = (base, base, 2 * base, 4 * base, 8 * base), (1, 2, 2, 2)
        self.channels = widths[1:]
        self.blocks = nn.Sequential(
            *(SEFixupBlock(widths[i], widths[i + 1], stride, len(strides)) for i, stride in enumerate(strides))
        )
        self.to(memory_format=torch.channels_last)

    def stages(self) -> Sequence[Callable[[torch.Tensor], torch.Tensor]]:
        """The blocks; the first one includes the stem."""
        first, *others = self.blocks
        return [lambda image: first(self.read_cells(image)), *others]

    def read_cells(self, image: torch.Tensor) -> torch.Tensor:
        """SpaceToDepth, depth bins, 1x1 convolution, ReLU: [B, C, H, W] -> [B, base, ceil(H / 4), ceil(W / 4)].

        The 1x1 convolution is a matrix product over cells; its rows are in channels_last order. ONNX has no operator
        for `_OneHotProduct`, so an exported policy multiplies one-hot rows.
        """
        if any(self.padding):
            image = F.pad(image, self.padding)
        batch, channels, height, width = image.shape
        if self.depth_bins and image.is_cuda and image.dtype == torch.bfloat16:
            y = F.linear(one_hot_cells(image, self.depth_bins), self.stem_by_bin())
            return F.relu(y).view(batch, height // CELL, width // CELL, -1).permute(0, 3, 1, 2)
        cells = image.reshape(batch, channels, height // CELL, CELL, width // CELL, CELL).permute(0, 2, 4, 1, 3, 5)
        x = cells.reshape(-1, channels * CELL * CELL)
        weight = self.stem.weight.flatten(1)
        if not self.depth_bins:
            y = F.linear(x, weight)
        elif x.device.type == "cpu" and not torch.onnx.is_in_onnx_export():
            raw, binned = weight.split([x.shape[1], x.shape[1] * self.depth_bins], dim=1)
            y = F.linear(x, raw) + _OneHotProduct.apply(self.which_bin(x), binned.t().contiguous())
        else:
            bins = torch.arange(self.depth_bins, device=x.device, dtype=x.dtype)
            one_hot = (self.which_bin(x)[..., None] == bins).to(x.dtype)
            y = F.linear(torch.cat([x, one_hot.flatten(1)], dim=1), weight)
        return F.relu(y).view(batch, height // CELL, width // CELL, -1).permute(0, 3, 1, 2)

    def stem_by_bin(self) -> torch.Tensor:
        """The stem's weight [base, 16 * (1 + bins)] with one-hot channels ordered by bin first, then by pixel."""
        raw, binned = self.stem.weight.flatten(1).split([CELL * CELL, CELL * CELL * self.depth_bins], dim=1)
        return torch.cat([raw, binned.unflatten(1, (CELL * CELL, self.depth_bins)).mT.flatten(1)], dim=1)

    def which_bin(self, x: torch.Tensor) -> torch.Tensor:
        """Depth bin of each value in 0..1: i32 of x's shape, 0 to depth_bins - 1."""
        return (x.float() * self.depth_bins).to(torch.int32).clamp(0, self.depth_bins - 1)


class SEResNet9(SEResNet9Trunk):
    """The paper's image encoder: the trunk, a compression convolution, a linear layer."""

    Trunk = SEResNet9Trunk

    def __init__(
        self, image_shape: tuple[int, int, int], config: PolicyConfig, settings: SEResNet9Trunk.Config | None = None
    ):
        settings = settings or self.Config()
        super().__init__(image_shape, config, settings)
        _, height, width = image_shape
        base = settings.base_width
        self.output_size = config.visual_size
        # 256 channels at base 64 and the paper's 2x2 cells; larger images keep the flattened size, 16 * base
        cells = math.ceil(height / 32) * math.ceil(width / 32)
        compressed = max(min(4 * base, 16 * base // cells), 1)
        self.compress = nn.Conv2d(8 * base, compressed, 3, padding=1)
        he_normal(self.compress.weight)
        nn.init.zeros_(self.compress.get_parameter("bias"))
        self.project = projection(compressed * cells, self.output_size)
        self.to(memory_format=torch.channels_last)

    def forward(self, image: torch.Tensor, film: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        """[B, C, H, W] in 0..1 -> [B, visual_size]; `film` as for `modulated`."""
        if film is not None:
            x = modulated(self.stages(), image, film)
        else:
            x = self._fused(image) if self._is_fused(image) else self.blocks(self.read_cells(image))
        x = conv3x3(x, self.compress.weight, self.compress.get_parameter("bias"))
        return self.project(F.relu(x).flatten(1))

    def _is_fused(self, image: torch.Tensor) -> bool:
        """True where `encoder_triton` can read these images: depth in bfloat16 on CUDA."""
        fits = 0 < self.depth_bins <= FUSED_BINS and self.stem.out_channels in FUSED_WIDTHS
        return fits and image.dtype == torch.bfloat16 and self.has_kernels

    def _apply(self, fn: Callable, recurse: bool = True) -> SEResNet9:
        """Move the module, as `to` does, and look up whether the new device has the kernels."""
        super()._apply(fn, recurse)
        self.has_kernels = has_triton(self.stem.weight.device)
        return self

    def _fused(self, image: torch.Tensor) -> torch.Tensor:
        """Stem and blocks with `encoder_triton`."""
        # imported here, since only torch for CUDA includes Triton
        from batchnav.policy.encoder_triton import BlockWeights, sizes_of_blocks, trunk

        if any(self.padding):
            image = F.pad(image, self.padding)
        kind, blocks = image.dtype, [cast(SEFixupBlock, block) for block in self.blocks]
        shifts = [block.fixup_bias1a for block in blocks] + [torch.zeros_like(blocks[0].fixup_bias1a)]
        _, _, height, width = image.shape
        sizes = sizes_of_blocks(height, width, len(blocks))[1:]
        weights = [
            BlockWeights(
                block.conv1.weight.to(kind), _second_weight(block, *size).to(kind),
                None if block.skip is None else block.skip.weight.to(kind),
                block.fixup_bias1b, block.fixup_bias2a, block.fixup_bias2b, shift,
                block.squeeze.weight.to(kind), block.squeeze.bias,
                block.excite.weight.t().contiguous().to(kind), block.excite.bias,
            )
            for block, size, shift in zip(blocks, sizes, shifts[1:], strict=True)
        ]  # fmt: skip
        return trunk(image, self.depth_bins, self.stem_by_bin(), shifts[0], weights)


class SimpleCNNTrunk(Trunk):
    """Three convolutions with ReLU. Requirements on the image size are those of `SEResNet9Trunk`.

    Kernels are 4x4 with stride 4, 3x3 with stride 2 and 3x3; channels are 2, 4 and 4 times `base_width`.
    """

    @dataclass(frozen=True)
    class Config:
        """Settings of the encoder `simple_cnn`."""

        base_width: int = bounded(64, 2, 512)
        """Half the channels of the first layer; later layers have multiples of it."""

    def __init__(self, image_shape: tuple[int, int, int], config: PolicyConfig, settings: Config | None = None):
        super().__init__()
        channels, height, width = image_shape
        base = (settings or self.Config()).base_width
        self.channels = (2 * base, 4 * base, 4 * base)
        self.padding = _to_whole_cells(height, width)
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 2 * base, CELL, CELL), nn.ReLU(),
            nn.Conv2d(2 * base, 4 * base, 3, 2, padding=1), nn.ReLU(),
            nn.Conv2d(4 * base, 4 * base, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        for name, parameter in self.convolutions.named_parameters():
            if name.endswith("weight"):
                nn.init.orthogonal_(parameter, gain=2**0.5)
            else:
                nn.init.zeros_(parameter)
        self.to(memory_format=torch.channels_last)

    def stages(self) -> Sequence[Callable[[torch.Tensor], torch.Tensor]]:
        """The convolutions with their ReLU."""
        first, second, third = (self.convolutions[i : i + 2] for i in (0, 2, 4))
        return [lambda image: first(self.padded(image)), second, third]

    def padded(self, image: torch.Tensor) -> torch.Tensor:
        """The image with sides of whole cells."""
        return F.pad(image, self.padding) if any(self.padding) else image


class SimpleCNN(SimpleCNNTrunk):
    """The trunk and a linear layer, after DQN (Mnih et al. 2015): a small network for short training runs.

    There are no depth bins.
    """

    Trunk = SimpleCNNTrunk

    def __init__(
        self, image_shape: tuple[int, int, int], config: PolicyConfig, settings: SimpleCNNTrunk.Config | None = None
    ):
        super().__init__(image_shape, config, settings)
        _, height, width = image_shape
        self.output_size = config.visual_size
        cells = math.ceil(height / (2 * CELL)) * math.ceil(width / (2 * CELL))
        self.project = projection(self.channels[-1] * cells, self.output_size)
        self.to(memory_format=torch.channels_last)

    def forward(self, image: torch.Tensor, film: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        """[B, C, H, W] in 0..1 -> [B, visual_size]; `film` as for `modulated`."""
        if film is not None:
            return self.project(modulated(self.stages(), image, film).flatten(1))
        return self.project(self.convolutions(self.padded(image)).flatten(1))


def modulated(
    stages: Sequence[Callable[[torch.Tensor], torch.Tensor]], image: torch.Tensor, film: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The last feature map of an image, where each stage's feature map x becomes (1 + scale) * x + shift.

    Args:
        stages: the stages of a trunk.
        image: [B, C, H, W] in 0..1.
        film: scale and shift after each stage, concatenated: [B, 2 * channels, H, W].
    """
    x = image
    for stage, change in zip(stages, film, strict=True):
        x = stage(x)
        scale, shift = change.chunk(2, dim=1)
        x = torch.addcmul(x + shift, x, scale)
    return x


class _OneHotProduct(torch.autograd.Function):
    """Sum over i of table[i * bins + which[:, i]]: one_hot(which) @ table without the one-hot matrix.

    which i32 [M, I], table f32 [I * bins, C] -> f32 [M, C]. On the CPU this reduces the encoder's forward pass at base
    width 8 from 190 to 75 us per frame. The backward pass builds its one-hot rows in chunks that fit the cache.
    """

    @staticmethod
    def forward(ctx, which: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(which)
        ctx.bins = len(table) // which.shape[1]
        first = torch.arange(0, len(table), ctx.bins, dtype=which.dtype, device=which.device)
        return F.embedding_bag(which + first, table, mode="sum")

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[None, torch.Tensor]:
        (which,) = ctx.saved_tensors
        rows = which.shape[1] * ctx.bins
        first = torch.arange(0, rows, ctx.bins, dtype=torch.int64, device=which.device)  # `scatter_` takes i64 only
        table_grad = grad.new_zeros(rows, grad.shape[1])
        for part, part_grad in zip(which.split(CHUNK), grad.split(CHUNK), strict=True):
            one_hot = grad.new_zeros(len(part), rows).scatter_(1, part + first, 1.0)
            table_grad.addmm_(one_hot.t(), part_grad)
        return None, table_grad


def _to_whole_cells(height: int, width: int) -> tuple[int, int, int, int]:
    """Padding for `F.pad` to multiples of CELL. ConfigError for a side below SMALLEST_IMAGE."""
    if min(height, width) < SMALLEST_IMAGE:
        raise ConfigError(f"image: found {height}x{width} pixels, expected at least {SMALLEST_IMAGE} a side")
    return 0, -width % CELL, 0, -height % CELL


def projection(features: int, size: int) -> nn.Sequential:
    """Last layers of an encoder: [B, features] -> `size` features with layer normalisation and ReLU."""
    return nn.Sequential(nn.Linear(features, size, bias=False), nn.LayerNorm(size), nn.ReLU())


def _second_weight(block: SEFixupBlock, height: int, width: int) -> torch.Tensor:
    """Scaled weight of the block's second convolution; a dense matrix for small images (`small_images`)."""
    weight = block.conv2.weight * block.fixup_scale
    return dense_weight(weight, height, width) if is_small(height, width) else weight


def _mean_pool(x: torch.Tensor, stride: int) -> torch.Tensor:
    """Means over 3x3 pixels at a stride, with zero padding.

    On CUDA the padding is a separate step: torch's gradient for channels_last images with padding is wrong (in 2.11;
    pytorch/pytorch#188344).
    """
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 3, stride) if x.is_cuda else F.avg_pool2d(x, 3, stride, padding=1)


def he_normal(weight: torch.Tensor, gain: float = 1.0) -> None:
    """He initialisation (2015) for ReLU by fan-out, as in Fixup: std = gain * sqrt(2 / (k * k * C_out))."""
    nn.init.normal_(weight, std=gain * math.sqrt(2.0 / (weight.shape[0] * weight[0, 0].numel())))


class ScanEncoder(nn.Module):
    """Encoder of scans: three 1-D convolutions with circular padding, and a linear layer.

    The rows and channels of an image [C, H, W] are the channels of the convolutions along its columns, whose last
    column is next to the first, as the beams of a full circle are.
    """

    CHANNELS, KERNELS, STRIDE = (32, 64, 64), (7, 5, 3), 2
    SMALLEST = 8
    """Smallest number of columns."""

    def __init__(self, image_shape: tuple[int, int, int], config: PolicyConfig):
        super().__init__()
        channels, height, width = image_shape
        if width < self.SMALLEST:
            raise ConfigError(f"scan: found {width} columns, expected at least {self.SMALLEST}")
        self.output_size = config.visual_size
        sizes = (channels * height, *self.CHANNELS)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(sizes[k], sizes[k + 1], kernel, self.STRIDE) for k, kernel in enumerate(self.KERNELS)
        )
        for layer in self.convolutions:
            nn.init.orthogonal_(layer.get_parameter("weight"), gain=2**0.5)
            nn.init.zeros_(layer.get_parameter("bias"))
            width = -(-width // self.STRIDE)
        self.project = projection(self.CHANNELS[-1] * width, self.output_size)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] in 0..1 -> [B, visual_size]."""
        x = image.flatten(1, 2)
        for layer, kernel in zip(self.convolutions, self.KERNELS, strict=True):
            half = kernel // 2
            x = F.relu(layer(torch.cat([x[..., -half:], x, x[..., :half]], dim=-1)))
        return self.project(x.flatten(1))


ENCODERS.update({"se_resnet9": SEResNet9, "simple_cnn": SimpleCNN, "scan": ScanEncoder})


# FiLM: an encoder whose feature maps are modulated by other images, such as an image of the goal.
#
# Feature-wise linear modulation (Perez et al., AAAI 2018): a feature map x becomes (1 + scale) * x + shift. The other
# images have convolutional stages of their own. A 1x1 convolution of each stage's feature map gives scale and shift
# pixel by pixel, which is the mid fusion of FGPrompt (Sun et al., NeurIPS 2023).
#
# The other images are equal over many steps. On the CPU their scales and shifts are computed once for equal images; on
# CUDA they are computed for every image, since the shapes of a CUDA graph are fixed. Results are equal.

GAIN = 0.5
"""Standard deviation of the initial scale and shift, for features of mean square 1."""


class FiLMEncoder(nn.Module):
    """An encoder, and the convolutional stages of the images that modulate it.

    Args:
        image_shape: (C, H, W) of the encoder's images.
        condition_channels: number of channels of the images that modulate it, which have the same H and W.
        config: the architecture.

    ConfigError for an encoder without a trunk.
    """

    def __init__(self, image_shape: tuple[int, int, int], condition_channels: int, config: PolicyConfig):
        super().__init__()
        make, settings = ENCODERS[config.encoder], chosen_settings(config, "encoder")
        if not hasattr(make, "Trunk"):
            able = ", ".join(name for name, encoder in ENCODERS.items() if hasattr(encoder, "Trunk"))
            raise ConfigError(
                f"film: found encoder {config.encoder!r}, expected one with an attribute Trunk: {able}; "
                "choose one of them or leave film empty"
            )
        self.encoder = make(image_shape, config, *settings)
        self.output_size = cast(int, self.encoder.output_size)
        self.trunk = cast(Trunk, make.Trunk((condition_channels, *image_shape[1:]), config, *settings))
        self.film = nn.ModuleList(nn.Conv2d(channels, 2 * channels, 1) for channels in self.trunk.channels)
        for layer in self.film:
            nn.init.normal_(layer.get_parameter("weight"), std=GAIN * cast(nn.Conv2d, layer).in_channels ** -0.5)
            nn.init.zeros_(layer.get_parameter("bias"))
        self._last: _Remembered | None = None

    def forward(self, image: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """[T, B, C, H, W] and [T, B, C', H, W], both in 0..1 -> [T, B, visual_size]."""
        steps = image.shape[:2]
        return self.encoder(image.flatten(0, 1), self._film_of(condition)).unflatten(0, steps)

    def modulation(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """Scale and shift after each stage, [B, 2 * channels, H, W], for images [B, C', H, W] in 0..1."""
        film, x = [], condition
        for stage, layer in zip(self.trunk.stages(), self.film, strict=True):
            x = stage(x)
            film.append(layer(x))
        return film

    def _film_of(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """`modulation` of the images [T, B, C', H, W], flattened: of each distinct image once on the CPU."""
        if condition.device.type != "cpu" or torch.compiler.is_compiling():
            return self.modulation(condition.flatten(0, 1))
        if torch.is_grad_enabled() or len(condition) > 1:
            return self._film_of_distinct(condition)
        return self._film_of_changed(condition[0])

    def _film_of_distinct(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """`modulation` that is computed where an image [T, B, C', H, W] differs from that of the step before."""
        is_new = torch.ones(condition.shape[:2], dtype=torch.bool, device=condition.device)
        is_new[1:] = (condition[1:] != condition[:-1]).flatten(2).any(2)
        number = (is_new.flatten().cumsum(0) - 1).view(is_new.shape)  # of the images that are new, in order
        latest = torch.where(is_new, number, 0).cummax(0).values.flatten()
        return [film.index_select(0, latest) for film in self.modulation(condition[is_new])]

    def _film_of_changed(self, condition: torch.Tensor) -> list[torch.Tensor]:
        """`modulation` that is computed where an image [B, C', H, W] differs from that of the last call."""
        with torch.inference_mode(False), torch.no_grad():  # tensors to keep are none of inference mode
            versions = [(parameter.data_ptr(), parameter._version) for parameter in self.parameters()]
            key = condition.shape, torch.is_autocast_enabled("cpu"), OptimizerSteps.count, versions
            if self._last is None or self._last.key != key:
                self._last = _Remembered(key, condition.clone(), self.modulation(condition))
                return self._last.film
            changed = (condition != self._last.condition).flatten(1).any(1).nonzero().flatten()
            if len(changed):
                new = condition[changed]
                self._last.condition[changed] = new
                for kept, film in zip(self._last.film, self.modulation(new), strict=True):
                    kept[changed] = film
            return self._last.film


class _Remembered(NamedTuple):
    """Result of the last call of `modulation` without gradient."""

    key: tuple
    """Shape of the images, True for products in bfloat16, and all that tells of other weights."""
    condition: torch.Tensor
    film: list[torch.Tensor]


class OptimizerSteps:
    """Number of steps that optimisers took in this process: fused ones change no parameter's version."""

    count = 0

    @classmethod
    def add(cls, *_: Any) -> None:
        """Count a step; called by every optimiser."""
        cls.count += 1


register_optimizer_step_post_hook(OptimizerSteps.add)
