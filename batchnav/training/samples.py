"""What a run shows of itself beside its curves: pictures of what agents see, and how values and actions are spread."""

from __future__ import annotations

import numpy as np
import torch

from batchnav.ppo.rollout import Rollout

AGENTS = 8
"""Whose pictures are shown, side by side."""


def pictures(rollout: Rollout) -> dict[str, np.ndarray]:
    """The last observations of one or three channels: u8 [C, H, AGENTS W] by name; floats from 0 to 1."""
    found = {}
    for name, slots in rollout.obs.items():
        images = slots[-1][:AGENTS]
        if images.dim() == 4 and images.shape[1] in (1, 3) and images.dtype != torch.int32:  # an id is no brightness
            row = torch.cat(list(images.float() * (1 if images.dtype == torch.uint8 else 255)), dim=-1)
            found[name] = row.clamp(0, 255).byte().cpu().numpy()
    return found


def spreads(rollout: Rollout) -> dict[str, np.ndarray]:
    """Numbers of a whole rollout, for histograms."""
    whole = {"value": rollout.value, "advantage": rollout.advantage, "action": rollout.action}
    return {name: tensor.detach().float().flatten().cpu().numpy() for name, tensor in whole.items()}
