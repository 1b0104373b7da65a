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
import triton.language as tl
from torch.autograd.function import once_differentiable

# Kernels. Images are [B, P, C], P pixels in rows. The mask of a ReLU is recovered from its result plus a bias: see
# `_shifted`. Gradients of scalars are sums over all images; each program writes a partial sum.


@triton.jit
def _relu(x):
    """ReLU that keeps NaN, as torch's."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _shifted(x, shift, kind: tl.constexpr):
    """relu(x) + shift, rounded so that positive x give a larger result than the shift alone."""
    alone = shift.to(kind).to(tl.float32)
    last_place = tl.where(alone < 0.0, -65536, 65536)  # bfloat16's unit in the last place
    least = tl.where(alone == 0.0, 1e-30, (alone.to(tl.int32, bitcast=True) + last_place).to(tl.float32, bitcast=True))
    return tl.where(x <= 0.0, alone, tl.maximum(x + shift, least, propagate_nan=tl.PropagateNan.ALL)).to(kind)


@triton.jit
def _passed(shifted, shift):
    """Mask of the values that the ReLU of `_shifted` passed."""
    return (shifted.to(tl.float32) <= shift.to(shifted.dtype).to(tl.float32)) == 0


@triton.jit
def _pixels(image, cell, live, bins, WIDTH: tl.constexpr, CELLS_ACROSS: tl.constexpr):
    """Pixels of cells and their depth bins, [BM, 16] each; values outside 0..1 are in the first or last bin."""
    pixel = tl.arange(0, 16)[None, :]
    row, column = cell // CELLS_ACROSS * 4 + pixel // 4, cell % CELLS_ACROSS * 4 + pixel % 4
    value = tl.load(image + row.to(tl.int64) * WIDTH + column, mask=live, other=0.0)
    place = tl.floor(value.to(tl.float32) * bins)
    return value, tl.minimum(tl.maximum(place, 0.0), bins - 1.0).to(value.dtype)


@triton.jit
def _channels(value, place, k: tl.constexpr):
    """Channel k of pixels: for k = 0 the value, else 1 where its bin is k - 1 and 0 elsewhere."""
    if k == 0:
        return value
    return tl.where(place == k - 1, 1.0, 0.0).to(value.dtype)


@triton.jit
def _group(value, place, g: tl.constexpr):
    """Channels 4 * g to 4 * g + 3 of the pixels, concatenated: [BM, 64]."""
    even = tl.join(_channels(value, place, 4 * g), _channels(value, place, 4 * g + 2))
    odd = tl.join(_channels(value, place, 4 * g + 1), _channels(value, place, 4 * g + 3))
    return tl.join(even, odd).permute(0, 2, 3, 1).reshape(value.shape[0], 64)


@triton.jit
def stem_forward(
    image, weight, shift, cells, bins, x_out, shifted_out,
    WIDTH: tl.constexpr, CELLS_ACROSS: tl.constexpr, GROUPS: tl.constexpr, N: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """x = relu(channels @ weight) and x + shift; weight [64 * GROUPS, N] has zero rows beyond the last channel."""
    column = tl.arange(0, N)
    kind: tl.constexpr = x_out.dtype.element_ty
    weights = ()
    for g in tl.static_range(GROUPS):
        weights += (tl.load(weight + (g * 64 + tl.arange(0, 64))[:, None] * N + column[None, :]),)  # type: ignore[assignment]
    added = tl.load(shift)
    for first in range(tl.program_id(0) * BM, cells, tl.num_programs(0) * BM):
        cell = first + tl.arange(0, BM)
        live = cell < cells
        value, place = _pixels(image, cell[:, None], live[:, None], bins, WIDTH, CELLS_ACROSS)
        x = tl.zeros((BM, N), tl.float32)
        for g in tl.static_range(GROUPS):
            x = tl.dot(_group(value, place, g), weights[g], x)
        x = _relu(x)
        at = cell.to(tl.int64)[:, None] * N + column[None, :]
        tl.store(x_out + at, x.to(kind), mask=live[:, None])
        tl.store(shifted_out + at, _shifted(x, added, kind), mask=live[:, None])


@triton.jit
def stem_backward(
    image, grad, shifted_grad, shifted, shift, cells, bins, weight_grads_out, sums_out,
    WIDTH: tl.constexpr, CELLS_ACROSS: tl.constexpr, GROUPS: tl.constexpr, N: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Partial gradients of the weight, f32 [N, 64 * GROUPS], and of the shift, for each program."""
    totals = ()
    for _ in tl.static_range(GROUPS):
        totals += (tl.zeros((N, 64), tl.float32),)  # type: ignore[assignment]
    shift_total = tl.zeros((BM, N), tl.float32)
    column, added = tl.arange(0, N)[None, :], tl.load(shift)
    for first in range(tl.program_id(0) * BM, cells, tl.num_programs(0) * BM):
        cell = first + tl.arange(0, BM)
        live = cell < cells
        value, place = _pixels(image, cell[:, None], live[:, None], bins, WIDTH, CELLS_ACROSS)
        at = cell.to(tl.int64)[:, None] * N + column
        of_shifted = tl.load(shifted_grad + at, mask=live[:, None], other=0.0).to(tl.float32)
        both = tl.load(grad + at, mask=live[:, None], other=0.0).to(tl.float32) + of_shifted
        passed = _passed(tl.load(shifted + at, mask=live[:, None], other=0.0), added)
        shift_total += of_shifted
        before = tl.where(passed, both, 0.0).to(grad.dtype.element_ty).trans()
        sums = ()
        for g in tl.static_range(GROUPS):
            sums += (tl.dot(before, _group(value, place, g), totals[g]),)  # type: ignore[assignment]
        totals = sums
    out = weight_grads_out + tl.program_id(0) * (N * 64 * GROUPS)
    for g in tl.static_range(GROUPS):
        at = tl.arange(0, N)[:, None] * (64 * GROUPS) + (g * 64 + tl.arange(0, 64))[None, :]
        tl.store(out + at, totals[g])
    tl.store(sums_out + tl.program_id(0), tl.sum(tl.sum(shift_total, axis=1)))


