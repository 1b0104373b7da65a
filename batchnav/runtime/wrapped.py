"""Environments in Gymnasium's wrappers, as the learner and `envs.wrapper.Wrapper` take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.vector import VectorWrapper

from batchnav.errors import ArgumentError
from batchnav.types import VecEnv


def vec_env(env: Any) -> VecEnv:
    """The environment, or a `VecEnv` of one that Gymnasium's vector wrappers surround.

    ArgumentError for an environment that is not on torch tensors.
    """
    if isinstance(env, VectorWrapper) and hasattr(env.unwrapped, "observe_into"):
        return GymnasiumWrapped(env)
    if hasattr(env, "observe_into"):
        return env
    raise ArgumentError(
        f"env: found {type(env).__name__}, expected a batchnav.types.VecEnv; wrap an environment of Gymnasium in "
        "batchnav.envs.adapters.gymnasium_vector.FromGymnasium"
    )


class GymnasiumWrapped:
    """A `VecEnv`: steps and resets go through `gymnasium.vector.VectorWrapper`s, all else to the environment inside.

    No CUDA graph holds its steps, since wrappers may read values on the host.
    """

    capturable = False

    def __init__(self, env: VectorWrapper):
        inside = env.unwrapped
        self.env, self._inside = env, inside
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space
        space = self.single_observation_space
        named = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
        stored: Mapping[str, torch.dtype] = inside.storage  # type: ignore[attr-defined]
        self.storage: Mapping[str, torch.dtype] = {name: stored.get(name, torch.float32) for name in named}
        self.reset, self.step, self.close = env.reset, env.step, env.close

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inside, name)
