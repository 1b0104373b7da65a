"""CartPole, batched: the smallest environment, and the place to learn how the others work. Read it top to bottom.

A pole stands on a cart. Each step pushes the cart left or right; the episode ends when the pole leans too far or the
cart leaves the track, at the latest after 500 steps. One step is some forty multiplications and additions. Python needs
microseconds for it, nearly all of them for being Python; a GPU does thousands of steps in the time it takes to ask it
for one. So everything here is about asking once for all carts, and about moving no byte that can stay where it is:

1. The state of all N carts is one array of N rows of four float32, 16 bytes: one memory access reads or writes a row.
   The same array is the observation; nothing is copied.
2. One GPU thread steps one cart (`step_cart`). On the CPU the same function runs in a loop over all cores.
3. An episode that ends starts anew within the same step. Its start comes from a counter-based generator, a function of
   (seed, environment, episode): there is no generator state to load and store, and a run is the same whatever the
   number of threads.
4. What is rarely needed is rarely touched: the final observation, the length and the number of an episode are read and
   written only by the few threads whose episode ended. The reward is 1 at every step, so it is written once, for ever.

A step so moves 47 bytes per cart (`BYTES_PER_STEP`), and with many carts the memory's speed is the limit. Where even
the policy runs inside the kernel, the state need not leave the registers: `cartpole_rollout` goes on from here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numba import prange

from batchnav import device as devices
from batchnav.device import cpu_function, cpu_kernel, cuda, cuda_kernel, exact_function, inline_function, load4, store4
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.rng import uniform4

# The physics is that of Gymnasium's CartPole-v1, after Barto, Sutton and Anderson (1983).
GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
HALF_LENGTH = 0.5
"""From the joint to the pole's centre of mass: half its length."""
FORCE = 10.0
TIME_STEP = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12.0)
MAX_STEPS = 500
START_RANGE = 0.05
"""An episode starts with each of its four values uniform in [-this, this)."""

FEW = 1024
"""Up to this many environments the CPU steps them in one thread."""

BYTES_PER_STEP = 16 + 2 + 8 + 16 + 2 + 3
"""Read: state, step count, action. Written: state, step count, three flags. Ended episodes (1 in 22) add to it."""

# Kernels compute in float32; a plain Python float among the operands would make it float64.
_GRAVITY, _TIME_STEP = np.float32(GRAVITY), np.float32(TIME_STEP)
_MAX_POSITION, _MAX_ANGLE, _MAX_STEPS = np.float32(MAX_POSITION), np.float32(MAX_ANGLE), np.int32(MAX_STEPS)
_THRUST = np.float32(FORCE / (CART_MASS + POLE_MASS))
_POLE_SHARE = np.float32(POLE_MASS / (CART_MASS + POLE_MASS))
_POLE_MOMENT = np.float32(POLE_MASS * HALF_LENGTH / (CART_MASS + POLE_MASS))
_HALF_LENGTH, _INERTIA = np.float32(HALF_LENGTH), np.float32(4.0 / 3.0)
_START_WIDTH, _HALF, _FIRST, _ONE = np.float32(2.0 * START_RANGE), np.float32(0.5), np.int32(0), np.float32(1.0)
_SIN3, _SIN5, _SIN7 = np.float32(-1 / 6), np.float32(1 / 120), np.float32(-1 / 5040)
_COS4, _COS6, _COS8 = np.float32(1 / 24), np.float32(-1 / 720), np.float32(1 / 40320)


class Carts(NamedTuple):
    """All environments, as the kernels see them: one row or element each."""

    seed: int
    state: torch.Tensor
    """f32 [N, 4]: cart position (m), its velocity, pole angle (rad, 0 is upright), its velocity."""
    steps: torch.Tensor
    """i16 [N]: steps taken in the running episode."""
    episode: torch.Tensor
    """i32 [N]: the running episode's number, from 0."""
    terminated: torch.Tensor
    """bool [N]: the last step failed. Like all below: only written."""
    truncated: torch.Tensor
    """bool [N]: the last step was the 500th."""
    ended: torch.Tensor
    """bool [N]: either of them."""
    final_state: torch.Tensor
    """f32 [N, 4]: the state in which the last ended episode ended."""
    final_steps: torch.Tensor
    """f32 [N]: its length, which is its return too."""
    invalid: np.ndarray
    """i32 [1]: 1 + the number of an environment that was given an action other than 0 and 1, else 0."""


# One cart: scalars in, scalars out, for CPU and GPU alike.


@exact_function
def sin_cos(angle):
    """Sine and cosine of a small angle by their Taylor series, to float32's precision for |angle| < 0.45.

    A running episode has |angle| <= 0.21. This is cheaper than a library call, vectorises on the CPU, and is more
    exact than the GPU's fast sine (1e-9 against 5e-7).
    """
    square = angle * angle
    sine = angle * (_ONE + square * (_SIN3 + square * (_SIN5 + square * _SIN7)))
    cosine = _ONE + square * (-_HALF + square * (_COS4 + square * (_COS6 + square * _COS8)))
    return sine, cosine


