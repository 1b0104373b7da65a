"""Benchmark of CartPole: throughput, its limits, and other libraries in the same run.

    python eval/speed_cartpole.py                               # on a GPU if there is one, else on the CPU
    python eval/speed_cartpole.py --parts ppo batch             # learning curves
    python eval/speed_cartpole.py --device cpu --parts peers    # other libraries, on an otherwise idle machine
    python eval/cartpole/page.py                                # write eval/cartpole/README.md from the rows

Option --record appends rows to eval/results/cartpole.jsonl. A library that is not installed is skipped with a message.
Comparisons with CPU libraries are rejected if the spread of either side exceeds `bench.MAX_SPREAD`.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator

import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.rollout import BYTES_PER_TRAJECTORY_STEP, CartPoleRollout, Trajectory
from batchnav.cartpole.step import BYTES_PER_STEP, step_cuda
from batchnav.cartpole.torch_env import TorchCartPoleEnv, torch_push, torch_step
from batchnav.report.results import record, row
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.launch import BoundKernel
from eval.cartpole import bench, peers
from eval.cartpole.bench import (
    COMPUTED,
    SAMPLED,
    STEPS_AT_ONCE,
    Candidate,
    captured,
    host_seconds,
    in_turn,
    interleaved,
    sample_actions,
    steady,
    throughput,
)
from eval.cartpole.ppo import batch_rows, ppo_rows

COUNTS_CUDA = (1, 64, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 10_000_000)
COUNTS_CPU = (1, 64, 1024, 16_384, 65_536, 1_048_576)
COMPARED = (4096, 65_536, 1_048_576, 10_000_000)
"""Numbers of environments for comparisons on the GPU."""
BLOCKS = (1, 8, 32, 64, 128, 256, 1024)
"""Threads per block."""
WORK = (1, 10, 100, 1000)
"""Repetitions of the dynamics in a step."""
FUSED_STEPS = 1000
"""Steps of one fused launch."""
COPIED_BYTES = 2**30
"""Size of the copy that measures the device's bandwidth."""
PEER_REPEATS, PEER_SECONDS = 9, 0.3
"""Number of samples of CPU libraries, and seconds of each; long enough to average over the scheduler's effects."""


def scaling(device: torch.device) -> Iterator[list[dict]]:
    """Steps per second against the number of environments: `env.step`, kernel launches, CUDA graphs, and peers."""
    cuda = device.type == "cuda"
    for n in COUNTS_CUDA if cuda else COUNTS_CPU:
        actions, env = sample_actions(n, device), CartPoleEnv(n, device)
        candidates = {"env.step": Candidate(in_turn(env.step, actions))}
        if cuda:
            candidates |= cuda_candidates(n, device, actions)
        if n in COMPARED or not cuda:
            candidates |= torch_candidates(n, device, actions)
        if cuda and n in COMPARED:
            rollout = CartPoleRollout(CartPoleEnv(n, device), STEPS_AT_ONCE)
            call = captured(lambda _, rollout=rollout: rollout(), actions, 1)  # a graph: no launch by numba
            candidates["fused random, graph"] = Candidate(call, STEPS_AT_ONCE, SAMPLED)
        if cuda and n in COMPARED[:3]:
            candidates |= dict(filter(None, (attempt(*peer, n) for peer in peers.JAX_PEERS.items())))
        yield throughput("scaling", candidates, device, n)


def cuda_candidates(n: int, device: torch.device, actions: torch.Tensor) -> dict[str, Candidate]:
    """Candidates on a GPU: one launch per step from Python, and graphs of launches."""
    graphs = {
        "graph": (bench.bound_step, actions),
        "graph, actions u8": (bench.bound_step, actions.to(torch.uint8)),
        "graph, info read": (bench.informed_step, actions),
    }
    return {
        "raw launch": Candidate(in_turn(bench.bound_step(CartPoleEnv(n, device)), actions)),
        "numba launch": Candidate(in_turn(bench.numba_step(CartPoleEnv(n, device), step_cuda), actions)),
        **{
            who: Candidate(captured(step_of(CartPoleEnv(n, device)), rows, STEPS_AT_ONCE), STEPS_AT_ONCE)
            for who, (step_of, rows) in graphs.items()
        },
    }


def torch_candidates(n: int, device: torch.device, actions: torch.Tensor) -> dict[str, Candidate]:
    """PyTorch candidates: eager, compiled, and on a GPU compiled in a CUDA graph of STEPS_AT_ONCE steps."""
    found = {"torch eager": Candidate(in_turn(TorchCartPoleEnv(n, device).step, actions))}
    torch._dynamo.reset()  # compile for this size alone
    who, step = "torch compiled", torch.compile(torch_step_in_place, dynamic=False)

    def advance() -> Callable[[torch.Tensor], object]:
        state, steps = (
            torch.zeros(n, 4, dtype=torch.float32, device=device),
            torch.zeros(n, dtype=torch.int16, device=device),
        )
        return functools.partial(step, state, steps)

    try:
        advance()(actions[0])
    except Exception as error:  # no compiler on this machine; inductor raises various errors
        print(f"{who}: {type(error).__name__}: {str(error).splitlines()[0]}")
        return found
    found[who] = Candidate(in_turn(advance(), actions))
    if device.type == "cuda":
        found[f"{who}, graph"] = Candidate(captured(advance(), actions, STEPS_AT_ONCE), STEPS_AT_ONCE)
    return found


