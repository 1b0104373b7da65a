"""Kickstarting: the policy imitates a teacher too, wherever it goes itself, less and less (Schmitt et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from batchnav.ppo.config import KickstartConfig


class Kickstart(NamedTuple):
    """A teacher, and how much its actions count: coef * -log pi(teacher's action) is added to the loss of a step.

    What `UpdateStats` calls the loss is PPO's alone.
    """

    teacher: Callable[[dict[str, torch.Tensor], torch.Tensor], torch.Tensor]
    """What it would do, i64 [N] (or f32 [N, A] of a Box), as a function of the observations [N, ...] by name that the
    policy reads and bool [N], set where an episode begins. It remembers nothing, since others act, and waits for
    nothing on the device, since a CUDA graph may replay it."""
    config: KickstartConfig

    def coef(self, progress: float) -> float:
        """The coefficient, after this share of the run: falls linearly, and is 0 from `config.share` on."""
        return self.config.coef * max(1.0 - progress / self.config.share, 0.0)
