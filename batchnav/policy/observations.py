"""Observations as a policy reads them: which spaces it accepts, and how each kind is prepared for the network.

Images are float or u8 boxes [C, H, W], vectors are float boxes [n], and categories are integers: `Discrete(n)`, or an
integer box [] or [1] from 0 to n - 1. A space that is not a dict is read as the dict {"observation": space}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

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
    """The spaces that a policy reads, by name, in the order of the observation space; without images if `blind`.

    ConfigError for a space that no policy can read.
    """
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN_OBSERVATION: space}
    for name, part in parts.items():
        if not (is_image(part) or is_vector(part) or is_integer(part)):
            raise ConfigError(
                f"observation {name!r}: found {part}, expected floats [n] or [C, H, W], bytes [C, H, W], "
                "or an integer [] or [1]"
            )
        if is_integer(part):
            num_categories(part, name)
    return {name: part for name, part in parts.items() if not (blind and is_image(part))}


def is_image(space: spaces.Space) -> bool:
    """True where a space is a box [C, H, W] of floats or bytes."""
    is_box = isinstance(space, spaces.Box) and len(space.shape) == 3
    return is_box and (np.issubdtype(space.dtype, np.floating) or space.dtype == np.uint8)


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
