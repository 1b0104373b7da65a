"""CartPole, batched: the smallest environment, and the place to learn how the others work. Read it top to bottom.

A pole stands on a cart. Each step pushes the cart left or right; the episode ends when the pole leans too far or the
cart leaves the track, at the latest after 500 steps. One step is some forty multiplications and additions. Python needs
microseconds for it, nearly all of them for being Python; a GPU does thousands of steps in the time it takes to ask it
for one. So everything here is about asking once for all carts, and about moving no byte that can stay where it is:

1. The state of all N carts is one array of N rows of four float32, 16 bytes: one memory access reads or writes a row.
   The same array is the observation; nothing is copied.
2. One GPU thread steps one cart (`step_cart`). On the CPU blocks of carts are spread over all cores, and a core pushes
   8 or 16 carts at once (`push_carts`). The physics is the same function (`physics.push`).
3. An episode that ends starts anew within the same step. Its start comes from a counter-based generator, a function of
   (seed, environment, time), so there is no generator's state to load and store, and a run is the same whatever the
   number of threads. Why the time, and not the episode's number? That one would lie in memory for each cart, while the
   time is the same for all: each block of carts keeps one `clock`. And no episode is shorter than eight steps, so the
   eight steps of a window (`WINDOW`) can share a start: nobody needs it twice.
4. What is rarely needed is rarely touched. How an episode ended, and after how many steps, is to be said of one cart in
   22. A block writes it for those carts only, as a list: a GPU's memory moves 32 bytes at the least, so one number here
   and one there cost as much as eight in a row. Where somebody reads `info`, the lists are spread out by environment
   (`episodes`). And that a cart had its 500th step is written only by blocks in which one had it, now or one
   step before: that note has to go.
5. What does not change is not touched: the reward is 1 at every step, so it is written once, for ever. How long an
   episode has lasted changes at every step, but not when it began; so that is what is kept.
6. What lies near is taken first. More carts than the GPU's cache holds push one another out of it; if every step went
   from the first to the last, it would find none of them. So steps go back and forth: each begins with the carts that
   the last one ended with.
7. No pause between steps, on GPUs that can do it: a kernel is launched while the one before still runs. Its first
   blocks are set up, and wait (`wait_for_predecessor`) just before they read what the other writes.

A step so moves 43 bytes per cart, or 36 where actions come as single bytes (`BYTES_PER_STEP`), and with many carts the
memory's speed is the limit. Where even the policy runs inside the kernel, the state need not leave the registers:
`rollout` goes on from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numba import prange

from batchnav.cartpole.episodes import EpisodeInfo, write_record
from batchnav.cartpole.physics import MAX_ANGLE, MAX_POSITION, MAX_STEPS, WINDOW, age, has_failed, push, start
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.runtime.arrays import check_tensor, host_flag, view
from batchnav.runtime.device import resolve_device
from batchnav.runtime.intrinsics import let_successor_start, load4, store4, wait_for_predecessor
from batchnav.runtime.kernels import cpu_function, cpu_kernel, cuda, cuda_kernel, device_function, inline_function
from batchnav.runtime.launch import BoundKernel, launch

FEW = 1024
"""Up to this many environments the CPU steps them in one thread."""
MAX_BLOCK = 1024
"""CUDA's most threads in a block."""
MAX_ENVS = 2**28 - 1
"""Kernels count environments, and the vectors of four in their records, in an int32."""

BYTES_PER_STEP = {torch.int64: 16 + 2 + 8 + 16 + 1, torch.uint8: 16 + 2 + 1 + 16 + 1}
"""By the type of the actions. Read: state, when the episode began, action. Written: state, whether it failed."""
BYTES_PER_END = 32
"""An ended episode's record: for a random agent, with 1 cart in 22 ended, 1.5 bytes per step more. And memory writes 32
bytes for the two that say when the next one begins, which 16 carts share: another byte per step."""

_TICK, _FIRST, _MAX_STEPS = np.int64(1), np.int32(0), np.int32(MAX_STEPS)


