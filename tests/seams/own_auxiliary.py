"""Inverse dynamics: a toy of the seam `policy.AUXILIARY`, in a file outside the package."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.config import bounded
from batchnav.policy import AUXILIARY
from batchnav.policy.auxiliary import Auxiliary, AuxiliaryConfig


class InverseDynamics(Auxiliary):
    """Which action led from one step to the next (Pathak et al., ICML 2017), for discrete actions."""

    @dataclass(frozen=True)
    class Config(AuxiliaryConfig):
        """Settings of the loss."""

        hidden: int = bounded(16, 1, 1024)
        """Width of the layer inside."""

    def __init__(self, width, actions, settings):
        super().__init__(width, actions, settings)
        hidden, outputs = settings.hidden, actions.num_outputs
        self.layers = nn.Sequential(nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def loss(self, steps):
        """Cross-entropy of the actions inside episodes."""
        logits = self.layers(torch.cat([steps.memory[:-1], steps.memory[1:]], dim=-1))
        inside = (~steps.starts[1:]).float()
        wrong = F.cross_entropy(logits.flatten(0, 1).float(), steps.actions[:-1].flatten(), reduction="none")
        loss = (wrong * inside.flatten()).sum() / inside.sum().clamp(min=1.0)
        return loss, {}


AUXILIARY["inverse"] = InverseDynamics
