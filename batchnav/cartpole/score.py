"""Mean return of a CartPole policy."""

from __future__ import annotations

from typing import Any

import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS

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
