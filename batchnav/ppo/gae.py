"""Generalised advantage estimation."""

from __future__ import annotations

import torch


def gae(
    reward: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    done: torch.Tensor,
    gamma: float,
    lam: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and the returns that the value function is fitted to (Schulman et al., ICLR 2016, eq. 11 to 16).

    Args:
        reward: f32 [T, N], for step t.
        value: f32 [T, N], V(s_t).
        next_value: f32 [T, N], the value of what followed step t: V(s_{t+1}) inside an episode, 0 where the episode
            ended for good, and V(final observation) where it was only cut off and shall be bootstrapped.
        done: bool [T, N], set where the episode ended with step t, either way.
        gamma: discount per step.
        lam: lambda, 0 for one-step advantages, 1 for full returns.

    Returns:
        advantage, return: f32 [T, N] each.
    """
    # delta_t = r_t + gamma * V(s_{t+1}) - V(s_t)
    delta = reward + gamma * next_value - value
    decay = gamma * lam * (~done).to(reward.dtype)
    advantage = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        # A_t = delta_t + gamma * lambda * (1 - done_t) * A_{t+1}
        running = torch.addcmul(delta[t], decay[t], running, out=advantage[t])
    # R_t = A_t + V(s_t)
    return advantage, advantage + value
