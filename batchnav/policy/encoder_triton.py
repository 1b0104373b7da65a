"""SE-ResNet9's stem and blocks on CUDA, with few passes over the images between cuDNN's convolutions.

`policy.encoder` is the specification: this is the same function of the same parameters. Most of the time is spent on
reading and writing images, 268 MB for the first block with 8,192 frames. A block's tail with pooling and gates is
therefore one kernel forward and one backward, and the stem writes no one-hot rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
from torch.autograd.function import once_differentiable

from batchnav.policy.encoder_kernels import (
    activate,
    activate_backward,
    stem_backward,
    stem_forward,
    tail,
    tail_backward,
)

FLAT = {"SIZE": 4096, "num_warps": 4}
"""Settings of elementwise kernels; SIZE is the number of values per program."""
TAIL = {
    16384: {"SIZE": 16384, "CHUNK": 4096, "num_warps": 8},
    8192: {"SIZE": 8192, "CHUNK": 2048, "num_warps": 4},
    4096: {"SIZE": 16384, "CHUNK": 8192, "num_warps": 8},
    2048: {"SIZE": 16384, "CHUNK": 4096, "num_warps": 8},
}
"""Settings of `tail` by the number of values in a block's image; the nearest entry is used. SIZE is the number of
values per program (at least one image), CHUNK the number read at a time. Fastest of five or six on an H200 with 8,192
frames of the paper's blocks."""
TAIL_BACKWARD = {
    16384: {"SIZE": 16384, "CHUNK": 2048, "num_warps": 4},
    8192: {"SIZE": 8192, "CHUNK": 2048, "num_warps": 4},
    4096: {"SIZE": 16384, "CHUNK": 4096, "num_warps": 4},
    2048: {"SIZE": 16384, "CHUNK": 4096, "num_warps": 8},
}
"""Settings of `tail_backward`, as TAIL."""
STEM = {"BM": 64, "num_warps": 4}
"""Settings of the stem's kernels; BM is the number of cells that a program processes at a time."""
STEM_PROGRAMS, STEM_BACKWARD_PROGRAMS = 660, 264
"""Number of programs of the stem's forward and backward kernels: as many as an H200 runs at once. Backward, each
program writes a partial weight gradient."""


class BlockWeights(NamedTuple):
    """Parameters of a block; weights are of the images' type, biases float32."""

    conv1: torch.Tensor
    conv2: torch.Tensor
    """Weight times the block's scale; a dense matrix [P * C, P * C] for small images."""
    skip: torch.Tensor | None
    bias1b: torch.Tensor
    bias2a: torch.Tensor
    bias2b: torch.Tensor
    shift: torch.Tensor
    """Bias added to the block's result: bias1a of the next block."""
    squeeze: torch.Tensor
    squeeze_bias: torch.Tensor
    excite: torch.Tensor
    """Transposed: [S, C]."""
    excite_bias: torch.Tensor


class _Kept(NamedTuple):
    """Tensors that a block's forward pass saves for its backward pass."""

    shifted: torch.Tensor
    activated: torch.Tensor
    y: torch.Tensor
    result: torch.Tensor
    pooled: torch.Tensor
    hidden: torch.Tensor
    gate: torch.Tensor
    pooled_input: torch.Tensor | None
    """Mean-pooled input of the block, from which the skip convolution computes the shortcut; None without it."""


