"""A policy at work: remembers, per environment, what the network has to be told again at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from batchnav.errors import ArgumentError
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.memory import State
from batchnav.policy.observations import as_dict
from batchnav.runtime.checks import check_int, check_seed
from batchnav.types import Observation

MAX_ENVS = 2**24


class PolicyAgent:
    """Acts in a batch of environments, and keeps memory and previous actions between calls.

        policy = batchnav.load_policy("run/policy.safetensors", device="cuda")
        policy.reset(num_envs=256)
        action = policy.act(observations)                          # every episode's first step, then:
        action = policy.act(observations, episode_start=ended)     # bool [N]: where a new episode begins

    Networks compute in bfloat16 on CUDA, as they learned.
    """

    def __init__(self, network: ActorCritic, info: dict[str, Any] | None = None):
        """`network` acts on the device where it is; `info` is what was saved beside it."""
        self.network = network.eval().requires_grad_(False)
        self.info = info or {}
        self.device = next(network.parameters()).device
        self._generator = torch.Generator(self.device)
        self._state: State = None

    def __repr__(self) -> str:
        """A line: its size, what it sees, and where it is."""
        size = sum(parameter.numel() for parameter in self.network.parameters())
        return f"PolicyAgent({size:,} parameters, sees {', '.join(self.network.observation_shapes)}, on {self.device})"

    def reset(self, num_envs: int, seed: int = 0) -> None:
        """Forget everything: the next observations are `num_envs` episodes' first. `seed` is for drawn actions."""
        num_envs = check_int("num_envs", num_envs, 1, MAX_ENVS)
        self._generator.manual_seed(check_seed(seed))
        self._state = self.network.initial_state(num_envs, self.device)
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
        """Choose an action for every environment.

        Args:
            observations: tensors or arrays [N, ...] by name; a single tensor where there is one unnamed observation.
                NaN is an ArgumentError on the CPU. CUDA's host would have to wait to see it: there such an agent stays
                NaN until `reset`, and takes its first action.
            episode_start: bool [N], set where these observations begin an episode; None: nowhere (everywhere at the
                first call after `reset`).
            deterministic: take the most probable action, of a Gaussian its mean. By default one is drawn, as in
                Habitat's evaluation: it frees an agent that would otherwise repeat itself against a wall.

        Returns:
            i64 [N], or f32 [N, A] of a Box, on the policy's device.
        """
        if self._state is None:
            raise ArgumentError("act: found no memory, expected reset(num_envs) to be called before")
        obs = self._checked(as_dict(observations))
        num_envs = len(self._start)
        if episode_start is not None:
            episode_start = torch.as_tensor(episode_start, device=self.device)
            if episode_start.shape != (num_envs,) or episode_start.dtype != torch.bool:
                raise ArgumentError(
                    f"episode_start: found {episode_start.dtype} {list(episode_start.shape)}, "
                    f"expected torch.bool [{num_envs}]"
                )
            self._start = self._start | episode_start
        uniforms = None
        if not deterministic:
            shape = self.network.actions.shape
            uniforms = torch.rand(num_envs, *shape, generator=self._generator, device=self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            act = self.network.act(obs, self._prev_action, self._start, self._state, uniforms)
        self._state, self._prev_action = act.state, act.action
        self._start = torch.zeros_like(self._start)
        return act.action

    def _checked(self, observations: Mapping[str, torch.Tensor]) -> Observation:
        """The observations that the network reads, on its device. ArgumentError where they do not fit."""
        result = {}
        for name, shape in self.network.observation_shapes.items():
            if name not in observations:
                raise ArgumentError(f"observations: found {', '.join(observations) or 'none'}, expected {name!r} too")
            value = torch.as_tensor(observations[name], device=self.device)
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
        """ArgumentError for NaN, and for an integer out of range."""
        size = self.network.num_categories.get(name)
        wrong = value.isnan() if size is None else (value < 0) | (value >= size)
        if wrong.any():
            agents = wrong.reshape(len(wrong), -1).any(1).nonzero().flatten().tolist()
            found, expected = ("NaN", "numbers") if size is None else ("integers out of range", f"0 to {size - 1}")
            raise ArgumentError(f"observations[{name!r}]: found {found} for agents {agents[:8]}, expected {expected}")