class Carts(NamedTuple):
    """All environments, as the kernels see them: one row or element each, or one for a block of them."""

    seed: int
    block: int
    """Carts in a block: a GPU's threads that work together, or what a CPU's thread steps at a time."""
    state: torch.Tensor
    """f32 [N, 4]: cart position (m), its velocity, pole angle (rad, 0 is upright), its velocity."""
    began: torch.Tensor
    """i16 [N]: when the running episode began: the last 16 bits of the clock, of which an episode needs nine."""
    clock: torch.Tensor
    """i64 [blocks]: the time, in steps since the seed was set; `reset` goes on to the next window. It is the same
    everywhere, but a block may advance its own without asking whether the others have read theirs. And it lies on the
    device, since a step in a CUDA graph is always called with the same arguments."""
    terminated: torch.Tensor
    """bool [N]: the last step failed. Of this and all below but `timed_out`, no step needs what the last one left."""
    truncated: torch.Tensor
    """bool [N]: the last step was the 500th. Written only in blocks of which a cart had its 500th in this step, or in
    the last, as the next field says."""
    timed_out: torch.Tensor
    """i32 [blocks]: whether a cart of the block had its 500th step in the last step."""
    record: torch.Tensor
    """f32 [N, 8]: what the episodes left that ended in the last step, as `episodes` lays it out. A block's
    records lie next to each other, from the row of its first cart, in no particular order."""
    count: torch.Tensor
    """i32 [blocks]: how many there are."""
    invalid: np.ndarray
    """i32 [1]: 1 + the number of an environment that was given an action other than 0 and 1, else 0."""


# Blocks of carts, on the CPU and on the GPU. No physics here.


@inline_function
def start_cart(i, clock, carts):
    """Begin an episode of environment i at this time."""
    store4(carts.state, i, _FIRST, start(carts.seed, i, clock))
    carts.began[np.uint32(i)] = np.int16(clock)


@device_function
def push_carts(state, actions, terminated):
    """Push some carts, and note which have failed: a plain loop without calls or jumps, so 8 or 16 carts at a time.

    `state`: their numbers in a row. Returns all bits that any of the actions has set.
    """
    bits = actions[0]
    for k in range(len(actions)):
        j = 4 * k
        cart = push((state[j], state[j + 1], state[j + 2], state[j + 3]), actions[k] == 1)
        state[j], state[j + 1], state[j + 2], state[j + 3] = cart
        terminated[k] = has_failed(cart)
        bits |= actions[k]
    return bits


@inline_function
def step_block(b, actions, carts):
    """Step the carts of block b: push all, then see which episodes have ended."""
    first, count = np.int32(b * carts.block), np.int32(0)
    stop = min(first + carts.block, len(actions))
    clock, timed_out, times_out = carts.clock[b] + _TICK, carts.timed_out[b] != _FIRST, False
    bits = push_carts(carts.state[first:stop].reshape(-1), actions[first:stop], carts.terminated[first:stop])
    for at in range(np.uint32(first), np.uint32(stop)):  # a signed index would be looked at whether it is negative
        steps = age(carts.began[at], clock)
        truncated = steps >= _MAX_STEPS
        if truncated | timed_out:
            carts.truncated[at] = truncated
        if carts.terminated[at] | truncated:
            i, times_out = np.int32(at), times_out | truncated
            write_record(
                np.int32(first + count), np.int32(i - first), load4(carts.state, i, _FIRST), steps, carts.record
            )
            start_cart(i, clock, carts)
            count = np.int32(count + 1)
    if bits < 0 or bits > 1:
        for k in range(first, stop):
            if actions[k] < 0 or actions[k] > 1:
                carts.invalid[0] = np.int32(k + 1)
    carts.clock[b] = clock
    carts.count[b] = count
    carts.timed_out[b] = times_out


@cpu_kernel
def step_cpu(actions, carts):
    """Step every cart."""
    for b in prange(len(carts.clock)):
        step_block(b, actions, carts)


@cpu_function
def step_few(actions, carts):
    """Step every cart, in one thread: for so few, waking the others takes longer than the work."""
    for b in range(len(carts.clock)):
        step_block(b, actions, carts)


@inline_function
def step_cart(i, cart, began, action, clock, timed_out, carts):
    """One step of environment i, from its state and when its episode began: push, judge, write.

    `clock`: the time after the step. `timed_out`: whether a cart of its block had its 500th step in the last one.

    Returns whether the episode ended, with its final state and length: then its record and a new state are still to be
    written.
    """
    at = np.uint32(i)  # a signed index would be looked at whether it is negative
    cart, steps = push(cart, action == 1), age(began, clock)
    terminated = has_failed(cart)
    truncated = steps >= _MAX_STEPS
    ended = terminated | truncated
    if not ended:
        store4(carts.state, i, _FIRST, cart)
    carts.terminated[at] = terminated
    if truncated | timed_out:
        carts.truncated[at] = truncated
    if action < 0 or action > 1:
        carts.invalid[0] = i + np.int32(1)  # several may write; any of them will do
    return ended, cart, steps