class _Trunk(torch.autograd.Function):
    """Stem and blocks; see `trunk`."""

    @staticmethod
    def forward(ctx, image, bins, stem, shift, *flat):
        with torch.autocast(image.device.type, enabled=False):
            image = image.contiguous()
            batch, _, height, width = image.shape
            blocks, channels = _by_block(flat), len(stem)
            sizes = sizes_of_blocks(height, width, len(blocks))
            down, across = sizes[0]
            cells, groups = batch * down * across, triton.cdiv(1 + bins, 4)
            weight = image.new_zeros(64 * groups, channels)
            weight[: stem.shape[1]] = stem.t()
            x = image.new_empty(batch, down * across, channels)
            shifted = torch.empty_like(x)
            stem_forward[(STEM_PROGRAMS,)](
                image, weight, shift, cells, bins, x, shifted,
                WIDTH=width, CELLS_ACROSS=across, GROUPS=groups, N=channels, **STEM,
            )  # fmt: skip
            kept, pool = [], None
            for i, weights in enumerate(blocks):
                x, pool, of_block = _block(x, shifted, pool, sizes[i : i + 3], weights)
                kept.append(of_block)
                shifted = x
            ctx.bins, ctx.sizes, ctx.rows = bins, sizes, stem.shape[1]
            ctx.save_for_backward(image, shift, *flat, *(tensor for of_block in kept for tensor in of_block))
            return _as_images(x, sizes[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        image, shift, *saved = ctx.saved_tensors
        blocks, fields = len(ctx.sizes) - 1, len(_Kept._fields)
        weights = _by_block(saved[: -blocks * fields])
        kept = [_Kept(*saved[i : i + fields]) for i in range(len(saved) - blocks * fields, len(saved), fields)]
        x_grad, shifted_grad, found = _blocks_backward(grad, weights, kept, ctx.sizes)
        (_, cells, channels), width = x_grad.shape, image.shape[3]
        groups = triton.cdiv(1 + ctx.bins, 4)
        stem_shares = torch.empty(
            STEM_BACKWARD_PROGRAMS, channels, 64 * groups, dtype=torch.float32, device=image.device
        )
        shift_shares = torch.empty(STEM_BACKWARD_PROGRAMS, dtype=torch.float32, device=image.device)
        stem_backward[(STEM_BACKWARD_PROGRAMS,)](
            image, x_grad, shifted_grad, kept[0].shifted, shift, len(image) * cells, ctx.bins,
            stem_shares, shift_shares,
            WIDTH=width, CELLS_ACROSS=width // 4, GROUPS=groups, N=channels, **STEM,
        )  # fmt: skip
        return None, None, stem_shares.sum(0)[:, : ctx.rows], shift_shares.sum(), *found


def _block(x, shifted, pooled_input, sizes, weights: BlockWeights):
    """Forward pass of a block: shifted result [B, P, C], its pool for the next block's shortcut, and `_Kept`.

    Without a skip convolution x is the shortcut and is overwritten by the result; else the shortcut is the skip
    convolution of `pooled_input`. `sizes` are those of the input, of the result, and, if a block follows, of its pool.
    """
    size_in, size, *size_pool = sizes
    if weights.skip is not None:
        x = pooled_input @ weights.skip.flatten(1).t()
    stride = 1 if weights.skip is None else 2
    activated = _conv(shifted, size_in, weights.conv1, stride)
    activate[_programs(activated)](activated, weights.bias1b, weights.bias2a, activated.numel(), **FLAT)
    y = _conv(activated, size, weights.conv2, 1)
    batch, pixels, channels = y.shape
    squeezed, tile = len(weights.squeeze), _tile(TAIL, pixels, channels)
    pooled, gate, hidden = (y.new_empty(batch, width) for width in (channels, channels, squeezed))
    height, width = size_pool[0] if size_pool else (1, 1)
    pool = y.new_empty(batch, height * width, channels) if size_pool else None
    tail[(triton.cdiv(batch, tile["F"]),)](
        y, weights.bias2b, weights.shift, weights.squeeze, weights.squeeze_bias, weights.excite, weights.excite_bias,
        batch, x, x if pool is None else pool, pooled, hidden, gate,
        POOLED=pool is not None, H=size[0], W=size[1], H_OUT=height, W_OUT=width, C=channels, S=squeezed, **tile,
    )  # fmt: skip
    return x, pool, _Kept(shifted, activated, y, x, pooled, hidden, gate, pooled_input)


def _blocks_backward(grad, weights: Sequence[BlockWeights], kept: Sequence[_Kept], sizes):
    """Gradients of the first block's shortcut and shifted input, [B, P, C] both, and of all blocks' weights.

    All blocks are in one function, so that gradients of images are freed once they have been read.
    """
    found: list[torch.Tensor | None] = []
    grad, pool_grad = _as_pixels(grad), None
    for i in reversed(range(len(weights))):
        mine, own, size, size_out = weights[i], kept[i], sizes[i], sizes[i + 1]
        batch, pixels, channels = own.y.shape
        x_grad, y_grad = torch.empty_like(own.y), torch.empty_like(own.y)
        hidden_grad, excited_grad = torch.empty_like(own.hidden), torch.empty_like(own.gate)
        tile, programs = _tile(TAIL_BACKWARD, pixels, channels), _programs(own.y)
        tail_programs, pooled = (triton.cdiv(batch, tile["F"]),), pool_grad is not None
        tail_shares, shares = (grad.new_empty(2, *n, dtype=torch.float32) for n in (tail_programs, programs))
        height, width = sizes[i + 2] if pooled else (1, 1)
        tail_backward[tail_programs](
            grad, pool_grad if pooled else grad, own.result, mine.shift, own.y, mine.bias2b, own.gate, own.hidden,
            mine.squeeze, mine.excite, batch, x_grad, y_grad, hidden_grad, excited_grad, *tail_shares,
            POOLED=pooled, W=size_out[1], H_OUT=height, W_OUT=width,
            PIXELS=pixels, C=channels, S=own.hidden.shape[1], **tile,
        )  # fmt: skip
        del grad
        grad, conv2_grad = _conv_backward(y_grad, size_out, own.activated, size_out, mine.conv2, 1)
        del y_grad
        activate_backward[programs](own.activated, mine.bias2a, grad.numel(), grad, *shares, **FLAT)
        stride = 1 if mine.skip is None else 2
        grad, conv1_grad = _conv_backward(grad, size_out, own.shifted, size, mine.conv1, stride)
        pool_grad = skip_grad = None
        if mine.skip is not None and own.pooled_input is not None:
            rows = x_grad.flatten(0, 1)
            pool_grad = rows @ mine.skip.flatten(1)
            skip_grad = (rows.t() @ own.pooled_input.flatten(0, 1)).view_as(mine.skip)
        (bias2b_grad, shift_grad), (bias1b_grad, bias2a_grad) = tail_shares.sum(1), shares.sum(1)
        found = [
            conv1_grad, conv2_grad, skip_grad, bias1b_grad, bias2a_grad, bias2b_grad, shift_grad,
            hidden_grad.t() @ own.pooled, hidden_grad.sum(0, dtype=torch.float32),
            own.hidden.t() @ excited_grad, excited_grad.sum(0, dtype=torch.float32),
            *found,
        ]  # fmt: skip
    return x_grad, grad, found


def _conv(x, size, weight, stride):
    """3x3 convolution of [B, P, C]; with a dense weight (`small_images`) a matrix product, for stride 1."""
    if weight.ndim == 2:
        return (x.flatten(1) @ weight.t()).view_as(x)
    return _as_pixels(torch.conv2d(_as_images(x, size), weight, None, stride, 1))


def _conv_backward(grad, size_out, x, size, weight, stride):
    """Gradients of the input [B, P, C] and the weight of `_conv`."""
    if weight.ndim == 2:
        rows = grad.flatten(1)
        return (rows @ weight).view_as(x), rows.t() @ x.flatten(1)
    x_grad, weight_grad, _ = torch.ops.aten.convolution_backward(
        _as_images(grad, size_out), _as_images(x, size), weight, None,
        [stride, stride], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False],
    )  # fmt: skip
    return _as_pixels(x_grad), weight_grad


def _as_images(x: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """[B, P, C] -> [B, C, H, W] in channels_last."""
    return x.view(len(x), *size, -1).permute(0, 3, 1, 2)


def _as_pixels(x: torch.Tensor) -> torch.Tensor:
    """[B, C, H, W] -> [B, P, C]."""
    return x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).flatten(1, 2)


def sizes_of_blocks(height: int, width: int, blocks: int) -> list[tuple[int, int]]:
    """Height and width of each block's input and, last, of the last block's result, for images of height x width."""
    sizes = [(height // 4, width // 4)] * 2
    for _ in range(blocks - 1):
        sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
    return sizes


def _programs(x: torch.Tensor) -> tuple[int]:
    """Grid of an elementwise kernel."""
    return (triton.cdiv(x.numel(), FLAT["SIZE"]),)


def _tile(settings: dict[int, dict[str, int]], pixels: int, channels: int) -> dict[str, int]:
    """Tile of `tail` or `tail_backward`: frames per program and pixels read at a time."""
    values = pixels * channels
    mine = settings[min(settings, key=lambda measured: abs(measured - values))]
    frames = triton.next_power_of_2(max(mine["SIZE"] // values, 1))
    return {"F": frames, "P": max(mine["CHUNK"] // (frames * channels), 1), "num_warps": mine["num_warps"]}


def _by_block(flat: Sequence[torch.Tensor]) -> list[BlockWeights]:
    """Parameters of the blocks from the tensors of all of them in order."""
    n = len(BlockWeights._fields)
    return [BlockWeights(*flat[i : i + n]) for i in range(0, len(flat), n)]


@torch.compiler.disable
def trunk(
    image: torch.Tensor, bins: int, stem: torch.Tensor, shift: torch.Tensor, blocks: Sequence[BlockWeights]
) -> torch.Tensor:
    """Result [B, C, H', W'] of stem and blocks, of the images' type. No gradient goes to the image.

    Args:
        image: [B, 1, H, W] in 0..1; H and W are multiples of 4.
        bins: number of depth bins.
        stem: f32 [C, 16 * (1 + bins)], from `SEResNet9.stem_by_bin`.
        shift: bias1a of the first block.
        blocks: parameters; all blocks but the first have a skip convolution.
    """
    with torch.cuda.device_of(image):  # Triton launches on the current device; autograd's threads use the tensors'
        return _Trunk.apply(image, bins, stem, shift, *(tensor for weights in blocks for tensor in weights))
