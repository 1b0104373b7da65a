"""LSTM over whole sequences whose state is reset at the start of each episode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.config import bounded
from batchnav.policy import lstm_cpu
from batchnav.policy.config import PolicyConfig
from batchnav.policy.memory import Memory
from batchnav.policy.triton_support import has_triton
from batchnav.runtime.torch_defaults import compiled

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
            return self._layer_by_layer(lstm_cpu.lstm_layer, x, starts, state)
        keep = (~starts).to(state.dtype)[..., None].unbind(0)
        hidden, carry = [], []
        for layer in range(self.num_layers):
            w_ih, w_hh, b_ih, b_hh = self.all_weights[layer]
            # unbind instead of indexing, whose backward pass would write T zero tensors of the whole size
            projected = F.linear(x, w_ih, b_ih + b_hh).unbind(0)
            kept, c = state[0, layer] * keep[0], state[1, layer]
            outputs, following = [], (*keep[1:], keep[0])  # the last step's value is unused
            for gates_x, keep_t, keep_next in zip(projected, keep, following, strict=True):
                h, kept, c = self.cell(torch.addmm(gates_x, kept, w_hh.t()), c, keep_t, keep_next)
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
    gates: torch.Tensor, c: torch.Tensor, keep: torch.Tensor, keep_next: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step of the cell after the recurrent product; a function of its own for torch.compile.

    Args:
        gates: [B, 4H], input, forget, cell and output gates before their nonlinearities.
        c: f32 [B, H], cell state before the step.
        keep: f32 [B, 1], 0 where this step starts an episode, else 1.
        keep_next: f32 [B, 1], 0 where the next step starts an episode, else 1.

    Returns:
        h after the step, h at the start of the next step, and c after the step. h has the gates' type, since products
        under autocast read it in that type anyway.
    """
    i, f, g, o = gates.to(c.dtype).chunk(4, 1)
    c = torch.sigmoid(f) * (c * keep) + torch.sigmoid(i) * torch.tanh(g)
    h = (torch.sigmoid(o) * torch.tanh(c)).to(gates.dtype)
    return h, h * keep_next.to(h.dtype), c
