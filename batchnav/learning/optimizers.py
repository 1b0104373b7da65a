"""Optimisers by name, for `PPOConfig.optimizer`."""

from __future__ import annotations

import torch

from batchnav.learning.config import PPOConfig
from batchnav.learning.lamb import Lamb
from batchnav.policy.actor_critic import ActorCritic

EPS = 1e-5
"""Adam's and LAMB's epsilon, as in the paper's release."""


def kind_of(kept: dict[str, torch.Tensor]) -> str:
    """Name of the optimiser that a parameter's state belongs to."""
    return "lamb" if "num_steps" in kept else "adamw"


def make_optimizer(policy: ActorCritic, config: PPOConfig, lr: torch.Tensor) -> torch.optim.Optimizer:
    """The configured optimiser, which reads the learning rate from the tensor `lr`."""
    if config.optimizer == "lamb":
        return Lamb(policy.named_parameters(), lr, eps=EPS, weight_decay=config.weight_decay)
    return torch.optim.AdamW(
        policy.parameters(), lr, eps=EPS, weight_decay=config.weight_decay, fused=True, capturable=lr.is_cuda
    )
