"""Ours as a Stable-Baselines3 `VecEnv`, and theirs as a `gymnasium.vector.VectorEnv`, which `FromGymnasium` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from stable_baselines3.common import vec_env
from stable_baselines3.common.monitor import Monitor

from batchnav.envs.adapters.observations import check_autoreset, figures_of, num_actions
from batchnav.errors import ArgumentError
from batchnav.runtime.conversion import check_torch
from batchnav.types import VecEnv


class SB3VecEnv(vec_env.VecEnv):
    """Our environments for Stable-Baselines3's algorithms: NumPy in, NumPy out.

        model = PPO("MlpPolicy", SB3VecEnv(CartPoleEnv(num_envs=32)))

    What is returned is a copy, as the algorithms keep references. Where an episode ended, `infos[i]` has its figures in
    "episode" ("r" its return, "l" its length, and all that the task measures), "is_success" where the task says so, and
    "terminal_observation" and "TimeLimit.truncated" where the environment gives final observations
    (`NavEnv(final_observation=True)`). Without them nothing could be bootstrapped from at an end by time, so it counts
    as an end like any other.

    ArgumentError for what is done to single environments: here they are one.
    """

    def __init__(self, env: VecEnv):
        """`env`: belongs to this one, which closes it."""
        check_autoreset(env)
        num_actions(env)  # those of a Box are not handed on
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        """Start all episodes anew, with the first of the seeds that `seed` gave; the other environments' follow."""
        observation, _ = self.env.reset(seed=self._seeds[0])
        check_torch(observation)
        self._reset_seeds()
        return _to_numpy(observation)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions [N] for `step_wait`."""
        self._actions = torch.as_tensor(actions, dtype=torch.int64, device=self.env.device)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict]]:
        """Observation, reward f32 [N], ended bool [N], and a dict of its own for each environment."""
        observation, reward, terminated, truncated, info = self.env.step(self._actions)
        ended = _to_numpy(terminated | truncated)
        infos: list[dict] = [{} for _ in range(self.num_envs)]
        if ended.any():
            self._tell(infos, ended.nonzero()[0], _to_numpy(truncated & ~terminated), info)
        return _to_numpy(observation), _to_numpy(reward), ended, infos

    def _tell(self, infos: list[dict], ended: np.ndarray, out_of_time: np.ndarray, info: Mapping) -> None:
        """Write what is known of the episodes that ended."""
        figures = _to_numpy(figures_of(info))
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
        """The environment's attribute, for each index."""
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """ArgumentError: single environments have none."""
        raise ArgumentError(f"set_attr: found {attr_name!r}, expected it to be set on the batched environment")

    def env_method(self, method_name: str, *method_args, indices: Any = None, **method_kwargs) -> list[Any]:
        """ArgumentError: single environments have none."""
        raise ArgumentError(f"env_method: found {method_name!r}, expected a call of the batched environment's")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Whether each does what `wrapper_class` does: true of `Monitor`, since returns and lengths are reported."""
        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))

    def get_images(self) -> list[np.ndarray | None]:
        """What each agent sees beside its map, u8 [H, W, 3], of an environment made with render_mode="rgb_array"."""
        (render,) = self.get_attr("render", 0)  # Gymnasium's: the learner asks for none
        return list(render())


class GymnasiumFromSB3(VectorEnv):
    """The same environments with Gymnasium's names: NumPy in, NumPy out, SAME_STEP autoreset.

        env = FromGymnasium(GymnasiumFromSB3(SubprocVecEnv([make] * 8)))

    Its `terminal_observation` is "final_obs" here, and its `TimeLimit.truncated` says whether an episode was truncated;
    one flag for an end cannot tell when both hold.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, env: vec_env.VecEnv):
        """`env`: belongs to this one, which closes it."""
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


def _to_numpy(value: Any) -> Any:
    """A tensor, or a dict of them, as arrays of their own."""
    if isinstance(value, Mapping):
        return {name: _to_numpy(each) for name, each in value.items()}
    return value.to("cpu", copy=True).numpy()
