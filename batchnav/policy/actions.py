"""What a policy's head says of actions: one of several, or numbers with a Gaussian each. Drawn, and judged again.

Both are pure functions of tensors, without a random state of their own: actions are drawn by the inverse of the
cumulative distribution, from numbers in [0, 1) that the caller brings.
"""

from __future__ import annotations

import math
from typing import Protocol, cast

import torch
from gymnasium import spaces
from torch import nn

from batchnav.errors import ConfigError
from batchnav.policy.observations import embed_rows

MIN_LOG_STD, MAX_LOG_STD = -5.0, 2.0
"""Bounds of a Gaussian's log standard deviation: habitat-baselines' `min_log_std`, `max_log_std`."""
_SMALLEST = 2.0**-25
"""Below the smallest number above 0 that is drawn: what 0, whose inverse is infinite, is taken for."""
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Actions(Protocol):
    """A kind of actions."""

    shape: tuple[int, ...]
    """Of one agent's action, and of the random numbers that it is drawn from."""
    dtype: torch.dtype
    num_outputs: int
    """What the actor's last layer gives for an agent."""

    def sample(self, outputs: torch.Tensor, uniforms: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [B, ...] and their log probabilities f32 [B].

        Args:
            outputs: f32 [B, num_outputs].
            uniforms: f32 [B, ...] in [0, 1); None takes the most probable action.
        """
        ...

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probability and entropy, f32 [...], of outputs f32 [..., num_outputs] and actions."""
        ...

    def embedding(self, size: int) -> nn.Module:
        """The layer with the weights of `embed`."""
        ...

    def embed(self, layer: nn.Module, actions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """What a policy reads of the previous actions, f32 [T, B, size]; where an episode starts there was none."""
        ...


class Categorical:
    """i64 in 0 .. num_actions - 1; outputs are logits."""

    shape: tuple[int, ...] = ()
    dtype = torch.int64

    def __init__(self, num_actions: int):
        self.num_outputs = num_actions

    def sample(self, outputs: torch.Tensor, uniforms: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `Actions`."""
        log_probs = torch.log_softmax(outputs, dim=-1)
        action = outputs.argmax(-1) if uniforms is None else sample_categorical(log_probs, uniforms)
        return action, log_probs.gather(-1, action[:, None]).squeeze(-1)

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `Actions`."""
        log_probs = torch.log_softmax(outputs, dim=-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, actions[..., None]).squeeze(-1), entropy

    def embedding(self, size: int) -> nn.Module:
        """A row for each action, row 0 for none."""
        return nn.Embedding(self.num_outputs + 1, size)

    def embed(self, layer: nn.Module, actions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """Rows of the embedding: row 0 where an episode starts, row a + 1 after action a."""
        return embed_rows(cast(nn.Embedding, layer), (actions + 1) * ~starts)


class Gaussian:
    """f32 [size]; outputs are what the means are tanh of, then log standard deviations.

    habitat-baselines' `GaussianNet` with its defaults: deviations depend on what is seen, begin at 1 and stay within
    bounds; actions are kept as drawn, and it is the environment that cuts them off at -1 and 1.
    """

    dtype = torch.float32

    def __init__(self, size: int):
        self.shape: tuple[int, ...] = (size,)
        self.num_outputs = 2 * size

    def sample(self, outputs: torch.Tensor, uniforms: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `Actions`; the most probable is the mean."""
        mean, log_std = _moments(outputs)
        normal = torch.zeros_like(mean) if uniforms is None else torch.special.ndtri(uniforms.clamp(min=_SMALLEST))
        action = mean + log_std.exp() * normal
        return action, _log_prob(action, mean, log_std)

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `Actions`."""
        mean, log_std = _moments(outputs)
        return _log_prob(actions, mean, log_std), (log_std + (0.5 + _LOG_SQRT_TWO_PI)).sum(-1)

    def embedding(self, size: int) -> nn.Module:
        """A linear layer."""
        return nn.Linear(self.shape[0], size)

    def embed(self, layer: nn.Module, actions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """As of `Actions`: none is as 0."""
        return layer(actions * ~starts[..., None])


def actions_of(space: spaces.Space) -> Actions:
    """The actions of a space. ConfigError for one that no head knows."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Categorical(int(space.n))
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space == spaces.Box(-1.0, 1.0, space.shape):
        return Gaussian(int(space.shape[0]))
    raise ConfigError(f"action space: found {space}, expected Discrete(n) starting at 0 or Box(-1, 1, (n,), float32)")


def sample_categorical(log_probs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Actions i64 [B] by the inverse of the cumulative distribution: f32 [B, A] and f32 [B] in [0, 1)."""
    below = log_probs.exp().cumsum(-1) <= uniforms[:, None]
    return below[:, :-1].sum(-1)  # the last action takes what rounding leaves of the sum


def _moments(outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and log standard deviation, f32 [..., size]."""
    mean, log_std = outputs.chunk(2, dim=-1)
    return torch.tanh(mean), log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)


def _log_prob(actions: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Of independent Gaussians together, f32 [...]."""
    z = (actions - mean) * (-log_std).exp()
    return (-0.5 * z.square() - log_std - _LOG_SQRT_TWO_PI).sum(-1)
