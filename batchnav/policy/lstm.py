"""An LSTM over whole sequences that forgets at the start of every episode."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class EpisodicLSTM(nn.LSTM):
    """`nn.LSTM` (same parameters by name and shape) whose state is zeroed where an episode starts.

    All steps' input projections are one matrix product; the loop over time holds only the recurrent product and the
    cell. Orthogonal weights, zero biases.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__(input_size, hidden_size, num_layers)
        self.cell = lstm_cell
        for name, parameter in self.named_parameters():
            (nn.init.zeros_ if "bias" in name else nn.init.orthogonal_)(parameter)

    def forward(self, x: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs [T, B, I], starts bool [T, B], state [2, L, B, H] (h and c) -> outputs [T, B, H], state after step T.

        Where starts[t] is set, step t begins from a zero state.
        """
        keep = (~starts).to(state.dtype)[..., None].unbind(0)
        hidden, carry = [], []
        for layer in range(self.num_layers):
            w_ih, w_hh, b_ih, b_hh = self.all_weights[layer]
            # unbind, not indexing: the backward pass of T indexings would write T zero tensors of the whole size
            projected = F.linear(x, w_ih, b_ih + b_hh).unbind(0)
            h, c = state[0, layer], state[1, layer]
            outputs = []
            for gates_x, keep_t in zip(projected, keep, strict=True):
                gates = torch.addmm(gates_x, h * keep_t, w_hh.t())
                h, c = self.cell(gates, c * keep_t)
                outputs.append(h)
            x = torch.stack(outputs)
            hidden.append(h)
            carry.append(c)
        return x, torch.stack([torch.stack(hidden), torch.stack(carry)])


def lstm_cell(gates: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gates before their nonlinearities [B, 4H] (input, forget, cell, output) and c [B, H] -> h, c of the next step."""
    i, f, g, o = gates.to(c.dtype).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
