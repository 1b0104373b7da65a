"""Kernels of `policy.lstm.EpisodicLSTM` on CUDA: a layer for training, and one step of all layers for acting.

In training, the recurrent product and the cell of a step are one kernel. Backward, the product and the cell before it
are one kernel. Gradients of weights are products over all steps at once, with sums in float32; autograd would add one
product per step in the weights' type. When acting, the batch fills the GPU, so products are cuBLAS's, with one kernel
between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

FEW = 512
"""Largest number of sequences for the tiles FORWARD and BACKWARD."""
FORWARD = {"BM": 64, "BN": 16, "BK": 64, "num_warps": 4, "num_stages": 3}
BACKWARD = {"BM": 64, "BN": 16, "BK": 128, "num_warps": 4, "num_stages": 4}
"""Rows, columns and inner length of a program's tile: the fastest of fifteen on an H200 with 256 sequences and a hidden
size of 512."""
FORWARD_MANY = {"BM": 64, "BN": 32, "BK": 64, "num_warps": 4, "num_stages": 3}
BACKWARD_MANY = {"BM": 64, "BN": 64, "BK": 64, "num_warps": 8, "num_stages": 4}
"""Tiles for more than FEW sequences: faster than FORWARD and BACKWARD with 1,024."""
ACT = {"SIZE": 1024, "num_warps": 4}
"""Settings of the kernels for acting; SIZE is the number of hidden values per program."""


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _forward_step(
    hidden, carry, keep, weight, B, gates_out, hidden_out, carry_out,
    H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One step of B sequences; each program has a tile of rows and hidden columns.

    gates_out [B, 4H] holds the input's part of the gates, and afterwards the gates after their nonlinearities (i, f, g,
    o). hidden [B, H] and carry f32 [B, H] are the state before the step, keep f32 [B] is 0 where an episode begins,
    weight is [H, 4H].
    """
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    live = (row < B)[:, None]
    at, here = row[:, None] * (4 * H) + column[None, :], row[:, None] * H + column[None, :]
    i = tl.load(gates_out + at, mask=live, other=0.0).to(tl.float32)
    f = tl.load(gates_out + at + H, mask=live, other=0.0).to(tl.float32)
    g = tl.load(gates_out + at + 2 * H, mask=live, other=0.0).to(tl.float32)
    o = tl.load(gates_out + at + 3 * H, mask=live, other=0.0).to(tl.float32)
    keeps = tl.load(keep + row, mask=row < B, other=0.0)[:, None]
    for k in range(0, H, BK):
        inner = k + tl.arange(0, BK)
        h = tl.load(hidden + row[:, None] * H + inner[None, :], mask=live & (keeps > 0.0), other=0.0)
        w = weight + inner[:, None] * (4 * H) + column[None, :]
        i = tl.dot(h, tl.load(w), i)
        f = tl.dot(h, tl.load(w + H), f)
        g = tl.dot(h, tl.load(w + 2 * H), g)
        o = tl.dot(h, tl.load(w + 3 * H), o)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    c = f * tl.load(carry + here, mask=live & (keeps > 0.0), other=0.0) + i * g
    kind = gates_out.dtype.element_ty
    tl.store(carry_out + here, c, mask=live)
    tl.store(hidden_out + here, (o * _tanh(c)).to(kind), mask=live)
    tl.store(gates_out + at, i.to(kind), mask=live)
    tl.store(gates_out + at + H, f.to(kind), mask=live)
    tl.store(gates_out + at + 2 * H, g.to(kind), mask=live)
    tl.store(gates_out + at + 3 * H, o.to(kind), mask=live)


