"""Train a PointGoal agent: scenes, environment, policy, PPO. Read it from `train` down.

    python train/pointnav.py --config configs/pointnav_cpu.yaml --out runs/mine
    python train/pointnav.py --config configs/pointnav_cpu.yaml --out runs/mine --ppo.num-envs 128 --seed 3

Every field of the configuration is an option (`--help` lists them). A run that was stopped, even killed, goes on from
its last save when the same command is given again. `--profile` leaves a torch profiler's trace of two updates in the
run's folder.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import sys
from pathlib import Path

import torch
import tyro

from batchnav.config import PointNavRun, load_config, to_dict, validate
from batchnav.data.episodes import Episode, check_episodes, episode_table, load_episodes, order_episodes
from batchnav.data.scenes import find_played, find_scene, find_scenes, measure_scenes, scene_ids
from batchnav.envs.pointnav import PointNavEnv
from batchnav.envs.streamed import StreamedPointNavEnv
from batchnav.errors import BatchnavError, DivergenceError
from batchnav.evaluation.play import evaluate
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import Agent
from batchnav.policy.weights import save_policy
from batchnav.ppo.learner import Learner
from batchnav.runs.folder import RunFolder
from batchnav.runs.progress import TrainingProgress
from batchnav.runs.tracing import tracing
from batchnav.runtime.device import make_deterministic, resolve_device
from batchnav.scene.slots import Capacity, slots_needed

VALIDATION = Path(__file__).resolve().parents[1] / "assets" / "episodes" / "val.json.gz"


def train(run: PointNavRun, out: Path, profile: bool = False) -> None:
    """Train as configured and leave weights, curves and resume state in the folder `out`; and a trace, if asked for."""
    folder = RunFolder(out, run)
    if run.deterministic:
        make_deterministic()
    device = resolve_device(run.device)
    torch.manual_seed(run.seed)  # the initial weights
    env = make_environment(run, device)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = Learner(policy, env, run.ppo, run.seed, compile=run.compile, graphs=run.graphs)
    state = folder.load()
    if state is not None:
        learner.load_state_dict(state)

    def save() -> None:
        about = {"task": to_dict(run.task), "frames": learner.frames, "seed": run.seed}
        save_policy(policy, folder.policy_path, about)
        folder.save(learner.state_dict())

    validation = Validation(run, policy, device) if run.eval_every else None
    profiler = tracing(out / "trace.json") if profile else contextlib.nullcontext()
    with TrainingProgress(run.ppo.total_frames, learner.frames) as progress, profiler:
        while learner.frames < run.ppo.total_frames:
            before = learner.frames
            moved = env.move_scenes() if isinstance(env, StreamedPointNavEnv) else {}
            row = summary(learner.update(before / run.ppo.total_frames).read(), run.ppo.frames_per_update) | moved
            if not math.isfinite(row["loss"]):
                raise DivergenceError(
                    f"update to frame {row['frames']:,}: found loss {row['loss']}, expected a finite number; "
                    f"{folder.path} keeps the last good state; a lower --ppo.learning-rate may help"
                )
            folder.log(row)
            progress.show(row["frames"], **{name: row[name] for name in ("frames_per_second", "success", "spl")})
            if validation and before // run.eval_every != learner.frames // run.eval_every:
                folder.log({"frames": learner.frames, "eval": validation.measure()})
            if folder.save_due(run.save_every):
                save()
            if profile:
                profiler.step()
    save()
    folder.close()


def make_environment(run: PointNavRun, device: torch.device) -> PointNavEnv:
    """Freshly sampled episodes in the configured scenes, or the configured episodes in theirs."""
    if run.scenes.episodes:
        episodes = order_episodes(load_episodes(run.scenes.episodes), shuffle=True, grouped=False, seed=run.seed)
        return fixed_episodes(episodes, run, device, run.ppo.num_envs)
    names, n = scene_ids(run.scenes.names), run.ppo.num_envs
    options = {"config": run.task, "renderer": run.renderer}
    if run.scenes.slots or run.scenes.gigabytes:
        capacities = measure_scenes(names)
        slots = slots_needed(capacities, run.scenes.slots, run.scenes.gigabytes)
        if slots:
            room = Capacity.for_all(capacities)
            return StreamedPointNavEnv(names, find_scene, room, slots, n, device, run.seed, **options)
    return PointNavEnv(find_scenes(names), n, device, run.seed, **options)


def fixed_episodes(episodes: list[Episode], run: PointNavRun, device: torch.device, num_envs: int) -> PointNavEnv:
    """An environment that plays these episodes in turn."""
    scenes = find_played(episodes)
    check_episodes(episodes, {scene.name: scene for scene in scenes})
    table = episode_table(episodes, [scene.name for scene in scenes], device)
    return PointNavEnv(scenes, num_envs, device, config=run.task, episodes=table, renderer=run.renderer)


def summary(stats: dict[str, float], frames: int) -> dict[str, float]:
    """An update's statistics as a row of the curves: the last part of each name, episode means, frames/s."""
    row = {name.rsplit("/", 1)[-1]: value for name, value in stats.items()}
    row["episodes"] = row.pop("count")
    row["frames_per_second"] = frames / (row["collect"] + row["learn"])
    return {"success": math.nan, "spl": math.nan, **row}  # no episode may have ended yet


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


def parse(arguments: list[str]) -> tuple[PointNavRun, Path, bool]:
    """The configuration file with the command line's overrides, the run's folder, and whether to trace it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/pointnav"))
    parser.add_argument("--profile", action="store_true")
    known, overrides = parser.parse_known_args(arguments)
    default = load_config(known.config, PointNavRun) if known.config else PointNavRun()
    run = tyro.cli(PointNavRun, default=default, args=overrides, description=__doc__)
    validate(run)
    return run, known.out, known.profile


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    logging.getLogger("batchnav").setLevel(logging.INFO)  # which renderer was taken, and why
    try:
        train(*parse(sys.argv[1:]))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
