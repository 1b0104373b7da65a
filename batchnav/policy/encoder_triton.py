"""SE-ResNet9's stem and blocks on CUDA: what lies between cuDNN's convolutions, in as few passes as there can be.

`policy.encoder` is the specification; this is the same function of the same parameters. What it takes is reading and
writing images: those of the first block, at 8,192 frames, are 268 MB. So a block's tail with pooling and gates is one
kernel each way, and the stem writes no one-hot rows.
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
    pool,
    stem_backward,
    stem_forward,
    tail,
    tail_backward,
)

FLAT = {"SIZE": 4096, "num_warps": 4}
"""Values for a program of what works on each value alone."""
POOL = {"ROWS": 256, "num_warps": 4}
"""Eights of values for a program of a pool."""
TILE = 8192
"""Values of a block's images for a program of its tail, but for images that have more."""
TAIL = {"CHUNK": 2048, "num_warps": 4}
"""Values that it reads at a time."""
STEM = {"BM": 64, "num_warps": 4}
"""Cells that the stem's programs take at a time."""
STEM_PROGRAMS, STEM_BACKWARD_PROGRAMS = 660, 264
"""As many as an H200 holds; backward, each has a weight gradient of its own."""


class BlockWeights(NamedTuple):
    """What a block computes with; convolutions' weights are of the images' type, all else is float32."""

    conv1: torch.Tensor
    conv2: torch.Tensor
    """With the block's scale."""
    skip: torch.Tensor | None
    bias1b: torch.Tensor
    bias2a: torch.Tensor
    bias2b: torch.Tensor
    shift: torch.Tensor
    """What is added to the block's result: the next one's bias1a."""
    squeeze: torch.Tensor
    squeeze_bias: torch.Tensor
    excite: torch.Tensor
    """Transposed: [S, C]."""
    excite_bias: torch.Tensor


class _Kept(NamedTuple):
    """What a block's backward pass reads of its forward pass."""

    shifted: torch.Tensor
    activated: torch.Tensor
    y: torch.Tensor
    result: torch.Tensor
    pooled: torch.Tensor
    hidden: torch.Tensor
    gate: torch.Tensor
    seen: torch.Tensor | None
    """The input's pool, which the shortcut reads."""