@triton.jit
def activate(x_out, bias, shift, n, SIZE: tl.constexpr):
    """x = relu(x + bias) + shift, in place, for n values."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_out + at, mask=at < n, other=0.0).to(tl.float32) + tl.load(bias)
    tl.store(x_out + at, _shifted(x, tl.load(shift), x_out.dtype.element_ty), mask=at < n)


@triton.jit
def activate_backward(x, shift, n, grad_out, bias_sums_out, shift_sums_out, SIZE: tl.constexpr):
    """Gradient of the input of `activate`, in place, and partial gradients of bias and shift; x is its result."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    grad = tl.load(grad_out + at, mask=at < n, other=0.0)
    passed = _passed(tl.load(x + at, mask=at < n, other=0.0), tl.load(shift))
    before = tl.where(passed, grad, 0.0)
    tl.store(grad_out + at, before, mask=at < n)
    tl.store(bias_sums_out + tl.program_id(0), tl.sum(before.to(tl.float32)))
    tl.store(shift_sums_out + tl.program_id(0), tl.sum(grad.to(tl.float32)))


@triton.jit
def _part(first, at, B, PIXELS: tl.constexpr, C: tl.constexpr, F: tl.constexpr, P: tl.constexpr):
    """Offsets and mask [F, P, C] of F frames from `first` and P pixels from `at`."""
    frame, pixel = first + tl.arange(0, F)[:, None, None], at + tl.arange(0, P)[None, :, None]
    where = frame * (PIXELS * C) + (pixel * C + tl.arange(0, C)[None, None, :])
    return where, (frame < B) & (pixel < PIXELS)


@triton.jit
def _units(weight, C: tl.constexpr, S: tl.constexpr):
    """Weights [max(S, 16), C] of S squeezed units, padded with zeros, and the unit indices."""
    unit = tl.arange(0, max(S, 16))
    at = unit[:, None] * C + tl.arange(0, C)[None, :]
    return tl.load(weight + at, mask=(unit < S)[:, None], other=0.0), unit


