"""How good a CartPole policy is."""

from __future__ import annotations

from typing import Any

import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS

SOLVED = 475.0
"""The mean return from which on Gymnasium calls CartPole-v1 solved."""


@torch.no_grad()
def mean_return(policy: Any, env: CartPoleEnv) -> float:
    """Play one episode per environment, always with the likeliest action.

    `policy`: an `ActorCritic` without memory, on the environment's device.
    """
    (observation, _), memory = env.reset(), policy.initial_state(env.num_envs, env.device)
    total, running = torch.zeros(env.num_envs, device=env.device), env.steps == 0
    for _ in range(MAX_STEPS):
        action = policy.act(observation, running.long(), running, memory).action
        observation, reward, terminated, truncated, _ = env.step(action)
        total += reward * running
        running &= ~(terminated | truncated)
    return total.mean().item()
