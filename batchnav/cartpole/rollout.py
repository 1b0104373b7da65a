"""Many CartPole steps in one launch: the policy runs inside the kernel, and the state stays in registers.

`CartPoleEnv.step` reads and writes each cart's state at every step, since the actions come from outside. If the policy
fits into the kernel (random, or linear), a cart is loaded once, stepped K times and stored once. Arithmetic, no longer
memory, then bounds the speed. The results equal those of `step` for the same actions.

Restarts need care on a GPU. A random agent's episode lasts 22 steps, so at every step 1 cart in 22 restarts. A warp, 32
threads in lock-step, has a restart in three of four steps. Its other threads would wait for some 80 instructions that
sample the start state, more than the step itself takes. However, all steps of a window have the same start state. All
threads therefore sample their start state together at the beginning of a window, and a restarting cart copies it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS, WINDOW, age, has_failed, push, start
from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.arrays import check_tensor, view
from batchnav.runtime.kernels.decorators import (
    cpu_function,
    cpu_kernel,
    cuda,
    cuda_kernel,
    device_function,
    inline_function,
)
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.launch import launch
from batchnav.runtime.kernels.rng import philox

LANES = 64
"""Carts that one CPU thread steps together, so that the compiler can use vector instructions."""
BYTES_PER_TRAJECTORY_STEP = 16 + 1 + 1 + 1
"""Bytes of a cart's step in a `Trajectory`: observation, action, terminated, truncated."""

_FIRST, _ONE, _MAX_STEPS, _LANES = np.int32(0), np.int32(1), np.int32(MAX_STEPS), np.int32(LANES)
_LAST_OF_WINDOW, _LAST_BIT = np.int32(WINDOW - 1), np.int64(31)
_BITS_STREAM, _LOW, _ZERO, _BIT = np.uint32(1), np.uint64(0xFFFFFFFF), np.float32(0.0), np.uint32(1)


