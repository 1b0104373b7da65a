"""Batched CartPole in its simplest form. Read this first; `step` and `env` do the same several times faster.

A pole stands on a cart. Each step pushes the cart left or right; the episode ends when the pole leans too far or the
cart leaves the track, at the latest after 500 steps. The next episode starts within the same step.

There are N carts, and one function that steps one of them, `step_cart`. The decorator `kernel` makes a parallel loop of
it on the CPU, and on a GPU a grid with a thread for each cart. A step copies and allocates nothing.

The fast environment has the same physics (`physics.push`, `has_failed`) and the same random starts, which are functions
of seed, environment and clock (`physics.start`). On the CPU both therefore give equal bits, which a test checks. This
environment checks no arguments and returns no info.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from batchnav.cartpole.physics import MAX_STEPS, WINDOW, has_failed, push, start
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import kernel


class PlainCarts(NamedTuple):
    """Tensors with one row or element per environment."""

    state: torch.Tensor
    """f32 [N, 4]: cart position (m) and velocity (m/s), pole angle (rad, 0 is upright) and angular velocity (rad/s)."""
    steps: torch.Tensor
    """i32 [N]: steps taken in the running episode."""
    terminated: torch.Tensor
    """bool [N]: the last step failed."""
    truncated: torch.Tensor
    """bool [N]: the last step was the episode's 500th."""


@inline_function
def start_cart(i, seed, clock, carts_out):
    """Begin an episode of environment i at this clock."""
    state, steps = carts_out.state, carts_out.steps
    state[i, 0], state[i, 1], state[i, 2], state[i, 3] = start(seed, i, clock)
    steps[i] = 0


start_carts = kernel(index="np.uint64", fastmath=True)(start_cart)


@kernel(index="np.uint64", fastmath=True)  # unsigned: no check for negative values
@inline_function
def step_cart(i, actions, seed, clock, carts_out):
    """One step of environment i: push, check for the end, restart an ended episode. `clock` counts this step too."""
    state, steps = carts_out.state, carts_out.steps
    cart = push((state[i, 0], state[i, 1], state[i, 2], state[i, 3]), actions[i] == 1)
    state[i, 0], state[i, 1], state[i, 2], state[i, 3] = cart
    steps[i] += 1
    terminated, truncated = has_failed(cart), steps[i] >= MAX_STEPS
    carts_out.terminated[i], carts_out.truncated[i] = terminated, truncated
    if terminated or truncated:
        start_cart(i, seed, clock, carts_out)


class PlainCartPole:
    """Batch of `num_envs` carts on one device. Returned tensors are valid until the next call."""

    @torch.inference_mode(False)
    def __init__(self, num_envs: int, device: str | torch.device = "cpu", seed: int = 0):
        self.device = resolve_device(device)
        kinds = {"steps": torch.int32, "terminated": torch.bool, "truncated": torch.bool}
        columns = {name: torch.zeros(num_envs, dtype=kind, device=self.device) for name, kind in kinds.items()}
        self.carts = PlainCarts(torch.zeros(num_envs, 4, dtype=torch.float32, device=self.device), **columns)
        self.clock = 0
        self.reset(seed=seed)

    def reset(self, *, seed: int | None = None) -> torch.Tensor:
        """Start new episodes: observation f32 [N, 4]. A seed restarts the random sequence; without one it continues."""
        if seed is None:
            self.clock += WINDOW - self.clock % WINDOW  # to the next window, whose start states are unused
        else:
            self.seed, self.clock = seed, 0
        start_carts(len(self.carts.steps), self.seed, self.clock, view(self.carts))
        return self.carts.state

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions i64 [N] (0 left, 1 right) -> observation f32 [N, 4], terminated bool [N], truncated bool [N]."""
        self.clock += 1
        step_cart(len(actions), view(actions), self.seed, self.clock, view(self.carts))
        return self.carts.state, self.carts.terminated, self.carts.truncated