@cuda_kernel
def step_cuda(actions, backward, carts):
    """Step every cart, one per thread; the last block first where `backward` is not 0.

    Threads run in lock-step, 32 to a warp. A random agent's episode lasts 22 steps, so three warps in four hold a cart
    that starts anew, and if it did so at once, 31 threads would wait while one draws its numbers, as many instructions
    as the step itself. So a block writes its ended carts on a list; when all are stepped, its first threads take one
    each, and draw together.
    """
    listed = cuda.shared.array(MAX_BLOCK, np.uint16)  # threads whose carts have ended
    num_listed, times_out = cuda.shared.array(1, np.int32), cuda.shared.array(1, np.int32)
    block, thread = np.uint32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
    if backward != 0:
        block = np.uint32(np.uint32(cuda.gridDim.x - 1) - block)
    first, last = np.int32(np.int32(block) * np.int32(cuda.blockDim.x)), np.int32(len(actions) - 1)
    i = np.int32(first + thread)
    near = min(i, last)  # a thread too many reads the last cart, and leaves it
    at = np.uint32(near)
    if thread == 0:
        num_listed[0] = times_out[0] = 0
    wait_for_predecessor()  # up to here nothing was touched that it may still write
    cart, began, action = load4(carts.state, near, _FIRST), carts.began[at], actions[at]
    clock, timed_out = carts.clock[block], carts.timed_out[block]
    let_successor_start()
    cuda.syncthreads()  # and not sooner: meanwhile all reads are under way
    clock, timed_out = clock + _TICK, timed_out != _FIRST
    if i <= last:
        ended, cart, steps = step_cart(i, cart, began, action, clock, timed_out, carts)
        if ended:
            if steps >= _MAX_STEPS:
                times_out[0] = 1  # several may write it
            place = np.int32(cuda.atomic.add(num_listed, 0, 1))
            listed[np.uint32(place)] = np.uint16(thread)
            write_record(np.int32(first + place), thread, cart, steps, carts.record)
    cuda.syncthreads()
    if thread < num_listed[0]:
        start_cart(np.int32(first + np.int32(listed[np.uint32(thread)])), clock, carts)
    if thread == 0:  # the others have read clock and flag: they were here
        carts.clock[block] = clock
        carts.count[block] = num_listed[0]
        carts.timed_out[block] = times_out[0]


@cpu_kernel
def restart_cpu(carts):
    """Put every cart where an episode starts."""
    for i in prange(len(carts.began)):
        start_cart(np.int32(i), carts.clock[0], carts)


@cuda_kernel
def restart_cuda(carts):
    """Put every cart where an episode starts, one per thread."""
    i = np.int32(cuda.grid(1))
    if i < len(carts.began):
        start_cart(i, carts.clock[0], carts)


