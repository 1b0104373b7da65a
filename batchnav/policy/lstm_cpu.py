"""One layer of `policy.lstm.EpisodicLSTM` for training on the CPU.

On the CPU a small layer spends as much time on calls and autograd nodes as on matrix products. A layer is therefore one
autograd node, a step works in place, and everything that does not depend on the previous step is computed for all steps
at once: the input's part of the gates, the derivatives of the nonlinearities, the gradients of weights and input.
Acting uses the plain loop, which is as fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.autograd.function import once_differentiable

aten = torch.ops.aten


class _Layer(torch.autograd.Function):
    """The autograd node of `lstm_layer`."""

    @staticmethod
    def forward(ctx, x, starts, hidden, carry, w_ih, w_hh, b_ih, b_hh):
        (T, B, _), H = x.shape, w_hh.shape[1]
        keep = (~starts).to(x.dtype)[..., None]
        gates = torch.addmm(b_ih + b_hh, x.flatten(0, 1), w_ih.t()).view(T, B, 4, H)
        # the state at the start of each step: zero where an episode starts
        hiddens, carries = x.new_empty(T, B, H), x.new_empty(T, B, H)
        outputs, tanh_c = x.new_empty(T, B, H), x.new_empty(T, B, H)
        h, c, w_hh_t = hidden, carry, w_hh.t()
        parts = (gates.view(T, B, 4 * H), gates[:, :, :2], *gates.unbind(2), hiddens, carries, tanh_c, outputs, keep)
        for step, i_f, i, f, g, o, h_in, c_in, t_c, out, kept in zip(*(part.unbind(0) for part in parts), strict=True):
            torch.mul(h, kept, out=h_in)
            torch.mul(c, kept, out=c_in)
            step.addmm_(h_in, w_hh_t)
            i_f.sigmoid_()
            g.tanh_()
            o.sigmoid_()
            c = torch.mul(f, c_in).addcmul_(i, g)
            torch.tanh(c, out=t_c)
            h = torch.mul(o, t_c, out=out)
        ctx.save_for_backward(x, keep, w_ih, w_hh, gates, hiddens, carries, tanh_c)
        ctx.mark_non_differentiable(c)
        return outputs, c

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        x, keep, w_ih, w_hh, gates, hiddens, carries, tanh_c = ctx.saved_tensors
        T, B, _, H = gates.shape
        i, f, g, o = gates.unbind(2)
        # First the factors that do not depend on later steps: the gradients of i, f and g are these times dc, that of o
        # times dh.
        d_gates = torch.empty_like(gates)
        d_i, d_f, d_g, d_o = d_gates.unbind(2)
        aten.sigmoid_backward.grad_input(g, i, grad_input=d_i)
        aten.sigmoid_backward.grad_input(carries, f, grad_input=d_f)
        aten.tanh_backward.grad_input(i, g, grad_input=d_g)
        aten.sigmoid_backward.grad_input(tanh_c, o, grad_input=d_o)
        d_tanh = aten.tanh_backward(o, tanh_c)
        dc, dh = x.new_zeros(B, 1, H), x.new_zeros(B, H)
        parts = (d_gates.view(T, B, 4 * H), d_gates[:, :, :3], d_o, d_tanh, (f * keep).unsqueeze(2), grad, keep)
        for step, d_igf, d_out, d_t, f_kept, g_out, kept in zip(*(part.unbind(0)[::-1] for part in parts), strict=True):
            dh.add_(g_out)
            dc[:, 0].addcmul_(dh, d_t)
            d_igf.mul_(dc)
            d_out.mul_(dh)
            dc.mul_(f_kept)
            torch.mm(step, w_hh, out=dh).mul_(kept)
        flat = d_gates.view(T * B, 4 * H)
        db, dw_ih, dw_hh = flat.sum(0), flat.t() @ x.flatten(0, 1), flat.t() @ hiddens.flatten(0, 1)
        return (flat @ w_ih).view_as(x), None, None, None, dw_ih, dw_hh, db, db


def lstm_layer(
    x: torch.Tensor, starts: torch.Tensor, hidden: torch.Tensor, carry: torch.Tensor, weights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer over T steps; all tensors have one type.

    Args:
        x: inputs [T, B, I].
        starts: bool [T, B], set where a step begins from a zero state.
        hidden: h before the first step, [B, H]; gets no gradient.
        carry: c before the first step, [B, H]; gets no gradient.
        weights: w_ih, w_hh, b_ih and b_hh, as in `nn.LSTM`.

    Returns:
        outputs [T, B, H], and c after the last step [B, H], which passes no gradient.
    """
    return _Layer.apply(x, starts, hidden, carry, *weights)