def torch_step_in_place(state: torch.Tensor, steps: torch.Tensor, actions: torch.Tensor) -> list[torch.Tensor]:
    """Step that updates the state in place, as a CUDA graph requires; compiling it as a whole avoids a copy."""
    new_state, new_steps, *rest = torch_step(state, steps, actions, torch.rand_like(state))
    state.copy_(new_state)
    steps.copy_(new_steps)
    return rest


def fused(device: torch.device) -> Iterator[list[dict]]:
    """Steps per second with many steps per launch and the policy in the kernel."""
    cuda = device.type == "cuda"
    for n in COMPARED if cuda else (64, 4096, 65_536):
        k = FUSED_STEPS if cuda else max(10, min(FUSED_STEPS, 16_000_000 // n))
        written = max(8, min(k, (200_000_000 if cuda else 4_000_000) // n))
        weights = torch.tensor([0.1, 0.4, 1.0, 0.6], dtype=torch.float32, device=device).repeat(n, 1)
        runs = {
            "fused random": CartPoleRollout(CartPoleEnv(n, device), k),
            "fused linear": CartPoleRollout(CartPoleEnv(n, device), k, weights),
            "fused random, trajectory": CartPoleRollout(
                CartPoleEnv(n, device), written, None, Trajectory.empty(written, n, device)
            ),
        }
        candidates = {
            who: Candidate(run, run.num_steps, COMPUTED if who == "fused linear" else SAMPLED)
            for who, run in runs.items()
        }
        yield throughput("fused", candidates, device, n)


def block(device: torch.device) -> Iterator[list[dict]]:
    """Seconds per step in a CUDA graph against the number of environments, for several numbers of threads per block."""
    for n in (*(4**k for k in range(12)), COUNTS_CUDA[-1]):
        actions = sample_actions(n, device)
        steps = {size: bench.bound_step(CartPoleEnv(n, device, block=size)) for size in BLOCKS}
        calls = {size: captured(step, actions, STEPS_AT_ONCE) for size, step in steps.items()}
        yield [
            row(
                "cartpole",
                "seconds_per_step",
                [s / STEPS_AT_ONCE for s in samples],
                {"part": "block", "how": "graph", "num_envs": n, "block": size},
                device,
            )
            for size, samples in interleaved(calls, device, repeats=5).items()
        ]


def work(device: torch.device) -> Iterator[list[dict]]:
    """Seconds per step against work per step (the dynamics 1 to 1000 times), for a kernel and for PyTorch."""
    n = 65_536 if device.type == "cuda" else 4096
    right = torch.ones(n, dtype=torch.bool, device=device)

    def repeat(times: int, state: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            state = torch_push(state, right)
        return state

    for times in WORK:
        state = torch.zeros(n, 4, dtype=torch.float32, device=device)
        calls = {"torch eager": functools.partial(repeat, times, state)}
        if times <= 100:  # the compiler takes minutes to unroll 1000 repetitions
            torch._dynamo.reset()
            compiled = torch.compile(functools.partial(repeat, times), dynamic=False)
            calls["torch compiled"] = functools.partial(compiled, state)
        calls["kernel"] = kernel_work(times, n, device)
        for who in list(calls):
            try:
                calls[who]()
            except Exception as error:  # no compiler on this machine
                print(f"work, {who}: {type(error).__name__}")
                del calls[who]
        params = {"part": "work", "num_envs": n, "work": times}
        yield [
            row("cartpole", "seconds_per_step", samples, {**params, "how": who}, device)
            for who, samples in interleaved(calls, device, repeats=5).items()
        ]


def kernel_work(times: int, n: int, device: torch.device) -> Callable[[], None]:
    """Make a call that computes the dynamics `times` times in one launch."""
    actions, state = (
        torch.ones(n, dtype=torch.int64, device=device),
        torch.zeros(n, 4, dtype=torch.float32, device=device),
    )
    args = view(actions), times, view(state)
    if device.type == "cuda":
        return BoundKernel(bench.work_kernel, n, *args)
    return lambda: bench.work_cpu(*args)


def generator(device: torch.device) -> Iterator[list[dict]]:
    """Fused steps per second for each generator of initial states, sampled at each reset or ahead."""
    kernels = {
        f"{name}, {when}": bench.make_roll(start_of, ahead)
        for name, start_of in bench.GENERATORS.items()
        for when, ahead in bench.AHEAD.items()
    }
    for n in (65_536, 10_000_000):
        envs = {who: CartPoleEnv(n, device) for who in kernels}
        calls = {who: BoundKernel(kernel, n, 0, FUSED_STEPS, envs[who].kernel_carts) for who, kernel in kernels.items()}
        candidates = {who: Candidate(call, FUSED_STEPS, SAMPLED) for who, call in calls.items()}
        yield throughput("generator", candidates, device, n, repeats=5)


def breakdown(device: torch.device) -> Iterator[list[dict]]:
    """Parts of a step's time: host, an empty kernel (without overlap), and memory bandwidth against that of a copy."""
    copies = interleaved({"copy": copy_call(device)}, device)["copy"]
    bandwidth = [2 * COPIED_BYTES / s for s in copies]
    yield [row("cartpole", "bytes_per_second", bandwidth, {"part": "breakdown", "how": "device copy"}, device)]
    for n in COMPARED:
        rows, actions, env = [], sample_actions(n, device), CartPoleEnv(n, device)
        empty = BoundKernel(bench.empty_kernel, n, view(actions[0]), env.kernel_carts, block=env.block)
        moves = {"step kernel": BYTES_PER_STEP[torch.int64], "step kernel, actions u8": BYTES_PER_STEP[torch.uint8]}
        graphs = {
            "step kernel": captured(bench.bound_step(env), actions, STEPS_AT_ONCE),
            "step kernel, actions u8": captured(bench.bound_step(env), actions.to(torch.uint8), STEPS_AT_ONCE),
            "empty kernel": captured(lambda _, empty=empty: empty(), actions, STEPS_AT_ONCE),
        }
        for who, samples in interleaved(graphs, device).items():
            params = {"part": "breakdown", "how": f"{who} in a graph", "num_envs": n}
            rows.append(row("cartpole", "seconds_per_step", [s / STEPS_AT_ONCE for s in samples], params, device))
            if who in moves:
                moved = [n * moves[who] * STEPS_AT_ONCE / s for s in samples]
                rows.append(row("cartpole", "bytes_per_second", moved, {**params, "bytes": moves[who]}, device))
        if n <= 65_536:  # with more environments the host waits for the device
            hosts = {
                "host: raw launch": in_turn(bench.bound_step(env), actions),
                "host: numba launch": in_turn(bench.numba_step(env, step_cuda), actions),
                "host: env.step": in_turn(env.step, actions),
            }
            for who, call in hosts.items():
                params = {"part": "breakdown", "how": who, "num_envs": n}
                rows.append(row("cartpole", "seconds_per_step", host_seconds(call), params, device))
        steps = max(8, 200_000_000 // n)
        write = CartPoleRollout(CartPoleEnv(n, device), steps, None, Trajectory.empty(steps, n, device))
        moved = [n * steps * BYTES_PER_TRAJECTORY_STEP / s for s in interleaved({"w": write}, device)["w"]]
        params = {"part": "breakdown", "how": "trajectory written", "num_envs": n, "bytes": BYTES_PER_TRAJECTORY_STEP}
        rows.append(row("cartpole", "bytes_per_second", moved, params, device))
        yield rows


def copy_call(device: torch.device) -> Callable[[], object]:
    """Make a call that copies COPIED_BYTES on the device: it reads and writes as many bytes."""
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    return functools.partial(torch.empty_like(source).copy_, source)


def cpu_peers(device: torch.device) -> Iterator[list[dict]]:
    """CPU environments of other libraries, each in turn with batchnav's. Every library uses its default threads."""
    cpu = torch.device("cpu")
    for who, (factory, counts) in peers.CPU_PEERS.items():
        for n in counts:
            peer = attempt(who, factory, n)
            if not peer:
                break
            label, candidate = peer
            ours = Candidate(in_turn(CartPoleEnv(n).step, sample_actions(n, cpu)))
            pair = {label: candidate, "batchnav env.step": ours}
            yield steady(throughput("peers", pair, cpu, n, PEER_REPEATS, PEER_SECONDS, peer=label))
            if hasattr(candidate.call, "close"):
                candidate.call.close()


def attempt(who: str, factory: Callable[[int], peers.Peer], n: int) -> peers.Peer | None:
    """Make a peer and call it once; None, with a printed reason, if that fails."""
    try:
        peer = factory(n)
        peer[1].call()
        return peer
    except ImportError as error:
        print(f"not measured: {who}: not installed ({error.name or error})")
    except Exception as error:  # a failing peer must not end the benchmark
        print(f"not measured: {who} at {n:,}: {type(error).__name__}: {str(error)[:120]}")
    return None


PARTS: dict[str, Callable[[torch.device], Iterator[list[dict]]]] = {
    "scaling": scaling, "fused": fused, "block": block, "work": work, "generator": generator,
    "breakdown": breakdown, "peers": cpu_peers, "ppo": ppo_rows, "batch": batch_rows,
}  # fmt: skip
"""Parts by name. Each yields rows as it measures them, so that a later failure does not lose them."""
LEARNING = ("ppo", "batch")
CUDA_ONLY = ("block", "generator", "breakdown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[p for p in PARTS if p not in LEARNING])
    parser.add_argument("--record", action="store_true", help="append result rows to eval/results/cartpole.jsonl")
    options = parser.parse_args()
    device = resolve_device(options.device)
    for name in options.parts:
        if name in CUDA_ONLY and device.type == "cpu":
            continue
        begin = time.perf_counter()
        for rows in filter(None, PARTS[name](device)):
            record("cartpole", rows, append=options.record)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