@exact_function
def push(cart, right):
    """Push one cart right or left for a time step: (position, velocity, angle, spin) -> the next four.

    Explicit Euler, as Gymnasium does it; equations of Florian, "Correct equations for the dynamics of the cart-pole
    system" (2005), without friction. In float32; Gymnasium's float64 differs by less than 1e-6.
    """
    position, velocity, angle, spin = cart
    sine, cosine = sin_cos(angle)
    thrust = (_THRUST if right else -_THRUST) + _POLE_MOMENT * spin * spin * sine
    spin_up = (_GRAVITY * sine - cosine * thrust) / (_HALF_LENGTH * (_INERTIA - _POLE_SHARE * cosine * cosine))
    speed_up = thrust - _POLE_MOMENT * spin_up * cosine
    return (
        position + _TIME_STEP * velocity,
        velocity + _TIME_STEP * speed_up,
        angle + _TIME_STEP * spin,
        spin + _TIME_STEP * spin_up,
    )


@exact_function
def has_failed(cart):
    """Whether the cart has left the track or the pole leans too far."""
    return (abs(cart[0]) > _MAX_POSITION) | (abs(cart[2]) > _MAX_ANGLE)


@exact_function
def start(seed, environment, episode):
    """The state in which an episode starts: four numbers from one call of the generator (stream 0)."""
    a, b, c, d = uniform4(seed, environment, episode, 0)
    return (
        (a - _HALF) * _START_WIDTH,
        (b - _HALF) * _START_WIDTH,
        (c - _HALF) * _START_WIDTH,
        (d - _HALF) * _START_WIDTH,
    )


@inline_function
def step_cart(i, action, carts):
    """One step of environment i: push, count, judge, and start anew where the episode ended."""
    cart = push(load4(carts.state, i, _FIRST), action == 1)
    steps = np.int32(carts.steps[i] + 1)
    terminated = has_failed(cart)
    truncated = steps >= _MAX_STEPS
    ended = terminated | truncated
    if ended:
        store4(carts.final_state, i, _FIRST, cart)
        carts.final_steps[i] = np.float32(steps)
        episode = np.int32(carts.episode[i] + 1)
        carts.episode[i] = episode
        cart = start(carts.seed, i, episode)
        steps = np.int32(0)
    store4(carts.state, i, _FIRST, cart)
    carts.steps[i] = steps
    carts.terminated[i] = terminated
    carts.truncated[i] = truncated
    carts.ended[i] = ended
    if action < 0 or action > 1:
        carts.invalid[0] = i + np.int32(1)  # several may write; any of them will do


@inline_function
def restart_cart(i, carts):
    """Start environment i's episode `carts.episode[i]`."""
    store4(carts.state, i, _FIRST, start(carts.seed, i, carts.episode[i]))
    carts.steps[i] = 0
    carts.terminated[i] = False
    carts.truncated[i] = False
    carts.ended[i] = False


# All carts: a loop on the CPU, a grid of threads on the GPU. No maths here.


@cpu_kernel
def step_cpu(actions, carts):
    """Step every cart."""
    for i in prange(len(actions)):
        step_cart(np.int32(i), actions[i], carts)


@cpu_function
def step_few(actions, carts):
    """Step every cart, in one thread: for so few, waking the others takes longer than the work."""
    for i in range(len(actions)):
        step_cart(np.int32(i), actions[i], carts)


@cuda_kernel
def step_cuda(actions, carts):
    """Step every cart, one per thread."""
    i = np.int32(cuda.grid(1))
    if i < len(actions):
        step_cart(i, actions[i], carts)


@cpu_kernel
def restart_cpu(carts):
    """Restart every cart."""
    for i in prange(len(carts.steps)):
        restart_cart(np.int32(i), carts)


@cuda_kernel
def restart_cuda(carts):
    """Restart every cart, one per thread."""
    i = np.int32(cuda.grid(1))
    if i < len(carts.steps):
        restart_cart(i, carts)


