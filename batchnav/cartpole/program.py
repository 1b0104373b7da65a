"""Train CartPole: the complete program of `batchnav train cartpole`.

The algorithm, PPO unless the configuration names another, alternates between rollouts in all environments and updates
that increase the probability of actions with positive advantage. The program writes the policy and its learning curve.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.config import CHOICES, bounded, chosen_settings, load_config, sectioned
from batchnav.errors import BatchnavError
from batchnav.learning import ALGORITHMS, LearnerConfig
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.policy.weights import save_policy
from batchnav.runtime.bundled import WEIGHTS, find_config
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing

# Mean return of a CartPole policy

SOLVED = 475.0
"""Mean return at which Gymnasium counts CartPole-v1 as solved."""


@torch.no_grad()
def mean_return(policy: Any, env: CartPoleEnv) -> float:
    """Mean return of one episode per environment, with the most probable action at every step.

    `policy` is an `ActorCritic` without memory, on the environment's device.
    """
    (observation, _), memory = env.reset(), policy.initial_state(env.num_envs, env.device)
    total, running = torch.zeros(env.num_envs, dtype=torch.float32, device=env.device), env.steps == 0
    for _ in range(MAX_STEPS):
        action = policy.act(observation, running.long(), running, memory).action
        observation, reward, terminated, truncated, _ = env.step(action)
        total += reward * running
        running &= ~(terminated | truncated)
    return total.mean().item()


# CartPole's configuration


@sectioned
@dataclass(frozen=True)
class CartPoleRun:
    """Training run on CartPole."""

    policy: PolicyConfig = field(default_factory=lambda: PolicyConfig(memory="none", hidden_size=64))
    """Architecture of the policy, without memory."""
    algorithm: str = field(default="ppo", metadata={CHOICES: (ALGORITHMS,)})
    """Name of the algorithm in `batchnav.learning.ALGORITHMS`. The section of its name has its settings."""
    imports: tuple[str, ...] = ()
    """Modules of your own that register parts by name: dotted names, or files beside the configuration. They are
    imported, so executed, before the rest of the configuration is read; `--import` adds to them."""
    device: str = "auto"
    """Device: "cpu", "cuda", or "auto" for a GPU if there is one."""
    seed: int = bounded(0, 0, 2**62)
    """Seed of initial weights, start states and action sampling."""

    @property
    def learner(self) -> LearnerConfig:
        """Settings of the algorithm. ConfigError for an unknown name."""
        (settings,) = chosen_settings(self, "algorithm")
        return settings


BACKENDS: dict[str, type[CartPoleEnv]] = {"kernels": CartPoleEnv, "torch": TorchCartPoleEnv}
"""Implementations of the environment by name: compiled kernels on the CPU and on CUDA, and PyTorch operations."""


def train(run: CartPoleRun, backend: str = "kernels", out: Path | None = None) -> float:
    """Train until CartPole is solved or `total_frames` are done. Returns the mean return of 100 new episodes.

    Args:
        run: the configuration.
        backend: a name in `BACKENDS`.
        out: folder for the policy (`policy.safetensors`), the learning curve (`curve.csv`) and its plot (`curve.png`);
            None: nothing is written.
    """
    torch.set_num_threads(1)  # small batches gain nothing from more threads
    torch.manual_seed(run.seed)  # the initial weights
    env = BACKENDS[backend](run.learner.num_envs, resolve_device(run.device), run.seed)
    test_env, score, seconds = CartPoleEnv(100, env.device, run.seed + 1), 0.0, 0.0
    curve: list[tuple[int, float, float]] = []
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = ALGORITHMS[run.algorithm](policy, env, run.learner, run.seed)
    while learner.frames < run.learner.total_frames and score < SOLVED:
        begin = time.perf_counter()
        learner.update(run.learner.progress(learner.frames)).read()  # `read` waits for the device
        seconds, score = seconds + time.perf_counter() - begin, mean_return(policy, test_env)
        print(f"{learner.frames:>12,} frames  {seconds:6.2f} s of training  mean return {score:5.1f}", flush=True)
        curve.append((learner.frames, seconds, score))
    if out is not None:
        info = {"task": "cartpole", "frames": learner.frames, "seed": run.seed, "mean_return": score}
        save_policy(policy, out / WEIGHTS, info)
        write_curve(curve, out)
    return score


def write_curve(curve: list[tuple[int, float, float]], out: Path) -> None:
    """Write frames, seconds of training and mean returns as a table, and frames and mean returns as a plot."""
    from matplotlib.figure import Figure

    with replacing(out / "curve.csv", BatchnavError) as part:
        lines = (f"{frames},{seconds:.3f},{score:.1f}\n" for frames, seconds, score in curve)
        part.write_text("".join(["frames,seconds,mean_return\n", *lines]))
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([frames for frames, _, _ in curve], [score for _, _, score in curve])
    axes.axhline(SOLVED, color="0.6", linestyle="--")
    axes.set(xlabel="frames", ylabel="mean return of 100 episodes", ylim=(0, MAX_STEPS))
    with replacing(out / "curve.png", BatchnavError) as part:
        figure.savefig(part, format="png", dpi=120)


def is_solved(config: str, backend: str = "kernels", out: Path | None = None) -> bool:
    """Train with a configuration (a YAML file or a bundled name). True if CartPole is solved."""
    return train(load_config(find_config(config), CartPoleRun), backend, out) >= SOLVED
