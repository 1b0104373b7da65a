"""Train a PointGoal agent: scenes, environment, policy, PPO. Read it from `train` down."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch

from batchnav.config import to_dict
from batchnav.data.episodes import Episode, check_episodes, episode_table, load_episodes, order_episodes
from batchnav.data.scenes import find_played, find_scene, find_scenes, measure_scenes, scene_ids
from batchnav.envs.nav import NavEnv, needed_appearance
from batchnav.envs.stream import SceneStream
from batchnav.errors import DivergenceError
from batchnav.evaluation.play import evaluate
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import Agent
from batchnav.policy.weights import save_policy
from batchnav.ppo.learner import Learner
from batchnav.runs.config import PointNavRun
from batchnav.runs.folder import RunFolder
from batchnav.runs.progress import TrainingProgress
from batchnav.runs.signals import StopSignals
from batchnav.runs.tracing import tracing
from batchnav.runtime.device import make_deterministic, resolve_device
from batchnav.scene.slots import Capacity, slots_needed

VALIDATION = Path(__file__).resolve().parents[2] / "assets" / "episodes" / "val.json.gz"


def train(run: PointNavRun, out: Path, profile: bool = False, allow_changes: bool = False) -> None:
    """Train as configured, from the beginning or from where the folder `out` was left.

    Leaves weights, curves and resume state in the folder, and a trace, if asked for by `profile`. `allow_changes`: go
    on with another configuration than the run's before. SystemExit, after a save, where a signal asks for it.
    """
    with StopSignals(run.on_sigusr1) as signals, RunFolder(out, run, allow_changes) as folder:
        learner = make_learner(run)
        state = folder.load()
        if state is not None:
            learner.load_state_dict(state)
        validation = Validation(run, learner.policy, learner.device) if run.eval_every else None
        folder.begin(learner.frames)
        profiler = tracing(out / "trace.json") if profile else contextlib.nullcontext()
        with TrainingProgress(run.ppo.total_frames, learner.frames) as progress, profiler, signals.deferred():
            while learner.frames < run.ppo.total_frames and signals.status is None:
                before = learner.frames
                row = update(learner, run)
                check_finite(row, folder)
                folder.log(row)
                progress.show(row["frames"], **{name: row[name] for name in ("frames_per_second", "success", "spl")})
                if validation and before // run.eval_every != learner.frames // run.eval_every:
                    folder.log({"frames": learner.frames, "eval": validation.measure()})
                if folder.save_due(run.save_every) or signals.save_asked():
                    save(learner, run, folder)
                if profile:
                    profiler.step()
            save(learner, run, folder)
        signals.end(f"saved at frame {learner.frames:,}")


def make_learner(run: PointNavRun) -> Learner:
    """The learner of a run that begins."""
    if run.deterministic:
        make_deterministic()
    device = resolve_device(run.device)
    torch.manual_seed(run.seed)  # the initial weights
    env = make_environment(run, device)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    return Learner(policy, env, run.ppo, run.seed, compile=run.compile, graphs=run.graphs)


def make_environment(run: PointNavRun, device: torch.device) -> NavEnv:
    """Freshly sampled episodes in the configured scenes, or the configured episodes in theirs."""
    if run.scenes.episodes:
        episodes = order_episodes(load_episodes(run.scenes.episodes), shuffle=True, grouped=False, seed=run.seed)
        return fixed_episodes(episodes, run, device, run.ppo.num_envs)
    names, n = scene_ids(run.scenes.names), run.ppo.num_envs
    how, slots = {"settings": run.body.navmesh, "appearance": run.appearance}, 0
    if run.scenes.slots or run.scenes.gigabytes:
        fields = needed_appearance(run.nav)
        capacities = [scene.with_appearance(fields) for scene in measure_scenes(names, **how)]
        slots = slots_needed(capacities, run.scenes.slots, run.scenes.gigabytes)
    if slots:
        load = partial(find_scene, **how)
        scenes = SceneStream(names, load, Capacity.for_all(capacities), slots, run.seed)
    else:
        scenes = find_scenes(names, **how)
    return NavEnv(scenes, n, device, run.seed, **_options(run))


def _options(run: PointNavRun) -> dict[str, Any]:
    """What an environment of this run is made with."""
    return {"config": run.nav, "renderer": run.renderer, "final_observation": run.ppo.timeout_bootstrap}


def fixed_episodes(episodes: list[Episode], run: PointNavRun, device: torch.device, num_envs: int) -> NavEnv:
    """An environment that plays these episodes in turn."""
    scenes = find_played(episodes, settings=run.body.navmesh, appearance=run.appearance)
    check_episodes(episodes, {scene.name: scene for scene in scenes})
    table = episode_table(episodes, [scene.name for scene in scenes], device)
    return NavEnv(scenes, num_envs, device, episodes=table, **_options(run))


def update(learner: Learner, run: PointNavRun) -> dict[str, float]:
    """One update, as a row of the curves."""
    stats = learner.update(learner.frames / run.ppo.total_frames).read()
    return summary(stats, run.ppo.frames_per_update)


def summary(stats: dict[str, float], frames: int) -> dict[str, float]:
    """An update's statistics as a row of the curves: the last part of each name, episode means, frames/s."""
    row = {name.rsplit("/", 1)[-1]: value for name, value in stats.items()}
    row["episodes"] = row.pop("count")
    row["frames_per_second"] = frames / (row["collect"] + row["learn"])
    return {"success": math.nan, "spl": math.nan, **row}  # no episode may have ended yet


def check_finite(row: dict[str, float], folder: RunFolder) -> None:
    """DivergenceError where an update has left weights that are not finite."""
    for name in ("loss", "grad_norm"):
        if not math.isfinite(row[name]):
            advice = (
                f"{folder.path} keeps the last good state; the same command with a lower --ppo.learning-rate and with "
                f"--allow-changes goes on from there"
                if folder.resume_path.exists()
                else "nothing was saved yet; a lower --ppo.learning-rate may help"
            )
            raise DivergenceError(
                f"update to frame {row['frames']:,}: found {name} {row[name]}, expected a finite number; {advice}"
            )


def save(learner: Learner, run: PointNavRun, folder: RunFolder) -> None:
    """Keep the weights, then the state to resume from."""
    about = {"env": to_dict(run.nav), "frames": learner.frames, "seed": run.seed}
    save_policy(learner.policy, folder.policy_path, about)
    folder.save(learner.state_dict())


class Validation:
    """The fixed validation episodes in unseen houses, played now and then with the policy as it is."""

    def __init__(self, run: PointNavRun, policy: ActorCritic, device: torch.device):
        episodes = load_episodes(VALIDATION)
        self.env = fixed_episodes(episodes, run, device, len(episodes))
        # A copy: the policy in training may be compiled for its own batch size, and keeps its gradients.
        network = ActorCritic(self.env.single_observation_space, self.env.single_action_space, run.policy)
        self.trained, self.agent = policy, Agent(network.to(device))

    def measure(self) -> dict[str, float]:
        """Mean metrics over the episodes."""
        self.agent.network.load_state_dict(self.trained.state_dict())
        results = evaluate(self.agent, self.env, self.env.num_envs)
        return {name: float(results[name].mean()) for name in ("success", "spl", "soft_spl", "distance_to_goal")}
