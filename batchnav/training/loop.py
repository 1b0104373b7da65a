"""Training of a navigation agent: environment, policy, updates, validation and saves. Start with `train`."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from batchnav.agents.registry import make_expert
from batchnav.config import to_dict
from batchnav.data.scenes.ids import scene_ids
from batchnav.errors import DivergenceError, printable, shell_word
from batchnav.learning import ALGORITHMS, Algorithm
from batchnav.learning.stats import NUM_FINITE, merged
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.pretrained import weights_follow
from batchnav.policy.weights import load_weights, restore_source, save_policy
from batchnav.runtime.console import next_command, number_of
from batchnav.runtime.device import machine, make_deterministic, resolve_device
from batchnav.runtime.distributed import Ranks, join
from batchnav.tasks import TASKS
from batchnav.training.config import TrainingConfig
from batchnav.training.curves import wandb_log
from batchnav.training.environment import make_environment
from batchnav.training.folder import RunFolder, SharedFolder
from batchnav.training.progress import RecentEpisodes, TrainingProgress
from batchnav.training.signals import StopSignals
from batchnav.training.validation import Checkpoints, Validation
from batchnav.types import Metric

log = logging.getLogger(__name__)

SKIPPED, TRACED = 5, 2
"""Number of updates before the trace (kernels compile, graphs are captured), and in the trace."""
SHOWN_AGENTS = 8
"""Number of environments whose images TensorBoard shows, in one row."""


def train(
    config: TrainingConfig,
    out: Path,
    profile: bool = False,
    allow_changes: bool = False,
    wandb: Mapping[str, str] | None = None,
) -> None:
    """Train as configured, from the beginning or from the last save in the folder `out`.

    The processes of a distributed run all call `train` and learn together. Each simulates the algorithm's `num_envs`
    environments, or its share of them if `config.processes` is set, and has `scenes.resident_scenes` resident scenes.

    Args:
        config: the run's configuration.
        out: folder for weights, curves and resume state.
        profile: also write a profiler trace of two updates, `trace.json`.
        allow_changes: continue a run that had another configuration.
        wandb: "project" and "name" of the run in Weights & Biases, where they are given; None: no curves are sent.

    Raises:
        SystemExit: after a save, if a signal requests an exit.
    """
    with join(config.device) as ranks, StopSignals(config.on_sigusr1, once=ranks.is_distributed) as signals:
        if not ranks.is_rank_zero:
            logging.getLogger("batchnav").setLevel(logging.ERROR)  # rank 0 logs for all
        # A separate function: the learner's CUDA graphs must be freed before the ranks disconnect.
        frames = _train(config, out, ranks, signals, profile, allow_changes, wandb)
        if signals.status is not None:
            ranks.expect_exit(signals.status)
        signals.end(f"saved at frame {frames:,}")


def _train(
    config: TrainingConfig,
    out: Path,
    ranks: Ranks,
    signals: StopSignals,
    profile: bool,
    allow_changes: bool,
    wandb: Mapping[str, str] | None,
) -> int:
    """`train` for one rank. Returns the number of frames done."""
    with SharedFolder(ranks, out, config, allow_changes) as folder:
        # The saved state has the weights, so that a resumed run needs no file of pretrained ones.
        resumes = ranks.broadcast(bool(folder.open and folder.open.holds_state))
        with weights_follow() if resumes else contextlib.nullcontext():
            learner = make_learner(config, ranks)
        folder.resume(learner)
        if resumes and folder.open:
            restore_source(learner.policy, folder.open.policy_path)
        if folder.open and folder.open.before is not None:
            warn_of_jump(learner, folder.open.before, config)
        validation = Validation(config, learner.policy, ranks) if config.eval_every else None
        folder.begin(learner.frames, {m.name: (m.low, m.high) for m in headline_metrics(config.env.task_name)})
        if wandb is not None and folder.open:
            folder.open.listeners.append(wandb_log(out, to_dict(config), wandb))
        for line in startup_summary(config, learner, out).splitlines():
            log.info("%s", line)
        traced = profile and ranks.is_rank_zero
        profiler = tracing(out / "trace.json") if traced else None
        progress = TrainingProgress(config.learner.total_frames, learner.frames, quiet=not ranks.is_rank_zero)
        with progress, profiler or contextlib.nullcontext(), signals.deferred():
            after_update = profiler.step if profiler else lambda: None
            _loop(config, learner, folder, validation, signals, progress, after_update)
            save(learner, config, folder)
        if signals.status is None:
            for line in next_steps(learner.frames, config.algorithm, out).splitlines():
                log.info("%s", line)
    return learner.frames


class RankReport(NamedTuple):
    """Message of each rank to the others after an update."""

    stats: dict[str, float]
    """Statistics of the update, from `UpdateStats.read`."""
    asked: tuple[int, str] | None
    """Exit request: exit status and name of the signal (`StopSignals.asked`); None: continue."""
    save: bool
    """True where a save is due or a signal requests one."""


def _loop(
    config: TrainingConfig,
    learner: Algorithm,
    folder: SharedFolder,
    validation: Validation | None,
    signals: StopSignals,
    progress: TrainingProgress,
    after_update: Callable[[], None],
) -> None:
    """Update until all frames are done or a signal requests an exit. All ranks save and exit after the same update."""
    shown = [metric.name for metric in headline_metrics(config.env.task_name)]
    recent, kept = RecentEpisodes(shown), None
    if folder.open:
        kept = Checkpoints(folder.path, config.keep_every, shown, lambda path: save_weights(learner, config, path))
    ranks, asked = learner.ranks, None  # not `signals.status`: the signal may have reached this rank only
    while learner.frames < config.learner.total_frames and not asked:
        before = learner.frames
        stats = learner.update(config.learner.progress(learner.frames)).read()
        due = signals.save_asked() | folder.save_due(config.save_every)
        reports = ranks.all_gather(RankReport(stats, signals.asked, due))
        found = [report.stats for report in reports]
        row = summary(merged(found), learner.frames_per_update, shown)
        check_finite(row, folder, config.algorithm, first_diverged(found, ranks))
        folder.log(row)
        progress.show(int(row["frames"]), {"frames_per_second": row["frames_per_second"], **recent.add(row)})
        if kept:
            kept.after_update(before, learner.frames)
        if validation and before // config.eval_every != learner.frames // config.eval_every:
            measured = validation.measure()
            folder.log({"frames": learner.frames, "eval": measured})
            if kept:
                kept.after_validation(measured)
        if any(report.save for report in reports):
            save(learner, config, folder)
        after_update()
        asked = (
            next((report.asked for report in reports if report.asked), None) if ranks.is_distributed else signals.asked
        )
        if asked:
            signals.follow(asked)


def make_learner(config: TrainingConfig, ranks: Ranks | None = None) -> Algorithm:
    """The learner of a new run. `ranks`: the processes that train together; None: this process alone."""
    ranks = ranks or Ranks(resolve_device(config.device))
    if config.deterministic:
        make_deterministic()
    torch.manual_seed(config.seed)  # the initial weights
    env = make_environment(config, ranks)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config.policy)
    if config.init_from:
        load_weights(policy, config.init_from)
    return ALGORITHMS[config.algorithm](
        policy, env, config.learner_of(ranks), config.seed, compile=config.compile, graphs=config.graphs, ranks=ranks,
        expert=make_expert(config.expert, env).act if config.expert else None, imitation=config.imitation,
    )  # fmt: skip


def headline_metrics(task_name: str) -> tuple[Metric, ...]:
    """The metrics of a task that training displays."""
    return tuple(metric for metric in TASKS[task_name].metric_specs if metric.headline)


def summary(stats: dict[str, float], frames: int, metrics: Sequence[str]) -> dict[str, float]:
    """A row of the training curves from the statistics of an update.

    Args:
        stats: statistics by dotted or slashed name; the row uses the last part of each name.
        frames: frames of the update, for `frames_per_second`.
        metrics: episode metrics; NaN where no episode ended in the update.
    """
    row = {name.rsplit("/", 1)[-1]: value for name, value in stats.items()}
    row["episodes"] = row.pop("count")
    row["frames_per_second"] = frames / (row["collect"] + row["learn"])
    return {**dict.fromkeys(metrics, math.nan), **row}


def check_finite(row: dict[str, float], folder: RunFolder | SharedFolder, algorithm: str, where: str = "") -> None:
    """DivergenceError if the loss or the gradient norm of an update is not finite.

    `algorithm`: name of the section with the learning rate; `where`: prefix of the message.
    """
    for name in ("loss", "grad_norm"):
        if not math.isfinite(row[name]):
            advice = (
                f"{folder.path} keeps the last good state; to continue from it, repeat the command with a lower "
                f"--{algorithm}.learning-rate and --allow-changes"
                if folder.holds_state
                else f"no state was saved; try a lower --{algorithm}.learning-rate"
            )
            raise DivergenceError(
                f"{where}update to frame {row['frames']:,}: found {name} {row[name]}, expected a finite number; "
                f"{advice}"
            )


def first_diverged(found: list[dict[str, float]], ranks: Ranks) -> str:
    """Prefix of an error message: the ranks that had a non-finite loss or gradient first; "" if all had it together.

    `found`: the statistics of each rank.
    """
    finite = [stats.get(NUM_FINITE, 0.0) for stats in found]
    first = [ranks.name(rank) for rank, count in enumerate(finite) if count == min(finite)]
    return "" if len(first) == len(found) else f"{', '.join(first)}: "


def save(learner: Algorithm, config: TrainingConfig, folder: SharedFolder) -> None:
    """Save the weights, then the resume state."""
    if folder.open:
        save_weights(learner, config, folder.open.policy_path)
        images, numbers = learner.samples()
        folder.open.show(learner.frames, observed_images(images), histograms(numbers))
    folder.save(learner)


def save_weights(learner: Algorithm, config: TrainingConfig, path: Path) -> None:
    """Write the current policy with the environment that it acts in, the expert, the number of frames and the seed."""
    info = {
        "env": to_dict(config.acting_env), "expert": config.expert, "frames": learner.frames,
        "seed": config.seed, **({"imports": list(config.imports)} if config.imports else {}),
    }  # fmt: skip
    save_policy(learner.policy, path, info)


def observed_images(observations: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Images [N, C, H, W] among the observations, of the first SHOWN_AGENTS environments in one row: u8 [C, H, W].

    Only images with one or three channels; floats are scaled from 0..1 to 0..255.
    """
    found = {}
    for name, images in observations.items():
        if images.dim() == 4 and images.shape[1] in (1, 3) and images.dtype != torch.int32:  # int32 images hold ids
            row = torch.cat(list(images[:SHOWN_AGENTS].float() * (1 if images.dtype == torch.uint8 else 255)), dim=-1)
            found[name] = row.clamp(0, 255).byte().cpu().numpy()
    return found


