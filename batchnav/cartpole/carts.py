"""The state of all carts, as `CartPoleEnv` owns it and the kernels see it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class Carts(NamedTuple):
    """All environments: one row or element for each, or one for a block of them.

    A step depends on what the one before left in state, began, clock and timed_out, and on none of the other tensors.
    """

    seed: int
    block: int
    """Carts in a block: a GPU's threads that work together, or what a CPU's thread steps at a time."""
    state: torch.Tensor
    """f32 [N, 4]: cart position (m), its velocity, pole angle (rad, 0 is upright), its velocity."""
    began: torch.Tensor
    """i16 [N]: when the running episode began: the last 16 bits of the clock, of which an episode needs nine."""
    clock: torch.Tensor
    """i64 [blocks]: the time, in steps since the seed was set; `reset` goes on to the next window. It is the same
    everywhere, but a block may advance its own without asking whether the others have read theirs. It lies on the
    device, since a CUDA graph calls its steps with the same arguments every time."""
    terminated: torch.Tensor
    """bool [N]: the last step failed."""
    truncated: torch.Tensor
    """bool [N]: the last step was the 500th. Written only in blocks where a cart had its 500th step in this step or in
    the one before."""
    timed_out: torch.Tensor
    """i32 [blocks]: whether a cart of the block had its 500th step in the last step."""
    record: torch.Tensor
    """f32 [N, 8]: final states and lengths of the episodes that ended in the last step, as `episodes` lays them out. A
    block's records lie next to each other, from the row of its first cart, in no particular order."""
    count: torch.Tensor  # type: ignore[assignment]  # hides what tuples have by this name
    """i32 [blocks]: how many records a block has."""
    invalid: np.ndarray
    """i32 [1]: 1 + the number of an environment that was given an action other than 0 and 1, else 0."""
