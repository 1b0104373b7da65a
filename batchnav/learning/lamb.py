"""LAMB with a clipped trust ratio, the optimiser of the paper's large-batch training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from batchnav.policy.triton_support import has_triton

if TYPE_CHECKING:
    from batchnav.learning.lamb_triton import Kernels

MAX_PARAMETER_NORM = 10.0
"""Upper bound of phi, the parameter norm in the trust ratio."""
MIN_TRUST = 0.01
"""Lower bound rho of the trust ratio, as in the paper's release."""

NO_TRUST_RATIO = re.compile("bias|gamma|beta|LayerNorm|GroupNorm|fixup")
"""Parameters with a matching name have a trust ratio of 1, so AdamW's step."""


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020) with decoupled weight decay and the trust ratio clipped to [rho, 1 / rho].

    Per parameter tensor theta, with Adam's bias-corrected moments m and v:

        u     = m / (sqrt(v) + eps) + weight_decay * theta
        phi   = min(||theta||, 10)
        r     = 1                              if ||theta|| = 0, ||u|| = 0, or the name matches NO_TRUST_RATIO
              = clip(phi / ||u||, rho, 1/rho)  otherwise
        theta = theta - lr * r * u

    rho = 1 gives AdamW. Learning rate and step count are tensors on the parameters' device, and a step does not
    synchronise with the host, so it can be captured in a CUDA graph.

    Args:
        named_parameters: (name, parameter) pairs, all on one device.
        lr: learning rate, f32 scalar tensor on that device; the caller changes it in place.
        betas: decay of the moments.
        eps: added to sqrt(v).
        weight_decay: decoupled weight decay.
        min_trust: rho.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]],
        lr: torch.Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 1e-2,
        min_trust: float = MIN_TRUST,
    ):
        named = list(named_parameters)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "min_trust": min_trust}
        super().__init__([parameter for _, parameter in named], defaults)
        trusted = [NO_TRUST_RATIO.search(name) is None for name, _ in named]
        self._trusted = torch.tensor(trusted, dtype=torch.bool, device=lr.device)
        self._kernels: Kernels | None = None
        for _, parameter in named:
            self.state[parameter] = {
                "num_steps": torch.zeros((), dtype=torch.float32, device=lr.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update; every parameter must have a gradient."""
        group = self.param_groups[0]
        parameters = group["params"]
        gradients = [p.grad for p in parameters]
        state = [self.state[p] for p in parameters]
        steps, m, v = ([s[key] for s in state] for key in ("num_steps", "exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_add_(steps, 1.0)
        unbias_m = 1.0 / (1.0 - beta1 ** steps[0])
        unbias_v = 1.0 / (1.0 - beta2 ** steps[0])
        if has_triton(parameters[0].device) and all(map(_fits_kernels, parameters, m, v)):
            with torch.cuda.device_of(parameters[0]):  # Triton launches on the current device
                self._step_fused(parameters, gradients, m, v, torch.stack([unbias_m, unbias_v]))
            return
        torch._foreach_lerp_(m, gradients, 1.0 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, gradients, gradients, 1.0 - beta2)
        # u = m_hat / (sqrt(v_hat) + eps) + weight_decay * theta
        u = torch._foreach_mul(m, unbias_m)
        denominator = torch._foreach_mul(v, unbias_v)
        torch._foreach_sqrt_(denominator)
        torch._foreach_add_(denominator, group["eps"])
        torch._foreach_div_(u, denominator)
        torch._foreach_add_(u, parameters, alpha=group["weight_decay"])
        ratio = trust_ratio(
            torch.stack(torch._foreach_norm(parameters)),
            torch.stack(torch._foreach_norm(u)),
            self._trusted,
            group["min_trust"],
        )
        # theta <- theta - lr * r * u
        torch._foreach_mul_(u, (group["lr"] * ratio).unbind())
        torch._foreach_sub_(parameters, u)

    def _step_fused(self, parameters, gradients, m, v, unbias: torch.Tensor) -> None:
        """`step` from the moments on, with `lamb_triton`; unbias f32 [2]: the bias corrections of m and v."""
        from batchnav.learning.lamb_triton import Kernels  # imported here, since only torch for CUDA includes Triton

        group = self.param_groups[0]
        if self._kernels is None or not self._kernels.match(parameters, m, v):
            self._kernels = Kernels(parameters, m, v)
        (beta1, beta2), eps, decay = group["betas"], group["eps"], group["weight_decay"]
        norms = self._kernels.advance(gradients, unbias, beta1, beta2, eps, decay)
        ratio = trust_ratio(norms[:, 0], norms[:, 1], self._trusted, group["min_trust"])
        self._kernels.apply(group["lr"] * ratio, unbias, eps, decay)


def _fits_kernels(parameter: torch.Tensor, *moments: torch.Tensor) -> bool:
    """True where `lamb_triton` supports a parameter and its moments: float32, equal strides, 16-byte alignment.

    Moments that were loaded from a file may be unaligned.
    """
    tensors = (parameter, *moments)
    return all(
        t.dtype == torch.float32 and t.stride() == parameter.stride() and t.data_ptr() % 16 == 0 for t in tensors
    )


def trust_ratio(
    parameter_norm: torch.Tensor, update_norm: torch.Tensor, trusted: torch.Tensor, min_trust: float
) -> torch.Tensor:
    """LAMB's trust ratio r of P tensors, f32 [P] in [min_trust, 1 / min_trust].

    Args:
        parameter_norm: norms of the parameters, f32 [P].
        update_norm: norms of the updates u, f32 [P].
        trusted: bool [P]; False: r = 1.
        min_trust: rho.
    """
    ratio = (parameter_norm.clamp(max=MAX_PARAMETER_NORM) / update_norm).clamp(min_trust, 1.0 / min_trust)
    applies = trusted & (parameter_norm > 0) & (update_norm > 0)
    return torch.where(applies, ratio, 1.0)
