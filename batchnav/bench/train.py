"""End-to-end training throughput in frames per second, its parts, and the bound that the policy alone sets.

    batchnav bench train --device cuda --num-envs 1024 4096 16384 --sizes 64 128
    batchnav bench train --device cpu --policies light --num-envs 64 --sizes 32 --minibatch-frames 512 --houses 4
    batchnav bench train --device cuda --policies paper --num-envs 4096 --sizes 64 --houses 1000 --resident-scenes 64
    torchrun --nproc-per-node 2 -m batchnav bench train --policies paper --num-envs 4096 --minibatch-frames 8192

A frame is one step of one environment with its share of the update. The policy-only bound is the same learner on the
same recorded observations, with an environment that does nothing. Parts of a frame's time:

    learning     the update, in the whole loop
    inference    collecting the rollout in the policy-only loop
    render       rendering the images of a rollout and scaling them into its storage, alone
    simulation   the rest of collecting; episodes sampled during rendering count only as far as they delay it
    idle         the rest of the loop: the device waits for the host, which reads the statistics

With --resident-scenes K, K houses are in memory at a time, and the whole loop includes scene streaming.
"host_cores" is the process's CPU time divided by wall time. "tuned" is true with Inductor's coordinate descent
tuning, which TORCHINDUCTOR_COORDINATE_DESCENT_TUNING=1 turns on.

Several processes (docs/howto/several_gpus.md) each have that many environments and minibatch frames, and a share of the
houses. Rates are totals; "per_gpu" is the rate of one process. "communication" is the share of the loop spent on
summing gradients over processes, including the wait for the slowest process. "all_reduce" is the duration of one sum
without waiting, seconds. "busy" is the rest of an update for each process, seconds.

For a pretrained encoder, "encoder_frames_per_second" is the rate of its frozen part alone, on images of a rollout, and
"share_of_encoder" is the share of it that the whole loop reaches.

The policy is untrained, but its stop action is made rare, so that episodes last as long as those of a trained agent.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch._inductor import config as inductor

from batchnav.bench.options import TrainOptions as Options
from batchnav.config import from_dict
from batchnav.data.scenes.load import load_all, load_scene, map_scenes
from batchnav.envs.nav import PointNavEnv
from batchnav.envs.stream import SceneStream
from batchnav.envs.wrapper import Wrapper
from batchnav.errors import ArgumentError, DivergenceError
from batchnav.learning import ALGORITHMS, Learner
from batchnav.learning.stats import Timer
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.policy.pretrained import RANDOM
from batchnav.report.results import RESULTS, append_rows, commit, print_table, row, rows_of, save_chart
from batchnav.runtime.device import make_deterministic
from batchnav.runtime.distributed import Ranks, join
from batchnav.runtime.kernels.graphs import WARM_UPS, Graphs
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import SceneSize
from batchnav.sim.bodies import STOP

POLICIES = {
    "paper": PolicyConfig(),
    "light": from_dict(PolicyConfig, {"se_resnet9": {"base_width": 32}, "lstm": {"layers": 1}}),
}
"""The paper's policy, and one with half as many channels and one LSTM layer."""
PARTS = ("learning", "inference", "render", "simulation", "idle")
"""Parts of a frame's time."""
STOP_LOGIT = -3.5
"""Bias of the stop action: an untrained policy then stops once in a hundred steps."""


class Still(Wrapper):
    """An environment that does nothing: observations in the rollout and results of the last step stay as they are."""

    def observe_into(self, out):
        """Set the observations that `step` returns, without writing them."""
        self.out = out

    def step(self, actions):
        """Return the results of the last step again."""
        bodies, task = self.env.sim.bodies, self.env.task
        info = {"episode": task.metrics, "_episode": bodies.done}
        return self.out, task.reward, bodies.terminated, bodies.truncated, info


class Stopwatch:
    """Context in which a learner's sums over ranks are timed, on CUDA with events."""

    def __init__(self, learner: Learner):
        self.ranks, self.timers = learner.ranks, list[Timer]()

    def __enter__(self) -> Stopwatch:
        self._sum, self.ranks.sum_ = self.ranks.sum_, self._timed_sum
        return self

    def __exit__(self, *_: object) -> None:
        self.ranks.sum_ = self._sum

    def _timed_sum(self, tensor: torch.Tensor) -> None:
        timer = Timer(self.ranks.device)
        self._sum(tensor)
        timer.mark()
        self.timers.append(timer)

    def seconds(self) -> float:
        """Duration of all sums since the last call, seconds."""
        found, self.timers = sum(timer.seconds()[0] for timer in self.timers), []
        return found


