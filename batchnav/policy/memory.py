"""Memories: the recurrent part of a policy, between the features of a step and the actor and critic.

A memory is a subclass of `Memory`, registered by name in `batchnav.policy.MEMORIES`; `PolicyConfig.memory`
selects one. Register your own before the policy is made or loaded:

    batchnav.policy.MEMORIES["gru"] = EpisodicGRU        # then PolicyConfig(memory="gru")

A memory with settings of its own has a frozen dataclass `Config`, and `from_config` takes an instance as third
argument. The section of its name configures it: `policy: {memory: gru, gru: {layers: 2}}`.

A state is a tensor, or nested tuples (NamedTuples too) and dicts of tensors. All its tensors have the agents in
dimension `Memory.agent_dim`. Rollout, learner, resume state and memory prediction handle states with the functions
below and assume no shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from batchnav.policy.config import MEMORIES, PolicyConfig
from batchnav.runtime.kernels.arrays import is_dense, tensor_text

State = Any
"""A tensor, or nested tuples and dicts of tensors."""


class Memory(nn.Module):
    """Recurrent part of a policy.

    A subclass defines `from_config`, `initial_state`, `forward` and `output_size`, and other attributes where their
    defaults do not fit.
    """

    output_size: int
    """Width of the outputs, which actor and critic read."""
    agent_dim = 0
    """Index of the dimension that counts agents, in each tensor of a state."""
    reads_previous_action = True
    """True where the inputs include an embedding of the previous action."""
    input_weights: tuple[str, ...] = ()
    """Names of the parameters [..., input_size] that multiply the inputs. `load_weights` needs them for a network that
    reads more observations than the saved one."""

    @classmethod
    def from_config(cls, input_size: int, config: PolicyConfig, settings: Any = None) -> Memory:
        """The memory of a policy with this configuration, for inputs of width `input_size`.

        `settings`: an instance of the class's `Config`; None for a class without one.
        """
        raise _undefined(cls, "from_config")

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> State:
        """The state at the start of an episode."""
        raise _undefined(type(self), "initial_state")

    def forward(self, x: torch.Tensor, starts: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """A sequence of T steps of B agents.

        Args:
            x: inputs [T, B, input_size].
            starts: bool [T, B], set where step t is the first of an episode; it then begins from the initial state.
            state: the state before step 0.

        Returns:
            outputs [T, B, output_size], and the state after step T - 1.
        """
        raise _undefined(type(self), "forward")

    def step(self, x: torch.Tensor, start: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """One step: inputs [B, input_size], start bool [B] -> outputs [B, output_size], state."""
        outputs, state = self(x[None], start[None], state)
        return outputs[0], state

    def take(self, state: State, agents: torch.Tensor) -> State:
        """The part of a state that belongs to some agents; `agents`: their indices, i64 [B]."""
        before: tuple[Any, ...] = (slice(None),) * self.agent_dim
        return map_state(lambda tensor: tensor[(*before, agents)], state)

    def compile_parts(self) -> None:
        """Run the memory, or a part of it, through torch.compile, in place. By default nothing is compiled."""


def _undefined(kind: type, method: str) -> NotImplementedError:
    """The error of a memory without one of the methods that it must define."""
    return NotImplementedError(f"{kind.__name__}: found no method `{method}`, expected one; define it")


class FeedForward(nn.Sequential, Memory):
    """A policy without memory: two tanh layers and an empty state. The previous action is not an input."""

    reads_previous_action = False
    input_weights = ("0.weight",)

    def __init__(self, input_size: int, hidden_size: int):
        first, second = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        for layer in (first, second):
            nn.init.orthogonal_(layer.weight, gain=2**0.5)
            nn.init.zeros_(layer.bias)
        super().__init__(first, nn.Tanh(), second, nn.Tanh())
        self.output_size = hidden_size

    @classmethod
    def from_config(cls, input_size: int, config: PolicyConfig, settings: None = None) -> FeedForward:
        """Layers of `hidden_size` units."""
        return cls(input_size, config.hidden_size)

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> State:
        """The empty state."""
        return ()

    def forward(  # type: ignore[override]  # `nn.Sequential.forward` takes the inputs only
        self, x: torch.Tensor, starts: torch.Tensor, state: State
    ) -> tuple[torch.Tensor, State]:
        """Outputs [T, B, output_size], of each step independently, and the empty state."""
        return nn.Sequential.forward(self, x), state


MEMORIES["none"] = FeedForward


def map_state(function: Callable[[torch.Tensor], torch.Tensor], state: State) -> State:
    """A state of the same structure whose tensors are `function` of this state's tensors."""
    if isinstance(state, torch.Tensor):
        return function(state)
    if isinstance(state, dict):
        return {name: map_state(function, part) for name, part in state.items()}
    parts = [map_state(function, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def state_tensors(state: State) -> list[torch.Tensor]:
    """The tensors of a state, in a fixed order."""
    if isinstance(state, torch.Tensor):
        return [state]
    parts = state.values() if isinstance(state, dict) else state
    return [tensor for part in parts for tensor in state_tensors(part)]


def copy_state_(target: State, source: State) -> None:
    """Copy a state's tensors into those of another state of the same structure, in place.

    ValueError where the states have different numbers of tensors, or tensors of different shapes.
    """
    targets, sources = state_tensors(target), state_tensors(source)
    if len(targets) != len(sources):
        raise ValueError(f"memory: found {len(sources)} tensors, expected {len(targets)}")
    for kept, value in zip(targets, sources, strict=True):
        if not is_dense(value):
            raise ValueError(f"memory: found {tensor_text(value)}, expected a dense tensor")
        if kept.shape != value.shape:  # `copy_` would broadcast
            raise ValueError(f"memory: found shape {list(value.shape)}, expected {list(kept.shape)}")
        kept.copy_(value)
