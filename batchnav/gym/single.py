"""Environments of `gymnasium.make`: a batch of one, in NumPy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from batchnav.errors import ArgumentError
from batchnav.gym import vector
from batchnav.gym.vector import GymnasiumCartPole, GymnasiumNav
from batchnav.runtime.checks import check_open


class SingleEnv(gymnasium.Env):
    """A `gymnasium.Env` around a `gymnasium.vector.VectorEnv` of one environment with NumPy arrays.

    There is no autoreset: `reset` begins the next episode. Metrics of an ended episode are in info. ArgumentError for
    each call after `close`.
    """

    def __init__(self, env: GymnasiumNav | GymnasiumCartPole):
        self.vector, self.render_mode = env, env.render_mode
        self.metadata = {name: env.metadata[name] for name in ("render_modes", "render_fps") if name in env.metadata}
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self._begun = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin the next episode, or with a seed the first episode of that seed."""
        super().reset(seed=seed)
        if options:
            raise ArgumentError(f"options: found {', '.join(map(str, options))}, expected none")
        observation, _ = self.vector.reset(seed=seed)
        self._begun = True
        return _first(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Step the environment: observation, reward, terminated, truncated, info."""
        check_open(self.vector)
        if not self._begun:
            raise ArgumentError("step: found an environment that was never reset, expected a call of reset() first")
        observation, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        over, final = bool(terminated[0] or truncated[0]), {}
        if over:
            observation = info.get("final_obs", observation)
            final = {name: float(v[0]) for name, v in info.get("final_info", info).items() if not name.startswith("_")}
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), final

    def render(self) -> np.ndarray | None:
        """Images of the agent next to its map, u8 [H, W, 3]; None without a render mode."""
        check_open(self.vector)
        return self.vector.render()[0] if isinstance(self.vector, GymnasiumNav) and self.render_mode else None

    def close(self) -> None:
        """Close the vector environment."""
        self.vector.close()


def make_nav(**options: Any) -> SingleEnv:
    """One navigation environment, with the options of `batchnav.gym.vector.make_nav`."""
    mode = AutoresetMode.DISABLED
    return SingleEnv(vector.make_nav(1, **options, output="numpy", autoreset_mode=mode))


def make_cartpole(**options: Any) -> SingleEnv:
    """One CartPole environment."""
    return SingleEnv(vector.make_cartpole(1, **options, output="numpy"))


def _first(value: Any) -> Any:
    """The first row of an array, or of each array in a dict: arrays, also of a number."""
    return {name: part[0, ...] for name, part in value.items()} if isinstance(value, dict) else value[0]
