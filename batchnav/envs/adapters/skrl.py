"""Ours as skrl's environments."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from skrl.envs.wrappers.torch import Wrapper
from skrl.utils.spaces.torch import flatten_tensorized_space, tensorize_space

from batchnav.envs.adapters.observations import check_autoreset, figures_of, num_actions
from batchnav.runtime.conversion import check_torch
from batchnav.types import VecEnv


class SkrlEnv(Wrapper):
    """Our environments for skrl's agents and trainers, on the environment's device.

        agent = PPO(models=..., memory=..., cfg=..., device=env.device,
                    observation_space=env.observation_space, action_space=env.action_space)
        SequentialTrainer(env=env, agents=agent, cfg={"timesteps": 1000}).train()

    Observations f32 [N, the sum of all sizes], as skrl flattens them (`unflatten_tensorized_space` of its models undoes
    it), copied; actions i64 [N, 1]; reward and flags [N, 1]. An end by time is truncated, and not terminated where both
    hold. infos["episode"] has means over the episodes that just ended, which the trainer logs.

    After an end, skrl takes the next episode's first observation for the last one's successor, with every environment
    that resets itself. With `time_limit_bootstrap=True` PPO so adds its value, which is near where episodes begin
    alike; without, it sums advantages across an end by time. Two environments at least: of a single one skrl expects
    that it does not reset itself.
    """

    def __init__(self, env: VecEnv):
        """`env`: belongs to this one, which closes it."""
        check_autoreset(env)
        num_actions(env)  # those of a Box are not handed on
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Space:
        """Of one environment."""
        return self._env.single_observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Of one environment."""
        return self._env.single_action_space

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Start all episodes anew: observation, {}."""
        observation, _ = self._env.reset()
        check_torch(observation)
        return self._flat(observation), {}

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """Actions [N, 1] -> observation, reward f32 [N, 1], terminated and truncated bool [N, 1], infos."""
        observation, reward, terminated, truncated, info = self._env.step(actions.flatten().to(torch.int64))
        ended, infos = terminated | truncated, {}
        if ended.any():
            infos["episode"] = {name: values[ended].mean() for name, values in figures_of(info).items()}
        out_of_time = truncated & ~terminated
        return (
            self._flat(observation), reward.unsqueeze(1).clone(), terminated.unsqueeze(1).clone(),
            out_of_time.unsqueeze(1), infos,
        )  # fmt: skip

    def state(self) -> None:
        """None: critics see what actors see."""
        return None

    def render(self, *args, **kwargs) -> None:
        """Nothing: skrl's trainers call it at every step unless they are told to be `headless`."""

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _flat(self, observation: Any) -> torch.Tensor:
        return flatten_tensorized_space(tensorize_space(self.observation_space, observation)).clone()
