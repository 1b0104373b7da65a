"""Timing of CartPole: interleaved candidates, CUDA graphs, and kernels that exist only to be measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS, START_RANGE, WINDOW, WINDOW_BITS, age, has_failed, push, start
from batchnav.cartpole.rollout import random_bits
from batchnav.report.results import row
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, inline_function
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.launch import launch

SAMPLE_SECONDS = 0.03
"""Length of a sample, seconds."""
REPEATS = 7
"""Number of samples of a measurement."""
ACTION_ROWS = 16
"""Steps of random actions, sampled before the measurement and used in turn."""
STEPS_AT_ONCE = 96
"""Steps of one CUDA graph, one scan or one fused launch in comparisons. Even, since successive steps traverse the
environments in alternating directions."""
READ, SAMPLED, COMPUTED = "read", "sampled inside", "computed inside"
"""Sources of a step's actions: a tensor filled before; a generator, or a policy, inside the timed call."""
MAX_SPREAD = 0.25
"""Limit of (p95 - p5) / median in comparisons with CPU libraries; a larger spread is due to the machine's load."""

_FIRST, _ONE, _ZERO, _MAX_STEPS = np.int32(0), np.int32(1), np.float32(0.0), np.int32(MAX_STEPS)
_LAST_BIT, _LAST_OF_WINDOW, _WINDOW_BITS = np.int32(31), np.int32(WINDOW - 1), np.int64(WINDOW_BITS)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1, _LOW, _HIGH = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85), np.uint64(0xFFFFFFFF), np.uint64(32)
_UNIT, _HALF, _START_WIDTH = np.float32(2.0**-24), np.float32(0.5), np.float32(2.0 * START_RANGE)


class Candidate(NamedTuple):
    """A call to time, and the work that it does."""

    call: Callable[[], object]
    steps: int = 1
    """Steps of every environment in one call."""
    actions: str = READ
    """Source of the actions: READ, SAMPLED or COMPUTED."""


def throughput(
    part: str,
    candidates: dict[str, Candidate],
    device: torch.device,
    num_envs: int,
    repeats: int = REPEATS,
    seconds: float = SAMPLE_SECONDS,
    **params,
) -> list[dict]:
    """Measure the candidates in turn; one steps_per_second row for each."""
    calls = {who: candidate.call for who, candidate in candidates.items()}
    samples = interleaved(calls, device, repeats, seconds)
    return [
        row(
            "cartpole", "steps_per_second", [num_envs * candidate.steps / s for s in samples[who]],
            {"part": part, "how": who, "num_envs": num_envs, "steps_per_call": candidate.steps,
             "actions": candidate.actions, **params},
            device,
        )
        for who, candidate in candidates.items()
    ]  # fmt: skip


def spread(measured: dict) -> float:
    """Spread of a row: (p95 - p5) / median."""
    return (measured["p95"] - measured["p5"]) / measured["value"]


def steady(rows: list[dict]) -> list[dict]:
    """The rows, or an empty list if the spread of one exceeds MAX_SPREAD; then prints the reason."""
    unsteady = [r for r in rows if spread(r) > MAX_SPREAD]
    for r in unsteady:
        how, n = r["params"]["how"], r["params"]["num_envs"]
        print(f"refused: {how} at {n:,} environments: spread {spread(r):.0%}, expected at most {MAX_SPREAD:.0%}")
    return [] if unsteady else rows


