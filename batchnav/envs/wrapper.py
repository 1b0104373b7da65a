"""A wrapper around an environment: override `step` or `reset`, and the learner sees what they return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from batchnav.types import Observation, VecEnv


class Wrapper:
    """A `batchnav.types.VecEnv` that does what `env` does.

    class Shaped(Wrapper):
        def step(self, actions):
            observation, reward, *rest = self.env.step(actions)
            return observation, reward + bonus(observation), *rest

    Where the environment is `capturable`, what is added must be too: operations on tensors, no look at their values.
    """

    def __init__(self, env: VecEnv):
        self.env = env
        self.num_envs, self.device, self.storage = env.num_envs, env.device, env.storage
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space

    @property
    def capturable(self) -> bool:
        """As of the environment."""
        return self.env.capturable

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Mapping]:
        """As of the environment."""
        return self.env.reset(seed=seed, options=options)

    def observe_into(self, out: Observation | None) -> None:
        """As of the environment."""
        self.env.observe_into(out)

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """As of the environment."""
        return self.env.step(actions)

    def settle(self) -> None:
        """As of the environment."""
        self.env.settle()

    def between_rollouts(self) -> dict[str, float]:
        """As of the environment."""
        return self.env.between_rollouts()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """As of the environment."""
        return self.env.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """As of the environment."""
        self.env.load_state_dict(state)

    def close(self) -> None:
        """As of the environment."""
        self.env.close()
