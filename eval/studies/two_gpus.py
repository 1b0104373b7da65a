"""Compare training on two GPUs with training on one: throughput, losses, weights, and recovery from a killed process.

    python eval/studies/two_gpus.py                                   # all parts, on two GPUs
    python eval/studies/two_gpus.py --parts speed --speed-updates 20  # one part, for a command with a time limit
    python eval/studies/two_gpus.py --dry-run                         # check the program: tiny sizes, Gloo on the CPU

Parts:

    speed     measure training throughput on one GPU and on both (`batchnav bench train`)
    same      compare the losses of both GPUs with those of one process that learns from the same minibatches; compare
              the weights of the ranks after 50 updates
    restart   train under torchrun, kill one process (SIGKILL), check that the run recovers, and resume it on one GPU

Prints one line of JSON for each result. If a part fails, the next one still runs, and the exit status is 1. Scenes are
generated before the measurement. The processes inherit NCCL's environment variables.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from batchnav.cli.console import run
from batchnav.config import bounded, from_dict
from batchnav.data.scenes.load import load_all
from batchnav.envs.nav import PointNavEnv
from batchnav.learning import PPO, PPOConfig
from batchnav.learning.stats import merged
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.device import make_deterministic
from batchnav.runtime.distributed import Ranks, join

ROOT = Path(__file__).resolve().parents[2]
COMPARED = ("loss/loss", "loss/policy_loss", "loss/value_loss", "loss/entropy", "loss/grad_norm", "reward")
"""Statistics of an update that part "same" compares."""
SIZES = {
    "se_resnet9": {"base_width": 4},
    "visual_size": 8,
    "hidden_size": 16,
    "lstm": {"layers": 1},
    "embedding_size": 8,
}
TINY = from_dict(PolicyConfig, SIZES)


@dataclass(frozen=True)
class Options:
    """Parts to run, and their sizes."""

    parts: tuple[Literal["speed", "same", "restart"], ...] = ("speed", "same", "restart")
    """Parts to run."""
    ranks: int = bounded(2, 1, 1024)
    """Number of GPUs, each with one process."""
    houses: int = bounded(64, 1, 100_000)
    """Number of training houses."""
    num_envs: int = bounded(4096, 1, 2**24)
    """Environments per GPU in parts "speed" and "restart"; part "same" uses half as many."""
    minibatch_frames: int = bounded(8192, 1, 2**31 - 1)
    """Frames of a minibatch, per GPU."""
    size: int = bounded(64, 1, 4096)
    """Width and height of depth images, pixels."""
    speed_updates: int = bounded(10, 1, 2**31 - 1)
    """Number of measured updates of part "speed"."""
    losses: int = bounded(20, 1, 2**31 - 1)
    """Number of updates whose losses are compared."""
    updates: int = bounded(50, 1, 2**31 - 1)
    """Number of updates after which weights are compared."""
    compile: bool = True
    """Compile the network."""
    graphs: bool = True
    """Use CUDA graphs."""
    seconds: float = bounded(400.0, 1e-3, 86_400.0)
    """Time limit of each process, seconds."""
    out: Path = Path("runs/two_gpus")
    """Folder for the runs of part "restart"; each one gets a new subfolder."""
    dry_run: bool = False
    """Run with tiny sizes on the CPU."""
    worker: bool = False
    """Compare losses as one rank; the program sets this for the processes that it starts."""


def main(options: Options) -> int:
    """Run the parts; returns the exit status."""
    if options.dry_run:
        options = Options(
            parts=options.parts, houses=4, num_envs=8, minibatch_frames=64, size=16, speed_updates=1, losses=3,
            updates=4, compile=False, out=options.out, dry_run=True, worker=options.worker,
        )  # fmt: skip
    if options.worker:
        return compare_losses(options)
    load_all(f"house:{i}" for i in range(options.houses))
    failed = 0
    for part in options.parts:
        try:
            {"speed": speed, "same": same, "restart": restart}[part](options)
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            failed = 1
            report(part, failed=" ".join(f"{type(error).__name__}: {error}".split())[-2000:])
    return failed


def report(part: str, **found) -> None:
    """Print a result as a line of JSON."""
    print(json.dumps({"part": part, **found}), flush=True)


def launched(program: list[str], ranks: int, arguments: list[str], max_restarts: int = 0) -> list[str]:
    """Command line of a program, a file or "-m" and its name: one process, or `ranks` processes under torchrun."""
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        start += [f"--max-restarts={max_restarts}"]
    return [*start, *program, *arguments]


def results_of(command: list[str], options: Options) -> list[dict]:
    """Run a command; returns the JSON objects that it prints, one a line. Its other output goes to stderr."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        output, _ = process.communicate(timeout=options.seconds)
    finally:
        if process.poll() is None:
            process.terminate()  # before a kill, so that torchrun can end its own processes
            process.wait(60)
    lines = output.splitlines()
    print(*(line for line in lines if not line.startswith("{")), sep="\n", file=sys.stderr, flush=True)
    assert process.returncode == 0, f"status {process.returncode} of {' '.join(command)}"
    return [json.loads(line) for line in lines if line.startswith("{")]


