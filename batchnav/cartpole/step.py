"""CartPole's step, made fast: the place to learn how the others work. `plain` does the same and is to be read first.

One step is some forty multiplications and additions. Python needs microseconds for it, nearly all of them for being
Python; a GPU does thousands of steps in the time it takes to ask it for one. So everything here is about asking once
for all carts, and about moving no byte that can stay where it is:

1. The state of all N carts is one array of N rows of four float32, 16 bytes: one memory access reads or writes a row.
   The same array is the observation; nothing is copied.
2. One GPU thread steps one cart (`step_cart`). On the CPU blocks of carts are spread over all cores, and a core pushes
   8 or 16 carts at once (`push_carts`). The physics is the same function (`physics.push`).
3. An episode that ends starts anew within the same step. Its start comes from a counter-based generator, a function of
   (seed, environment, time), so there is no generator's state to load and store, and a run is the same whatever the
   number of threads. Why the time, and not the episode's number? Each cart would have to keep its number in memory,
   while the time is the same for all: each block of carts keeps one `clock`. And no episode is shorter than eight
   steps, so the eight steps of a window (`WINDOW`) can share a start: no cart needs it twice.
4. What is rarely needed is rarely touched. In a random agent's step one cart in 22 ends its episode, and only for those
   a block writes how and after how many steps. It writes them as a list: a GPU's memory moves 32 bytes at the least, so
   one number here and one there cost as much as eight in a row. Where somebody reads `info`, the lists are spread out
   by environment (`episodes`). That a cart had its 500th step is written only by blocks in which one had it in this
   step, or in the step before, whose note has to go.
5. What does not change is not touched: the reward is 1 at every step, so it is written once, for ever. An episode's age
   changes at every step, but the time when it began does not; so that time is what is kept.
6. What lies near is taken first. More carts than the GPU's cache holds push one another out of it; if every step went
   from the first to the last, it would find none of them. So steps go back and forth: each begins with the carts that
   the last one ended with.
7. No pause between steps, on GPUs that can do it: a kernel is launched while the one before still runs. Its first
   blocks are set up, and wait (`wait_for_predecessor`) just before they read what the other writes.

So a step moves 43 bytes per cart, or 36 where actions come as single bytes (`BYTES_PER_STEP`), and with many carts the
memory's speed is the limit. Where even the policy runs inside the kernel, the state need not leave the registers:
`rollout` goes on from here.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange

from batchnav.cartpole.episodes import write_record
from batchnav.cartpole.physics import MAX_STEPS, age, has_failed, push, start
from batchnav.runtime.kernels.decorators import (
    cpu_function,
    cpu_kernel,
    cuda,
    cuda_kernel,
    device_function,
    inline_function,
)
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.synchronization import let_successor_start, wait_for_predecessor

MAX_BLOCK = 1024
"""CUDA's most threads in a block."""

BYTES_PER_STEP = {torch.int64: 16 + 2 + 8 + 16 + 1, torch.uint8: 16 + 2 + 1 + 16 + 1}
"""By the type of the actions. Read: state, when the episode began, action. Written: state, whether it failed."""
BYTES_PER_END = 32
"""An ended episode's record: for a random agent, with 1 cart in 22 ended, 1.5 bytes per step more. Its next episode's
beginning costs another byte per step: those are 2 bytes, but memory writes the 32 that 16 carts share."""

_TICK, _FIRST, _MAX_STEPS = np.int64(1), np.int32(0), np.int32(MAX_STEPS)


@inline_function
def start_cart(i, clock, carts_out):
    """Begin an episode of environment i at this time."""
    store4(carts_out.state, i, _FIRST, start(carts_out.seed, i, clock))
    carts_out.began[np.uint32(i)] = np.int16(clock)


@device_function
def push_carts(actions, state_out, terminated_out):
    """Push some carts, and note which have failed: a plain loop without calls or jumps, so 8 or 16 carts at a time.

    `state_out`: their numbers in a row. Returns all bits that any of the actions has set.
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
    """Step the carts of block b: push all, then see which episodes have ended."""
    first, count = np.int32(b * carts_out.block), np.int32(0)
    stop = min(first + carts_out.block, len(actions))
    clock, timed_out, times_out = carts_out.clock[b] + _TICK, carts_out.timed_out[b] != _FIRST, False
    bits = push_carts(actions[first:stop], carts_out.state[first:stop].reshape(-1), carts_out.terminated[first:stop])
    for at in range(np.uint32(first), np.uint32(stop)):  # a signed index would be checked for being negative
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


@cpu_kernel
def step_cpu(actions, carts_out):
    """Step every cart."""
    for b in prange(len(carts_out.clock)):
        step_block(b, actions, carts_out)


@cpu_function
def step_few(actions, carts_out):
    """Step every cart, in one thread: for so few, waking the others takes longer than the work."""
    for b in range(len(carts_out.clock)):
        step_block(b, actions, carts_out)


@inline_function
def step_cart(i, cart, began, action, clock, timed_out, carts_out):
    """One step of environment i, from its state and when its episode began: push, judge, write.

    `clock`: the time after the step. `timed_out`: whether a cart of its block had its 500th step in the last one.

    Returns whether the episode ended, with its final state and length: then its record and a new state are still to be
    written.
    """
    at = np.uint32(i)  # a signed index would be checked for being negative
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
        carts_out.invalid[0] = i + np.int32(1)  # several may write; any of them will do
    return ended, cart, steps


@cuda_kernel
def step_cuda(actions, backward, carts_out):
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
    near = min(i, last)  # a thread past the last cart reads that one, and writes nothing
    at = np.uint32(near)
    if thread == 0:
        num_listed[0] = times_out[0] = 0
    wait_for_predecessor()  # nothing above this line touches what it may still write
    cart, began, action = load4(carts_out.state, near, _FIRST), carts_out.began[at], actions[at]
    clock, timed_out = carts_out.clock[block], carts_out.timed_out[block]
    let_successor_start()
    cuda.syncthreads()  # and not sooner: meanwhile all reads are under way
    clock, timed_out = clock + _TICK, timed_out != _FIRST
    if i <= last:
        ended, cart, steps = step_cart(i, cart, began, action, clock, timed_out, carts_out)
        if ended:
            if steps >= _MAX_STEPS:
                times_out[0] = 1  # several may write it
            place = np.int32(cuda.atomic.add(num_listed, 0, 1))
            listed[np.uint32(place)] = np.uint16(thread)
            write_record(np.int32(first + place), thread, cart, steps, carts_out.record)
    cuda.syncthreads()
    if thread < num_listed[0]:
        start_cart(np.int32(first + np.int32(listed[np.uint32(thread)])), clock, carts_out)
    if thread == 0:  # all threads have passed the barrier, so all have read clock and flag
        carts_out.clock[block] = clock
        carts_out.count[block] = num_listed[0]
        carts_out.timed_out[block] = times_out[0]


@cpu_kernel
def restart_cpu(carts_out):
    """Put every cart where an episode starts."""
    for i in prange(len(carts_out.began)):
        start_cart(np.int32(i), carts_out.clock[0], carts_out)


@cuda_kernel
def restart_cuda(carts_out):
    """Put every cart where an episode starts, one per thread."""
    i = np.int32(cuda.grid(1))
    if i < len(carts_out.began):
        start_cart(i, carts_out.clock[0], carts_out)