class CartPoleEnv(VectorEnv):
    """`num_envs` CartPole-v1 environments in one, on torch tensors: a `batchnav.types.VecEnv`.

    Observations f32 [N, 4] (position, velocity, angle, angular velocity), actions i64 or u8 [N] (0 left, 1 right),
    reward 1 at every step. An ended episode restarts in the same step; then `info["_episode"]` is set,
    `info["episode"]` holds its "return" and "steps", and `info["final_obs"]` the observation in which it ended
    (`EpisodeInfo`: made when read). As in Gymnasium, an episode that fails at its 500th step is terminated and
    truncated.

    The tensors returned are the environment's own: valid until the next call, not to be written to.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, num_envs: int, device: str | torch.device = "cpu", seed: int = 0, block: int = 256):
        """`block`: carts per block, on CUDA its threads. ArgumentError and DeviceError as for every argument."""
        _check_int("num_envs", num_envs, 1, MAX_ENVS)
        _check_int("seed", seed, 0, 2**63 - 1)
        _check_int("block", block, 1, MAX_BLOCK)
        self.num_envs, self.device, self.block = num_envs, resolve_device(device), block
        high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
        self.single_observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._invalid, invalid = host_flag(self.device)
        zeros = lambda *shape, dtype: torch.zeros(shape, dtype=dtype, device=self.device)  # noqa: E731
        blocks = -(-num_envs // block)
        self.carts = Carts(
            seed=seed,
            block=block,
            state=zeros(num_envs, 4, dtype=torch.float32),
            began=zeros(num_envs, dtype=torch.int16),
            clock=zeros(blocks, dtype=torch.int64),
            terminated=zeros(num_envs, dtype=torch.bool),
            truncated=zeros(num_envs, dtype=torch.bool),
            timed_out=zeros(blocks, dtype=torch.int32),
            record=zeros(num_envs, 8, dtype=torch.float32),
            count=zeros(blocks, dtype=torch.int32),
            invalid=invalid,
        )
        self._reward = torch.ones(num_envs, device=self.device)
        self._info = EpisodeInfo(self.carts)
        self._bind()
        self._restart()

    def _bind(self) -> None:
        """Prepare what the kernels take, once: views of the tensors and, on CUDA, the laid-out launch."""
        self.kernel_carts = view(self.carts)
        if self.device.type == "cuda":
            # A launch for each type of actions. That of single bytes is laid out when they first come: it compiles.
            self._step_cuda = {torch.int64: self._bind_step(torch.int64)}
            self._backward = 0

    def _bind_step(self, action_type: torch.dtype) -> BoundKernel:
        actions = view(torch.zeros(self.num_envs, dtype=action_type, device=self.device))
        return BoundKernel(step_cuda, self.num_envs, actions, 0, self.kernel_carts, block=self.block, overlap=True)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[torch.Tensor, Mapping]:
        """Start all episodes anew: observation, info. With a seed the run starts over; without, it goes on."""
        clock = self.carts.clock
        if seed is None:
            clock.add_(WINDOW).bitwise_and_(-WINDOW)  # the next window's beginning: starts that nobody had
        else:
            _check_int("seed", seed, 0, 2**63 - 1)
            clock.zero_()
            self.carts = self.carts._replace(seed=seed)
            self._bind()
        self._restart()
        return self.carts.state, self._info

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """Actions i64 [N], or u8 [N], which saves moving 7 bytes -> observation, reward, terminated, truncated, info.

        An action other than 0 and 1 pushes left, as in Gymnasium's vector environment, and raises ArgumentError: on
        the CPU at once; on CUDA, where looking at the actions would mean waiting for them, when the kernel's note has
        reached the host's memory: mostly at a later step.
        """
        action_type = torch.uint8 if getattr(actions, "dtype", None) is torch.uint8 else torch.int64
        check_tensor("actions", actions, (self.num_envs,), action_type, self.device)
        self._advance(actions.contiguous())
        if self._invalid[0]:
            environment, self._invalid[0] = int(self._invalid[0]) - 1, 0
            raise ArgumentError(f"actions: found one other than 0 (left) and 1 (right) for environment {environment}")
        return self.carts.state, self._reward, self.carts.terminated, self.carts.truncated, self._info

    def _advance(self, actions: torch.Tensor) -> None:
        if actions.is_cuda:
            if actions.dtype not in self._step_cuda:
                self._step_cuda[actions.dtype] = self._bind_step(actions.dtype)
            step = self._step_cuda[actions.dtype]
            step.change(0, actions.data_ptr())
            # The direction matters for nothing but speed: a graph keeps those of its recording, and goes on alternating
            # if it has an even number of steps. It cannot follow from the clock: a block reads its own, and which that
            # is depends on the direction.
            step.change(1, self._backward)
            step()
            self._backward = 1 - self._backward
        elif self.num_envs <= FEW:
            step_few(actions.numpy(), self.kernel_carts)
        else:
            step_cpu(actions.numpy(), self.kernel_carts)
        self._info.expire()

    def _restart(self) -> None:
        carts = self.carts
        for tensor in (carts.terminated, carts.truncated, carts.timed_out, carts.count):
            tensor.zero_()
        self._draw_starts()

    def _draw_starts(self) -> None:
        if self.device.type == "cuda":
            launch(restart_cuda, self.num_envs, self.kernel_carts)
        else:
            restart_cpu(self.kernel_carts)
        self._info.expire()

    @property
    def steps(self) -> torch.Tensor:
        """i16 [N]: steps taken in each running episode."""
        return self.carts.clock[0].to(torch.int16) - self.carts.began

    def _set_steps(self, steps: torch.Tensor) -> None:
        self.carts.began.copy_(self.carts.clock[0].to(torch.int16) - steps)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that the next step depends on, copied."""
        carts = self.carts
        return {
            "state": carts.state.clone(), "steps": self.steps.clone(), "clock": carts.clock[0].clone(),
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
        self.carts.state.copy_(state["state"])
        self.carts.clock.copy_(state["clock"])
        self._set_steps(state["steps"].to(self.device))
        self.carts = self.carts._replace(seed=int(state["seed"]))
        self._bind()


def _check_int(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ArgumentError(f"{name}: found {value!r}, expected an integer from {low} to {high}")