# Speed.


def speed(options: Options) -> None:
    """Measure training throughput, frames per second, on one GPU and on several."""
    arguments = ["--num-envs", options.num_envs, "--sizes", options.size, "--houses", options.houses]
    arguments += ["--minibatch-frames", options.minibatch_frames, "--updates", options.speed_updates, "--json"]
    arguments += (
        ["--device", "cpu", "--no-compile", "--policies", "light"] if options.dry_run else ["--policies", "paper"]
    )
    alone = None
    for ranks in (1, options.ranks):
        rows = results_of(launched(["-m", "batchnav", "bench", "train"], ranks, [*map(str, arguments)]), options)
        whole = next(row for row in rows if row["params"]["part"] == "whole")
        alone = alone or whole["value"]
        kept = ("value", "p5", "p95", "per_gpu", "communication", "all_reduce", "share_of_policy_only", "gigabytes")
        report(
            "speed", ranks=ranks, **{name: whole[name] for name in kept if name in whole},
            microseconds_per_frame=whole["microseconds_per_frame"], speedup=whole["value"] / alone,
        )  # fmt: skip


# Losses and weights.


class AllRanksLearner(PPO):
    """Learner of one process with the minibatches of several ranks.

    Each rank's environments are one part of this process's. A minibatch takes the same indices from every part.
    """

    num_parts = 1

    def _sample_minibatches(self) -> torch.Tensor:
        size = self.config.num_envs // self.num_parts
        order = torch.randperm(size, generator=self.generator, dtype=torch.int64, device=self.device).view(
            self.config.minibatches, -1
        )
        return torch.cat([order + part * size for part in range(self.num_parts)], dim=1)


def same(options: Options) -> None:
    """Compare the losses of one process and of several in the same environments, and the weights of the ranks."""
    words = ["--worker", "--ranks", options.ranks, "--houses", options.houses, "--num-envs", options.num_envs]
    words += ["--minibatch-frames", options.minibatch_frames, "--size", options.size, "--losses", options.losses]
    words += ["--updates", options.updates, "--compile" if options.compile else "--no-compile"]
    words += ["--graphs" if options.graphs else "--no-graphs", *(["--dry-run"] if options.dry_run else [])]
    one, several = (
        results_of(launched("eval/studies/two_gpus.py", ranks, list(map(str, words))), options)[-1]
        for ranks in (1, options.ranks)
    )
    losses = [np.array(found["losses"]) for found in (one, several)]
    difference = np.abs(losses[0] - losses[1])
    for name, ours, theirs, gap in zip(COMPARED, losses[1].T, losses[0].T, difference.T, strict=True):
        report("same", metric=name, several=ours.tolist(), one=theirs.tolist(), largest_difference=float(gap.max()))
    weights = several["weights"]
    report("same", weights_equal=len(set(weights)) == 1, weights=weights, updates=options.updates)
    assert len(set(weights)) == 1, "the ranks' weights differ"


def compare_losses(options: Options) -> int:
    """Train on this rank; rank 0 prints the losses, and a hash of every rank's weights."""
    make_deterministic()
    with join("cpu" if options.dry_run else "cuda") as ranks:
        learner = make_learner(options, ranks)
        rows = []
        for i in range(options.updates if ranks.is_distributed else options.losses):
            row = merged(ranks.all_gather(learner.update(0.01 + 0.5 * i / options.updates).read()))
            rows.append([row[name] for name in COMPARED])
        weights = torch.cat([parameter.detach().flatten().cpu() for parameter in learner.policy.parameters()])
        hashes = ranks.all_gather(hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16])
        if ranks.is_rank_zero:
            print(json.dumps({"losses": rows[: options.losses], "weights": hashes}), flush=True)
    return 0


