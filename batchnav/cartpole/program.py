"""Train CartPole: the complete program of `batchnav train cartpole`.

The algorithm, PPO unless the configuration names another, alternates between rollouts in all environments and updates
that increase the probability of actions with positive advantage.
"""

import time

import torch

from batchnav.cartpole.config import CartPoleRun
from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.score import SOLVED, mean_return
from batchnav.config import load_config
from batchnav.learning import ALGORITHMS
from batchnav.policy.actor_critic import ActorCritic
from batchnav.runtime.bundled import find_config
from batchnav.runtime.device import resolve_device


def train(run: CartPoleRun) -> float:
    """Train until CartPole is solved or `total_frames` are done. Returns the mean return of 100 new episodes."""
    torch.set_num_threads(1)  # small batches gain nothing from more threads
    torch.manual_seed(run.seed)  # the initial weights
    env = CartPoleEnv(run.learner.num_envs, resolve_device(run.device), run.seed)
    test_env, score, seconds = CartPoleEnv(100, env.device, run.seed + 1), 0.0, 0.0
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = ALGORITHMS[run.algorithm](policy, env, run.learner, run.seed)
    while learner.frames < run.learner.total_frames and score < SOLVED:
        begin = time.perf_counter()
        learner.update(run.learner.progress(learner.frames)).read()  # `read` waits for the device
        seconds, score = seconds + time.perf_counter() - begin, mean_return(policy, test_env)
        print(f"{learner.frames:>12,} frames  {seconds:6.2f} s of training  mean return {score:5.1f}", flush=True)
    return score


def is_solved(config: str) -> bool:
    """Train with a configuration (a YAML file or a bundled name). True if CartPole is solved."""
    return train(load_config(find_config(config), CartPoleRun)) >= SOLVED
