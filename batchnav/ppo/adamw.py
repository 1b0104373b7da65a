"""AdamW (Loshchilov and Hutter, ICLR 2019): torch's fused step, without what torch does in Python before it."""

from __future__ import annotations

from typing import Any

import torch


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` with `fused`, to the bit, for parameters of one type on one device, as one group.

    torch sorts tensors by device and type in every step and asks for each whether it has come this far before. For the
    small networks that a CPU trains that takes longer than the step does.

    Args:
        parameters: those without a gradient stay as they are.
        lr: f32 scalar tensor on their device; its owner changes it in place.
        eps, weight_decay: as in torch.
    """

    def __init__(self, parameters: Any, lr: torch.Tensor, eps: float, weight_decay: float):
        super().__init__(parameters, lr, eps=eps, weight_decay=weight_decay, fused=True, capturable=lr.is_cuda)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update from the gradients."""
        group = self.param_groups[0]
        parameters = [p for p in group["params"] if p.grad is not None]
        for p in parameters:
            if p not in self.state:
                self.state[p] = {
                    "step": torch.zeros((), device=p.device),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }
        state = [self.state[p] for p in parameters]
        steps, m, v = ([s[key] for s in state] for key in ("step", "exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_add_(steps, 1.0)
        torch._fused_adamw_(
            parameters, [p.grad for p in parameters], m, v, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
            weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip
