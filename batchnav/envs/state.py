"""What environments save and continue from: tensors by name, checked in shape, type and value before they are taken."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from batchnav.errors import CheckpointError


def on_cpu(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies on the CPU."""
    return {name: value.cpu().clone() for name, value in tensors.items()}


def load_tensors(
    state: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor], limits: Mapping[str, int]
) -> None:
    """Copy a state into the live tensors; all of it or, where something does not fit, nothing.

    Args:
        state: tensors by name.
        targets: the live ones.
        limits: for names that are indices, what they have to be below; kernels do not look.

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
        if name in limits and len(found) and not (int(found.min()) >= 0 and int(found.max()) < limits[name]):
            raise CheckpointError(
                f"environment state {name!r}: found {int(found.min())} to {int(found.max())}, "
                f"expected 0 to {limits[name] - 1}"
            )
    for name, target in targets.items():
        target.copy_(state[name])
