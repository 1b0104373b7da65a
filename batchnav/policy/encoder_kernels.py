"""Triton kernels of `policy.encoder_triton`.

Images are [B, P, C], P pixels in rows. The mask of a ReLU is recovered from its result plus a bias: see `_shifted`.
Gradients of scalars are sums over all images; each program writes a partial sum.
"""

import triton
import triton.language as tl


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
