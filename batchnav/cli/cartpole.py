"""Train CartPole with PPO: the whole of it, on one page.

    batchnav train cartpole                             # seconds on a CPU
    batchnav train cartpole --config cartpole_h200      # 65,536 environments on a GPU

PPO in turn lets the policy act in all environments, and makes actions likelier that beat the critic's expectation.
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
    """Train until solved, or out of frames; returns the mean return of 100 fresh episodes."""
    torch.set_num_threads(1)  # batches this small gain nothing from more
    torch.manual_seed(run.seed)  # the initial weights
    env = CartPoleEnv(run.ppo.num_envs, resolve_device(run.device), run.seed)
    judge, score, seconds = CartPoleEnv(100, env.device, run.seed + 1), 0.0, 0.0
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = Learner(policy, env, run.ppo, run.seed)
    while learner.frames < run.ppo.total_frames and score < SOLVED:
        begin = time.perf_counter()
        learner.update(learner.frames / run.ppo.total_frames).read()  # reading waits until the device is done
        seconds, score = seconds + time.perf_counter() - begin, mean_return(policy, judge)
        print(f"{learner.frames:>12,} frames  {seconds:6.2f} s of training  mean return {score:5.1f}", flush=True)
    return score


def command(arguments: Sequence[str]) -> None:
    """`batchnav train cartpole`: exit status 1 where the pole is not held up in the end."""
    parser = argparse.ArgumentParser(prog="batchnav train cartpole", description=__doc__.partition("\n")[0])
    parser.add_argument("--config", default="cartpole_cpu", help="a file, or the name of a configuration")
    options = parser.parse_args(arguments)
    sys.exit(train(load_config(find_config(options.config), CartPoleRun)) < SOLVED)
