"""States of environments: tensors by name, whose shape, dtype and values are checked before they are loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from batchnav.errors import CheckpointError


def check_tensors(
    state: Mapping[str, torch.Tensor],
    targets: Mapping[str, torch.Tensor],
    ranges: Mapping[str, tuple[float, float]],
) -> None:
    """Check that a state can be copied into the live tensors.

    Args:
        state: tensors by name.
        targets: live tensors by name.
        ranges: lowest and highest valid values by name, for tensors with a limited range. Kernels check nothing.

    CheckpointError names a tensor that is missing, of another shape or dtype, out of range or NaN.
    """
    for name, target in targets.items():
        found = state.get(name)
        if not isinstance(found, torch.Tensor) or found.shape != target.shape or found.dtype != target.dtype:
            what = f"{found.dtype} {list(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
            expected = f"{target.dtype} {list(target.shape)}"
            raise CheckpointError(f"environment state {name!r}: found {what}, expected {expected}")
        if found.is_floating_point() and found.isnan().any():
            raise CheckpointError(f"environment state {name!r}: found NaN, expected numbers")
        low, high = ranges.get(name, (-math.inf, math.inf))
        least, most = found.min().item(), found.max().item()
        if least < low or most > high:
            raise CheckpointError(
                f"environment state {name!r}: found {least:g} to {most:g}, expected {low:g} to {high:g}"
            )