@triton.jit
def _pool(
    x, first, at, B, H: tl.constexpr, W: tl.constexpr, H_OUT: tl.constexpr, W_OUT: tl.constexpr,
    C: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Means over 3x3 pixels of x with stride 2 and zero padding, and their offsets and mask: [F, P, C] each."""
    where, live = _part(first, at, B, H_OUT * W_OUT, C, F, P)
    frame, pixel = first + tl.arange(0, F)[:, None, None], at + tl.arange(0, P)[None, :, None]
    row, column, total = pixel // W_OUT * 2 - 1, pixel % W_OUT * 2 - 1, tl.zeros((F, P, C), tl.float32)
    for i in tl.static_range(9):
        r, c = row + i // 3, column + i % 3
        within = (r >= 0) & (r < H) & (c >= 0) & (c < W)
        source = frame * (H * W * C) + ((r * W + c) * C + tl.arange(0, C)[None, None, :])
        total += tl.load(x + source, mask=live & within, other=0.0).to(tl.float32)
    return total / 9.0, where, live


@triton.jit
def tail(
    y, bias, shift, squeeze, squeeze_bias, excite, excite_bias, B, x_out, pool_out, pooled_out, hidden_out, gate_out,
    POOLED: tl.constexpr, H: tl.constexpr, W: tl.constexpr, H_OUT: tl.constexpr, W_OUT: tl.constexpr,
    C: tl.constexpr, S: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """x = relu(x + gate * (y + bias)) + shift, in place, F frames per program; gate is squeeze-and-excitation of y.

    squeeze and excite are [S, C], of the images' type. pooled_out [B, C], hidden_out [B, S] and gate_out [B, C] are the
    values between its layers. If POOLED, pool_out [B, H_OUT * W_OUT, C] is `_pool` of the result.
    """
    PIXELS: tl.constexpr = H * W
    first = tl.program_id(0).to(tl.int64) * F
    kind: tl.constexpr = x_out.dtype.element_ty
    added, last = tl.load(bias), tl.load(shift)
    total = tl.zeros((F, P, C), tl.float32)
    for at in range(0, PIXELS, P):
        where, live = _part(first, at, B, PIXELS, C, F, P)
        total += tl.load(y + where, mask=live, other=0.0).to(tl.float32)
    frame, channel = first + tl.arange(0, F), tl.arange(0, C)[None, :]
    there = (frame < B)[:, None]
    pooled = (tl.sum(total, axis=1) * (1.0 / PIXELS) + added).to(kind)
    squeezes, unit = _units(squeeze, C, S)
    hidden = tl.dot(pooled, squeezes.trans()) + tl.load(squeeze_bias + unit, mask=unit < S, other=0.0)[None, :]
    hidden = _relu(hidden).to(kind)
    excites, _ = _units(excite, C, S)
    gate = tl.sigmoid(tl.dot(hidden, excites) + tl.load(excite_bias + channel)).to(kind)
    tl.store(pooled_out + frame[:, None] * C + channel, pooled, mask=there)
    tl.store(hidden_out + frame[:, None] * S + unit[None, :], hidden, mask=there & (unit < S)[None, :])
    tl.store(gate_out + frame[:, None] * C + channel, gate, mask=there)
    factor = gate.to(tl.float32)[:, None, :]
    for at in range(0, PIXELS, P):
        where, live = _part(first, at, B, PIXELS, C, F, P)
        values, x = tl.load(y + where, mask=live, other=0.0), tl.load(x_out + where, mask=live, other=0.0)
        result = x.to(tl.float32) + (values.to(tl.float32) + added) * factor
        tl.store(x_out + where, _shifted(result, last, kind), mask=live)
    if POOLED:
        tl.debug_barrier()  # wait until all threads have written x_out
        for at in range(0, H_OUT * W_OUT, P):
            means, where, live = _pool(x_out, first, at, B, H, W, H_OUT, W_OUT, C, F, P)
            tl.store(pool_out + where, means.to(kind), mask=live)


@triton.jit
def _pool_backward(
    pool_grad, first, at, live, W: tl.constexpr, H_OUT: tl.constexpr, W_OUT: tl.constexpr,
    C: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Gradient [F, P, C] through `_pool` of F frames from `first` and P pixels from `at`."""
    frame, pixel = first + tl.arange(0, F)[:, None, None], at + tl.arange(0, P)[None, :, None]
    row, column, found = pixel // W, pixel % W, tl.zeros((F, P, C), tl.float32)
    for i in tl.static_range(4):  # odd rows and odd columns are in two windows
        r, c = row // 2 + i // 2, column // 2 + i % 2
        within = (r < H_OUT) & ((row % 2 == 1) | (i // 2 == 0))
        within &= (c < W_OUT) & ((column % 2 == 1) | (i % 2 == 0))
        source = frame * (H_OUT * W_OUT * C) + ((r * W_OUT + c) * C + tl.arange(0, C)[None, None, :])
        found += tl.load(pool_grad + source, mask=live & within, other=0.0).to(tl.float32)
    return found * (1.0 / 9.0)


@triton.jit
def tail_backward(
    grad, pool_grad, result, shift, y, bias, gate, hidden, squeeze, excite, B,
    x_grad_out, y_grad_out, hidden_grad_out, excited_grad_out, bias_sums_out, shift_sums_out,
    POOLED: tl.constexpr, W: tl.constexpr, H_OUT: tl.constexpr, W_OUT: tl.constexpr,
    PIXELS: tl.constexpr, C: tl.constexpr, S: tl.constexpr, F: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Gradients of x and y before `tail`, and of its two layers before their nonlinearities.

    grad is the gradient of the result. If POOLED, the gradient through `_pool` of the result, pool_grad, is added.
    """
    first = tl.program_id(0).to(tl.int64) * F
    kind: tl.constexpr = x_grad_out.dtype.element_ty
    added, last = tl.load(bias), tl.load(shift)
    total, shift_total = tl.zeros((F, P, C), tl.float32), tl.zeros((F, P, C), tl.float32)
    for at in range(0, PIXELS, P):
        where, live = _part(first, at, B, PIXELS, C, F, P)
        result_grad = tl.load(grad + where, mask=live, other=0.0).to(tl.float32)
        if POOLED:
            result_grad += _pool_backward(pool_grad, first, at, live, W, H_OUT, W_OUT, C, F, P)
        passed = _passed(tl.load(result + where, mask=live, other=0.0), last)
        x_grad = tl.where(passed, result_grad, 0.0).to(kind)
        tl.store(x_grad_out + where, x_grad, mask=live)
        shift_total += result_grad
        total += x_grad.to(tl.float32) * (tl.load(y + where, mask=live, other=0.0).to(tl.float32) + added)
    tl.store(shift_sums_out + tl.program_id(0), tl.sum(tl.sum(tl.sum(shift_total, axis=2), axis=1)))
    frame, channel = first + tl.arange(0, F), tl.arange(0, C)[None, :]
    there = (frame < B)[:, None]
    gates = tl.load(gate + frame[:, None] * C + channel, mask=there, other=0.0).to(tl.float32)
    excited_grad = (tl.sum(total, axis=1) * gates * (1.0 - gates)).to(kind)
    tl.store(excited_grad_out + frame[:, None] * C + channel, excited_grad, mask=there)
    excites, unit = _units(excite, C, S)
    of_unit, here = frame[:, None] * S + unit[None, :], there & (unit < S)[None, :]
    stopped = tl.load(hidden + of_unit, mask=here, other=0.0).to(tl.float32) <= 0.0
    hidden_grad = tl.where(stopped, 0.0, tl.dot(excited_grad, excites.trans())).to(kind)
    tl.store(hidden_grad_out + of_unit, hidden_grad, mask=here)
    squeezes, _ = _units(squeeze, C, S)
    pooled_grad = tl.dot(hidden_grad, squeezes) * (1.0 / PIXELS)
    tl.debug_barrier()  # wait until all threads have written x_grad_out
    total = tl.zeros((F, P, C), tl.float32)
    for at in range(0, PIXELS, P):
        where, live = _part(first, at, B, PIXELS, C, F, P)
        x_grad = tl.load(x_grad_out + where, mask=live, other=0.0)
        y_grad = x_grad.to(tl.float32) * gates[:, None, :] + pooled_grad[:, None, :]
        tl.store(y_grad_out + where, y_grad.to(kind), mask=live)
        total += tl.where(live, y_grad, 0.0)
    tl.store(bias_sums_out + tl.program_id(0), tl.sum(tl.sum(tl.sum(total, axis=2), axis=1)))


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
