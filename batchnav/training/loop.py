"""Train a navigation agent: scenes, environment, policy, PPO. Read it from `train` down."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.agents.registry import make_teacher
from batchnav.config import to_dict
from batchnav.data.episodes.episode_file import Episode, check_episodes, episode_table, load_episodes, order_episodes
from batchnav.data.prepared.scene_file import SUFFIX
from batchnav.data.scenes import GENERATED, find_played, find_scene, find_scenes, measure_scenes, scene_ids
from batchnav.envs.nav import NavEnv
from batchnav.envs.stream import SceneStream
from batchnav.errors import ConfigError, DivergenceError
from batchnav.evaluation.play import evaluate
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.weights import load_weights, save_policy
from batchnav.ppo.kickstart import Kickstart
from batchnav.ppo.learner import Learner
from batchnav.ppo.stats import SOUND, merged
from batchnav.procedural import make_swatches
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.device import machine, make_deterministic, resolve_device
from batchnav.runtime.distributed.join import join
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.runtime.files.bundled import find_split
from batchnav.runtime.kernels.precompile import ENVIRONMENT_KERNELS, SCENE_KERNELS, precompile
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.resident import SceneSize, num_resident_scenes
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS
from batchnav.training.checkpoints import Checkpoints
from batchnav.training.config import PointNavRun
from batchnav.training.folder import RunFolder
from batchnav.training.progress import RecentEpisodes, TrainingProgress
from batchnav.training.samples import pictures, spreads
from batchnav.training.shared_folder import SharedFolder
from batchnav.training.signals import StopSignals
from batchnav.training.tracing import tracing
from batchnav.training.wandb import wandb_log
from batchnav.types import Metric

log = logging.getLogger(__name__)


def train(run: PointNavRun, out: Path, profile: bool = False, allow_changes: bool = False, wandb: bool = False) -> None:
    """Train as configured, from the beginning or from where the folder `out` was left.

    Leaves weights, curves and resume state in the folder, and a trace, if asked for by `profile`. `allow_changes`: go
    on with another configuration than the run's before. SystemExit, after a save, where a signal asks for it. Processes
    that were started with this one train together: `run.ppo.num_envs` environments in each, or in all where
    `run.processes` says how many there are, and `run.scenes.slots` scenes in each.
    """
    with join(run.device) as ranks, StopSignals(run.on_sigusr1, once=ranks.is_distributed) as signals:
        if not ranks.is_rank_zero:
            logging.getLogger("batchnav").setLevel(logging.ERROR)  # rank 0 says it for all
        # In a function of its own, since the learner's graphs have to be gone when ranks part.
        frames = _train(run, out, ranks, signals, profile, allow_changes, wandb)
        if signals.status is not None:
            ranks.expect_exit(signals.status)
        signals.end(f"saved at frame {frames:,}")


def _train(
    run: PointNavRun, out: Path, ranks: Ranks, signals: StopSignals, profile: bool, allow_changes: bool, wandb: bool
) -> int:
    """`train`, for one rank; the frames that are done."""
    with SharedFolder(ranks, out, run, allow_changes) as folder:
        learner = make_learner(run, ranks)
        folder.resume(learner)
        validation = Validation(run, learner.policy, ranks) if run.eval_every else None
        folder.begin(learner.frames, {m.name: (m.low, m.high) for m in headline(run)})
        if wandb and folder.open:
            folder.open.listeners.append(wandb_log(out, to_dict(run)))
        log.info("%s", opening(run, learner, out))
        traced = profile and ranks.is_rank_zero
        profiler = tracing(out / "trace.json") if traced else None
        progress = TrainingProgress(run.ppo.total_frames, learner.frames, quiet=not ranks.is_rank_zero)
        with progress, profiler or contextlib.nullcontext(), signals.deferred():
            after_update = profiler.step if profiler else lambda: None
            _loop(run, learner, folder, validation, signals, progress, after_update)
            save(learner, run, folder)
        if signals.status is None:
            log.info("%s", closing(learner.frames, out))
    return learner.frames


class Report(NamedTuple):
    """What a rank tells the others after an update."""

    stats: dict[str, float]
    """As read from `UpdateStats`."""
    asked: tuple[int, str] | None
    """Whether a signal asked it to end: `StopSignals.asked`."""
    save: bool
    """Whether a save is due, or a signal asked for one."""


def _loop(
    run: PointNavRun,
    learner: Learner,
    folder: SharedFolder,
    validation: Validation | None,
    signals: StopSignals,
    progress: TrainingProgress,
    after_update: Callable[[], None],
) -> None:
    """Updates until all frames are done, or a signal asks to end: all ranks do the same after each."""
    shown = [metric.name for metric in headline(run)]
    recent, kept = RecentEpisodes(shown), None
    if folder.open:
        kept = Checkpoints(folder.path, run.keep_every, shown, lambda path: save_weights(learner, run, path))
    ranks, asked = learner.ranks, None  # not `signals.status`, which may be of this rank alone
    while learner.frames < run.ppo.total_frames and not asked:
        before = learner.frames
        stats = learner.update(learner.frames / run.ppo.total_frames).read()
        due = signals.save_asked() | folder.save_due(run.save_every)
        reports = ranks.all_gather(Report(stats, signals.asked, due))
        found = [report.stats for report in reports]
        row = summary(merged(found), learner.frames_per_update, shown)
        check_finite(row, folder, where_it_began(found, ranks))
        folder.log(row)
        progress.show(int(row["frames"]), {"frames_per_second": row["frames_per_second"], **recent.add(row)})
        if kept:
            kept.after_update(before, learner.frames)
        if validation and before // run.eval_every != learner.frames // run.eval_every:
            measured = validation.measure()
            folder.log({"frames": learner.frames, "eval": measured})
            if kept:
                kept.after_validation(measured)
        if any(report.save for report in reports):
            save(learner, run, folder)
        after_update()
        asked = signals.asked
        if ranks.is_distributed:
            asked = next((report.asked for report in reports if report.asked), None)
        if asked:
            signals.follow(asked)


def make_learner(run: PointNavRun, ranks: Ranks | None = None) -> Learner:
    """The learner of a run that begins; `ranks`: the processes that train together, None: this one is alone."""
    ranks = ranks or Ranks(resolve_device(run.device))
    if run.deterministic:
        make_deterministic()
    torch.manual_seed(run.seed)  # the initial weights
    env = make_environment(run, ranks)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    if run.init_from:
        load_weights(policy, run.init_from)
    return Learner(
        policy, env, run.ppo_of(ranks), run.seed, compile=run.compile, graphs=run.graphs, ranks=ranks,
        kickstart=make_kickstart(run, env),
    )  # fmt: skip


def make_kickstart(run: PointNavRun, env: NavEnv) -> Kickstart | None:
    """The teacher that the run names."""
    name = run.kickstart.teacher
    return Kickstart(make_teacher(name, env).act, run.kickstart) if name else None


def make_environment(run: PointNavRun, ranks: Ranks) -> NavEnv:
    """Freshly sampled episodes in this rank's share of the scenes, or its share of the episodes in theirs."""
    n = run.ppo_of(ranks).num_envs
    if ranks.is_rank_zero and ranks.device.type == "cpu":
        precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS, env_config=to_dict(run.nav))
    if run.scenes.episodes:
        episodes = order_episodes(load_episodes(run.scenes.episodes), shuffle=True, grouped=False, seed=run.seed)
        swatches = swatches_for(run, [episode.scene for episode in episodes])
        return fixed_episodes(ranks.shard(episodes), run, ranks.device, n, swatches)
    everyones = scene_ids(run.scenes.names)
    swatches, names = swatches_for(run, everyones), ranks.shard(everyones)
    settings, appearance, slots = run.body.navmesh, run.appearance, 0
    scenes: SceneStream | list[Scene]
    if run.scenes.slots or run.scenes.gigabytes:
        capacities = [
            scene.with_appearance(run.appearance_fields)
            for scene in measure_scenes(names, settings=settings, appearance=appearance)
        ]
        slots = num_resident_scenes(capacities, run.scenes.slots, run.scenes.gigabytes)
    if slots:
        load = partial(find_scene, settings=settings, appearance=appearance)
        scenes = SceneStream(names, load, SceneSize.largest(capacities), slots, run.seed)
    else:
        scenes = find_scenes(names, settings=settings, appearance=appearance)
    return NavEnv(scenes, n, ranks.device, run.seed, first_env=ranks.rank * n, swatches=swatches, **_options(run))


