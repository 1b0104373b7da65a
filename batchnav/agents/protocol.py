"""The protocol of everything that acts in an environment."""

from __future__ import annotations

from typing import Protocol

import torch


class Agent(Protocol):
    """Chooses the actions of N environments: a trained policy or an agent of `batchnav.agents.registry`."""

    def reset(self, num_envs: int) -> None:
        """Clear all state; the next observations are the first of `num_envs` episodes."""
        ...

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions of all environments: i64 [N] (discrete body), or f32 [N, 2] in -1..1 (velocity control).

        Args:
            observations: [N, ...] by name.
            episode_start: bool [N], True where the observation is the first of an episode.
        """
        ...
