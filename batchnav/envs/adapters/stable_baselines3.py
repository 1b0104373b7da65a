"""A Stable-Baselines3 `VecEnv` as a `gymnasium.vector.VectorEnv`; `FromGymnasium` makes it one for our learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class GymnasiumFromSB3(VectorEnv):
    """The same environments with Gymnasium's names: NumPy in, NumPy out, SAME_STEP autoreset.

        env = FromGymnasium(GymnasiumFromSB3(SubprocVecEnv([make] * 8)))

    Stable-Baselines3 itself need not be installed for the import. Its `terminal_observation` is "final_obs" here, and
    its `TimeLimit.truncated` says whether an episode was truncated; one flag for an end cannot tell when both hold.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, env: Any):
        """`env`: a `stable_baselines3.common.vec_env.VecEnv`; belongs to this one, which closes it."""
        self.env, self.num_envs = env, env.num_envs
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start all episodes anew: observation, {}. Without a seed the random numbers go on."""
        if seed is not None:
            self.env.seed(seed)
        return self.env.reset(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict]:
        """i64 [N] -> observation, reward f32 [N], terminated bool [N], truncated bool [N], info with "final_obs"."""
        observation, reward, ended, infos = self.env.step(actions)
        truncated = ended & np.array([info.get("TimeLimit.truncated", False) for info in infos])
        final = np.full(self.num_envs, None, object)
        for i in ended.nonzero()[0]:
            final[i] = infos[i]["terminal_observation"]
        return observation, reward, ended & ~truncated, truncated, {"final_obs": final, "_final_obs": ended}

    def close_extras(self, **kwargs) -> None:
        """Close the environments; `close` calls it, once."""
        self.env.close()