def make_learner(options: Options, ranks: Ranks) -> PPO:
    """Make this rank's learner, with num_envs / 2 environments, or one for the environments of all ranks.

    The minibatches of all ranks together have the size of the single process's.
    """
    n = options.num_envs // 2 * (1 if ranks.is_distributed else options.ranks)
    names = ranks.shard([f"house:{i}" for i in range(options.houses)])
    size = options.size
    env = PointNavEnv(load_all(names), n, ranks.device, height=size, width=size, first_env=ranks.rank * n)
    torch.manual_seed(0)
    config = TINY if options.dry_run else PolicyConfig()
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config)
    minibatches = max(1, options.num_envs // 2 * PPOConfig().rollout_steps // options.minibatch_frames)
    learner = (PPO if ranks.is_distributed else AllRanksLearner)(
        policy, env, PPOConfig(num_envs=n, minibatches=minibatches, learning_rate=1e-3), compile=options.compile,
        graphs=options.graphs, ranks=ranks,
    )  # fmt: skip
    learner.num_parts = options.ranks
    return learner


# Kill and restart.


def restart(options: Options) -> None:
    """Kill one of the processes that torchrun started, wait for the run to end, then resume it in one process."""
    out = options.out / time.strftime("%Y%m%d_%H%M%S")
    frames = options.ranks * options.num_envs * PPOConfig().rollout_steps
    updates = 30 if options.dry_run else 100
    minibatches = max(1, options.num_envs * PPOConfig().rollout_steps // options.minibatch_frames)
    settings = {
        "out": out, "scenes.houses": options.houses, "ppo.num-envs": options.num_envs, "ppo.minibatches": minibatches,
        "env.camera.height": options.size, "env.camera.width": options.size, "save-every": 2.0,
    }  # fmt: skip
    if options.dry_run:
        settings |= {
            "device": "cpu",
            "policy.se-resnet9.base-width": 4,
            "policy.visual-size": 8,
            "policy.hidden-size": 16,
        }
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    words += ["--compile"] * options.compile + ["--graphs"] * options.graphs
    log = out.with_suffix(".log")
    out.parent.mkdir(parents=True, exist_ok=True)
    command = launched(
        [str(ROOT / "train" / "pointnav.py")], options.ranks, [*words, "--ppo.total-frames", str(updates * frames)], 2
    )
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        try:
            killed_at, saved = kill_one(process, out, options)
            status = process.wait(options.seconds)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
    seen = frames_of(out)
    resumed = restarts_of(log)
    report("restart", killed_at=killed_at, saved=saved, status=status, last=seen[-1], messages=resumed)
    assert status == 0 and seen[-1] >= updates * frames, f"the run did not complete, see {log}"
    assert seen == sorted(set(seen)), "rows of metrics.jsonl are missing or duplicated"
    more = launched(
        [str(ROOT / "train" / "pointnav.py")], 1, [*words, "--ppo.total-frames", str((updates + 6) * frames)]
    )
    done = subprocess.run(
        [*more, "--allow-changes"], cwd=ROOT, capture_output=True, text=True, timeout=options.seconds
    )  # fmt: skip
    messages = [line for line in (done.stdout + done.stderr).splitlines() if "start new episodes" in line]
    report("restart", on_one=done.returncode, last=frames_of(out)[-1], messages=messages)
    assert done.returncode == 0 and messages, done.stderr[-500:]


def kill_one(process: subprocess.Popen, out: Path, options: Options) -> tuple[int, int]:
    """Kill torchrun's newest process once a state is saved. Returns the frames at that time, and the rows before it."""
    until = time.monotonic() + options.seconds
    while not (out / "resume.pt").exists() or len(frames_of(out)) < 8:
        assert process.poll() is None, f"the run ended before it was killed, see {out.with_suffix('.log')}"
        assert time.monotonic() < until, f"no state was saved within {options.seconds:g} s"
        time.sleep(0.2)
    rows = len(frames_of(out))
    started = [int(pid.name) for pid in Path("/proc").glob("[0-9]*") if parent_of(pid) == process.pid]
    victim = max(pid for pid in started if b"train/pointnav.py" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(victim, signal.SIGKILL)
    return frames_of(out)[-1], rows


def parent_of(process: Path) -> int:
    """Parent's id of a process in /proc; 0 if the process has ended."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def frames_of(out: Path) -> list[int]:
    """Frames after each update in a run's metrics."""
    path = out / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [int(row["frames"]) for row in rows if "eval" not in row]


def restarts_of(log: Path) -> list[str]:
    """The first 20 lines of a log about errors and restarts, each cut to 300 characters."""
    wanted = ("error: ", "restart", "exitcode")
    return [line[:300] for line in log.read_text(encoding="utf-8").splitlines() if any(w in line for w in wanted)][:20]


if __name__ == "__main__":
    sys.exit(run(Options, main, __doc__))