def wait(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleaved(
    candidates: dict[str, Callable[[], object]],
    device: torch.device,
    repeats: int = REPEATS,
    seconds: float = SAMPLE_SECONDS,
) -> dict[str, list[float]]:
    """Seconds per call of each candidate, `repeats` samples each.

    The candidates take turns, so that a change of the machine's load affects all of them. A sample takes about
    `seconds`.
    """
    calls = {name: _calls_per_sample(call, device, seconds) for name, call in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, call in candidates.items():
            samples[name].append(_seconds(call, calls[name], device))
    return samples


def _calls_per_sample(call: Callable[[], object], device: torch.device, seconds: float) -> int:
    """Number of calls that take about `seconds`; also warms up."""
    _seconds(call, 2, device)
    once = _seconds(call, 3, device)
    return max(1, round(seconds / max(once, 1e-7)))


def _seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Mean seconds of `calls` calls, until the device is idle."""
    finish = getattr(call, "wait", lambda: wait(device))  # peers on another runtime provide their own
    finish()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    finish()
    return (time.perf_counter() - begin) / calls


def host_seconds(call: Callable[[], None], calls: int = 200) -> list[float]:
    """Host seconds per call, without waiting for the device."""
    samples = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - begin) / calls)
    return samples


def sample_actions(num_envs: int, device: torch.device) -> torch.Tensor:
    """Random actions i64 [ACTION_ROWS, num_envs]."""
    generator = torch.Generator(device).manual_seed(0)
    return torch.randint(0, 2, (ACTION_ROWS, num_envs), generator=generator, dtype=torch.int64, device=device)


def in_turn(step: Callable, actions: Iterable) -> Callable[[], None]:
    """Make a call that takes one step with the next row of `actions`, a tensor or an array."""
    rows, count = list(actions), [0]

    def call() -> None:
        count[0] += 1
        step(rows[count[0] % len(rows)])

    return call


def captured(step: Callable[[torch.Tensor], object], actions: torch.Tensor, steps: int) -> Callable[[], None]:
    """Make a call that replays a CUDA graph of `steps` steps."""
    rows = list(actions)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for row in rows[:3]:
            step(row)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for k in range(steps):
            step(rows[k % len(rows)])

    def call() -> None:
        graph.replay()

    call.keeps = step  # keeps the environment alive: the graph uses its memory without owning it
    return call


def bound_step(env: CartPoleEnv) -> Callable[[torch.Tensor], None]:
    """Make a step that is one raw kernel launch from Python, without the rest of `env.step`."""

    def step(actions: torch.Tensor) -> None:
        env._advance(actions)

    return step


def informed_step(env: CartPoleEnv) -> Callable[[torch.Tensor], None]:
    """Make a step that is `bound_step` and computes `info`."""

    def step(actions: torch.Tensor) -> None:
        env._advance(actions)
        env._info["final_obs"]  # any key computes the whole info

    return step


def numba_step(env: CartPoleEnv, kernel) -> Callable[[torch.Tensor], None]:
    """Make a step that launches through numba, which inspects every argument each time.

    It traverses the environments in one direction, and launches do not overlap.
    """

    def step(actions: torch.Tensor) -> None:
        launch(kernel, env.num_envs, view(actions), 0, env.kernel_carts, block=env.block)

    return step


@cuda_kernel
def empty_kernel(actions, carts_out):
    """Do nothing, to measure a launch that does not overlap with the previous one."""


@cuda_kernel
def work_kernel(actions, work, state_out):
    """Read the state, compute the dynamics `work` times, and write the state."""
    i = np.int32(cuda.grid(1))
    if i < len(actions):
        cart, right = load4(state_out, i, _FIRST), actions[i] == 1
        for _ in range(work):
            cart = push(cart, right)
        store4(state_out, i, _FIRST, cart)


@inline_function
def philox_7(c0, c1, c2, k0, k1):
    """Philox 4x32 with 7 rounds, the smallest number that passes BigCrush (Salmon et al. 2011, table 2)."""
    c3 = np.uint32(0)
    for _ in range(7):
        p0, p1 = _M0 * np.uint64(c0), _M1 * np.uint64(c2)
        c0, c1, c2, c3 = (
            np.uint32((p1 >> _HIGH) ^ c1 ^ k0), np.uint32(p1 & _LOW),
            np.uint32((p0 >> _HIGH) ^ c3 ^ k1), np.uint32(p0 & _LOW),
        )  # fmt: skip
        k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
    return c0, c1, c2, c3


@inline_function
def as_start(bits):
    """Convert 32 random bits to one of the four components of the initial state."""
    return (np.float32(np.uint32(bits >> np.uint32(8))) * _UNIT - _HALF) * _START_WIDTH


@inline_function
def start_philox_7(seed, environment, clock):
    """`physics.start` with Philox of 7 rounds."""
    key, window = np.uint64(seed), np.uint32(clock >> _WINDOW_BITS)
    a, b, c, d = philox_7(np.uint32(environment), window, np.uint32(0), np.uint32(key & _LOW), np.uint32(key >> _HIGH))
    return as_start(a), as_start(b), as_start(c), as_start(d)


@inline_function
def start_hash(seed, environment, clock):
    """`physics.start` with a hash (two rounds of multiply and shift): fast, but statistically weak."""
    window = np.uint32(clock >> _WINDOW_BITS)
    bits = np.uint32(environment) * np.uint32(0x9E3779B9) + window * np.uint32(0x85EBCA6B) + np.uint32(seed)
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D))
    a = np.uint32((bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B))
    b = np.uint32(a * np.uint32(0xC2B2AE35) + _W0)
    c = np.uint32(b * np.uint32(0xC2B2AE35) + _W0)
    return as_start(a), as_start(b), as_start(c), as_start(np.uint32(c * np.uint32(0xC2B2AE35) + _W0))


@inline_function
def start_constant(seed, environment, clock):
    """Constant initial state: a lower bound of the time."""
    return _ZERO, _ZERO, _ZERO, _ZERO


def make_roll(start_of: Callable, ahead: bool):
    """Make the rollout kernel of the random policy with another generator of initial states.

    `ahead`: True to sample initial states once per window of steps for all threads; False to sample at each reset.
    """

    @cuda_kernel
    def roll(clock, num_steps, carts_out):
        i = np.int32(cuda.grid(1))
        if i < len(carts_out.began):
            cart, steps = load4(carts_out.state, i, _FIRST), age(carts_out.began[i], clock)
            bits, following = random_bits(carts_out.seed, i, clock), cart
            phase = np.int32(clock & _LAST_BIT)
            for k in range(num_steps):
                if ahead and (k == 0 or np.int32((phase + k + 1) & _LAST_OF_WINDOW) == _FIRST):
                    following = start_of(carts_out.seed, i, clock + k + 1)
                bit = np.int32((phase + k) & _LAST_BIT)
                if bit == _FIRST:
                    bits = random_bits(carts_out.seed, i, clock + k)
                cart = push(cart, np.int32(bits >> np.uint32(bit)) & _ONE == _ONE)
                steps = np.int32(steps + _ONE)
                if has_failed(cart) | (steps >= _MAX_STEPS):
                    cart = following if ahead else start_of(carts_out.seed, i, clock + k + 1)
                    steps = _FIRST
            store4(carts_out.state, i, _FIRST, cart)
            carts_out.began[i] = np.int16(clock - steps)  # relative to the unchanged clock of the next call

    return roll


GENERATORS = {"philox 10 rounds": start, "philox 7 rounds": start_philox_7, "hash": start_hash, "none": start_constant}
"""Generators of initial states."""
AHEAD = {"in the branch": False, f"ahead, every {WINDOW} steps": True}
"""When initial states are sampled: argument `ahead` of `make_roll` by name."""


@cpu_kernel
def work_cpu(actions, work, state_out):
    """CPU form of `work_kernel`."""
    for i in prange(len(actions)):
        cart, right = load4(state_out, np.int32(i), _FIRST), actions[i] == 1
        for _ in range(work):
            cart = push(cart, right)
        store4(state_out, np.int32(i), _FIRST, cart)