class Trajectory(NamedTuple):
    """Observations, actions and end flags of K steps, in order. The environment holds the state after the last step."""

    observations: torch.Tensor
    """f32 [K, N, 4]: the state in which the action was taken."""
    actions: torch.Tensor
    """u8 [K, N]: 0 left, 1 right."""
    terminated: torch.Tensor
    """bool [K, N]: the action ended the episode by failure."""
    truncated: torch.Tensor
    """bool [K, N]: the action was the episode's 500th."""

    @classmethod
    def empty(cls, num_steps: int, num_envs: int, device: str | torch.device = "cpu") -> Trajectory:
        """Uninitialised tensors for a trajectory."""
        shape = (num_steps, num_envs)
        return cls(
            torch.empty((*shape, 4), dtype=torch.float32, device=device),
            torch.empty(shape, dtype=torch.uint8, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
        )

    def flat(self) -> Trajectory:
        """The tensors with one row per step and cart, [K * N, ...], for the kernels."""
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
    """True (push right) where the weighted sum of the state is positive."""
    return weights[0] * cart[0] + weights[1] * cart[1] + weights[2] * cart[2] + weights[3] * cart[3] > _ZERO


@inline_function
def roll_cart(i, clock, weights, num_steps, linear, write, carts_out, final_steps_out, trajectory_out):
    """Step environment i `num_steps` times; write the trajectory if `write` is set."""
    seed, count, row = carts_out.seed, np.int32(len(carts_out.began)), np.int32(i)
    own = (_ZERO, _ZERO, _ZERO, _ZERO)
    if linear:
        own = load4(weights, i, _FIRST)
    cart = load4(carts_out.state, i, _FIRST)
    steps, final = age(carts_out.began[i], clock), final_steps_out[i]
    bits, phase = random_bits(seed, i, clock), np.int32(clock & _LAST_BIT)
    next_start = cart  # start state of an episode that begins after the step; sampled at the first step
    for k in range(num_steps):
        if k == 0 or np.int32((phase + k + 1) & _LAST_OF_WINDOW) == _FIRST:
            next_start = start(seed, i, clock + k + 1)
        if linear:
            right = linear_action(own, cart)
        else:
            bit = np.int32((phase + k) & _LAST_BIT)
            if bit == _FIRST:
                bits = random_bits(seed, i, clock + k)
            right = np.int32(bits >> np.uint32(bit)) & _ONE == _ONE
        if write:
            store4(trajectory_out.observations, row, _FIRST, cart)
            trajectory_out.actions[row] = right
        cart = push(cart, right)
        steps = np.int32(steps + _ONE)
        terminated, truncated = has_failed(cart), steps >= _MAX_STEPS
        if write:
            trajectory_out.terminated[row] = terminated
            trajectory_out.truncated[row] = truncated
            row = np.int32(row + count)
        if terminated | truncated:
            cart = next_start
            final = np.float32(steps)
            steps = np.int32(0)
    store4(carts_out.state, i, _FIRST, cart)
    carts_out.began[i] = np.int16(clock + num_steps - steps)
    final_steps_out[i] = final


@cuda_kernel
def roll_cuda(weights, num_steps, linear, write, carts_out, final_steps_out, trajectory_out):
    """Step every cart `num_steps` times, one cart per thread."""
    i, block = np.int32(cuda.grid(1)), np.uint32(cuda.blockIdx.x)
    clock = carts_out.clock[block]
    if i < len(carts_out.began):
        roll_cart(i, clock, weights, num_steps, linear, write, carts_out, final_steps_out, trajectory_out)
    cuda.syncthreads()  # all threads have read the clock
    if cuda.threadIdx.x == 0:
        carts_out.clock[block] = clock + num_steps


@cpu_kernel
def roll_cpu(weights, num_steps, linear, write, carts_out, final_steps_out, trajectory_out):
    """Step every cart `num_steps` times, LANES carts together per thread.

    A CPU core processes 8 or 16 float32 at once, but only in plain loops without calls or branches. The loop over carts
    is therefore the inner one, and sampling starts has a separate loop.
    """
    count, clock = np.int32(len(carts_out.began)), carts_out.clock[0]
    for tile in prange((count + _LANES - _ONE) // _LANES):
        first = np.int32(tile) * _LANES
        roll_tile(first, clock, weights, num_steps, linear, write, carts_out, final_steps_out, trajectory_out)
    for b in range(len(carts_out.clock)):
        carts_out.clock[b] = clock + num_steps


@inline_function
def either(flag, yes, no):
    """`yes` where `flag` is not 0, else `no`, without a branch."""
    return yes if flag != 0 else no


@device_function
def roll_tile(first, clock, weights, num_steps, linear, write, carts_out, final_steps_out, trajectory_out):
    """Step environments first to first + LANES - 1 (see `roll_cpu`); lanes past the last environment are unused."""
    count, seed, row = np.int32(len(carts_out.began)), carts_out.seed, first
    lanes = min(_LANES, count - first)
    # One array per value: position x, velocity v, angle a and spin s; the same of the next start state; and so on.
    x, v = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    a, s = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    start_x, start_v = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    start_a, start_s = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    bits, steps, final = np.zeros(LANES, np.uint32), np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)
    right, failed, ended = np.zeros(LANES, np.int32), np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)
    for j in range(lanes):
        x[j], v[j], a[j], s[j] = load4(carts_out.state, first + np.int32(j), _FIRST)
        steps[j], final[j] = age(carts_out.began[first + j], clock), final_steps_out[first + j]
    for k in range(num_steps):
        now = clock + k
        if k == 0 or (now + 1) & _LAST_OF_WINDOW == 0:
            for j in range(LANES):
                start_x[j], start_v[j], start_a[j], start_s[j] = start(seed, first + np.int32(j), now + 1)
        if linear:
            for j in range(lanes):
                right[j] = linear_action(load4(weights, first + np.int32(j), _FIRST), (x[j], v[j], a[j], s[j]))
        else:
            bit = np.uint32(now & _LAST_BIT)
            if k == 0 or bit == 0:
                for j in range(LANES):
                    bits[j] = random_bits(seed, first + np.int32(j), now)
            for j in range(LANES):
                right[j] = np.uint32(bits[j] >> bit) & _BIT
        if write:
            for j in range(lanes):
                store4(trajectory_out.observations, np.int32(row + j), _FIRST, (x[j], v[j], a[j], s[j]))
                trajectory_out.actions[row + j] = right[j]
        for j in range(LANES):
            x[j], v[j], a[j], s[j] = push((x[j], v[j], a[j], s[j]), right[j] == 1)
        for j in range(LANES):
            steps[j] += _ONE
            failed[j] = np.int32(has_failed((x[j], v[j], a[j], s[j])))
            ended[j] = failed[j] | np.int32(steps[j] >= _MAX_STEPS)
        if write:
            for j in range(lanes):
                trajectory_out.terminated[row + j] = failed[j] != 0
                trajectory_out.truncated[row + j] = steps[j] >= _MAX_STEPS
            row += count
        for j in range(LANES):
            x[j], v[j] = either(ended[j], start_x[j], x[j]), either(ended[j], start_v[j], v[j])
        for j in range(LANES):
            a[j], s[j] = either(ended[j], start_a[j], a[j]), either(ended[j], start_s[j], s[j])
        for j in range(LANES):
            final[j], steps[j] = either(ended[j], steps[j], final[j]), either(ended[j], _FIRST, steps[j])
    for j in range(lanes):
        store4(carts_out.state, first + np.int32(j), _FIRST, (x[j], v[j], a[j], s[j]))
        carts_out.began[first + j] = np.int16(clock + num_steps - steps[j])
        final_steps_out[first + j] = np.float32(final[j])


