"""Many CartPole steps in one launch: the policy runs in the kernel too, and the state stays in the registers.

`CartPoleEnv.step` reads and writes each cart's state at every step, since the next action comes from elsewhere. Where
the policy is small enough to live in the kernel (random, or linear), a cart is loaded once, stepped K times, and stored
once: this is the limit of the method, bounded by arithmetic instead of memory. The results are exactly those of `step`
given the same actions.

One matter remains. A random agent's episode lasts 22 steps, so at every step 1 cart in 22 starts anew, and of a GPU's
32 threads that run in lock-step (a warp) three times out of four at least one does. The other 31 wait for it to draw
its numbers: some 80 instructions, more than the step itself takes. So the draw is made ahead (`WINDOW`): every eighth
step all threads draw their next start together, whether it is needed or not. No episode is shorter than eight steps, so
one start per window is enough; were it not (other physics, an odd state loaded), the draw is made again in the branch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav import device as devices
from batchnav.device import (
    cpu_function,
    cpu_kernel,
    cuda,
    cuda_kernel,
    device_function,
    inline_function,
    load4,
    store4,
)
from batchnav.envs.cartpole import MAX_STEPS, CartPoleEnv, has_failed, push, start
from batchnav.errors import ArgumentError
from batchnav.rng import philox

WINDOW = 8
"""Steps between two draws ahead; a power of two, at most the steps in the shortest episode."""
LANES = 64
"""Carts that one CPU thread steps side by side, so that the compiler can use vector instructions."""
BYTES_PER_TRAJECTORY_STEP = 16 + 1 + 1 + 1

_FIRST, _ONE, _MAX_STEPS, _LANES = np.int32(0), np.int32(1), np.int32(MAX_STEPS), np.int32(LANES)
_LAST_OF_WINDOW, _LAST_BIT = np.int32(WINDOW - 1), np.int64(31)
_BITS_STREAM, _LOW, _ZERO, _BIT = np.uint32(1), np.uint64(0xFFFFFFFF), np.float32(0.0), np.uint32(1)


class Trajectory(NamedTuple):
    """What K steps saw and did, row k before row k + 1. The state after the last is the environment's."""

    observations: torch.Tensor
    """f32 [K, N, 4]: the state in which the action was taken."""
    actions: torch.Tensor
    """u8 [K, N]."""
    terminated: torch.Tensor
    """bool [K, N]: the action ended the episode by failure."""
    truncated: torch.Tensor
    """bool [K, N]: the action was the episode's 500th."""

    @classmethod
    def empty(cls, num_steps: int, num_envs: int, device: str | torch.device = "cpu") -> Trajectory:
        """Room for a trajectory."""
        shape = (num_steps, num_envs)
        return cls(
            torch.empty((*shape, 4), device=device),
            torch.empty(shape, dtype=torch.uint8, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
        )

    def flat(self) -> Trajectory:
        """The same memory with one row per step and cart, as the kernels write it."""
        return Trajectory(*(field.reshape(-1, *field.shape[2:]) for field in self))


@inline_function
def random_bits(seed, environment, clock):
    """32 random actions, one per bit, for steps clock to clock + 31 (a multiple of 32) of an environment (stream 1)."""
    key, word = np.uint64(seed), np.uint64(clock) >> np.uint64(5)
    bits, _, _, _ = philox(
        np.uint32(environment), np.uint32(word & _LOW), _BITS_STREAM, np.uint32(word >> np.uint64(32)),
        np.uint32(key & _LOW), np.uint32(key >> np.uint64(32)),
    )  # fmt: skip
    return bits


@cpu_function
def _all_random_bits(seed, clock, bits_out):
    for i in range(len(bits_out)):
        bits_out[i] = random_bits(seed, i, clock)


@inline_function
def linear_action(weights, cart):
    """Right where the weighted sum of the state is positive."""
    return weights[0] * cart[0] + weights[1] * cart[1] + weights[2] * cart[2] + weights[3] * cart[3] > _ZERO


@inline_function
def roll_cart(i, clock, num_steps, linear, write, weights, carts, trajectory):
    """Step environment i `num_steps` times; writes the trajectory where there is room for one."""
    seed, count, row = carts.seed, np.int32(len(carts.steps)), np.int32(i)
    own = (_ZERO, _ZERO, _ZERO, _ZERO)
    if linear:
        own = load4(weights, i, _FIRST)
    cart = load4(carts.state, i, _FIRST)
    steps, episode, final_steps = np.int32(carts.steps[i]), carts.episode[i], carts.final_steps[i]
    bits, phase = random_bits(seed, i, clock), np.int32(clock & _LAST_BIT)
    ahead, drawn = cart, episode  # the start that was drawn ahead, and its episode's number
    for k in range(num_steps):
        if np.int32(k & _LAST_OF_WINDOW) == _FIRST:
            drawn = np.int32(episode + _ONE)
            ahead = start(seed, i, drawn)
        if linear:
            right = linear_action(own, cart)
        else:
            bit = np.int32((phase + k) & _LAST_BIT)
            if bit == _FIRST:
                bits = random_bits(seed, i, clock + k)
            right = np.int32(bits >> np.uint32(bit)) & _ONE == _ONE
        if write:
            store4(trajectory.observations, row, _FIRST, cart)
            trajectory.actions[row] = right
        cart = push(cart, right)
        steps = np.int32(steps + _ONE)
        terminated, truncated = has_failed(cart), steps >= _MAX_STEPS
        if write:
            trajectory.terminated[row] = terminated
            trajectory.truncated[row] = truncated
            row = np.int32(row + count)
        if terminated | truncated:
            episode = np.int32(episode + _ONE)
            if drawn != episode:
                drawn = episode
                ahead = start(seed, i, episode)
            cart = ahead
            final_steps = np.float32(steps)
            steps = np.int32(0)
    store4(carts.state, i, _FIRST, cart)
    carts.steps[i] = steps
    carts.episode[i] = episode
    carts.final_steps[i] = final_steps


@cuda_kernel
def roll_cuda(clock, num_steps, linear, write, weights, carts, trajectory):
    """Step every cart `num_steps` times, one cart per thread."""
    i = np.int32(cuda.grid(1))
    if i < len(carts.steps):
        roll_cart(i, clock, num_steps, linear, write, weights, carts, trajectory)


@cpu_kernel
def roll_cpu(clock, num_steps, linear, write, weights, carts, trajectory):
    """Step every cart `num_steps` times, LANES carts side by side per thread.

    A CPU core works on 8 or 16 float32 at once, but only in plain loops without calls or jumps. So the loops over steps
    and carts change places, and the rare restart gets a loop of its own.
    """
    count = np.int32(len(carts.steps))
    for tile in prange((count + _LANES - _ONE) // _LANES):
        roll_tile(np.int32(tile) * _LANES, count, clock, num_steps, linear, write, weights, carts, trajectory)


@inline_function
def either(flag, yes, no):
    """One of two values, both computed: a choice without a jump."""
    return yes if flag != 0 else no


@device_function
def roll_tile(first, count, clock, num_steps, linear, write, weights, carts, trajectory):
    """Step environments first ... first + LANES - 1; see `roll_cpu`. Lanes past the last environment step along."""
    lanes, seed, row = min(_LANES, count - first), carts.seed, first
    # One array per value: position x, velocity v, angle a, spin s; then the start that was drawn ahead; and so on.
    x, v = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    a, s = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    start_x, start_v = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    start_a, start_s = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    steps, episode, drawn = np.zeros(LANES, np.int32), np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)
    bits, final_steps = np.zeros(LANES, np.uint32), np.zeros(LANES, np.int32)
    right, failed, ended = np.zeros(LANES, np.int32), np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)
    for j in range(lanes):
        x[j], v[j], a[j], s[j] = load4(carts.state, first + np.int32(j), _FIRST)
        steps[j], episode[j] = carts.steps[first + j], carts.episode[first + j]
        final_steps[j] = carts.final_steps[first + j]
    for k in range(num_steps):
        if k & _LAST_OF_WINDOW == 0:
            for j in range(LANES):
                drawn[j] = episode[j] + _ONE
                start_x[j], start_v[j], start_a[j], start_s[j] = start(seed, first + np.int32(j), drawn[j])
        if linear:
            for j in range(lanes):
                right[j] = linear_action(load4(weights, first + np.int32(j), _FIRST), (x[j], v[j], a[j], s[j]))
        else:
            now = clock + k
            bit = np.uint32(now & _LAST_BIT)
            if k == 0 or bit == 0:
                for j in range(LANES):
                    bits[j] = random_bits(seed, first + np.int32(j), now)
            for j in range(LANES):
                right[j] = np.uint32(bits[j] >> bit) & _BIT
        if write:
            for j in range(lanes):
                store4(trajectory.observations, np.int32(row + j), _FIRST, (x[j], v[j], a[j], s[j]))
                trajectory.actions[row + j] = right[j]
        for j in range(LANES):
            x[j], v[j], a[j], s[j] = push((x[j], v[j], a[j], s[j]), right[j] == 1)
        again = _FIRST
        for j in range(LANES):
            steps[j] += _ONE
            failed[j] = np.int32(has_failed((x[j], v[j], a[j], s[j])))
            ended[j] = failed[j] | np.int32(steps[j] >= _MAX_STEPS)
        for j in range(LANES):
            episode[j] += ended[j]
            again |= ended[j] & np.int32(drawn[j] != episode[j])
        if write:
            for j in range(lanes):
                trajectory.terminated[row + j] = failed[j] != 0
                trajectory.truncated[row + j] = steps[j] >= _MAX_STEPS
            row += count
        if again:
            for j in range(LANES):
                if ended[j]:
                    drawn[j] = episode[j]
                    start_x[j], start_v[j], start_a[j], start_s[j] = start(seed, first + np.int32(j), drawn[j])
        for j in range(LANES):
            x[j], v[j] = either(ended[j], start_x[j], x[j]), either(ended[j], start_v[j], v[j])
        for j in range(LANES):
            a[j], s[j] = either(ended[j], start_a[j], a[j]), either(ended[j], start_s[j], s[j])
        for j in range(LANES):
            final_steps[j], steps[j] = either(ended[j], steps[j], final_steps[j]), either(ended[j], _FIRST, steps[j])
    for j in range(lanes):
        store4(carts.state, first + np.int32(j), _FIRST, (x[j], v[j], a[j], s[j]))
        carts.steps[first + j], carts.episode[first + j] = steps[j], episode[j]
        carts.final_steps[first + j] = np.float32(final_steps[j])