def main(options: Options) -> list[dict]:
    """Measure and print; append the results to the file with `record`. Returns the rows."""
    with join(options.device) as ranks:
        return measure_all(options, ranks)


def measure_all(options: Options, ranks: Ranks) -> list[dict]:
    """Rows of all policies, image sizes and numbers of environments, on every rank; rank 0 prints and records."""
    if options.deterministic:
        make_deterministic()
    make_env = environments(options, ranks)
    rows = []
    for name in options.policies:
        for size in options.sizes:
            torch.compiler.reset()
            policy, first = None, dict[str, torch.Tensor]()
            for num_envs in options.num_envs:
                env = make_env(num_envs, size)
                if policy is None:
                    policy = make_policy(env, name, options)
                    first = copy.deepcopy(policy.state_dict())
                policy.load_state_dict(first)
                learner = make_learner(env, policy, options, ranks)
                found = measure(learner, name, options)
                if options.json and ranks.is_rank_zero:
                    print(*map(json.dumps, found), sep="\n", flush=True)
                if options.record and ranks.is_rank_zero:
                    append_rows("train", found)  # at once: the next measurement may run out of memory
                rows += found
                del env, learner
                gc.collect()  # graphs and learner refer to each other
    if ranks.is_rank_zero:
        print_table("train", rows)
    if options.record and ranks.is_rank_zero:
        mine = [r for r in rows_of("train") if r["machine"] == rows[0]["machine"] and r["params"]["part"] == "whole"]
        plot([r for r in mine if r["commit"] == commit()], RESULTS / "train.webp")
    return rows


def environments(options: Options, ranks: Ranks) -> Callable[[int, int], PointNavEnv]:
    """A function that makes an environment from a number of agents and an image size."""
    names, device = ranks.shard([f"house:{i}" for i in range(options.houses)]), ranks.device
    pretrained = [name for name in options.policies if ":" in name]
    if len(pretrained) not in (0, len(options.policies)):
        raise ArgumentError(
            f"--policies: found {', '.join(options.policies)}, expected all or none with a pretrained encoder, since "
            "those read colour"
        )
    sensors = ("rgb",) if pretrained else ("depth",)
    if options.resident_scenes:
        sizes = map_scenes(SceneSize.of, names)
        make = partial(SceneStream, names, load_scene, sizes, options.resident_scenes)
    else:
        bank = SceneBank.pack(load_all(names, appearance=bool(pretrained)), device, appearance=bool(pretrained))
        make = lambda: bank  # noqa: E731
    return lambda num_envs, size: PointNavEnv(
        make(), num_envs, device, height=size, width=size, first_env=ranks.rank * num_envs, copy=False,
        people=(options.people,) * 2, sensors=sensors,
    )  # fmt: skip


def make_policy(env: PointNavEnv, name: str, options: Options) -> ActorCritic:
    """A policy whose stop action is rare.

    Learners with all numbers of environments share it, so that updates compile once; each starts from these weights.
    """
    torch.manual_seed(0)
    pretrained = {"encoder": name, "timm": {"weights": RANDOM}, "lstm": {"layers": 1}}
    config = from_dict(PolicyConfig, pretrained) if ":" in name else POLICIES[name]
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config)
    with torch.no_grad():
        policy.actor.bias[STOP] = STOP_LOGIT
    if options.compile:
        policy.compile_parts()
    return policy


