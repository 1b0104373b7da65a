"""What environments save and continue from: tensors by name, checked in shape, type and value before they are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from batchnav.errors import CheckpointError


def on_cpu(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies on the CPU."""
    return {name: value.cpu().clone() for name, value in tensors.items()}


MAX_FLOAT = torch.finfo(torch.float32).max


def check_tensors(
    state: Mapping[str, torch.Tensor],
    targets: Mapping[str, torch.Tensor],
    ranges: Mapping[str, tuple[float, float]],
) -> None:
    """Check that a state can be copied into the live tensors.

    Args:
        state: tensors by name.
        targets: the live ones.
        ranges: the lowest and the highest value, by name, of those tensors that have a range; kernels do not look.

    CheckpointError names what is missing, of another shape or type, out of range or not finite.
    """
    for name, target in targets.items():
        found = state.get(name)
        if not isinstance(found, torch.Tensor) or found.shape != target.shape or found.dtype != target.dtype:
            what = f"{found.dtype} {list(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
            expected = f"{target.dtype} {list(target.shape)}"
            raise CheckpointError(f"environment state {name!r}: found {what}, expected {expected}")
        if found.is_floating_point() and found.isnan().any():
            raise CheckpointError(f"environment state {name!r}: found values that are not numbers")
        low, high = ranges.get(name, (-math.inf, math.inf))
        least, most = found.min().item(), found.max().item()
        if least < low or most > high:
            raise CheckpointError(
                f"environment state {name!r}: found {least:g} to {most:g}, expected {low:g} to {high:g}"
            )
