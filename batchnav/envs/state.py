"""States of environments: tensors by name, whose shape, dtype and values are checked before they are loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from batchnav.errors import CheckpointError
from batchnav.mapping.state import CELLS_PER_WORD, INTERPOLATED, MAX_OCCUPIED

RENAMED = {
    "redraws": "num_randomizations", "known_episode": "map_episode", "known_expected": "map_expected_cost",
    "known_way": "map_path", "known_left": "map_cost_to_go", "known_length": "map_path_length",
    "known_frame": "map_origin_and_resolution", "known_stands": "map_occupancy", "known_ground": "map_explored",
    "known_pose": "map_pose", "known_around": "map_remaining_scan", "known_collisions": "map_collisions",
    "known_guessed": "map_predicted_at", "known_news": "map_dirty", "known_anticipated": "map_predicted_cost",
}  # fmt: skip
"""Current names of a state's tensors by their names in older files."""


def with_current_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state with the current names of its tensors."""
    return {RENAMED.get(name, name): value for name, value in state.items()}


def add_quadrants(state: dict[str, torch.Tensor]) -> None:
    """Give the maps of an older state, which has no quadrants, the current codes: all obstacles there are detected."""
    occupancy = state.get("map_occupancy")
    if isinstance(occupancy, torch.Tensor) and occupancy.ndim == 2 and "map_quadrants" not in state:
        words = len(occupancy), occupancy.shape[1] // CELLS_PER_WORD
        state["map_quadrants"] = torch.zeros(words, dtype=torch.int32, device=occupancy.device)
        state["map_occupancy"] = torch.where(
            occupancy >= INTERPOLATED, (occupancy + 1).clamp(max=int(MAX_OCCUPIED)), occupancy
        )


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
