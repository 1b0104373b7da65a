"""Bounding gradients by the norm of them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch


@torch.no_grad()
def clip_(parameters: Sequence[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scale the gradients, in place, to a common norm of at most `max_norm`; their norm before, a scalar.

    `torch.nn.utils.clip_grad_norm_` to the bit, for tensors of one type on one device, which it sorts twice in a call.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
