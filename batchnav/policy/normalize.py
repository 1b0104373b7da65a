"""Normalisation of images by the running mean and variance of each channel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

EPS = 1e-5
"""Added to variances before their square root."""


class RunningNorm(nn.Module):
    """Normalisation of images by each channel's mean and standard deviation over all rollouts so far.

    Before the first rollout images stay unchanged, apart from EPS.

    The paper's RGB agent normalises its images (`running_mean_and_var.py` of its release). Its statistics change with
    every minibatch; here they change between rollouts, so that a rollout and the learning from it read equal images.
    """

    mean: torch.Tensor
    """Mean of each channel, f32 [C]."""
    var: torch.Tensor
    """Variance of each channel, f32 [C]."""
    rollouts: torch.Tensor
    """Number of rollouts counted, f32 scalar."""

    def __init__(self, channels: int):
        super().__init__()
        device = torch.get_default_device()
        self.register_buffer("mean", torch.zeros(channels, dtype=torch.float32, device=device))
        self.register_buffer("var", torch.ones(channels, dtype=torch.float32, device=device))
        self.register_buffer("rollouts", torch.zeros((), dtype=torch.float32, device=device))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Normalised images [..., C, H, W] for images of floats."""
        scale = (self.var + EPS).rsqrt()
        return image * scale[:, None, None] - (self.mean * scale)[:, None, None]

    @torch.no_grad()
    def update(self, images: torch.Tensor, average: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> None:
        """Update the statistics with a rollout; all rollouts have equal weight.

        Means and variances of rollouts are combined by the formula of Chan, Golub and LeVeque (1979).

        Args:
            images: [T, B, C, H, W], floats in 0..1 or bytes.
            average: mean of a tensor over the processes that train together.
        """
        total, squares = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for step in images:  # all steps at once would take four times the memory of the rollout
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
