"""Advantages and losses, pure functions of tensors: GAE, PPO's clipped objective, imitation, mask prediction."""

from __future__ import annotations

import torch
from torch.nn import functional as F

POSITIVE_WEIGHT = 4.0
"""Weight of the mask's pixels in `mask_loss`: they are few."""


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


def ppo_loss(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantage: torch.Tensor,
    value: torch.Tensor,
    returns: torch.Tensor,
    entropy: torch.Tensor,
    *,
    clip: float,
    value_coef: float,
    entropy_coef: float,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """PPO's loss (Schulman et al. 2017, eq. 7 and 9; the value loss is not clipped), and its parts.

    Args:
        log_prob: log probability of the actions by the current policy, f32 [...].
        old_log_prob: log probability by the policy that acted, f32 [...].
        advantage: f32 [...].
        value: value estimates, f32 [...].
        returns: targets of the value estimates, f32 [...].
        entropy: entropy of the action distribution, f32 [...].
        clip: clip range of the probability ratio.
        value_coef: coefficient of the value loss.
        entropy_coef: coefficient of the entropy bonus.

    Returns:
        the loss, f32 scalar with gradient, and detached scalars by name: "policy_loss", "value_loss", "entropy",
        "approx_kl", the mean of ratio - 1 - log ratio, a low-variance estimate of KL(old || new) (Schulman 2020), and
        "clip_fraction", the fraction of steps with a ratio outside [1 - clip, 1 + clip].
    """
    # r = pi(a | s) / pi_old(a | s)
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    # L_clip = mean min(r * A, clip(r, 1 - eps, 1 + eps) * A)
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    # L_value = 1/2 * mean (V(s) - R)^2
    value_loss = 0.5 * (value - returns).square().mean()
    mean_entropy = entropy.mean()
    loss = policy_loss + value_coef * value_loss - entropy_coef * mean_entropy
    with torch.no_grad():
        approx_kl = (ratio - 1.0 - log_ratio).mean()
        clip_fraction = ((ratio - 1.0).abs() > clip).float().mean()
    return loss, {
        "policy_loss": policy_loss.detach(),
        "value_loss": value_loss.detach(),
        "entropy": mean_entropy.detach(),
        "approx_kl": approx_kl,
        "clip_fraction": clip_fraction,
    }


def imitation_loss(log_prob: torch.Tensor) -> torch.Tensor:
    """Mean negative log probability of the expert's actions, f32 scalar, from their log probabilities f32 [...].

    The cross entropy of policy and expert (Schmitt et al. 2018, section 3.2) for an expert that is deterministic.
    """
    return -log_prob.mean()


def mask_loss(logits: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Mean binary cross-entropy of predicted masks, in which true pixels have the weight POSITIVE_WEIGHT.

    Args:
        logits: logits of the predicted masks, [...].
        mask: true masks, [...]: bytes 0 or 255, or floats 0 or 1.

    Returns:
        the loss, f32 scalar with gradient, and detached scalars by name: "mask_loss", and "mask_iou", the intersection
        over union of predicted (probability above 0.5) and true pixels of the whole minibatch; 0 where both are empty.
    """
    logits, shown = logits.float(), mask > 0
    weight = logits.new_full((), POSITIVE_WEIGHT)
    loss = F.binary_cross_entropy_with_logits(logits, shown.float(), pos_weight=weight)
    with torch.no_grad():
        predicted = logits > 0.0
        union = (predicted | shown).sum().clamp(min=1)
        iou = (predicted & shown).sum().float() / union
    return loss, {"mask_loss": loss.detach(), "mask_iou": iou}
