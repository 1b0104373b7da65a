"""The protocol of everything that acts in an environment."""

from __future__ import annotations

from typing import Protocol

import torch


class Agent(Protocol):
    """What plays: a trained policy or one of `batchnav.agents.registry`."""

    def reset(self, num_envs: int) -> None:
        """Forget everything, for so many environments."""
        ...

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Observations and the bool [N] mask of first observations of an episode -> actions i64 [N], or f32 [N, 2]."""
        ...