def make_learner(env: PointNavEnv, policy: ActorCritic, options: Options, ranks: Ranks) -> Learner:
    """A learner with the settings of training."""
    num_envs = env.num_envs
    minibatches = max(1, num_envs * options.rollout_steps // options.minibatch_frames)
    kind = ALGORITHMS[options.algorithm]
    config = kind.Config(num_envs=num_envs, rollout_steps=options.rollout_steps, minibatches=minibatches)
    return kind(policy, env, config, graphs=options.graphs, ranks=ranks)


def measure(learner: Learner, name: str, options: Options) -> list[dict]:
    """Measure the whole loop and the policy alone, for one policy, image size and number of environments."""
    frames, device, num_envs = learner.frames_per_update, learner.device, learner.env.num_envs
    ranks, size = learner.ranks, learner.env.config.camera.height
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    whole = time_updates(learner, options.updates)
    memory = gigabytes(device)
    encoder = time_encoding(learner, options) if learner.policy.encoded_shapes else None
    render = time_rendering(learner, options)
    learner.replace_env(Still(learner.env))
    policy = time_updates(learner, options.updates)

    microseconds = {
        "learning": np.median(whole["learn"]), "inference": np.median(policy["collect"]), "render": np.median(render),
    }  # fmt: skip
    microseconds["simulation"] = np.median(whole["collect"]) - microseconds["inference"] - microseconds["render"]
    microseconds["idle"] = np.median(whole["loop"]) - np.median(whole["collect"]) - microseconds["learning"]
    params = {
        "policy": name, "num_envs": num_envs, "height": size, "width": size, "minibatches": learner.config.minibatches,
        "houses": options.houses, "resident_scenes": options.resident_scenes, "compile": options.compile,
        "graphs": options.graphs, "deterministic": options.deterministic, "tuned": inductor.coordinate_descent_tuning,
        "ranks": ranks.world_size, **({"people": options.people} if options.people else {}),
    }  # fmt: skip
    rates = {part: frames / seconds["loop"] for part, seconds in (("whole", whole), ("policy", policy))}
    rows = [row("train", "frames_per_second", rate, {"part": part, **params}, device) for part, rate in rates.items()]
    rows[0] |= {
        "microseconds_per_frame": {part: float(1e6 * microseconds[part] / frames) for part in PARTS},
        "share_of_policy_only": float(np.median(rates["whole"]) / np.median(rates["policy"])),
        "gigabytes": memory,
        "host_cores": float(np.median(whole["host"] / whole["loop"])),
    }
    if encoder is not None:
        rows[0]["encoder_frames_per_second"] = float(frames / np.median(encoder))
        rows[0]["share_of_encoder"] = float(np.median(rates["whole"]) * np.median(encoder) / frames)
    if ranks.is_distributed:
        rows[0] |= {"per_gpu": rows[0]["value"] / ranks.world_size, "all_reduce": time_all_reduce(learner)}
        rows[0]["communication"] = float(np.median(whole["sum"] / whole["loop"]))
        mine = float(np.median(whole["loop"] - whole["sum"])), rows[0]["host_cores"]
        rows[0]["busy"], rows[0]["host_cores"] = (list(found) for found in zip(*ranks.all_gather(mine), strict=True))
    if ranks.is_rank_zero:
        print_row(rows[0], name)
    return rows


def print_row(row: dict, name: str) -> None:
    """Print the row of the whole loop as a line."""
    parts = ", ".join(f"{part} {value:.3g}" for part, value in row["microseconds_per_frame"].items())
    params, several = row["params"], ""
    if "per_gpu" in row:
        several = f"{params['ranks']} ranks, {row['per_gpu']:,.0f} each; all-reduce "
        several += f"{row['communication']:.1%} of the time, without waiting "
        several += f"{1e3 * row['all_reduce']:.3f} ms; "
    if "share_of_encoder" in row:
        several += f"{row['share_of_encoder']:.0%} of the encoder's {row['encoder_frames_per_second']:,.0f}, "
    print(
        f"{name} {params['height']}x{params['width']} N={params['num_envs']}: {row['value']:,.0f} frames/s, {several}"
        f"{row['share_of_policy_only']:.0%} of policy-only; us per frame: {parts}; "
        f"host cores {np.max(row['host_cores']):.2f}; GB: {row['gigabytes']}",
        flush=True,
    )


def time_all_reduce(learner: Learner) -> float:
    """Duration of an all-reduce of the gradients without waiting, seconds: the median of 20."""
    ranks, seconds = learner.ranks, []
    for _ in range(22):
        ranks.barrier()
        timer = Timer(ranks.device)
        ranks.sum_(learner.bucket.flat)
        timer.mark()
        seconds += timer.seconds()
    return float(np.median(seconds[2:]))


def time_updates(learner: Learner, updates: int) -> dict[str, np.ndarray]:
    """Durations of each update in seconds: of the loop, which reads the statistics as training does, and of its parts.

    DivergenceError where a loss is not finite: agents then act differently, which changes the time.
    """
    times = []
    with Stopwatch(learner) if learner.ranks.is_distributed else nullcontext() as watch:
        for i in range(WARM_UPS + 2 + updates):
            start, start_host = time.perf_counter(), time.process_time()
            stats = learner.update(1.0).read()  # end of the schedule: with a low learning rate, stop stays rare
            learner.ranks.all_gather(stats)
            if not math.isfinite(loss := stats["loss/loss"]):
                raise DivergenceError(f"bench train: update {i + 1} has the loss {loss}, expected a finite number")
            host, loop = time.process_time() - start_host, time.perf_counter() - start
            sums = watch.seconds() if watch else 0.0
            if i >= WARM_UPS + 2:
                times.append((loop, stats["seconds/collect"], stats["seconds/learn"], host, sums))
    return dict(zip(("loop", "collect", "learn", "host", "sum"), np.array(times).T, strict=True))


def time_rendering(learner: Learner, options: Options) -> np.ndarray:
    """Duration of rendering the images of a rollout, seconds."""
    env, rollout = learner.env, learner.rollout

    def views():
        for t in range(rollout.num_steps):
            env.observe_into(rollout.targets(t))
            env.observe()

    return time_graph(views, learner.device, options)


def time_encoding(learner: Learner, options: Options) -> np.ndarray:
    """Duration of encoding the images of a rollout by the frozen part of a pretrained encoder, seconds."""
    policy, rollout = learner.policy, learner.rollout

    def encode():
        for _ in range(rollout.num_steps):
            policy.with_features(rollout.latest)

    return time_graph(encode, learner.device, options)


def time_graph(work: Callable[[], None], device: torch.device, options: Options) -> np.ndarray:
    """Duration of some work, seconds, as a CUDA graph on a GPU where `options.graphs` is set."""
    views, seconds = Graphs(device, options.graphs).wrap(work), []
    for _ in range(WARM_UPS + 1 + options.updates):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        views()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return np.array(seconds[-options.updates :])


def gigabytes(device: torch.device) -> dict[str, float]:
    """GPU memory in GB: peak of tensors, peak reserved by PyTorch, and current use of the whole device."""
    if device.type == "cpu":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    used = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device), total - free
    return {name: round(n / 1e9, 2) for name, n in zip(("tensors", "torch", "device"), used, strict=True)}


