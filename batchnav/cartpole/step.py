"""Fast CartPole step, an introduction to the project's kernels. `plain` computes the same; read it first.

One step is some forty multiplications and additions. Python needs microseconds for it, nearly all of them overhead; a
GPU computes thousands of steps in the time of one kernel launch. The kernels therefore step all carts in one launch and
move as few bytes as possible:

1. The state of all N carts is one array of N rows of four float32, 16 bytes: one memory access reads or writes a row.
   The same array is the observation; nothing is copied.
2. One GPU thread steps one cart (`step_cart`). On the CPU all cores share the blocks of carts, and a core pushes 8 or
   16 carts at once (`push_carts`). The physics is one function for both (`physics.push`).
3. An ended episode restarts within the same step. Its start comes from a counter-based generator, a function of (seed,
   environment, clock): there is no generator state to load and store, and results do not depend on the number of
   threads. The counter is the clock, not the number of the episode: each cart would have to store its number, while a
   block of carts shares one `clock`. No episode is shorter than eight steps, so all eight steps of a window (`WINDOW`)
   can have the same start state: no cart needs it twice.
4. Rare results are written rarely. In a step of a random agent one cart in 22 ends its episode, and a block writes
   final state and length for these carts only. They are packed: GPU memory moves at least 32 bytes at a time, so one
   scattered number costs as much as eight in a row. `episodes` scatters them to environments when `info` is read.
   Truncation is written only in blocks with a 500th step in this step, or in the previous one, whose flag must be
   cleared.
5. Constant values are not written again: the reward is 1 at every step and is written once. The age of an episode
   changes at every step, but the clock at its start does not, so that is stored.
6. Cached carts are stepped first. If there are more carts than the GPU's cache holds, steps that always went from the
   first to the last cart would find none of them in the cache. Steps alternate in direction: each begins with the carts
   that the previous one ended with.
7. Steps overlap on GPUs that support it: a kernel is launched while the previous one still runs. Its first blocks are
   set up and wait (`wait_for_predecessor`) just before they read the results of the previous kernel.

A step then moves 43 bytes per cart, or 36 with actions of one byte (`BYTES_PER_STEP`), and with many carts memory
bandwidth is the limit. If the policy runs inside the kernel too, the state can stay in registers: see `rollout`.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange

from batchnav.cartpole.episodes import write_record
from batchnav.cartpole.physics import MAX_STEPS, age, has_failed, push, start
from batchnav.runtime.kernels.decorators import (
    cpu_function,
    cuda,
    cuda_kernel,
    device_function,
    inline_function,
    lean_kernel,
)
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import let_successor_start, wait_for_predecessor

MAX_BLOCK = 1024
"""Largest number of threads in a CUDA block."""

BYTES_PER_STEP = {torch.int64: 16 + 2 + 8 + 16 + 1, torch.uint8: 16 + 2 + 1 + 16 + 1}
"""Bytes per cart by the type of the actions. Read: state, `began`, action. Written: state, terminated."""
BYTES_PER_END = 32
"""Size of an ended episode's record: 1.5 bytes per step of a random agent, which ends 1 episode in 22 steps. The clock
at the start of the next episode adds one byte per step: it has 2 bytes, but a write moves the 32 bytes of 16 carts."""

_TICK, _FIRST, _MAX_STEPS = np.int64(1), np.int32(0), np.int32(MAX_STEPS)


@inline_function
def start_cart(i, clock, carts_out):
    """Begin an episode of environment i at this clock."""
    store4(carts_out.state, i, _FIRST, start(carts_out.seed, i, clock))
    carts_out.began[np.uint32(i)] = np.int16(clock)


@device_function
def push_carts(actions, state_out, terminated_out):
    """Push some carts and write which of them have failed. Returns the bitwise or of the actions.

    state_out has the states of all carts in one row. The loop has no calls or branches, so a core computes 8 or 16
    carts at a time.
    """
    bits = actions[0]
    for k in range(len(actions)):
        j = 4 * k
        cart = push((state_out[j], state_out[j + 1], state_out[j + 2], state_out[j + 3]), actions[k] == 1)
        state_out[j], state_out[j + 1], state_out[j + 2], state_out[j + 3] = cart
        terminated_out[k] = has_failed(cart)
        bits |= actions[k]
    return bits


@inline_function
def step_block(b, actions, carts_out):
    """Step the carts of block b: push all of them, then restart those whose episode has ended."""
    first, count = np.int32(b * carts_out.block), np.int32(0)
    stop = min(first + carts_out.block, len(actions))
    clock, timed_out, times_out = carts_out.clock[b] + _TICK, carts_out.timed_out[b] != _FIRST, False
    bits = push_carts(actions[first:stop], carts_out.state[first:stop].reshape(-1), carts_out.terminated[first:stop])
    for at in range(np.uint32(first), np.uint32(stop)):  # a signed index would add a check for negative values
        steps = age(carts_out.began[at], clock)
        truncated = steps >= _MAX_STEPS
        if truncated | timed_out:
            carts_out.truncated[at] = truncated
        if carts_out.terminated[at] | truncated:
            i, times_out = np.int32(at), times_out | truncated
            write_record(
                np.int32(first + count), np.int32(i - first), load4(carts_out.state, i, _FIRST), steps, carts_out.record
            )
            start_cart(i, clock, carts_out)
            count = np.int32(count + 1)
    if bits < 0 or bits > 1:
        for k in range(first, stop):
            if actions[k] < 0 or actions[k] > 1:
                carts_out.invalid[0] = np.int32(k + 1)
    carts_out.clock[b] = clock
    carts_out.count[b] = count
    carts_out.timed_out[b] = times_out


@lean_kernel
def step_cpu(actions, carts_out):
    """Step every cart."""
    for b in prange(len(carts_out.clock)):
        step_block(b, actions, carts_out)


@cpu_function
def step_few(actions, carts_out):
    """Step every cart in one thread: with few carts, starting the other threads takes longer than the work."""
    for b in range(len(carts_out.clock)):
        step_block(b, actions, carts_out)


@inline_function
def step_cart(i, cart, began, action, clock, timed_out, carts_out):
    """One step of environment i, from its state and the start of its episode: push, check for the end, write.

    clock counts this step too. timed_out is set where a cart of the block had its 500th step in the previous step.

    Returns True where the episode ended, with its final state and length; the caller then writes the record and the new
    state.
    """
    at = np.uint32(i)  # a signed index would add a check for negative values
    cart, steps = push(cart, action == 1), age(began, clock)
    terminated = has_failed(cart)
    truncated = steps >= _MAX_STEPS
    ended = terminated | truncated
    if not ended:
        store4(carts_out.state, i, _FIRST, cart)
    carts_out.terminated[at] = terminated
    if truncated | timed_out:
        carts_out.truncated[at] = truncated
    if action < 0 or action > 1:
        carts_out.invalid[0] = i + np.int32(1)  # several threads may write; any value is valid
    return ended, cart, steps


@cuda_kernel
def step_cuda(actions, backward, carts_out):
    """Step every cart, one per thread; in reverse order of blocks if `backward` is not 0.

    Threads run in lock-step, 32 to a warp. A random agent's episode lasts 22 steps, so three warps in four have a cart
    that restarts. An immediate restart would make 31 threads wait for as many instructions as the step itself has. A
    block therefore lists its ended carts; after all are stepped, its first threads restart one each, together.
    """
    listed = cuda.shared.array(MAX_BLOCK, np.uint16)  # threads whose carts have ended
    num_listed, times_out = cuda.shared.array(1, np.int32), cuda.shared.array(1, np.int32)
    block, thread = np.uint32(cuda.blockIdx.x), np.int32(cuda.threadIdx.x)
    if backward != 0:
        block = np.uint32(np.uint32(cuda.gridDim.x - 1) - block)
    first, last = np.int32(np.int32(block) * np.int32(cuda.blockDim.x)), np.int32(len(actions) - 1)
    i = np.int32(first + thread)
    near = min(i, last)  # a thread past the last cart reads the last cart and writes nothing
    at = np.uint32(near)
    if thread == 0:
        num_listed[0] = times_out[0] = 0
    wait_for_predecessor()  # no line above reads memory that it may still write
    cart, began, action = load4(carts_out.state, near, _FIRST), carts_out.began[at], actions[at]
    clock, timed_out = carts_out.clock[block], carts_out.timed_out[block]
    let_successor_start()
    cuda.syncthreads()  # not earlier: the reads are in flight meanwhile
    clock, timed_out = clock + _TICK, timed_out != _FIRST
    if i <= last:
        ended, cart, steps = step_cart(i, cart, began, action, clock, timed_out, carts_out)
        if ended:
            if steps >= _MAX_STEPS:
                times_out[0] = 1  # several threads may write it
            place = np.int32(cuda.atomic.add(num_listed, 0, 1))
            listed[np.uint32(place)] = np.uint16(thread)
            write_record(np.int32(first + place), thread, cart, steps, carts_out.record)
    cuda.syncthreads()
    if thread < num_listed[0]:
        start_cart(np.int32(first + np.int32(listed[np.uint32(thread)])), clock, carts_out)
    if thread == 0:  # after the barrier all threads have read clock and flag
        carts_out.clock[block] = clock
        carts_out.count[block] = num_listed[0]
        carts_out.timed_out[block] = times_out[0]


@kernel(index="np.int32", fastmath=True)
def restart(i, carts_out):
    """Start an episode of a cart."""
    start_cart(i, carts_out.clock[0], carts_out)
