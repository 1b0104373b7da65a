"""Observations as a policy reads them: which spaces it accepts, and how each kind is prepared for the network.

Images are float or u8 boxes [C, H, W], scans are float boxes [rows, beams], vectors are float boxes [n], and categories
are integers: `Discrete(n)`, or an integer box [] or [1] from 0 to n - 1. A space that is not a dict is read as the dict
{"observation": space}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional as F

from batchnav.errors import ConfigError

PLAIN_OBSERVATION = "observation"
"""Name of the only observation of an environment whose observations are not a dict."""
MAX_CATEGORIES = 2**12
"""Largest number of values of an integer observation: `embed_rows` makes one-hot vectors of up to this length."""
_OFFSET = 0.1
"""Distance added before the logarithm, metres; differences well below it hardly change the features."""
_FREQUENCIES = tuple(math.pi * 2.0**k for k in range(3))
"""Angular frequencies of the Fourier features, radians per unit of ln(r + _OFFSET)."""
DISTANCE_FEATURES = 1 + 2 * len(_FREQUENCIES)
"""Number of features of `log_distance`."""


def as_dict(obs: Mapping[str, torch.Tensor] | torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Observations by name; a plain tensor gets the name PLAIN_OBSERVATION."""
    return obs if isinstance(obs, Mapping) else {PLAIN_OBSERVATION: obs}


def spaces_to_read(space: spaces.Space, blind: bool) -> dict[str, spaces.Space]:
    """The spaces that a policy reads, by name, in the order of the observation space.

    Without images and scans if `blind`.

    ConfigError for a space that no policy can read.
    """
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN_OBSERVATION: space}
    for name, part in parts.items():
        if not (is_image(part) or is_scan(part) or is_vector(part) or is_integer(part)):
            raise ConfigError(
                f"observation {name!r}: found {part}, expected floats [n], [rows, beams] or [C, H, W], bytes "
                "[C, H, W], or an integer [] or [1]"
            )
        if is_integer(part):
            num_categories(part, name)
    return {name: part for name, part in parts.items() if not (blind and (is_image(part) or is_scan(part)))}


def is_image(space: spaces.Space) -> bool:
    """True where a space is a box [C, H, W] of floats or bytes."""
    is_box = isinstance(space, spaces.Box) and len(space.shape) == 3
    return is_box and (np.issubdtype(space.dtype, np.floating) or space.dtype == np.uint8)


def is_scan(space: spaces.Space) -> bool:
    """True where a space is a box [rows, beams] of floats, such as the ranges of a LiDAR."""
    return isinstance(space, spaces.Box) and len(space.shape) == 2 and np.issubdtype(space.dtype, np.floating)


def is_vector(space: spaces.Space) -> bool:
    """True where a space is a box [n] of floats."""
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)


def is_integer(space: spaces.Space) -> bool:
    """True where a space is `Discrete`, or a box [] or [1] of integers."""
    is_box = isinstance(space, spaces.Box) and space.shape in ((), (1,))
    return isinstance(space, spaces.Discrete) or (is_box and np.issubdtype(space.dtype, np.integer))


def num_categories(space: spaces.Space, name: str) -> int:
    """Number of values of an integer space that begins at 0. ConfigError for another range."""
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n - 1)
    else:
        low, high = int(np.min(space.low)), int(np.max(space.high))  # type: ignore[attr-defined]  # a Box
    if low != 0 or high >= MAX_CATEGORIES:
        raise ConfigError(
            f"observation {name!r}: found integers from {low} to {high}, expected 0 to {MAX_CATEGORIES - 1:,} at most; "
            "set the range of the space to the number of categories"
        )
    return high + 1


