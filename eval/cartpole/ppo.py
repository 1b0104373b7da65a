"""Average return against training time: the same PPO on each CartPole implementation, with five seeds each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import torch
from gymnasium.vector import AutoresetMode

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.program import SOLVED, CartPoleRun, mean_return
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.config import load_config
from batchnav.envs.adapters.gymnasium_vector import FromGymnasium
from batchnav.envs.adapters.stable_baselines3 import GymnasiumFromSB3
from batchnav.learning import PPO
from batchnav.learning.optimizers import learning_rate_scale
from batchnav.policy.actor_critic import ActorCritic
from batchnav.report.results import row

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SEEDS = range(5)
"""Training seeds of each backend."""
RECIPE_SEEDS = range(3)
"""Training seeds of each recipe."""
RECIPE_UPDATES, RECIPE_SECONDS = 100, 15.0
"""Updates and seconds of training after which a run with a recipe ends."""
TIME_LIMIT = 30.0
"""Seconds of training after which a run counts as not solved."""


def gymnasium_env(num_envs: int, seed: int) -> FromGymnasium:
    """Gymnasium's loop over single environments; the learner's reset seeds them."""
    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return FromGymnasium(gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="sync", vector_kwargs=mode))


def sb3_env(num_envs: int, seed: int) -> FromGymnasium:
    """Stable-Baselines3 with one process per environment."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    env = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs, start_method="fork")
    return FromGymnasium(GymnasiumFromSB3(env))


BACKENDS: dict[str, tuple[str, str, Callable]] = {
    "kernels, GPU": ("cuda", "cartpole_h200.yaml", lambda n, seed: CartPoleEnv(n, "cuda", seed)),
    "PyTorch, GPU": ("cuda", "cartpole_h200.yaml", lambda n, seed: TorchCartPoleEnv(n, "cuda", seed)),
    "kernels, CPU": ("cpu", "cartpole_cpu.yaml", lambda n, seed: CartPoleEnv(n, "cpu", seed)),
    "PyTorch, CPU": ("cpu", "cartpole_cpu.yaml", lambda n, seed: TorchCartPoleEnv(n, "cpu", seed)),
    "Gymnasium SyncVectorEnv": ("cpu", "cartpole_cpu.yaml", gymnasium_env),
    "SB3 SubprocVecEnv": ("cpu", "cartpole_cpu.yaml", sb3_env),
}
"""Device type, configuration, and function from (num_envs, seed) to the environment, by name."""


def ppo_rows(device: torch.device) -> Iterator[list[dict]]:
    """Seconds of training until solved, for each backend and seed; each row holds its learning curve.

    The GPU backends run only if `device` is a GPU. Each backend first runs for two updates that are not timed, to
    compile.
    """
    for name, (kind, config, make) in BACKENDS.items():
        if kind == "cuda" and device.type != "cuda":
            continue
        run = load_config(CONFIGS / config, CartPoleRun)
        params = {"part": "ppo", "how": name, "num_envs": run.ppo.num_envs}
        where = torch.device(kind)
        try:
            curve_of(make, run, where, updates=2)
        except ImportError as error:
            print(f"not measured: {name}: not installed ({error})")
            continue
        rows = []
        for seed in SEEDS:
            curve = curve_of(make, dataclasses.replace(run, seed=seed), where)
            solved = curve[-1][2] >= SOLVED
            result = row(
                "cartpole", "seconds_to_solve", [curve[-1][0]], {**params, "seed": seed, "solved": solved}, where
            )
            rows.append({**result, "frames": curve[-1][1], "curve": curve})
        yield rows


RECIPES: dict[str, dict] = {
    "small-batch recipe": {"minibatches": 4, "gae_lambda": 0.95, "rate": 1.4e-3},
    "more minibatches": {"minibatches": 16, "gae_lambda": 0.95, "rate": 1.4e-3},
    "and a higher rate": {"minibatches": 16, "gae_lambda": 0.95, "rate": 6e-3},
    "and lambda 0.98": {"minibatches": 16, "gae_lambda": 0.98, "rate": 6e-3},
}
"""Settings from those for few environments to those for many; each changes one setting of the recipe before it. `rate`:
learning rate after the square-root rule."""


def batch_rows(device: torch.device) -> Iterator[list[dict]]:
    """Frames and optimiser steps until solved, for each of the RECIPES and two numbers of environments."""
    for n in (1024, 65_536) if device.type == "cuda" else (64, 1024):
        for how, recipe in RECIPES.items():
            rows = []
            for seed in RECIPE_SEEDS:
                run = recipe_run(n, seed, **recipe)
                curve = curve_of(lambda count, s: CartPoleEnv(count, device, s), run, device, limit=RECIPE_SECONDS)
                params = {"part": "batch", "how": how, "num_envs": n, "seed": seed, "solved": curve[-1][2] >= SOLVED}
                steps = (len(curve) - 1) * run.ppo.epochs * run.ppo.minibatches
                result = row("cartpole", "frames_to_solve", [curve[-1][1]], params, device)
                rows.append({**result, "seconds": curve[-1][0], "optimiser_steps": steps})
            yield rows


def recipe_run(num_envs: int, seed: int, minibatches: int, gae_lambda: float, rate: float) -> CartPoleRun:
    """The GPU configuration with another number of environments and the settings of a recipe."""
    run = load_config(CONFIGS / "cartpole_h200.yaml", CartPoleRun)
    base = rate / learning_rate_scale(num_envs * run.ppo.rollout_steps // minibatches)
    ppo = dataclasses.replace(
        run.ppo, num_envs=num_envs, minibatches=minibatches, gae_lambda=gae_lambda, learning_rate=base,
        total_frames=RECIPE_UPDATES * num_envs * run.ppo.rollout_steps,
    )  # fmt: skip
    return dataclasses.replace(run, seed=seed, ppo=ppo)


def curve_of(
    make: Callable, run: CartPoleRun, device: torch.device, updates: int = 10**9, limit: float = TIME_LIMIT
) -> list[list[float]]:
    """Train until solved, at most `updates` updates and `limit` seconds.

    Returns [seconds of training, frames, mean return of 100 new episodes] before the first and after each update.
    """
    torch.set_num_threads(1)  # as in train/cartpole.py
    torch.manual_seed(run.seed)
    env = make(run.ppo.num_envs, run.seed)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = PPO(policy, env, run.ppo, run.seed)
    test_env, curve, seconds = CartPoleEnv(100, device, run.seed + 1), [[0.0, 0, 0.0]], 0.0
    while curve[-1][2] < SOLVED and seconds < limit and learner.frames < run.ppo.total_frames and updates:
        begin = time.perf_counter()
        learner.update(learner.frames / run.ppo.total_frames).read()
        seconds += time.perf_counter() - begin
        curve.append([round(seconds, 4), learner.frames, round(mean_return(policy, test_env), 2)])
        updates -= 1
    env.close()
    return curve
