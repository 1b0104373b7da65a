"""State of all carts: `CartPoleEnv` owns it, the kernels read and write it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class Carts(NamedTuple):
    """Tensors with one row or element per environment, or per block of environments.

    A step depends on state, began, clock and timed_out of the previous step; the other tensors are outputs.
    """

    seed: int
    """Seed of the start states."""
    block: int
    """Number of carts in a block: the threads of a CUDA block, or the carts that a CPU thread steps at a time."""
    state: torch.Tensor
    """f32 [N, 4]: cart position (m) and velocity (m/s), pole angle (rad, 0 is upright) and angular velocity (rad/s)."""
    began: torch.Tensor
    """i16 [N]: clock at the start of the running episode, modulo 2**16; an episode's length fits into nine bits."""
    clock: torch.Tensor
    """i64 [blocks]: number of steps since the seed was set; `reset` advances it to the next multiple of
    `physics.WINDOW`. All blocks have equal clocks; each advances its own, without synchronisation. The clock is on the
    device, since a CUDA graph repeats its steps with fixed arguments."""
    terminated: torch.Tensor
    """bool [N]: the last step failed."""
    truncated: torch.Tensor
    """bool [N]: the last step was the episode's 500th. Written only in blocks where a cart had its 500th step in this
    step or the previous one."""
    timed_out: torch.Tensor
    """i32 [blocks]: 1 where a cart of the block had its 500th step in the last step, else 0."""
    record: torch.Tensor
    """f32 [N, 8]: final states and lengths of the episodes that ended in the last step (`episodes.write_record`). A
    block's records are contiguous, from the row of its first cart, in no particular order."""
    count: torch.Tensor  # type: ignore[assignment]  # hides `tuple.count`
    """i32 [blocks]: number of records of a block."""
    invalid: np.ndarray
    """i32 [1]: 1 + the index of an environment with an action other than 0 and 1; 0 if there is none."""
