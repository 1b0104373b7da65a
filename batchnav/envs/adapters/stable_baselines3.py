"""Adapters to and from Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from batchnav.envs.adapters.observations import check_actions, check_autoreset, episode_metrics, with_discrete
from batchnav.errors import ArgumentError
from batchnav.runtime.conversion import check_torch
from batchnav.runtime.imports import needs_extra
from batchnav.types import VecEnv

with needs_extra("adapters", "adapter to Stable-Baselines3", "stable-baselines3"):
    from stable_baselines3.common import vec_env
    from stable_baselines3.common.monitor import Monitor


class SB3VecEnv(vec_env.VecEnv):
    """A batchnav environment for the algorithms of Stable-Baselines3: NumPy in, NumPy out.

        model = PPO("MlpPolicy", SB3VecEnv(CartPoleEnv(num_envs=32)))

    Returned arrays are copies, since the algorithms keep references. Integer observations such as "objectgoal" have a
    `Discrete` space, which policies read as one-hot vectors. `infos[i]` of an ended episode holds its metrics
    in "episode" ("r" is the return, "l" the length), and "is_success" if the task has a success metric. It also holds
    "terminal_observation" and "TimeLimit.truncated" if the environment returns final observations
    (`NavEnv(final_observation=True)`). Without final observations there is no value to bootstrap from, so a truncated
    episode counts as terminated.

    ArgumentError for calls that address single environments of the batch.
    """

    def __init__(self, env: VecEnv):
        """Take ownership of `env`: the adapter closes it."""
        check_autoreset(env)
        check_actions(env)
        self.env = env
        super().__init__(env.num_envs, with_discrete(env.single_observation_space), env.single_action_space)

    def reset(self) -> Any:
        """Begin new episodes. The first seed set by `seed` applies to the whole batch."""
        observation, _ = self.env.reset(seed=self._seeds[0])
        check_torch(observation)
        self._reset_seeds()
        return _to_numpy(observation)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions, [N] or of a Box [N, A], for `step_wait`."""
        dtype = torch.float32 if isinstance(self.action_space, spaces.Box) else torch.int64
        self._actions = torch.as_tensor(actions, dtype=dtype, device=self.env.device)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict]]:
        """Observation, reward f32 [N], ended bool [N], and one info dict per environment."""
        observation, reward, terminated, truncated, info = self.env.step(self._actions)
        ended = _to_numpy(terminated | truncated)
        infos: list[dict] = [{} for _ in range(self.num_envs)]
        if ended.any():
            self._write_infos(infos, ended.nonzero()[0], _to_numpy(truncated & ~terminated), info)
        return _to_numpy(observation), _to_numpy(reward), ended, infos

    def _write_infos(self, infos: list[dict], ended: np.ndarray, out_of_time: np.ndarray, info: Mapping) -> None:
        """Write metrics and final observations of the episodes that ended."""
        figures = _to_numpy(episode_metrics(info))
        final = _to_numpy(info["final_obs"]) if "final_obs" in info else None
        for i in ended:
            episode = {name: float(values[i]) for name, values in figures.items()}
            infos[i]["episode"] = {**episode, "r": episode["return"], "l": episode["steps"]}
            if "success" in episode:
                infos[i]["is_success"] = bool(episode["success"])
            if final is not None:
                own = {name: value[i] for name, value in final.items()} if isinstance(final, dict) else final[i]
                infos[i] |= {"terminal_observation": own, "TimeLimit.truncated": bool(out_of_time[i])}

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Attribute of the batched environment, once per index."""
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """ArgumentError: environments of the batch cannot be addressed singly."""
        raise ArgumentError(f"set_attr: found {attr_name!r}, expected it to be set on the batched environment")

    def env_method(self, method_name: str, *method_args, indices: Any = None, **method_kwargs) -> list[Any]:
        """Call a method of the batched environment once; its result is repeated for each index.

        ArgumentError for some of the indices: environments of the batch cannot be addressed singly.
        """
        chosen = list(self._get_indices(indices))
        if len(set(chosen)) != self.num_envs:
            raise ArgumentError(
                f"env_method: found {method_name!r} for {len(chosen)} of {self.num_envs} environments, expected "
                "indices=None; the batch is one environment"
            )
        return [getattr(self.env, method_name)(*method_args, **method_kwargs)] * len(chosen)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """True for `Monitor`, whose returns and lengths the adapter reports; False for other wrappers."""
        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))

    def get_images(self) -> list[np.ndarray | None]:
        """Images of each agent with its map, u8 [H, W, 3], of an environment with render_mode="rgb_array"."""
        (render,) = self.get_attr("render", 0)  # a member of Gymnasium's interface that `VecEnv` lacks
        return list(render())


class GymnasiumFromSB3(VectorEnv):
    """A `gymnasium.vector.VectorEnv` around a Stable-Baselines3 `VecEnv`, for `FromGymnasium`.

        env = FromGymnasium(GymnasiumFromSB3(SubprocVecEnv([make] * 8)))

    NumPy in, NumPy out, SAME_STEP autoreset. `terminal_observation` becomes "final_obs". `TimeLimit.truncated` decides
    between truncated and terminated, since Stable-Baselines3 has one flag for both.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, env: vec_env.VecEnv):
        """Take ownership of `env`: the adapter closes it."""
        self.env, self.num_envs = env, env.num_envs
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin new episodes: observation, {}. Without a seed the random number generators continue."""
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
        """Close the environments; `close` calls it once."""
        self.env.close()


def _to_numpy(value: Any) -> Any:
    """Copies of a tensor or of a dict of tensors, as NumPy arrays."""
    if isinstance(value, Mapping):
        return {name: _to_numpy(each) for name, each in value.items()}
    return value.to("cpu", copy=True).numpy()
