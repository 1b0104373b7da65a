"""Losses: PPO's clipped objective, the imitation of an expert, and the prediction of the goal's mask."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F

POSITIVE_WEIGHT = 4.0
"""Weight of the mask's pixels in `mask_loss`: they are few."""


class LossStats(NamedTuple):
    """Parts of a minibatch's loss: detached f32 scalars on its device."""

    loss: torch.Tensor
    policy_loss: torch.Tensor
    value_loss: torch.Tensor
    entropy: torch.Tensor
    approx_kl: torch.Tensor
    """Mean of ratio - 1 - log ratio, the low-variance estimate of KL(old || new) (Schulman 2020)."""
    clip_fraction: torch.Tensor
    """Fraction of steps with a ratio outside [1 - clip, 1 + clip]."""


class MaskStats(NamedTuple):
    """Quality of a minibatch's predicted masks: detached f32 scalars on its device."""

    mask_loss: torch.Tensor
    """Loss as in `mask_loss`."""
    mask_iou: torch.Tensor
    """Intersection over union of predicted (probability above 0.5) and true pixels of the whole minibatch; 0 where both
    are empty."""


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
) -> tuple[torch.Tensor, LossStats]:
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
        the loss, f32 scalar with gradient, and its parts.
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
    parts = (loss, policy_loss, value_loss, mean_entropy, approx_kl, clip_fraction)
    return loss, LossStats(*(part.detach() for part in parts))


def imitation_loss(log_prob: torch.Tensor) -> torch.Tensor:
    """Mean negative log probability of the expert's actions, f32 scalar, from their log probabilities f32 [...].

    The cross entropy of policy and expert (Schmitt et al. 2018, section 3.2) for an expert that is deterministic.
    """
    return -log_prob.mean()


def mask_loss(logits: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, MaskStats]:
    """Mean binary cross-entropy of predicted masks, in which true pixels have the weight POSITIVE_WEIGHT.

    Args:
        logits: logits of the predicted masks, [...].
        mask: true masks, [...]: bytes 0 or 255, or floats 0 or 1.

    Returns:
        the loss, f32 scalar with gradient, and its statistics.
    """
    logits, shown = logits.float(), mask > 0
    weight = logits.new_full((), POSITIVE_WEIGHT)
    loss = F.binary_cross_entropy_with_logits(logits, shown.float(), pos_weight=weight)
    with torch.no_grad():
        predicted = logits > 0.0
        union = (predicted | shown).sum().clamp(min=1)
        iou = (predicted & shown).sum().float() / union
    return loss, MaskStats(loss.detach(), iou)
