"""What `gymnasium.make` makes: one environment in NumPy, a batch of one."""

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
    """The only environment of a `gymnasium.vector.VectorEnv` on NumPy arrays.

    Its episodes do not begin by themselves: `reset` begins the next one. An ended episode's metrics are in info.
    ArgumentError for every call after `close`.
    """

    def __init__(self, env: GymnasiumNav | GymnasiumCartPole):
        self.vector, self.render_mode = env, env.render_mode
        self.metadata = {name: env.metadata[name] for name in ("render_modes", "render_fps") if name in env.metadata}
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self._begun = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin an episode: the next one, or with a seed the seed's first."""
        super().reset(seed=seed)
        if options:
            raise ArgumentError(f"options: found {', '.join(map(str, options))}, expected none")
        observation, _ = self.vector.reset(seed=seed)
        self._begun = True
        return _first(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """One step."""
        check_open(self.vector)
        if not self._begun:
            raise ArgumentError("step: found an environment that was never reset, expected reset() before it")
        observation, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        over, final = bool(terminated[0] or truncated[0]), {}
        if over:
            observation = info.get("final_obs", observation)
            final = {name: float(v[0]) for name, v in info.get("final_info", info).items() if not name.startswith("_")}
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), final

    def render(self) -> np.ndarray | None:
        """What the agent sees, beside its map: u8 [H, W, 3]."""
        check_open(self.vector)
        return self.vector.render()[0] if isinstance(self.vector, GymnasiumNav) and self.render_mode else None

    def close(self) -> None:
        """Free what it holds."""
        self.vector.close()


def make_nav(**options: Any) -> SingleEnv:
    """One navigation environment; the options are those of `vector.make_nav` but for what makes it single."""
    mode = AutoresetMode.DISABLED
    return SingleEnv(vector.make_nav(1, **options, output="numpy", autoreset_mode=mode))


def make_cartpole(**options: Any) -> SingleEnv:
    """One CartPole."""
    return SingleEnv(vector.make_cartpole(1, **options, output="numpy"))


def _first(value: Any) -> Any:
    """The only row of an array, or of those in a dict."""
    return {name: part[0] for name, part in value.items()} if isinstance(value, dict) else value[0]