def plot(rows: list[dict], path: Path) -> None:
    """Plot microseconds per frame by part as stacked bars, with the share of the policy-only bound above each."""
    order = ("width", "num_envs", "minibatches", "houses")
    rows = sorted(rows, key=lambda r: (list(POLICIES).index(r["params"]["policy"]), *(r["params"][k] for k in order)))
    figure, axes = plt.subplots(figsize=(2.6 + 0.9 * len(rows), 4.5), layout="constrained")
    places, bottom = np.arange(len(rows)), np.zeros(len(rows))
    for part in PARTS:
        height = np.maximum([r["microseconds_per_frame"][part] for r in rows], 0.0)
        axes.bar(places, height, bottom=bottom, label=part)
        bottom += height
    for x, r in enumerate(rows):
        text = f"{r['value'] / 1e3:,.3g}k/s\n{r['share_of_policy_only']:.0%}"
        axes.text(x, bottom[x], text, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(places, [label(r["params"]) for r in rows], fontsize=8)
    axes.set_ylabel("microseconds per frame")
    axes.set_title(f"{rows[0]['machine']}: frames/s, and share\nof the policy-only bound", fontsize=10)
    axes.margins(y=0.15)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)  # so that it covers no bar
    save_chart(figure, path)
    plt.close(figure)


def label(params: dict) -> str:
    """Label below a bar."""
    lines = ["{policy}\n{width}x{height}\nN = {num_envs}\n{minibatches} minibatches".format(**params)]
    lines += [f"{params['resident_scenes']} of {params['houses']} houses"] if params.get("resident_scenes") else []
    return "\n".join([*lines, *(name for name in ("deterministic", "tuned") if params.get(name))])
