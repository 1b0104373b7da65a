"""Action distributions: categorical for discrete actions, Gaussian for continuous ones.

Sampling and evaluation are pure functions of tensors, without random state: actions are sampled by the inverse of the
cumulative distribution, from uniform numbers in [0, 1) that the caller provides.
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
"""Replacement for a uniform number of 0, whose normal quantile is infinite; smaller than any positive sample."""
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Actions(Protocol):
    """Distribution of actions, with parameters that the actor computes."""

    shape: tuple[int, ...]
    """Shape of one agent's action, and of the uniform numbers that it is sampled from."""
    dtype: torch.dtype
    """Type of an action."""
    num_outputs: int
    """Number of distribution parameters of one agent: the width of the actor's last layer."""

    def sample(self, outputs: torch.Tensor, uniforms: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample actions [B, ...]; returns them with their log probabilities f32 [B].

        Args:
            outputs: distribution parameters f32 [B, num_outputs].
            uniforms: f32 [B, ...] in [0, 1); None takes the mode.
        """
        ...

    def distribution(self, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Parameters of the distribution by name, f32 [B, ...], for outputs f32 [B, num_outputs]."""
        ...

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probabilities of actions [..., *shape] and entropies, f32 [...], for outputs f32 [..., num_outputs]."""
        ...

    def embedding(self, size: int) -> nn.Module:
        """A new layer for `embed`, with outputs of width `size`."""
        ...

    def embed(self, layer: nn.Module, actions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """Embedding f32 [T, B, size] of the previous actions; starts bool [T, B] marks those without one."""
        ...


class Categorical:
    """Categorical distribution over i64 in 0 .. num_actions - 1; outputs are logits."""

    shape: tuple[int, ...] = ()
    dtype = torch.int64

    def __init__(self, num_actions: int):
        self.num_outputs = num_actions

    def sample(self, outputs: torch.Tensor, uniforms: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample actions, as in `Actions`."""
        log_probs = torch.log_softmax(outputs, dim=-1)
        action = outputs.argmax(-1) if uniforms is None else sample_categorical(log_probs, uniforms)
        return action, log_probs.gather(-1, action[:, None]).squeeze(-1)

    def distribution(self, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The "probabilities" f32 [B, num_actions] of the actions."""
        return {"probabilities": torch.softmax(outputs, dim=-1)}

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probabilities and entropies, as in `Actions`."""
        log_probs = torch.log_softmax(outputs, dim=-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, actions[..., None]).squeeze(-1), entropy

    def embedding(self, size: int) -> nn.Module:
        """An embedding with row 0 for "no previous action" and row a + 1 for action a."""
        return nn.Embedding(self.num_outputs + 1, size)

    def embed(self, layer: nn.Module, actions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """Rows of the embedding: row 0 where an episode starts, row a + 1 after action a."""
        return embed_rows(cast(nn.Embedding, layer), torch.where(starts, 0, actions + 1))


class Gaussian:
    """Independent Gaussians over f32 [size]; outputs are arctanh of the means, then log standard deviations.

    This is habitat-baselines' `GaussianNet` with its defaults: standard deviations depend on the observation, begin at
    1 and are bounded. Actions are kept as sampled; the environment clips them to [-1, 1].
    """

    dtype = torch.float32

    def __init__(self, size: int):
        self.shape: tuple[int, ...] = (size,)
        self.num_outputs = 2 * size

    def sample(self, outputs: torch.Tensor, uniforms: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample actions, as in `Actions`; the mode is the mean."""
        mean, log_std = _moments(outputs)
        normal = torch.zeros_like(mean) if uniforms is None else torch.special.ndtri(uniforms.clamp(min=_SMALLEST))
        action = mean + log_std.exp() * normal
        return action, _log_prob(action, mean, log_std)

    def distribution(self, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The "mean" and the "std" (standard deviation) of each component, f32 [B, size]."""
        mean, log_std = _moments(outputs)
        return {"mean": mean, "std": log_std.exp()}

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probabilities and entropies, as in `Actions`."""
        mean, log_std = _moments(outputs)
        return _log_prob(actions, mean, log_std), (log_std + (0.5 + _LOG_SQRT_TWO_PI)).sum(-1)

    def embedding(self, size: int) -> nn.Module:
        """A linear layer on the action."""
        return nn.Linear(self.shape[0], size)

    def embed(self, layer: nn.Module, actions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """Embedding of the previous actions, with zeros where there is none."""
        return layer(torch.where(starts[..., None], 0.0, actions))


def actions_of(space: spaces.Space) -> Actions:
    """The action distribution for an action space. ConfigError for an unsupported space."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Categorical(int(space.n))
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space == spaces.Box(-1.0, 1.0, space.shape):
        return Gaussian(int(space.shape[0]))
    raise ConfigError(f"action space: found {space}, expected Discrete(n) starting at 0 or Box(-1, 1, (n,), float32)")


def sample_categorical(log_probs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Actions i64 [B] from log probabilities f32 [B, A] and uniforms f32 [B] in [0, 1), by the inverse CDF."""
    below = log_probs.exp().cumsum(-1) <= uniforms[:, None]
    return below[:, :-1].sum(-1)  # the last action absorbs the rounding error of the sum


def _moments(outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and log standard deviation, f32 [..., size] each, from outputs f32 [..., 2 * size]."""
    mean, log_std = outputs.chunk(2, dim=-1)
    return torch.tanh(mean), log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)


def _log_prob(actions: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Joint log probability of independent Gaussians, f32 [...]."""
    z = (actions - mean) * (-log_std).exp()
    return (-0.5 * z.square() - log_std - _LOG_SQRT_TWO_PI).sum(-1)
