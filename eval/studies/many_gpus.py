"""Training on several GPUs of one host beside training on one: rates, losses, weights, failures, batches, streaming.

    python eval/studies/many_gpus.py                                        # all parts on 1, 2, 4 and 8 GPUs
    python eval/studies/many_gpus.py --ranks 1 2 --parts speed              # one part, for a command with a time limit
    python eval/studies/many_gpus.py --dry-run                              # check the program: tiny, Gloo on the CPU

Parts; all but "speed" use the largest number of ranks:

    speed     weak scaling: training throughput by the number of GPUs (`batchnav bench train`)
    stream    the same with all scenes in memory and with a few of them at a time, and the bytes read from disks
    same      compare the losses of all GPUs with those of one process that learns from the same minibatches; compare
              the weights of the ranks after 50 updates
    failures  train under torchrun; kill a process (SIGKILL), which restarts the run; stop one (SIGSTOP) and fill the
              disk (a limit on the size of files), which end it with one line that names the rank; resume on one GPU
    batch     train with a map, with several sizes of minibatches: seconds until SPL on `val` reaches --spl, and the
              last SPL

Prints one line of JSON for each result. If a part fails, the next one still runs, and the exit status is 1. Scenes are
generated before the measurement. The processes inherit NCCL's environment variables.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
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
from batchnav.report.charts import load_metrics
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


PARTS = Literal["speed", "stream", "same", "failures", "batch"]


@dataclass(frozen=True)
class Options:
    """Parts to run, and their sizes."""

    parts: tuple[PARTS, ...] = ("speed", "stream", "same", "failures", "batch")
    """Parts to run."""
    ranks: tuple[int, ...] = bounded((1, 2, 4, 8), 1, 1024)
    """Numbers of GPUs, each with one process."""
    houses: int = bounded(64, 1, 100_000)
    """Number of training houses for each GPU."""
    num_envs: int = bounded(4096, 1, 2**24)
    """Environments per GPU; part "same" uses half as many."""
    minibatch_frames: int = bounded(8192, 1, 2**31 - 1)
    """Frames of a minibatch, per GPU."""
    size: int = bounded(64, 1, 4096)
    """Width and height of depth images, pixels."""
    speed_updates: int = bounded(10, 1, 2**31 - 1)
    """Number of measured updates of parts "speed" and "stream"."""
    streamed: int = bounded(800, 1, 100_000)
    """Number of houses of part "stream", for all GPUs together."""
    resident: int = bounded(64, 1, 100_000)
    """Houses that each GPU of part "stream" has in memory at a time."""
    losses: int = bounded(20, 1, 2**31 - 1)
    """Number of updates whose losses are compared."""
    updates: int = bounded(50, 1, 2**31 - 1)
    """Number of updates after which weights are compared."""
    config: str = "pointnav_waypoint_h200"
    """Training configuration of part "batch"."""
    minibatches: tuple[int, ...] = bounded((16, 64), 1, 2**20)
    """Minibatches of a rollout in part "batch", a run each."""
    total_frames: int = bounded(100_000_000, 1, 2**62)
    """Frames of each run of part "batch"."""
    spl: float = bounded(0.93, 0.0, 1.0)
    """SPL on `val` that part "batch" waits for."""
    compile: bool = True
    """Compile the network."""
    graphs: bool = True
    """Use CUDA graphs."""
    seconds: float = bounded(400.0, 1e-3, 86_400.0)
    """Time limit of each process, seconds."""
    out: Path = Path("runs/many_gpus")
    """Folder for the runs of parts "failures" and "batch"; each one gets a new subfolder."""
    dry_run: bool = False
    """Run with tiny sizes on the CPU."""
    worker: bool = False
    """Compare losses as one rank; the program sets this for the processes that it starts."""

    @property
    def most(self) -> int:
        """The largest number of ranks."""
        return max(self.ranks)


def main(options: Options) -> int:
    """Run the parts; returns the exit status."""
    if options.dry_run:
        options = replace(
            options, houses=4, num_envs=8, minibatch_frames=64, size=16, speed_updates=1, streamed=2 * options.most,
            resident=1, losses=3, updates=4, config="pointnav_waypoint_ppo_cpu", minibatches=(1, 2),
            total_frames=2 * options.most * 8 * 32, spl=0.0, compile=False,
        )  # fmt: skip
    if options.worker:
        return compare_losses(options)
    load_all(f"house:{i}" for i in range(max(options.houses * options.most, options.streamed)))
    failed = 0
    parts = {"speed": speed, "stream": stream, "same": same, "failures": failures, "batch": batch}
    for part in options.parts:
        try:
            parts[part](options)
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
    """Measure training throughput, frames per second, by the number of GPUs."""
    alone = None
    for ranks in options.ranks:
        whole = bench(options, ranks, options.houses * ranks, 0)
        alone = alone or whole["value"] / ranks
        report("speed", **whole, of_linear=whole["value"] / (ranks * alone))


def stream(options: Options) -> None:
    """Measure throughput with all scenes in memory, and with a few at a time that are read from their files."""
    alone = None
    for resident in (0, options.resident):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
        whole = bench(options, options.most, options.streamed, resident)
        alone = alone or whole["value"]
        read = 512 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before)
        report("stream", resident_scenes=resident, **whole, of_resident=whole["value"] / alone, bytes_read=read)


def bench(options: Options, ranks: int, houses: int, resident_scenes: int) -> dict:
    """What `batchnav bench train` finds about the whole loop."""
    arguments = ["--num-envs", options.num_envs, "--sizes", options.size, "--houses", houses, "--json"]
    arguments += ["--minibatch-frames", options.minibatch_frames, "--updates", options.speed_updates]
    arguments += ["--resident-scenes", resident_scenes]
    arguments += (
        ["--device", "cpu", "--no-compile", "--policies", "light"] if options.dry_run else ["--policies", "paper"]
    )
    rows = results_of(launched(["-m", "batchnav", "bench", "train"], ranks, [*map(str, arguments)]), options)
    whole = next(row for row in rows if row["params"]["part"] == "whole")
    kept = ("value", "p5", "p95", "per_gpu", "communication", "all_reduce", "busy", "host_cores", "gigabytes")
    kept += ("share_of_policy_only", "microseconds_per_frame")
    return {"ranks": ranks, "houses": houses, **{name: whole[name] for name in kept if name in whole}}


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
    names = ("houses", "num_envs", "minibatch_frames", "size", "losses", "updates")
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", getattr(options, name))]
    words += ["--worker", "--ranks", options.most, "--compile" if options.compile else "--no-compile"]
    words += ["--graphs" if options.graphs else "--no-graphs", *(["--dry-run"] if options.dry_run else [])]
    one, several = (
        results_of(launched(["eval/studies/many_gpus.py"], ranks, list(map(str, words))), options)[-1]
        for ranks in (1, options.most)
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
    n = options.num_envs // 2 * (1 if ranks.is_distributed else options.most)
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
    learner.num_parts = options.most
    return learner


# Failures.


def failures(options: Options) -> None:
    """A killed process, after which the run restarts; a stopped one and a full disk, which end it; resuming on one."""
    out = options.out / time.strftime("%Y%m%d_%H%M%S")
    out.parent.mkdir(parents=True, exist_ok=True)
    updates = 30 if options.dry_run else 100
    total = updates * options.most * options.num_envs * PPOConfig().rollout_steps
    killed_at, status, lines = training(options, out, total, signal.SIGKILL, restarts=2)
    seen = frames_of(out)
    report("failures", what="killed", at=killed_at, status=status, last=seen[-1], messages=lines)
    assert status == 0 and seen[-1] >= total, f"the run did not complete, see {out}.log"
    assert seen == sorted(set(seen)), "rows of metrics.jsonl are missing or duplicated"
    for what, number, limit in (("stopped", signal.SIGSTOP, None), ("full disk", None, 20_000)):
        into = out.with_name(f"{out.name}_{what.partition(' ')[0]}")
        began = time.monotonic()
        at, status, lines = training(options, into, total, number, largest_file=limit)
        named = [line for line in lines if line.startswith("error: ")]
        report("failures", what=what, at=at, status=status, seconds=time.monotonic() - began, messages=named)
        assert status != 0 and len(named) == 1, f"found {len(named)} lines of errors, expected one, see {into}.log"
        _, status, lines = training(options, into, total, None)
        seen = frames_of(into)
        report("failures", what=f"{what}, resumed", status=status, last=seen[-1], rows=len(seen))
        assert status == 0 and seen == sorted(set(seen)) and seen[-1] >= total, f"not resumed, see {into}.log"
    alone = replace(options, ranks=(1,))
    _, status, lines = training(alone, out, total + 6 * total // updates, None, allow_changes=True)
    messages = [line for line in lines if "start new episodes" in line]
    report("failures", what="resumed on one", status=status, last=frames_of(out)[-1], messages=messages)
    assert status == 0 and messages, f"not resumed, see {out}.log"


def training(
    options: Options,
    out: Path,
    total_frames: int,
    number: signal.Signals | None,
    restarts: int = 0,
    largest_file: int | None = None,
    allow_changes: bool = False,
) -> tuple[int, int, list[str]]:
    """Train in a folder, and send a signal to one process once a state is saved.

    Args:
        options: the number of ranks and their sizes.
        out: folder of the run; its log lies beside it.
        total_frames: frames of the run.
        number: the signal; None: no signal.
        restarts: how often torchrun may restart.
        largest_file: the size at which writing fails, as on a full disk, bytes.
        allow_changes: continue a run with other settings.

    Returns:
        Frames at the signal, exit status, and lines of the log about errors and restarts.
    """
    minibatches = max(1, options.num_envs * PPOConfig().rollout_steps // options.minibatch_frames)
    settings = {
        "out": out, "scenes.houses": options.houses * options.most, "ppo.num-envs": options.num_envs,
        "ppo.minibatches": minibatches, "env.camera.height": options.size, "env.camera.width": options.size,
        "save-every": 2.0, "ppo.total-frames": total_frames,
    }  # fmt: skip
    if options.dry_run:
        settings |= {
            "device": "cpu", "processes": 1, "policy.se-resnet9.base-width": 4, "policy.visual-size": 8,
            "policy.hidden-size": 16,
        }  # fmt: skip
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    words += ["--compile"] * options.compile + ["--graphs"] * options.graphs + ["--allow-changes"] * allow_changes
    command = launched([str(ROOT / "train" / "pointnav.py")], options.most, words, restarts)
    if largest_file:
        command = ["prlimit", f"--fsize={largest_file}", *command]
    log = Path(f"{out}.log")
    start = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        try:
            at = 0 if number is None else signal_one(process, out, number, options)
            status = process.wait(options.seconds)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    wanted = ("error: ", "restart", "exitcode", "start new episodes")
    return at, status, [line[:300] for line in lines if any(word in line for word in wanted)][:20]


def signal_one(process: subprocess.Popen, out: Path, number: signal.Signals, options: Options) -> int:
    """Send a signal to torchrun's newest process once a state is saved. Returns the frames at that time."""
    until = time.monotonic() + options.seconds
    while not (out / "resume.pt").exists() or len(frames_of(out)) < 8:
        assert process.poll() is None, f"the run ended before the signal, see {out}.log"
        assert time.monotonic() < until, f"no state was saved within {options.seconds:g} s"
        time.sleep(0.2)
    started = [int(pid.name) for pid in Path("/proc").glob("[0-9]*") if parent_of(pid) == process.pid]
    victim = max(pid for pid in started if b"train/pointnav.py" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(victim, number)
    return frames_of(out)[-1]


# Batches.


def batch(options: Options) -> None:
    """Train with a map and several sizes of minibatches; report the seconds until the SPL on `val` is reached."""
    for minibatches in options.minibatches:
        out = options.out / f"{time.strftime('%Y%m%d_%H%M%S')}_{minibatches}_minibatches"
        words = ["--config", options.config, "--out", out, "--ppo.num-envs", options.num_envs, "--ppo.minibatches"]
        words += [minibatches, "--ppo.total-frames", options.total_frames, "--eval-every", options.total_frames // 10]
        if options.dry_run:
            words += ["--device", "cpu", "--processes", 1, "--scenes.houses", options.houses * options.most]
        program = [str(ROOT / "train" / "pointnav.py")]
        command = launched(program, options.most, list(map(str, words)))
        with Path(f"{out}.log").open("w", encoding="utf-8") as file:
            status = subprocess.run(
                command, cwd=ROOT, stdout=file, stderr=file, timeout=options.seconds, check=False
            ).returncode
        assert status == 0, f"status {status}, see {out}.log"
        updates, evaluations = load_metrics(out / "metrics.jsonl")
        frames = np.array([0] + [row["frames"] for row in updates])
        seconds = np.cumsum(np.diff(frames) / [row["frames_per_second"] for row in updates])
        curve = [
            (float(np.interp(row["frames"], frames[1:], seconds)), row["frames"], row["eval"]["spl"])
            for row in evaluations
        ]
        reached = next((seconds for seconds, _, spl in curve if spl >= options.spl), None)
        report(
            "batch", ranks=options.most, minibatches=minibatches, spl=curve[-1][2], seconds_to_spl=reached, curve=curve
        )


# Processes and files.


def parent_of(process: Path) -> int:
    """Parent's id of a process in /proc; 0 if the process has ended."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def frames_of(out: Path) -> list[int]:
    """Frames after each update in a run's metrics."""
    path = out / "metrics.jsonl"
    return [int(row["frames"]) for row in load_metrics(path)[0]] if path.exists() else []


if __name__ == "__main__":
    sys.exit(run(Options, main, __doc__))
