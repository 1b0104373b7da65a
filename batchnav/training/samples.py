"""Samples of a rollout for TensorBoard: observed images, and distributions of values, advantages and actions."""

from __future__ import annotations

import numpy as np
import torch

from batchnav.learning.rollout import Rollout

AGENTS = 8
"""Number of environments whose images are shown, in one row."""


def observed_images(rollout: Rollout) -> dict[str, np.ndarray]:
    """Latest images of the first AGENTS environments in one row, u8 [C, H, AGENTS * W] by observation.

    Only images with one or three channels; floats are scaled from 0..1 to 0..255.
    """
    found = {}
    for name, steps in rollout.obs.items():
        images = steps[-1][:AGENTS]
        if images.dim() == 4 and images.shape[1] in (1, 3) and images.dtype != torch.int32:  # int32 images hold ids
            row = torch.cat(list(images.float() * (1 if images.dtype == torch.uint8 else 255)), dim=-1)
            found[name] = row.clamp(0, 255).byte().cpu().numpy()
    return found


def distributions(rollout: Rollout) -> dict[str, np.ndarray]:
    """Values, advantages and actions of a rollout, f32 [n] by name, for histograms."""
    whole = {"value": rollout.value, "advantage": rollout.advantage, "action": rollout.action}
    return {name: tensor.detach().float().flatten().cpu().numpy() for name, tensor in whole.items()}
