"""A wrapper around an environment, for changed rewards, observations or resets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from batchnav.runtime.conversion import vec_env
from batchnav.types import Observation, VecEnv


class Wrapper:
    """A `batchnav.types.VecEnv` that forwards every call to `env`. Subclasses override `step` or `reset`.

    `env` may be in wrappers of Gymnasium (`gymnasium.vector.VectorWrapper`); ArgumentError for other environments.

    class Shaped(Wrapper):
        def step(self, actions):
            observation, reward, *rest = self.env.step(actions)
            return observation, reward + bonus(observation), *rest

    If `env` is `capturable`, overrides must be as well: tensor operations without reading values on the host.
    """

    def __init__(self, env: VecEnv):
        self.env = env = vec_env(env)
        self.num_envs, self.device, self.storage = env.num_envs, env.device, env.storage
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space

    def __getattr__(self, name: str) -> Any:
        """Members of `env` beyond the protocol, such as `action_space`, `task` and `config`."""
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def capturable(self) -> bool:
        """True where a CUDA graph can hold a step of `env`."""
        return self.env.capturable

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Mapping]:
        """Reset `env`."""
        return self.env.reset(seed=seed, options=options)

    def observe_into(self, out: Observation | None) -> None:
        """Set the tensors that `env` writes its observations into."""
        self.env.observe_into(out)

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """Step `env`."""
        return self.env.step(actions)

    def observe_again(self) -> Observation:
        """The observations of `env` that follow from its state."""
        return self.env.observe_again()

    def settle(self) -> None:
        """Make torch's current stream wait for the other streams of `env`."""
        self.env.settle()

    def between_rollouts(self) -> dict[str, float]:
        """Host work of `env` between rollouts."""
        return self.env.between_rollouts()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The state of `env`."""
        return self.env.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue `env` from a state."""
        self.env.load_state_dict(state)

    def close(self) -> None:
        """Close `env`."""
        self.env.close()
