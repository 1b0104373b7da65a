"""Images centred and scaled by the mean and variance of all that was seen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

EPS = 1e-5


class RunningNorm(nn.Module):
    """Each channel minus its mean, over its standard deviation, of all rollouts so far; as it came before the first.

    The paper's RGB agent reads its images so (`running_mean_and_var.py` of its release). There the numbers change with
    every batch that is learned from; here between rollouts, so that a rollout and the learning from it see alike.
    """

    mean: torch.Tensor
    var: torch.Tensor
    rollouts: torch.Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.register_buffer("rollouts", torch.zeros(()))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Floats [..., C, H, W], of any mean and scale."""
        scale = (self.var + EPS).rsqrt()
        return image * scale[:, None, None] - (self.mean * scale)[:, None, None]

    @torch.no_grad()
    def update(self, images: torch.Tensor, average: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> None:
        """Count a rollout in: [T, B, C, H, W], floats of 0..1 or bytes; every rollout weighs the same.

        Where several processes have parts of it, `average` gives the mean over them of what each found.
        Two groups' variance from their means and variances: Chan, Golub and LeVeque (1979).
        """
        total, squares = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for step in images:  # all at once would take four times the memory of the rollout
            values = step.float() / 255.0 if step.dtype == torch.uint8 else step.float()
            total += values.mean((0, 2, 3))
            squares += (values * values).mean((0, 2, 3))
        mean, square = average(torch.stack([total, squares]) / len(images))
        var = (square - mean * mean).clamp(min=0.0)
        share = 1.0 / (self.rollouts + 1.0)
        apart = mean - self.mean
        first = self.rollouts == 0
        kept = torch.where(first, torch.zeros_like(var), self.var)
        self.var.copy_(kept + share * (var - kept) + torch.where(first, 0.0, share * (1.0 - share)) * apart * apart)
        self.mean.add_(share * apart)
        self.rollouts.add_(1.0)
