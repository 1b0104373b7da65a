"""Train CartPole with PPO. This module is the complete program.

    batchnav train cartpole                             # a few seconds on a CPU
    batchnav train cartpole --config cartpole_h200      # 65,536 environments on a GPU

PPO alternates between rollouts in all environments and updates that increase the probability of actions with
positive advantage.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import torch

from batchnav.cartpole.config import CartPoleRun
from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.score import SOLVED, mean_return
from batchnav.config import load_config
from batchnav.policy.actor_critic import ActorCritic
from batchnav.ppo.learner import Learner
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files.bundled import find_config


def train(run: CartPoleRun) -> float:
    """Train until CartPole is solved or `total_frames` are done. Returns the mean return of 100 new episodes."""
    torch.set_num_threads(1)  # small batches gain nothing from more threads
    torch.manual_seed(run.seed)  # the initial weights
    env = CartPoleEnv(run.ppo.num_envs, resolve_device(run.device), run.seed)
    test_env, score, seconds = CartPoleEnv(100, env.device, run.seed + 1), 0.0, 0.0
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = Learner(policy, env, run.ppo, run.seed)
    while learner.frames < run.ppo.total_frames and score < SOLVED:
        begin = time.perf_counter()
        learner.update(learner.frames / run.ppo.total_frames).read()  # `read` waits for the device
        seconds, score = seconds + time.perf_counter() - begin, mean_return(policy, test_env)
        print(f"{learner.frames:>12,} frames  {seconds:6.2f} s of training  mean return {score:5.1f}", flush=True)
    return score


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train cartpole`. Exit status 1 if CartPole is not solved."""
    parser = argparse.ArgumentParser(prog="batchnav train cartpole", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--config", default="cartpole_cpu", help="configuration: a YAML file or a bundled name (default: cartpole_cpu)"
    )
    options = parser.parse_args(arguments)
    sys.exit(train(load_config(find_config(options.config), CartPoleRun)) < SOLVED)
