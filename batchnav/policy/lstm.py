"""LSTM over whole sequences whose state is reset at the start of each episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from batchnav.config import bounded
from batchnav.policy.config import PolicyConfig
from batchnav.policy.memory import Memory
from batchnav.runtime.device import compiled, has_triton

# One layer for training on the CPU.
#
# On the CPU a small layer spends as much time on calls and autograd nodes as on matrix products. A layer is therefore
# one autograd node, a step works in place, and everything that does not depend on the previous step is computed for
# all steps at once: the input's part of the gates, the derivatives of the nonlinearities, the gradients of weights and
# input. Acting uses the plain loop, which is as fast.

aten = torch.ops.aten


class _Layer(torch.autograd.Function):
    """The autograd node of `lstm_layer`."""

    @staticmethod
    def forward(ctx, x, starts, hidden, carry, w_ih, w_hh, b_ih, b_hh):
        (T, B, _), H = x.shape, w_hh.shape[1]
        begins, zero = starts[..., None], x.new_zeros(())
        gates = torch.addmm(b_ih + b_hh, x.flatten(0, 1), w_ih.t()).view(T, B, 4, H)
        # the state at the start of each step: zero where an episode starts
        hiddens, carries = x.new_empty(T, B, H), x.new_empty(T, B, H)
        outputs, tanh_c = x.new_empty(T, B, H), x.new_empty(T, B, H)
        h, c, w_hh_t = hidden, carry, w_hh.t()
        parts = (gates.view(T, B, 4 * H), gates[:, :, :2], *gates.unbind(2), hiddens, carries, tanh_c, outputs, begins)
        for step, i_f, i, f, g, o, h_in, c_in, t_c, out, first in zip(*(part.unbind(0) for part in parts), strict=True):
            torch.where(first, zero, h, out=h_in)  # not a product: an earlier episode may have left NaN
            torch.where(first, zero, c, out=c_in)
            step.addmm_(h_in, w_hh_t)
            i_f.sigmoid_()
            g.tanh_()
            o.sigmoid_()
            c = torch.mul(f, c_in).addcmul_(i, g)
            torch.tanh(c, out=t_c)
            h = torch.mul(o, t_c, out=out)
        ctx.save_for_backward(x, (~begins).to(x.dtype), w_ih, w_hh, gates, hiddens, carries, tanh_c)
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


FUSED_SEQUENCES = 1024
"""Largest number of sequences in a minibatch for training with `lstm_triton`, which is faster at 256 and 1,024."""
FUSED_SIZES = 64
"""`lstm_triton` supports hidden sizes that are multiples of this."""


class EpisodicLSTM(Memory, nn.RNNBase):
    """`nn.LSTM` (same parameters by name and shape) whose state is zeroed where an episode starts.

    The input projections of all steps are one matrix product; the loop over time has only the recurrent product and the
    cell. Weights are initialised orthogonal, biases zero. The loop in `forward` is the specification of `lstm_cpu` and
    `lstm_triton`.
    """

    @dataclass(frozen=True)
    class Config:
        """Settings of the memory `lstm`."""

        layers: int = bounded(2, 1, 8)
        """Number of layers."""

    agent_dim = 2
    input_weights = ("weight_ih_l0",)

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__("LSTM", input_size, hidden_size, num_layers)
        self.output_size = hidden_size
        self.cell = lstm_cell
        for name, parameter in self.named_parameters():
            (nn.init.zeros_ if "bias" in name else nn.init.orthogonal_)(parameter)
        self.has_kernels = has_triton(self.get_parameter("weight_hh_l0").device)

    @classmethod
    def from_config(cls, input_size: int, config: PolicyConfig, settings: Config | None = None) -> EpisodicLSTM:
        """Layers of `hidden_size` units."""
        return cls(input_size, config.hidden_size, (settings or cls.Config()).layers)

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> torch.Tensor:
        """Zeros f32 [2, L, num_envs, H]: h and c of each layer."""
        return torch.zeros(2, self.num_layers, num_envs, self.hidden_size, dtype=torch.float32, device=device)

    def compile_parts(self) -> None:
        """Compile the cell, for static shapes."""
        self.cell = compiled(lstm_cell)

    def _apply(self, fn: Callable, recurse: bool = True) -> EpisodicLSTM:
        """Move the module, as `to` does, and look up whether the new device has the kernels."""
        super()._apply(fn, recurse)
        self.has_kernels = has_triton(self.get_parameter("weight_hh_l0").device)
        return self

    def forward(self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A sequence, as in `Memory.forward`; the state is f32 [2, L, B, H] (h and c).

        `lstm_triton` passes no gradient to the state before the sequence or from the state after it; `lstm_cpu` passes
        none from the state after it.
        """
        if self._is_fused(x):
            return self._fused(x, starts, state)
        if self._acts_fused(x):
            return self._fused_step(x, starts, state)
        if self._learns_in_place(x, state):
            return self._layer_by_layer(lstm_layer, x, starts, state)
        begins = starts[..., None].unbind(0)
        hidden, carry = [], []
        for layer in range(self.num_layers):
            w_ih, w_hh, b_ih, b_hh = self.all_weights[layer]
            # unbind instead of indexing, whose backward pass would write T zero tensors of the whole size
            projected = F.linear(x, w_ih, b_ih + b_hh).unbind(0)
            kept, c = torch.where(begins[0], 0.0, state[0, layer]), state[1, layer]
            outputs, following = [], (*begins[1:], begins[0])  # the last step's value is unused
            for gates_x, first, next_first in zip(projected, begins, following, strict=True):
                h, kept, c = self.cell(torch.addmm(gates_x, kept, w_hh.t()), c, first, next_first)
                outputs.append(h)
            x = torch.stack(outputs)
            hidden.append(h.to(c.dtype))
            carry.append(c)
        return x, torch.stack([torch.stack(hidden), torch.stack(carry)])

    def _is_fused(self, x: torch.Tensor) -> bool:
        """True where `lstm_triton` trains: on CUDA in bfloat16, with at most FUSED_SEQUENCES sequences.

        The matrix product of a single step fills the GPU if there are more sequences.
        """
        fits = x.shape[1] <= FUSED_SEQUENCES and self.hidden_size % FUSED_SIZES == 0
        return torch.is_grad_enabled() and fits and self._in_kernels()

    def _learns_in_place(self, x: torch.Tensor, state: torch.Tensor) -> bool:
        """True where `lstm_cpu` trains: on the CPU, without autocast, gradient to the state, or a compiled cell."""
        plain = self.cell is not lstm_cell or state.requires_grad or torch.is_autocast_enabled("cpu")
        return torch.is_grad_enabled() and x.device.type == "cpu" and not plain

    def _acts_fused(self, x: torch.Tensor) -> bool:
        """True where `lstm_triton` acts: a single step without gradient, on CUDA in bfloat16."""
        return not torch.is_grad_enabled() and len(x) == 1 and self._in_kernels()

    def _in_kernels(self) -> bool:
        """True where `lstm_triton` can run and autocast makes products bfloat16."""
        return self.has_kernels and torch.is_autocast_enabled("cuda")

    def _layer_by_layer(
        self, lstm_layer: Callable, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward` with `lstm_layer` of `lstm_cpu` or `lstm_triton`, without gradient to the state."""
        hidden, carry = [], []
        for layer, weights in enumerate(self.all_weights):
            x, c = lstm_layer(x, starts, state[0, layer], state[1, layer], weights)
            hidden.append(x[-1].detach().to(c.dtype))
            carry.append(c)
        return x, torch.stack([torch.stack(hidden), torch.stack(carry)])

    def _fused(self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward` with `lstm_triton`."""
        from batchnav.policy.lstm_triton import lstm_layer  # only torch for CUDA includes Triton

        return self._layer_by_layer(lstm_layer, x.to(torch.get_autocast_dtype("cuda")), starts, state)

    def _fused_step(
        self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward` of one step with `lstm_triton`, without gradient."""
        from batchnav.policy.lstm_triton import lstm_step  # only torch for CUDA includes Triton

        output, state = lstm_step(x[0], starts[0], state, self.all_weights)
        return output[None], state


def lstm_cell(
    gates: torch.Tensor, c: torch.Tensor, start: torch.Tensor, next_start: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step of the cell after the recurrent product; a function of its own for torch.compile.

    Args:
        gates: [B, 4H], input, forget, cell and output gates before their nonlinearities.
        c: f32 [B, H], cell state before the step.
        start: bool [B, 1], set where this step starts an episode; c is not read there, whatever it holds.
        next_start: bool [B, 1], set where the next step starts an episode.

    Returns:
        h after the step, h at the start of the next step, and c after the step. h has the gates' type, since products
        under autocast read it in that type anyway.
    """
    i, f, g, o = gates.to(c.dtype).chunk(4, 1)
    c = torch.sigmoid(f) * torch.where(start, 0.0, c) + torch.sigmoid(i) * torch.tanh(g)
    h = (torch.sigmoid(o) * torch.tanh(c)).to(gates.dtype)
    return h, torch.where(next_start, 0.0, h), c
