"""Adapter to rsl_rl, and the action distribution that its actors need for discrete actions."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import OneHotCategorical, kl_divergence
from torch.nn.functional import one_hot

from batchnav.envs.adapters.observations import by_name, categories_of, check_autoreset, episode_metrics, num_actions
from batchnav.errors import ArgumentError
from batchnav.runtime.conversion import check_torch
from batchnav.runtime.imports import needs_extra
from batchnav.types import VecEnv

with needs_extra("adapters", "adapter to rsl_rl", "rsl-rl-lib"):
    from rsl_rl.env import VecEnv as RslRlVecEnv
    from rsl_rl.modules.distribution import Distribution
    from tensordict import TensorDict


class RslRlEnv(RslRlVecEnv):
    """A batchnav environment for rsl_rl's runners, on the environment's device.

        runner = OnPolicyRunner(RslRlEnv(CartPoleEnv(num_envs=64), max_episode_length=500), config)

    Observation groups have the names of the observations ("observation" for a single tensor). Observations are copies;
    bytes are scaled to f32 in 0..1, and integers such as "objectgoal" become one-hot vectors f32 [N, values]. Actions
    are f32 [N, number of actions], of which the largest entry is executed; use `OneHotActions` as the actor's
    distribution to sample them. extras["time_outs"] is True where an episode was truncated: rsl_rl then bootstraps from
    the value of the observation before the step. extras["log"] holds the metrics of the episodes that ended in this
    step.
    """

    def __init__(self, env: VecEnv, max_episode_length: int, cfg: dict | None = None):
        """Take ownership of `env`, and reset it.

        Args:
            env: a batchnav environment.
            max_episode_length: step limit of an episode, which rsl_rl requires.
            cfg: settings of the environment for rsl_rl's logs.
        """
        check_autoreset(env)
        self.env, self.num_envs, self.device = env, env.num_envs, env.device
        self.num_actions, self.max_episode_length = num_actions(env), max_episode_length
        self.cfg, self._categories = cfg or {}, categories_of(env.single_observation_space)
        self._steps = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        observation, _ = env.reset()
        check_torch(observation)
        self._keep(observation)

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """i64 [N]: steps of each running episode."""
        return self._steps

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        """ArgumentError: `learn(init_at_random_ep_len=True)` is not supported."""
        raise ArgumentError("episode_length_buf: found lengths to set, expected init_at_random_ep_len=False")

    def get_observations(self) -> TensorDict:
        """The current observations."""
        return self._observations.clone()

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """f32 [N, number of actions] -> observations, reward f32 [N], ended bool [N], extras."""
        observation, reward, terminated, truncated, info = self.env.step(actions.argmax(1))
        ended = terminated | truncated
        self._steps += 1
        self._steps.masked_fill_(ended, 0)
        self._keep(observation)
        log = {name: values[ended] for name, values in episode_metrics(info).items()}
        extras = {"time_outs": truncated & ~terminated, "log": log}
        return self.get_observations(), reward.clone(), ended, extras

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _keep(self, observation: Any) -> None:
        tensors = {name: self._as_floats(name, tensor) for name, tensor in by_name(observation).items()}
        self._observations = TensorDict(tensors, batch_size=[self.num_envs], device=self.device)

    def _as_floats(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of an observation as rsl_rl's networks read it."""
        if name in self._categories:
            return one_hot(tensor.long(), self._categories[name]).float()
        return tensor.float() / 255.0 if tensor.dtype == torch.uint8 else tensor.clone()


class OneHotActions(Distribution):
    """Categorical distribution over one-hot actions: `distribution_cfg={"class_name": OneHotActions}`."""

    def update(self, mlp_output: torch.Tensor) -> None:
        """Set the logits, f32 [N, A]."""
        self._now = OneHotCategorical(logits=mlp_output, validate_args=False)

    def sample(self) -> torch.Tensor:
        """Sampled one-hot actions, f32 [N, A]."""
        return self._now.sample()

    def deterministic_output(self, mlp_output: torch.Tensor) -> torch.Tensor:
        """The logits, whose largest entry belongs to the most probable action."""
        return mlp_output

    def as_deterministic_output_module(self) -> torch.nn.Module:
        """`deterministic_output` as a module, for export."""
        return torch.nn.Identity()

    @property
    def input_dim(self) -> int:
        """The number of logits."""
        return self.output_dim

    @property
    def mean(self) -> torch.Tensor:
        """Probabilities [N, A]."""
        return self._now.mean

    @property
    def std(self) -> torch.Tensor:
        """Standard deviations [N, A]."""
        return self._now.stddev

    @property
    def entropy(self) -> torch.Tensor:
        """Entropy in nats, [N]."""
        return self._now.entropy()

    @property
    def params(self) -> tuple[torch.Tensor, ...]:
        """(logits [N, A],)."""
        return (self._now.logits,)

    def log_prob(self, outputs: torch.Tensor) -> torch.Tensor:
        """Log-probability [N] of one-hot actions [N, A]."""
        return self._now.log_prob(outputs)

    def kl_divergence(self, old_params: tuple[torch.Tensor, ...], new_params: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """KL(old || new), [N]."""
        old, new = (OneHotCategorical(logits=logits, validate_args=False) for (logits,) in (old_params, new_params))
        return kl_divergence(old, new)
