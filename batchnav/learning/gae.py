"""Generalised advantage estimation (GAE)."""

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
    """Advantages, and the returns to which the value function is fitted (Schulman et al., ICLR 2016, eq. 11 to 16).

    Args:
        reward: reward of step t, f32 [T, N].
        value: V(s_t), f32 [T, N].
        next_value: value after step t, f32 [T, N]: V(s_{t+1}) inside an episode, 0 after termination, V(final
            observation) after a truncation that is bootstrapped.
        done: bool [T, N], set where the episode ended with step t by termination or truncation.
        gamma: discount per step.
        lam: lambda; 0 gives one-step advantages, 1 full returns.

    Returns:
        advantages and returns, f32 [T, N] each.

    Example: three steps of one environment; its episode ends with the second step.

        >>> column = lambda *values: torch.tensor(values)[:, None]
        >>> reward, value = column(1.0, 2.0, 0.0), column(2.0, 4.0, 1.0)
        >>> next_value, done = column(4.0, 0.0, 6.0), column(False, True, False)
        >>> advantage, returns = gae(reward, value, next_value, done, gamma=0.5, lam=0.5)
        >>> advantage[:, 0].tolist()  # delta = 1, -2, 2; the first is 1 + 0.5 * 0.5 * (-2), the others are delta
        [0.5, -2.0, 2.0]
        >>> returns[:, 0].tolist()
        [2.5, 2.0, 3.0]
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