class CartPoleRollout:
    """Steps all of an environment's carts `num_steps` times per call, in one launch.

    The policy is random (bits of the counter-based generator, by seed, environment and step), or linear: `weights`
    f32 [N, 4] has a row for each environment, which pushes right where weights . state > 0. Another row per cart makes
    one launch a search over N policies; `env.carts.final_steps` has the length of each cart's last ended episode.

    The environment's tensors are left as after `num_steps` steps, except for those of a single step (flags, final_obs).
    """

    def __init__(
        self,
        env: CartPoleEnv,
        num_steps: int,
        weights: torch.Tensor | None = None,
        trajectory: Trajectory | None = None,
    ):
        if not isinstance(num_steps, int) or not 1 <= num_steps < 2**31:
            raise ArgumentError(f"num_steps: found {num_steps!r}, expected an integer from 1 to {2**31 - 1}")
        if weights is not None:
            devices.check_tensor("weights", weights, (env.num_envs, 4), torch.float32, env.device)
            weights = weights.contiguous()
        if trajectory is not None:
            _check_trajectory(trajectory, num_steps, env)
        self.env, self.num_steps, self.clock = env, num_steps, 0
        """`clock`: steps taken so far; the random policy goes on from there, so a resumed run sets it."""
        self._linear, self._write = weights is not None, trajectory is not None
        # numba's launch takes no empty arrays
        self._weights = devices.view(weights if self._linear else torch.zeros((1, 4), device=env.device))
        self._trajectory = devices.view((trajectory if self._write else Trajectory.empty(1, 1, env.device)).flat())

    def __call__(self) -> None:
        """Take the steps; on CUDA, on torch's current stream."""
        env = self.env
        args = (
            np.int64(self.clock), np.int32(self.num_steps), self._linear, self._write,
            self._weights, env.kernel_carts, self._trajectory,
        )  # fmt: skip
        if env.device.type == "cuda":
            devices.launch(roll_cuda, env.num_envs, *args, block=env.block)
        else:
            roll_cpu(*args)
        self.clock += self.num_steps

    def random_actions(self, clock: int) -> torch.Tensor:
        """What the random policy does at step `clock`: i64 [N] on the CPU. For checks."""
        bits = np.empty(self.env.num_envs, np.int64)
        _all_random_bits(self.env.carts.seed, clock - clock % 32, bits)
        return (torch.from_numpy(bits) >> (clock % 32)) & 1


def _check_trajectory(trajectory: Trajectory, num_steps: int, env: CartPoleEnv) -> None:
    shape = (num_steps, env.num_envs)
    if num_steps * env.num_envs >= 2**31:
        raise ArgumentError(f"trajectory: found {num_steps} x {env.num_envs} steps, expected fewer than 2**31")
    devices.check_tensor("observations", trajectory.observations, (*shape, 4), torch.float32, env.device)
    devices.check_tensor("actions", trajectory.actions, shape, torch.uint8, env.device)
    devices.check_tensor("terminated", trajectory.terminated, shape, torch.bool, env.device)
    devices.check_tensor("truncated", trajectory.truncated, shape, torch.bool, env.device)