class _Trunk(torch.autograd.Function):
    """Stem and blocks; see `trunk`."""

    @staticmethod
    def forward(ctx, image, bins, stem, shift, *flat):
        with torch.autocast(image.device.type, enabled=False):
            image = image.contiguous()
            batch, _, height, width = image.shape
            size, channels = (height // 4, width // 4), len(stem)
            cells, groups = batch * size[0] * size[1], triton.cdiv(1 + bins, 4)
            weight = image.new_zeros(64 * groups, channels)
            weight[: stem.shape[1]] = stem.t()
            x = image.new_empty(batch, size[0] * size[1], channels)
            shifted = torch.empty_like(x)
            stem_forward[(STEM_PROGRAMS,)](
                image, weight, shift, cells, bins, x, shifted,
                WIDTH=width, CELLS_ACROSS=size[1], GROUPS=groups, N=channels, **STEM,
            )  # fmt: skip
            kept, sizes = [], [size]
            for weights in _by_block(flat):
                x, size, of_block = _block(x, shifted, size, weights)
                kept.append(of_block)
                sizes.append(size)
                shifted = x
            ctx.bins, ctx.sizes, ctx.rows = bins, sizes, stem.shape[1]
            ctx.save_for_backward(image, shift, *flat, *(tensor for of_block in kept for tensor in of_block))
            return _as_images(x, size)

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
        stem_shares = torch.empty(STEM_BACKWARD_PROGRAMS, channels, 64 * groups, device=image.device)
        shift_shares = torch.empty(STEM_BACKWARD_PROGRAMS, device=image.device)
        stem_backward[(STEM_BACKWARD_PROGRAMS,)](
            image, x_grad, shifted_grad, kept[0].shifted, shift, len(image) * cells, ctx.bins,
            stem_shares, shift_shares,
            WIDTH=width, CELLS_ACROSS=width // 4, GROUPS=groups, N=channels, **STEM,
        )  # fmt: skip
        return None, None, stem_shares.sum(0)[:, : ctx.rows], shift_shares.sum(), *found


def _block(x, shifted, size, weights: BlockWeights):
    """A block's result, shifted, [B, P, C], its size, and what is kept; x is the shortcut if no skip makes one.

    The result is written over the shortcut.
    """
    seen, stride, size_out = None, 1, size
    if weights.skip is not None:
        stride, size_out = 2, ((size[0] + 1) // 2, (size[1] + 1) // 2)
        seen = shifted.new_empty(len(shifted), size_out[0] * size_out[1], shifted.shape[2])
        pool[(triton.cdiv(seen.numel(), 8 * POOL["ROWS"]),)](
            shifted, seen.numel(), seen,
            H=size[0], W=size[1], H_OUT=size_out[0], W_OUT=size_out[1], C=seen.shape[2], **POOL,
        )  # fmt: skip
        x = seen @ weights.skip.flatten(1).t()
    activated = _as_pixels(torch.conv2d(_as_images(shifted, size), weights.conv1, None, stride, 1))
    activate[_programs(activated)](activated, weights.bias1b, weights.bias2a, activated.numel(), **FLAT)
    y = _as_pixels(torch.conv2d(_as_images(activated, size_out), weights.conv2, None, 1, 1))
    batch, pixels, channels = y.shape
    squeezed, tile = len(weights.squeeze), _tile(pixels, channels)
    pooled, gate, hidden = (y.new_empty(batch, width) for width in (channels, channels, squeezed))
    tail[(triton.cdiv(batch, tile["F"]),)](
        y, weights.bias2b, weights.shift, weights.squeeze, weights.squeeze_bias, weights.excite, weights.excite_bias,
        batch, x, pooled, hidden, gate,
        PIXELS=pixels, C=channels, S=squeezed, **tile,
    )  # fmt: skip
    return x, size_out, _Kept(shifted, activated, y, x, pooled, hidden, gate, seen)


def _blocks_backward(grad, weights: Sequence[BlockWeights], kept: Sequence[_Kept], sizes):
    """Gradients of the first block's shortcut and of its shifted input, [B, P, C] both, and of all blocks' weights.

    One function, so that gradients of images are freed when they have been read.
    """
    found: list[torch.Tensor | None] = []
    grad, pool_grad = _as_pixels(grad), None
    for i in reversed(range(len(weights))):
        mine, own, size, size_out = weights[i], kept[i], sizes[i], sizes[i + 1]
        batch, pixels, channels = own.y.shape
        x_grad, y_grad = torch.empty_like(own.y), torch.empty_like(own.y)
        hidden_grad, excited_grad = torch.empty_like(own.hidden), torch.empty_like(own.gate)
        tile, programs = _tile(pixels, channels), _programs(own.y)
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
        if mine.skip is not None and own.seen is not None:
            rows = x_grad.flatten(0, 1)
            pool_grad = rows @ mine.skip.flatten(1)
            skip_grad = (rows.t() @ own.seen.flatten(0, 1)).view_as(mine.skip)
        (bias2b_grad, shift_grad), (bias1b_grad, bias2a_grad) = tail_shares.sum(1), shares.sum(1)
        found = [
            conv1_grad, conv2_grad, skip_grad, bias1b_grad, bias2a_grad, bias2b_grad, shift_grad,
            (hidden_grad.t() @ own.pooled).float(), hidden_grad.sum(0, dtype=torch.float32),
            (own.hidden.t() @ excited_grad).float(), excited_grad.sum(0, dtype=torch.float32),
            *found,
        ]  # fmt: skip
    return x_grad, grad, found


def _conv_backward(grad, size_out, x, size, weight, stride):
    """Gradients of a 3x3 convolution's input [B, P, C] and weight."""
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


def _programs(x: torch.Tensor) -> tuple[int]:
    """Of what works on each value alone."""
    return (triton.cdiv(x.numel(), FLAT["SIZE"]),)


def _tile(pixels: int, channels: int) -> dict[str, int]:
    """Frames of a tail's program, and how many of their pixels it reads at a time."""
    frames = triton.next_power_of_2(max(TILE // (pixels * channels), 1))
    return {"F": frames, "P": max(TAIL["CHUNK"] // (frames * channels), 1), "num_warps": TAIL["num_warps"]}


def _by_block(flat: Sequence[torch.Tensor]) -> list[BlockWeights]:
    n = len(BlockWeights._fields)
    return [BlockWeights(*flat[i : i + n]) for i in range(0, len(flat), n)]


@torch.compiler.disable
def trunk(
    image: torch.Tensor, bins: int, stem: torch.Tensor, shift: torch.Tensor, blocks: Sequence[BlockWeights]
) -> torch.Tensor:
    """Images [B, 1, H, W] in 0..1, H and W multiples of 4 -> the last block's result [B, C, H', W'], of their type.

    stem f32 [C, 16 * (1 + bins)] as `SEResNet9.stem_by_bin` has it, shift the first block's bias1a. The first block has
    no skip, all others have one. No gradient goes to the image.
    """
    with torch.cuda.device_of(image):  # Triton goes by the current device; autograd's threads have the tensors'
        return _Trunk.apply(image, bins, stem, shift, *(tensor for weights in blocks for tensor in weights))