class CartPoleRollout:
    """Rollout that steps all carts of an environment `num_steps` times per call, in one launch.

    The policy is random (bits of the counter-based generator, from seed, environment and clock) or linear: it pushes
    right where weights . state > 0, with a row of `weights` f32 [N, 4] per environment. One launch evaluates N
    policies if the rows differ. `final_steps` f32 [N] has the length of each cart's last ended episode.

    A call updates the environment's state and clock as `num_steps` calls of `step` do, but not its flags and info.

    Args:
        env: the environment.
        num_steps: number of steps per call.
        weights: f32 [N, 4], the linear policies; None: the random policy.
        trajectory: tensors that each call fills, [num_steps, N, ...]; None: nothing is recorded.

    Raises:
        ArgumentError: an argument does not fit the environment.
    """

    @torch.inference_mode(False)
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
            check_tensor("weights", weights, (env.num_envs, 4), torch.float32, env.device)
            weights = weights.contiguous()
        if trajectory is not None:
            _check_trajectory(trajectory, num_steps, env)
        self.env, self.num_steps = env, num_steps
        self.final_steps = torch.zeros(env.num_envs, dtype=torch.float32, device=env.device)
        self._linear, self._write = weights is not None, trajectory is not None
        # an unused array must not be empty: numba's launch does not accept that
        self._weights = view(weights if self._linear else torch.zeros((1, 4), dtype=torch.float32, device=env.device))
        self._final_steps = view(self.final_steps)
        written = Trajectory.empty(1, 1, env.device) if trajectory is None else trajectory
        self._trajectory = view(written.flat())

    def __call__(self) -> None:
        """Take the steps; on CUDA, on torch's current stream. ArgumentError for a closed environment."""
        env = self.env
        env.check_open()
        args = (
            self._weights, np.int32(self.num_steps), self._linear, self._write,
            env.kernel_carts, self._final_steps, self._trajectory,
        )  # fmt: skip
        if env.device.type == "cuda":
            launch(roll_cuda, env.num_envs, *args, block=env.block)
        else:
            roll_cpu(*args)

    def random_actions(self, clock: int) -> torch.Tensor:
        """Actions i64 [N] of the random policy at step `clock`, on the CPU, for checks."""
        bits = np.empty(self.env.num_envs, np.int64)
        _all_random_bits(self.env.carts.seed, clock - clock % 32, bits)
        return (torch.from_numpy(bits) >> (clock % 32)) & 1


def _check_trajectory(trajectory: Trajectory, num_steps: int, env: CartPoleEnv) -> None:
    shape = (num_steps, env.num_envs)
    if num_steps * env.num_envs >= 2**31:
        raise ArgumentError(f"trajectory: found {num_steps} x {env.num_envs} steps, expected fewer than 2**31")
    check_tensor("observations", trajectory.observations, (*shape, 4), torch.float32, env.device)
    check_tensor("actions", trajectory.actions, shape, torch.uint8, env.device)
    check_tensor("terminated", trajectory.terminated, shape, torch.bool, env.device)
    check_tensor("truncated", trajectory.truncated, shape, torch.bool, env.device)
