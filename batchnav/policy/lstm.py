"""An LSTM over whole sequences that forgets at the start of every episode."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.policy import lstm_cpu
from batchnav.policy.available import has_triton
from batchnav.policy.config import PolicyConfig
from batchnav.policy.memory import Memory

FUSED_SEQUENCES = 1024
"""At most so many at a time learn with `lstm_triton`'s kernels (measured with 256 and 1,024)."""
FUSED_SIZES = 64
"""Hidden sizes that they take are multiples."""


class EpisodicLSTM(Memory, nn.RNNBase):
    """`nn.LSTM` (same parameters by name and shape) whose state is zeroed where an episode starts.

    All steps' input projections are one matrix product; the loop over time holds only the recurrent product and the
    cell. Orthogonal weights, zero biases. The loop here is the specification of what `lstm_cpu` and `lstm_triton` do.
    """

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
    def from_config(cls, input_size: int, config: PolicyConfig) -> EpisodicLSTM:
        """`lstm_layers` layers of `hidden_size` units."""
        return cls(input_size, config.hidden_size, config.lstm_layers)

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> torch.Tensor:
        """Zeros f32 [2, L, num_envs, H]: h and c of each layer."""
        return torch.zeros(2, self.num_layers, num_envs, self.hidden_size, device=device)

    def compile_parts(self) -> None:
        """Compile the cell, for static shapes."""
        self.cell = torch.compile(lstm_cell, dynamic=False)

    def _apply(self, fn: Callable, recurse: bool = True) -> EpisodicLSTM:
        """What `to` does, and how this module comes to a device."""
        super()._apply(fn, recurse)
        self.has_kernels = has_triton(self.get_parameter("weight_hh_l0").device)
        return self

    def forward(self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs [T, B, I], starts bool [T, B], state [2, L, B, H] (h and c) -> outputs [T, B, H], state after step T.

        Where starts[t] is set, step t begins from a zero state. With the kernels of `lstm_triton` no gradient goes
        through the states, neither the one given nor the one returned; with `lstm_cpu` not through the one returned.
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
            # unbind, not indexing: the backward pass of T indexings would write T zero tensors of the whole size
            projected = F.linear(x, w_ih, b_ih + b_hh).unbind(0)
            kept, c = state[0, layer] * keep[0], state[1, layer]
            outputs, following = [], (*keep[1:], keep[0])  # nobody reads what the last step keeps
            for gates_x, keep_t, keep_next in zip(projected, keep, following, strict=True):
                h, kept, c = self.cell(torch.addmm(gates_x, kept, w_hh.t()), c, keep_t, keep_next)
                outputs.append(h)
            x = torch.stack(outputs)
            hidden.append(h.to(c.dtype))
            carry.append(c)
        return x, torch.stack([torch.stack(hidden), torch.stack(carry)])

    def _is_fused(self, x: torch.Tensor) -> bool:
        """Whether these inputs are learned from on CUDA in bfloat16, with few enough sequences for kernels of our own.

        More of them fill the GPU with a step's product alone.
        """
        fits = x.shape[1] <= FUSED_SEQUENCES and self.hidden_size % FUSED_SIZES == 0
        return torch.is_grad_enabled() and fits and self._in_kernels()

    def _learns_in_place(self, x: torch.Tensor, state: torch.Tensor) -> bool:
        """Whether these inputs are learned from on the CPU in one type, from a state without gradient.

        And no compiled cell was asked for.
        """
        plain = self.cell is not lstm_cell or state.requires_grad or torch.is_autocast_enabled("cpu")
        return torch.is_grad_enabled() and x.device.type == "cpu" and not plain

    def _acts_fused(self, x: torch.Tensor) -> bool:
        """Whether this is a step to act by on CUDA in bfloat16, which has kernels of its own between its products."""
        return not torch.is_grad_enabled() and len(x) == 1 and self._in_kernels()

    def _in_kernels(self) -> bool:
        """Whether products are in bfloat16, and `lstm_triton` can run."""
        return self.has_kernels and torch.is_autocast_enabled("cuda")

    def _layer_by_layer(
        self, lstm_layer: Callable, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward` with a function for a whole layer, of `lstm_cpu` or `lstm_triton`; no gradient to the state."""
        hidden, carry = [], []
        for layer, weights in enumerate(self.all_weights):
            x, c = lstm_layer(x, starts, state[0, layer], state[1, layer], weights)
            hidden.append(x[-1].detach().to(c.dtype))
            carry.append(c)
        return x, torch.stack([torch.stack(hidden), torch.stack(carry)])

    def _fused(self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward` with `lstm_triton`."""
        from batchnav.policy.lstm_triton import lstm_layer  # Triton comes with torch for CUDA alone

        return self._layer_by_layer(lstm_layer, x.to(torch.get_autocast_dtype("cuda")), starts, state)

    def _fused_step(
        self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward` of one step with `lstm_triton`, without gradients."""
        from batchnav.policy.lstm_triton import lstm_step  # Triton comes with torch for CUDA alone

        output, state = lstm_step(x[0], starts[0], state, self.all_weights)
        return output[None], state


def lstm_cell(
    gates: torch.Tensor, c: torch.Tensor, keep: torch.Tensor, keep_next: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step, as one function to compile: h and c after it, and h as the next step begins.

    Gates before their nonlinearities [B, 4H] (input, forget, cell, output), c f32 [B, H] before the step; keep and
    keep_next f32 [B, 1]: 0 where this step, or the next, starts an episode. h has the gates' type, which is all that
    products under autocast see of it.
    """
    i, f, g, o = gates.to(c.dtype).chunk(4, 1)
    c = torch.sigmoid(f) * (c * keep) + torch.sigmoid(i) * torch.tanh(g)
    h = (torch.sigmoid(o) * torch.tanh(c)).to(gates.dtype)
    return h, h * keep_next.to(h.dtype), c
