"""Imitation of an expert while the policy learns: kickstarting (Schmitt et al. 2018, arXiv:1803.03835)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from batchnav.learning.config import ImitationConfig


class Imitation(NamedTuple):
    """An expert, and the settings of its loss: coef * `imitation_loss` is added to the loss of each optimiser step.

    The policy chooses the actions in the environment; the expert only labels the observations of the rollout.
    `UpdateStats` reports PPO's loss without this term.
    """

    expert: Callable[[dict[str, torch.Tensor], torch.Tensor], torch.Tensor]
    """Function from observations [N, ...], by the names that the policy reads, and episode starts bool [N] to the
    expert's actions: i64 [N], or f32 [N, A] for a Box. It keeps no state between steps, since the policy
    acts. It must not synchronise with the device, since a CUDA graph may record it."""
    config: ImitationConfig
    """Coefficient and schedule."""

    def coef(self, progress: float) -> float:
        """Coefficient of the imitation loss at this progress of the run, 0 to 1."""
        if self.config.schedule == "constant":
            return self.config.coef
        return self.config.coef * max(1.0 - progress, 0.0)