@triton.jit
def _backward_step(
    grad, gates, carry, carry_before, keep, next_grads, keep_next, weight, B, LAST, carry_grad_out, grads_out,
    H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Gradient of a step's gates before their nonlinearities, grads_out [B, 4H], and of carry [B, H], in place.

    grad [B, H] is the gradient of the step's output, next_grads [B, 4H] that of the next step's gates (unused if LAST).
    carry_before and carry are the cell states before and after the step; weight is [4H, H].
    """
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    live = (row < B)[:, None]
    at, here = row[:, None] * (4 * H) + column[None, :], row[:, None] * H + column[None, :]
    dh = tl.zeros((BM, BN), tl.float32)
    if LAST == 0:
        for k in range(0, 4 * H, BK):
            inner = k + tl.arange(0, BK)
            d = tl.load(next_grads + row[:, None] * (4 * H) + inner[None, :], mask=live, other=0.0)
            dh = tl.dot(d, tl.load(weight + inner[:, None] * H + column[None, :]), dh)
        dh = tl.where(tl.load(keep_next + row, mask=row < B, other=0.0)[:, None] > 0.0, dh, 0.0)
    dh += tl.load(grad + here, mask=live, other=0.0).to(tl.float32)
    i = tl.load(gates + at, mask=live, other=0.0).to(tl.float32)
    f = tl.load(gates + at + H, mask=live, other=0.0).to(tl.float32)
    g = tl.load(gates + at + 2 * H, mask=live, other=0.0).to(tl.float32)
    o = tl.load(gates + at + 3 * H, mask=live, other=0.0).to(tl.float32)
    keeps = tl.load(keep + row, mask=row < B, other=0.0)[:, None]
    before = tl.load(carry_before + here, mask=live & (keeps > 0.0), other=0.0)
    tanh_c = _tanh(tl.load(carry + here, mask=live, other=0.0))
    dc = tl.load(carry_grad_out + here, mask=live, other=0.0) + dh * o * (1.0 - tanh_c * tanh_c)
    kind = gates.dtype.element_ty
    tl.store(carry_grad_out + here, tl.where(keeps > 0.0, dc * f, 0.0), mask=live)
    tl.store(grads_out + at, (dc * g * i * (1.0 - i)).to(kind), mask=live)
    tl.store(grads_out + at + H, (dc * before * f * (1.0 - f)).to(kind), mask=live)
    tl.store(grads_out + at + 2 * H, (dc * i * (1.0 - g * g)).to(kind), mask=live)
    tl.store(grads_out + at + 3 * H, (dh * tanh_c * o * (1.0 - o)).to(kind), mask=live)


class _Layer(torch.autograd.Function):
    """The autograd node of `lstm_layer`."""

    @staticmethod
    def forward(ctx, x, starts, hidden, carry, w_ih, w_hh, b_ih, b_hh):
        (steps, batch, _), size, kind = x.shape, w_hh.shape[1], x.dtype
        with torch.autocast(x.device.type, enabled=False):
            w_ih, w_hh = w_ih.to(kind), w_hh.to(kind)
            gates = torch.addmm((b_ih + b_hh).to(kind), x.flatten(0, 1), w_ih.t()).view(steps, batch, -1)
        # kernels read contiguous rows; transposed starts, for example, are not contiguous after the cast
        keep, weight = (~starts).float().contiguous(), w_hh.t().contiguous()
        # row 0 is the state before the first step
        hiddens = torch.cat([hidden[None].to(kind), x.new_empty(steps, batch, size)])
        carries = torch.cat([carry[None], carry.new_empty(steps, batch, size)])
        tile = FORWARD if batch <= FEW else FORWARD_MANY
        grid = triton.cdiv(batch, tile["BM"]), size // tile["BN"]
        for t in range(steps):
            _forward_step[grid](
                hiddens[t], carries[t], keep[t], weight, batch, gates[t], hiddens[t + 1], carries[t + 1],
                H=size, **tile,
            )  # fmt: skip
        ctx.save_for_backward(x, keep, hiddens, carries, gates, w_ih, w_hh)
        last = carries[-1].clone()
        ctx.mark_non_differentiable(last)
        return hiddens[1:], last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        x, keep, hiddens, carries, gates, w_ih, w_hh = ctx.saved_tensors
        (steps, batch, _), size = x.shape, w_hh.shape[1]
        grad, grads, carry_grad = grad.contiguous(), torch.empty_like(gates), torch.zeros_like(carries[0])
        tile = BACKWARD if batch <= FEW else BACKWARD_MANY
        grid = triton.cdiv(batch, tile["BM"]), size // tile["BN"]
        for t in reversed(range(steps)):
            after = min(t + 1, steps - 1)
            _backward_step[grid](
                grad[t], gates[t], carries[t + 1], carries[t], keep[t], grads[after], keep[after], w_hh, batch,
                int(t + 1 == steps), carry_grad, grads[t], H=size, **tile,
            )  # fmt: skip
        flat, kept = grads.flatten(0, 1), torch.where(keep[..., None] > 0.0, hiddens[:-1], 0.0).flatten(0, 1)
        bias_grad = flat.sum(0, dtype=torch.float32)
        x_grad, w_ih_grad, w_hh_grad = (flat @ w_ih).view_as(x), flat.t() @ x.flatten(0, 1), flat.t() @ kept
        return x_grad, None, None, None, w_ih_grad.float(), w_hh_grad.float(), bias_grad, bias_grad


def lstm_layer(
    x: torch.Tensor, starts: torch.Tensor, hidden: torch.Tensor, carry: torch.Tensor, weights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer over T steps, on CUDA; H is a multiple of 64.

    Args:
        x: inputs [T, B, I].
        starts: bool [T, B], set where a step begins from a zero state.
        hidden: h before the first step, f32 [B, H]; gets no gradient.
        carry: c before the first step, f32 [B, H]; gets no gradient.
        weights: w_ih, w_hh, b_ih and b_hh, as in `nn.LSTM`.

    Returns:
        outputs [T, B, H] of x's type, and c after the last step, f32 [B, H], which passes no gradient.
    """
    with torch.cuda.device_of(x):  # Triton launches on the current device; autograd's threads use the tensors'
        return _Layer.apply(x, starts, hidden, carry, *weights)


@triton.jit
def _begin(state, starts, n, hidden_out, B: tl.constexpr, H: tl.constexpr, SIZE: tl.constexpr):
    """hidden_out [L, B, H], n values: h of state f32 [2, L, B, H], or 0 where an episode starts (starts bool [B])."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    begins = tl.load(starts + at // H % B, mask=at < n, other=1)
    value = tl.load(state + at, mask=(at < n) & (begins == 0), other=0.0)
    tl.store(hidden_out + at, value.to(hidden_out.dtype.element_ty), mask=at < n)


@triton.jit
def _gate(of_input, of_hidden, input_bias, hidden_bias, row, column, live, k: tl.constexpr, H: tl.constexpr):
    """Gate k (0 to 3: i, f, g, o) of a layer before its nonlinearity."""
    at, bias = row * (4 * H) + k * H + column, k * H + column
    products = tl.load(of_input + at, mask=live, other=0.0).to(tl.float32)
    products += tl.load(of_hidden + at, mask=live, other=0.0).to(tl.float32)
    return products + (tl.load(input_bias + bias) + tl.load(hidden_bias + bias))


@triton.jit
def _cell(
    of_input, of_hidden, input_bias, hidden_bias, carry, starts, n, output_out, hidden_out, carry_out,
    H: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """`policy.lstm.lstm_cell` on the products with input and h, [B, 4H] each; output_out has autocast's type."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    live, row, column = at < n, at // H, at % H
    begins = tl.load(starts + row, mask=live, other=1)
    c = tl.load(carry + at, mask=live & (begins == 0), other=0.0)
    i = _gate(of_input, of_hidden, input_bias, hidden_bias, row, column, live, 0, H)
    f = _gate(of_input, of_hidden, input_bias, hidden_bias, row, column, live, 1, H)
    g = _gate(of_input, of_hidden, input_bias, hidden_bias, row, column, live, 2, H)
    o = _gate(of_input, of_hidden, input_bias, hidden_bias, row, column, live, 3, H)
    c = tl.sigmoid(f) * c + tl.sigmoid(i) * _tanh(g)
    h = (tl.sigmoid(o) * _tanh(c)).to(output_out.dtype.element_ty)
    tl.store(output_out + at, h, mask=live)
    tl.store(hidden_out + at, h.to(tl.float32), mask=live)
    tl.store(carry_out + at, c, mask=live)


def lstm_step(
    x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor, layers: Sequence[Sequence[torch.Tensor]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of all layers, on CUDA, without gradient, under autocast, which caches the rounded weights.

    Args:
        x: inputs [B, I].
        starts: bool [B], set where the step begins from a zero state.
        state: f32 [2, L, B, H], h and c before the step.
        layers: w_ih, w_hh, b_ih and b_hh of each layer, as in `nn.LSTM`.

    Returns:
        output [B, H] of autocast's type, and the state after the step.
    """
    (_, num_layers, batch, size), n = state.shape, state[0, 0].numel()
    starts, state, state_out = starts.contiguous(), state.contiguous(), torch.empty_like(state)
    hidden = state.new_empty(num_layers, batch, size, dtype=torch.get_autocast_dtype("cuda"))
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _begin[(triton.cdiv(hidden.numel(), ACT["SIZE"]),)](
            state, starts, hidden.numel(), hidden, B=batch, H=size, **ACT
        )
        for layer, (w_ih, w_hh, b_ih, b_hh) in enumerate(layers):
            of_input, of_hidden, x = F.linear(x, w_ih), F.linear(hidden[layer], w_hh), torch.empty_like(hidden[layer])
            _cell[(triton.cdiv(n, ACT["SIZE"]),)](
                of_input, of_hidden, b_ih, b_hh, state[1, layer], starts, n,
                x, state_out[0, layer], state_out[1, layer], H=size, **ACT,
            )  # fmt: skip
    return x, state_out