def names_by_size(shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, ...]]:
    """Names of images, grouped by size, in the order in which the sizes first occur; `shapes` are (C, H, W)."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, shape in shapes.items():
        groups.setdefault(shape[1:], []).append(name)
    return [tuple(names) for names in groups.values()]


def log_distance(r: torch.Tensor) -> torch.Tensor:
    """Features f32 [..., DISTANCE_FEATURES] of distances f32 [..., 1] in metres.

    The logarithm, which resolves short distances finely, and its sines and cosines at several frequencies: Fourier
    features (Tancik et al., "Fourier features let networks learn high frequency functions in low dimensional domains",
    NeurIPS 2020).
    """
    x = torch.log(r.clamp(min=0.0) + _OFFSET)
    phases = torch.cat([x * frequency for frequency in _FREQUENCIES], dim=-1)
    return torch.cat([x, torch.sin(phases), torch.cos(phases)], dim=-1)


def embed_rows(embedding: nn.Embedding, index: torch.Tensor) -> torch.Tensor:
    """Rows [..., size] of an embedding for integers [...]; zeros for integers out of range.

    A product with one-hot vectors, whose gradient is summed in a fixed order, unlike that of a lookup on CUDA. Rows of
    zeros pad the table to a multiple of 8: without them cuBLAS takes ten times as long for the gradient in bfloat16.
    """
    weight = embedding.weight
    weight = F.pad(weight, (0, 0, 0, -len(weight) % 8))
    rows = torch.arange(len(weight), dtype=torch.int64, device=index.device)
    return (index[..., None] == rows).to(weight.dtype) @ weight


# Normalisation of images by the running mean and variance of each channel

EPS = 1e-5
"""Added to variances before their square root."""
HISTORY = 1000.0
"""Rollouts that statistics given in advance count for (`RunningNorm.start_from`)."""


class RunningNorm(nn.Module):
    """Normalisation of images by each channel's mean and standard deviation over all rollouts so far.

    Before the first rollout images stay unchanged, apart from EPS.

    The paper's RGB agent normalises its images (`running_mean_and_var.py` of its release). Its statistics change with
    every minibatch; here they change between rollouts, so that a rollout and the learning from it read equal images.
    """

    mean: torch.Tensor
    """Mean of each channel, f32 [C]."""
    var: torch.Tensor
    """Variance of each channel, f32 [C]."""
    rollouts: torch.Tensor
    """Number of rollouts counted, f32 scalar."""

    def __init__(self, channels: int):
        super().__init__()
        device = torch.get_default_device()
        self.register_buffer("mean", torch.zeros(channels, dtype=torch.float32, device=device))
        self.register_buffer("var", torch.ones(channels, dtype=torch.float32, device=device))
        self.register_buffer("rollouts", torch.zeros((), dtype=torch.float32, device=device))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Normalised images [..., C, H, W] for images of floats."""
        scale = (self.var + EPS).rsqrt()
        return image * scale[:, None, None] - (self.mean * scale)[:, None, None]

    @torch.no_grad()
    def start_from(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Begin with these statistics of each channel, as if HISTORY rollouts had had them."""
        for kept, values in ((self.mean, mean), (self.var, [value * value for value in std])):
            kept.copy_(torch.tensor(values, dtype=torch.float32, device="cpu"))
        self.rollouts.fill_(HISTORY)

    @torch.no_grad()
    def update(self, images: torch.Tensor, average: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> None:
        """Update the statistics with a rollout; all rollouts have equal weight.

        Means and variances of rollouts are combined by the formula of Chan, Golub and LeVeque (1979).

        Args:
            images: [T, B, C, H, W], floats in 0..1 or bytes.
            average: mean of a tensor over the processes that train together.
        """
        total, squares = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for step in images:  # all steps at once would take four times the memory of the rollout
            values = step.float() / 255.0 if step.dtype == torch.uint8 else step.float()
            total += values.mean((0, 2, 3))
            squares += (values * values).mean((0, 2, 3))
        mean, square = average(torch.stack([total, squares]) / len(images))
        var = (square - mean * mean).clamp(min=0.0)
        share = 1.0 / (self.rollouts + 1.0)
        apart = mean - self.mean
        first = self.rollouts == 0
        kept = torch.where(first, torch.zeros_like(var), self.var)
        self.var.copy_(kept + share * (var - kept) + torch.where(first, 0.0, share * (1.0 - share)) * apart * apart)
        self.mean.add_(share * apart)
        self.rollouts.add_(1.0)
