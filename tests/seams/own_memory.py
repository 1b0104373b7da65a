"""A gated recurrent unit: a toy of the seam `policy.MEMORIES`, in a file outside the package."""

from dataclasses import dataclass

import torch
from torch import nn

from batchnav.config import bounded
from batchnav.policy import MEMORIES
from batchnav.policy.memory import Memory


class GRU(Memory):
    """A GRU cell whose state is reset at the start of an episode."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the memory."""

        scale: float = bounded(1.0, 0.1, 10.0)
        """Factor of the outputs."""

    def __init__(self, input_size, hidden_size, scale):
        super().__init__()
        self.cell, self.output_size, self.scale = nn.GRUCell(input_size, hidden_size), hidden_size, scale

    @classmethod
    def from_config(cls, input_size, config, settings):
        """A memory of `hidden_size` units."""
        return cls(input_size, config.hidden_size, settings.scale)

    def initial_state(self, num_envs, device="cpu"):
        """Zeros [N, hidden_size]."""
        return torch.zeros(num_envs, self.output_size, device=device)

    def forward(self, x, starts, state):
        """Outputs [T, B, hidden_size] and the state after the last step."""
        outputs = []
        for features, start in zip(x, starts, strict=True):
            state = self.cell(features, torch.where(start[:, None], 0.0, state).to(features.dtype))
            outputs.append(self.scale * state)
        return torch.stack(outputs), state


MEMORIES["gru"] = GRU