def histograms(numbers: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Tensors by name as f32 [n], for TensorBoard."""
    return {name: tensor.detach().float().flatten().cpu().numpy() for name, tensor in numbers.items()}


def tracing(path: Path) -> torch.profiler.profile:
    """A profiler that writes `path` after SKIPPED + TRACED updates; call its `step` after each update."""
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(skip_first=SKIPPED - 1, wait=0, warmup=1, active=TRACED, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    )


def startup_summary(config: TrainingConfig, learner: Algorithm, out: Path) -> str:
    """Startup summary: task, frames, device, scenes, environments, policy size, output folder."""
    scenes = config.scenes.episodes or number_of(len(scene_ids(config.scenes.names)), "scene")
    parameters = sum(weights.numel() for weights in learner.policy.parameters())
    several = f"{learner.ranks.world_size} x " if learner.ranks.is_distributed else ""
    first = f" from frame {learner.frames:,}" if learner.frames else ""
    return (
        f"training {config.env.task_name}{first} to {config.learner.total_frames:,} on {several}"
        f"{machine(learner.device)}: {scenes}, "
        f"{number_of(config.learner.num_envs, 'environment')}, policy of {parameters:,} parameters\n"
        f"output: {printable(str(out))} (policy.safetensors, metrics.jsonl); curves: "
        f"tensorboard --logdir {shell_word(out)}"
    )


def warn_of_jump(learner: Algorithm, before: TrainingConfig, config: TrainingConfig) -> None:
    """Log a warning where a run resumes with longer or shorter schedules: its values then jump in one update.

    `before`: the configuration of the updates so far.
    """
    length, other = (c.learner.schedule_frames or c.learner.total_frames for c in (before, config))
    last = before.learner.progress(learner.frames - learner.frames_per_update)
    values = learner.schedules(last), learner.schedules(config.learner.progress(learner.frames))
    jumps = [f"{name} from {values[0][name]:.3g} to {new:.3g}" for name, new in values[1].items() if name in values[0]]
    if learner.frames and length != other:
        log.warning(
            "the schedules are now %s frames long, not %s: the next update changes the %s; to continue with the "
            "schedule so far and its final values, set --%s.schedule-frames %d",
            f"{other:,}", f"{length:,}", ", the ".join(jumps), config.algorithm, length,
        )  # fmt: skip


def next_steps(frames: int, algorithm: str, out: Path) -> str:
    """Message at the end of training: frames done, and the commands to evaluate and to continue."""
    evaluate = next_command("evaluate", "batchnav", "evaluate", out, "--report")
    resume = next_command(
        "continue", "batchnav", "train", "--resume", "--out", out, f"--{algorithm}.total-frames", 2 * frames
    )
    return f"trained {frames:,} frames\n{evaluate}\n{resume}"