def prepare(run: PointNavRun) -> None:
    """Make and compile once what several processes are about to use: scenes, and the environment's kernels."""
    env = make_environment(run, Ranks(resolve_device(run.device)))
    env.reset()
    env.step(run.body.empty_actions(env.num_envs, env.device))
    env.close()


def swatches_for(run: PointNavRun, names: Sequence[str]) -> MaterialLibrary | None:
    """What finishes are drawn anew from, where the run asks for that. ConfigError where no scene of these has any."""
    if not run.scenes.redraw_finishes:
        return None
    if not any(name.startswith(GENERATED) or name.endswith(SUFFIX) for name in names):  # a prepared one may have
        raise ConfigError(f"redraw_finishes: found {len(names)} scenes from files, expected procedural houses")
    return make_swatches()


def _options(run: PointNavRun) -> dict[str, Any]:
    """What an environment of this run is made with."""
    return {
        "task": run.task_name,
        "config": run.nav,
        "renderer": run.renderer,
        "final_observation": run.ppo.timeout_bootstrap,
        "copy": False,
    }


def fixed_episodes(
    episodes: list[Episode],
    run: PointNavRun,
    device: torch.device,
    num_envs: int,
    swatches: MaterialLibrary | None = None,
) -> NavEnv:
    """An environment that plays these episodes in turn; `swatches` as in `NavEnv`."""
    scenes = find_played(episodes, settings=run.body.navmesh, appearance=run.appearance)
    check_episodes(episodes, {scene.name: scene for scene in scenes})
    table = episode_table(episodes, [scene.name for scene in scenes], device)
    return NavEnv(scenes, num_envs, device, episodes=table, swatches=swatches, **_options(run))


