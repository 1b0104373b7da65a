"""Adapter to skrl."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from batchnav.envs.adapters.observations import check_autoreset, episode_metrics, num_actions, with_discrete
from batchnav.runtime.conversion import check_torch
from batchnav.runtime.imports import needs_extra
from batchnav.types import VecEnv

with needs_extra("adapters", "adapter to skrl", "skrl"):
    from skrl.envs.wrappers.torch import Wrapper
    from skrl.utils.spaces.torch import flatten_tensorized_space, tensorize_space


class SkrlEnv(Wrapper):
    """A batchnav environment for skrl's agents and trainers, on the environment's device.

        agent = PPO(models=..., memory=..., cfg=..., device=env.device,
                    observation_space=env.observation_space, action_space=env.action_space)
        SequentialTrainer(env=env, agents=agent, cfg={"timesteps": 1000}).train()

    Observations are copies f32 [N, sum of all sizes], flattened as skrl's models expect (`unflatten_tensorized_space`);
    integers such as "objectgoal" have a `Discrete` space, which skrl's models read as one-hot vectors;
    actions i64 [N, 1]; reward and flags [N, 1]. A step limit sets `truncated` only if the episode did not also
    terminate. infos["episode"] holds means over the episodes that ended in this step, which the trainer logs.

    For environments with autoreset, skrl uses the first observation of the next episode as successor of the last
    observation. With `time_limit_bootstrap=True` PPO therefore bootstraps from the value of that first observation;
    without it, advantages are summed across truncations. The number of environments must be at least 2: skrl expects a
    single environment without autoreset.
    """

    def __init__(self, env: VecEnv):
        """Take ownership of `env`: the adapter closes it."""
        check_autoreset(env)
        num_actions(env)  # ArgumentError for continuous actions
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one environment."""
        return with_discrete(self._env.single_observation_space)

    @property
    def action_space(self) -> spaces.Space:
        """Space of one environment."""
        return self._env.single_action_space

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin new episodes: observation, {}."""
        observation, _ = self._env.reset()
        check_torch(observation)
        return self._flat(observation), {}

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """Actions [N, 1] -> observation, reward f32 [N, 1], terminated and truncated bool [N, 1], infos."""
        observation, reward, terminated, truncated, info = self._env.step(actions.flatten().to(torch.int64))
        ended, infos = terminated | truncated, {}
        if ended.any():
            infos["episode"] = {name: values[ended].mean() for name, values in episode_metrics(info).items()}
        out_of_time = truncated & ~terminated
        return (
            self._flat(observation), reward.unsqueeze(1).clone(), terminated.unsqueeze(1).clone(),
            out_of_time.unsqueeze(1), infos,
        )  # fmt: skip

    def state(self) -> None:
        """None: the critic has the same input as the actor."""
        return None

    def render(self, *args, **kwargs) -> None:
        """No effect. skrl's trainers call it in each step unless they are `headless`."""

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _flat(self, observation: Any) -> torch.Tensor:
        flat = flatten_tensorized_space(tensorize_space(self.observation_space, observation))
        return flat.to(torch.float32, copy=True)