class CartPoleEnv(VectorEnv):
    """`num_envs` CartPole-v1 environments in one, on torch tensors: a `batchnav.types.VecEnv`.

    Observations f32 [N, 4] (position, velocity, angle, angular velocity), actions i64 [N] (0 left, 1 right), reward 1
    at every step. An ended episode restarts in the same step; then `info["_episode"]` is set, `info["episode"]` holds
    its "return" and "steps", and `info["final_obs"]` the observation in which it ended. As in Gymnasium, an episode
    that fails at its 500th step is terminated and truncated.

    The tensors returned are the environment's own: valid until the next call, not to be written to.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, num_envs: int, device: str | torch.device = "cpu", seed: int = 0, block: int = 128):
        """`block`: CUDA threads per block. ArgumentError and DeviceError as for every argument."""
        _check_int("num_envs", num_envs, 1, 2**31 - 1)
        _check_int("seed", seed, 0, 2**63 - 1)
        _check_int("block", block, 1, 1024)
        self.num_envs, self.device, self.block = num_envs, devices.resolve_device(device), block
        high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
        self.single_observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._invalid, invalid = devices.host_flag(self.device)
        zeros = lambda *shape, dtype: torch.zeros((num_envs, *shape), dtype=dtype, device=self.device)  # noqa: E731
        self.carts = Carts(
            seed=seed,
            state=zeros(4, dtype=torch.float32),
            steps=zeros(dtype=torch.int16),
            episode=zeros(dtype=torch.int32),
            terminated=zeros(dtype=torch.bool),
            truncated=zeros(dtype=torch.bool),
            ended=zeros(dtype=torch.bool),
            final_state=zeros(4, dtype=torch.float32),
            final_steps=zeros(dtype=torch.float32),
            invalid=invalid,
        )
        self._reward = torch.ones(num_envs, device=self.device)
        self._info = self._make_info()
        self._bind()
        self._restart()

    def _make_info(self) -> dict:
        carts = self.carts
        episode = {"return": carts.final_steps, "steps": carts.final_steps}
        return {
            "episode": episode, "_episode": carts.ended, "final_obs": carts.final_state, "_final_obs": carts.ended,
        }  # fmt: skip

    def _bind(self) -> None:
        """Prepare what the kernels take, once: views of the tensors and, on CUDA, the laid-out launch."""
        self.kernel_carts = devices.view(self.carts)
        if self.device.type == "cuda":
            actions = devices.view(torch.zeros(self.num_envs, dtype=torch.int64, device=self.device))
            self._step_cuda = devices.BoundKernel(
                step_cuda, self.num_envs, actions, self.kernel_carts, block=self.block
            )

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[torch.Tensor, dict]:
        """Start all episodes anew: observation, info. With a seed the run starts over; without, it goes on."""
        if seed is None:
            self.carts.episode.add_(1)
        else:
            _check_int("seed", seed, 0, 2**63 - 1)
            self.carts.episode.zero_()
            self.carts = self.carts._replace(seed=seed)
            self._bind()
        self._restart()
        return self.carts.state, self._info

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """Actions i64 [N] -> observation, reward, terminated, truncated, info.

        An action other than 0 and 1 pushes left, as in Gymnasium's vector environment, and raises ArgumentError: on
        the CPU at once; on CUDA, where looking at the actions would mean waiting for them, at a later step, when the
        kernel's note has reached the host's memory.
        """
        devices.check_tensor("actions", actions, (self.num_envs,), torch.int64, self.device)
        self._advance(actions.contiguous())
        if self._invalid[0]:
            environment, self._invalid[0] = int(self._invalid[0]) - 1, 0
            raise ArgumentError(f"actions: found one other than 0 (left) and 1 (right) for environment {environment}")
        return self.carts.state, self._reward, self.carts.terminated, self.carts.truncated, self._info

    def _advance(self, actions: torch.Tensor) -> None:
        if self.device.type == "cuda":
            self._step_cuda.repoint(0, actions.data_ptr())
            self._step_cuda()
        elif self.num_envs <= FEW:
            step_few(actions.numpy(), self.kernel_carts)
        else:
            step_cpu(actions.numpy(), self.kernel_carts)

    def _restart(self) -> None:
        if self.device.type == "cuda":
            devices.launch(restart_cuda, self.num_envs, self.kernel_carts)
        else:
            restart_cpu(self.kernel_carts)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that the next step depends on, copied."""
        carts = self.carts
        return {
            "state": carts.state.clone(), "steps": carts.steps.clone(), "episode": carts.episode.clone(),
            "seed": torch.tensor(carts.seed),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue exactly from `state_dict`'s result. CheckpointError where it is not one of this environment."""
        expected = self.state_dict()
        for name, tensor in expected.items():
            found = state.get(name)
            if not isinstance(found, torch.Tensor) or found.shape != tensor.shape or found.dtype != tensor.dtype:
                found = (
                    f"{found.dtype} {list(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
                )
                raise CheckpointError(f"{name}: found {found}, expected {tensor.dtype} {list(tensor.shape)}")
        for name in ("state", "steps", "episode"):
            getattr(self.carts, name).copy_(state[name])
        self.carts = self.carts._replace(seed=int(state["seed"]))
        self._bind()


def _check_int(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ArgumentError(f"{name}: found {value!r}, expected an integer from {low} to {high}")