def headline(run: PointNavRun) -> tuple[Metric, ...]:
    """The metrics that training shows."""
    return tuple(metric for metric in TASKS[run.task_name].metric_specs if metric.headline)


def summary(stats: dict[str, float], frames: int, metrics: Sequence[str]) -> dict[str, float]:
    """An update's statistics as a row of the curves: the last part of each name, episode means, frames/s.

    `metrics` are NaN where no episode has ended yet.
    """
    row = {name.rsplit("/", 1)[-1]: value for name, value in stats.items()}
    row["episodes"] = row.pop("count")
    row["frames_per_second"] = frames / (row["collect"] + row["learn"])
    return {**dict.fromkeys(metrics, math.nan), **row}


def check_finite(row: dict[str, float], folder: RunFolder | SharedFolder, where: str = "") -> None:
    """DivergenceError where an update has left weights that are not finite; `where` begins its message."""
    for name in ("loss", "grad_norm"):
        if not math.isfinite(row[name]):
            advice = (
                f"{folder.path} keeps the last good state; the same command with a lower --ppo.learning-rate and with "
                f"--allow-changes goes on from there"
                if folder.holds_state
                else "nothing was saved yet; a lower --ppo.learning-rate may help"
            )
            raise DivergenceError(
                f"{where}update to frame {row['frames']:,}: found {name} {row[name]}, expected a finite number; "
                f"{advice}"
            )


def where_it_began(found: list[dict[str, float]], ranks: Ranks) -> str:
    """The ranks whose losses or gradients were the first that are not finite; nothing where all came to it at once.

    `found`: what each rank has read.
    """
    sound = [stats.get(SOUND, 0.0) for stats in found]
    first = [ranks.name(rank) for rank, count in enumerate(sound) if count == min(sound)]
    return "" if len(first) == len(found) else f"{', '.join(first)}: "


def save(learner: Learner, run: PointNavRun, folder: SharedFolder) -> None:
    """Keep the weights, then the state to resume from."""
    if folder.open:
        save_weights(learner, run, folder.open.policy_path)
        folder.open.show(learner.frames, pictures(learner.rollout), spreads(learner.rollout))
    folder.save(learner)


def save_weights(learner: Learner, run: PointNavRun, path: Path) -> None:
    """Write the policy as it is now."""
    save_policy(learner.policy, path, {"env": to_dict(run.nav), "frames": learner.frames, "seed": run.seed})


def opening(run: PointNavRun, learner: Learner, out: Path) -> str:
    """What begins: on what, in what, by how large a policy, and where it can be watched."""
    scenes = run.scenes.episodes or number_of(len(scene_ids(run.scenes.names)), "scene")
    parameters = sum(weights.numel() for weights in learner.policy.parameters())
    several = f"{learner.ranks.world_size} x " if learner.ranks.is_distributed else ""
    begun = f" from frame {learner.frames:,}" if learner.frames else ""
    return (
        f"training {run.task_name}{begun} to {run.ppo.total_frames:,} on {several}{machine(learner.device)}: {scenes}, "
        f"{number_of(run.ppo.num_envs, 'environment')}, a policy of {parameters:,} parameters\n"
        f"{out}: policy.safetensors, metrics.jsonl; curves: tensorboard --logdir {out}"
    )


def closing(frames: int, out: Path) -> str:
    """What is done, and what may come next."""
    return (
        f"{frames:,} frames are done. Next: batchnav evaluate {out} --report\n"
        f"or more of them: batchnav train --resume --out {out} --ppo.total-frames {2 * frames}"
    )


class Validation:
    """The fixed validation episodes in unseen houses, played now and then by the policy as it is; ranks share them."""

    def __init__(self, run: PointNavRun, policy: ActorCritic, ranks: Ranks):
        self.ranks = ranks
        path = find_split(run.eval_split, TASKS[run.task_name].episode_file)
        episodes = ranks.shard(load_episodes(path))
        self.env = fixed_episodes(episodes, run.played, ranks.device, len(episodes))
        # A copy: the policy in training may be compiled for its own batch size, and keeps its gradients.
        network = ActorCritic(self.env.single_observation_space, self.env.single_action_space, run.policy)
        self.trained, self.agent = policy, PolicyAgent(network.to(ranks.device))

    def measure(self) -> dict[str, float]:
        """Mean metrics over the episodes."""
        self.agent.network.load_state_dict(self.trained.state_dict())
        results = evaluate(self.agent, self.env, self.env.num_envs)
        names = [metric.name for metric in self.env.task.metric_specs if metric.shown]
        everyones = self.ranks.all_gather({name: results[name] for name in names})
        return {name: float(np.concatenate([found[name] for found in everyones]).mean()) for name in names}
