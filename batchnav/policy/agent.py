"""`PolicyAgent`: a policy network with the memory and the previous action of each environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.memory import State
from batchnav.policy.observations import as_dict
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.kernels.arrays import is_dense, tensor_text
from batchnav.types import Observation

MAX_ENVS = 2**24
"""Largest number of environments of an agent."""
MAX_OBSERVATION = 1e9
"""Largest magnitude of a number in an observation: larger ones are a sensor's faults, from which memories suffer."""


class PolicyAgent:
    """Agent that acts by a policy in a batch of environments, and keeps memory and previous actions between calls.

        policy = batchnav.load_policy("run/policy.safetensors", device="cuda")
        policy.reset(num_envs=256)
        action = policy.act(observations)                          # first step of all episodes
        action = policy.act(observations, episode_start=ended)     # later; bool [N], set where an episode begins

    The network computes in bfloat16 on CUDA, as in training.
    """

    def __init__(self, network: ActorCritic, info: dict[str, Any] | None = None):
        """Wrap a network, which acts on its own device.

        Args:
            network: the policy; it is set to evaluation mode and its gradients are switched off.
            info: the dict that was saved with the weights.
        """
        self.network = network.eval().requires_grad_(False)
        self.info = info or {}
        self.device = next(network.parameters()).device
        self._generator = torch.Generator(self.device)
        self._state: State = None
        self._features = network.feature_memory(fixed=False)

    def __repr__(self) -> str:
        """Number of parameters, observations and device, in one line."""
        size = sum(parameter.numel() for parameter in self.network.parameters())
        return f"PolicyAgent({size:,} parameters, sees {', '.join(self.network.observation_shapes)}, on {self.device})"

    @torch.inference_mode(False)
    def reset(self, num_envs: int, seed: int = 0) -> None:
        """Start `num_envs` episodes with an empty memory; `seed` is for action sampling."""
        num_envs = check_int("num_envs", num_envs, 1, MAX_ENVS)
        self._generator.manual_seed(check_seed(seed))
        self._state = self.network.initial_state(num_envs, self.device)
        self._features = self.network.feature_memory(fixed=False)
        actions = self.network.actions
        self._prev_action = torch.zeros(num_envs, *actions.shape, dtype=actions.dtype, device=self.device)
        self._start = torch.ones(num_envs, dtype=torch.bool, device=self.device)

    @torch.no_grad()
    def act(
        self,
        observations: Observation | torch.Tensor,
        episode_start: torch.Tensor | None = None,
        deterministic: bool = False,
    ) -> torch.Tensor:
        """Choose an action for each environment.

        Args:
            observations: tensors or arrays [N, ...] by name, or one tensor for an unnamed observation. NaN, numbers
                beyond MAX_OBSERVATION and integers out of range are an ArgumentError on the CPU. CUDA does not check
                them, to avoid a host synchronisation: after NaN an agent takes the first action until its episode ends.
            episode_start: bool [N], set where these observations begin an episode; None: nowhere (everywhere at the
                first call after `reset`).
            deterministic: take the mode of the action distribution. By default actions are sampled, as in Habitat's
                evaluation, which frees an agent that would otherwise repeat an action against a wall.

        Returns:
            i64 [N], or f32 [N, A] of a Box, on the policy's device.
        """
        if self._state is None:
            raise ArgumentError("act: found no memory, expected reset(num_envs) to be called first")
        obs = self._checked(as_dict(observations))
        num_envs = len(self._start)
        if episode_start is not None:
            episode_start = self._tensor("episode_start", episode_start)
            if episode_start.shape != (num_envs,) or episode_start.dtype != torch.bool:
                raise ArgumentError(
                    f"episode_start: found {episode_start.dtype} {list(episode_start.shape)}, "
                    f"expected torch.bool [{num_envs}]"
                )
            self._start = self._start | episode_start
        uniforms = None
        if not deterministic:
            shape = self.network.actions.shape
            uniforms = torch.rand(num_envs, *shape, generator=self._generator, dtype=torch.float32, device=self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            obs = self.network.with_features(obs, self._features)
            act = self.network.act(obs, self._prev_action, self._start, self._state, uniforms)
        self._state, self._prev_action = act.state, act.action
        self._start = torch.zeros_like(self._start)
        return act.action

    def _tensor(self, name: str, value: Any) -> torch.Tensor:
        """A tensor, array or list on the policy's device. ArgumentError for anything else, with `name` in it."""
        if isinstance(value, torch.Tensor) and not is_dense(value):
            raise ArgumentError(f"{name}: found {tensor_text(value)}, expected a dense tensor")
        try:
            return (value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))).to(self.device)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{name}: found {type(value).__name__}, expected an array of numbers") from error

    def _checked(self, observations: Mapping[str, torch.Tensor]) -> Observation:
        """The observations that the network reads, on its device. ArgumentError where they do not fit."""
        result = {}
        for name, shape in self.network.observation_shapes.items():
            if name not in observations:
                raise ArgumentError(f"observations: found {', '.join(observations) or 'none'}, expected {name!r} too")
            value = self._tensor(f"observations[{name!r}]", observations[name])
            is_integer = name in self.network.num_categories
            if is_integer and (value.is_floating_point() or value.dtype == torch.bool):
                raise ArgumentError(f"observations[{name!r}]: found {value.dtype}, expected integers")
            value = value if is_integer or value.dtype == torch.uint8 else value.float()
            if value.shape != (len(self._start), *shape):
                expected = [len(self._start), *shape]
                raise ArgumentError(f"observations[{name!r}]: found shape {list(value.shape)}, expected {expected}")
            if self.device.type == "cpu":
                self._check_values(name, value)
            result[name] = value
        return result

    def _check_values(self, name: str, value: torch.Tensor) -> None:
        """ArgumentError for a number that is not finite or too large, or an integer out of range, of an observation."""
        size = self.network.num_categories.get(name)
        low, high = (-MAX_OBSERVATION, MAX_OBSERVATION) if size is None else (0, size - 1)
        least, largest = value.aminmax()
        if least >= low and largest <= high:  # false for NaN
            return
        wrong = ~((value >= low) & (value <= high))
        agents = wrong.reshape(len(wrong), -1).any(1).nonzero().flatten().tolist()
        found, expected = f"{value[wrong][0].item():g}", f"finite numbers of at most {MAX_OBSERVATION:g}"
        if size is not None:
            found, expected = "integers out of range", f"0 to {size - 1}"
        raise ArgumentError(f"observations[{name!r}]: found {found} for agents {agents[:8]}, expected {expected}")
