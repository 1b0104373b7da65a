"""Optimisers by name, the learning rate's schedule, and the bucket of gradients that ranks sum."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from batchnav.errors import CheckpointError
from batchnav.learning.config import LearnerConfig
from batchnav.runtime.device import has_triton
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.kernels.arrays import is_dense, tensor_text

if TYPE_CHECKING:
    from batchnav.learning.lamb_triton import Kernels

EPS = 1e-5
"""Adam's and LAMB's epsilon, as in the paper's release."""
MAX_PARAMETER_NORM = 10.0
"""Upper bound of phi, the parameter norm in the trust ratio."""
MIN_TRUST = 0.01
"""Lower bound rho of the trust ratio, as in the paper's release."""

NO_TRUST_RATIO = re.compile("bias|gamma|beta|LayerNorm|GroupNorm|fixup")
"""Parameters with a matching name have a trust ratio of 1, so AdamW's step."""
WARM_UP = 0.01
"""Fraction of the run in which the learning rate rises."""

WARM_UP_FROM = 0.5
"""Initial learning rate as a fraction of the full rate."""

FINAL = 0.01
"""Final learning rate as a fraction of the base rate, without the scale of `learning_rate_scale`."""

REFERENCE_FRAMES = 256
"""Minibatch size, in frames, that the base rate is for."""
ALIGNMENT = 64
"""Gradients start at multiples of this many numbers: 256 bytes, the alignment of separate tensors, so that kernels can
load vectors."""


_MOMENTS = ("exp_avg", "exp_avg_sq")


def kind_of(kept: dict[str, torch.Tensor]) -> str:
    """Name of the optimiser that a parameter's state belongs to."""
    return "lamb" if "num_steps" in kept else "adamw"


def check_optimizer_state(found: Any, optimizer: torch.optim.Optimizer, name: str) -> dict[int, dict]:
    """The state of each parameter, by number, of an optimiser's `state_dict`, checked before it is loaded.

    The tensors are copies, since those of a file may share memory.

    Args:
        found: the `state_dict`.
        optimizer: the optimiser that it is for.
        name: the optimiser's name in the configuration.

    Raises:
        CheckpointError: the state belongs to another optimiser, or a tensor is missing, of another shape, not float32,
            NaN, or negative where it may not be.
    """
    parameters = optimizer.param_groups[0]["params"]
    states = found["state"]
    if other := {kind_of(kept) for kept in states.values()} - {name}:
        raise CheckpointError(f"optimizer: found {min(other)}, expected {name}")
    if unknown := [key for key in states if type(key) is not int or not 0 <= key < len(parameters)]:
        raise CheckpointError(f"optimizer: found parameter {unknown[0]!r}, expected 0 to {len(parameters) - 1}")
    if name == "lamb" and len(states) < len(parameters):
        raise CheckpointError(f"optimizer: found the state of {len(states)} parameters, expected {len(parameters)}")
    for key, kept in states.items():
        shapes = {"num_steps" if name == "lamb" else "step": (), **dict.fromkeys(_MOMENTS, parameters[key].shape)}
        if kept.keys() != shapes.keys():
            raise CheckpointError(f"optimizer: parameter {key} has {', '.join(kept)}, expected {', '.join(shapes)}")
        for part, shape in shapes.items():
            value, expected = kept[part], f"torch.float32 {list(shape)}"
            fits = isinstance(value, torch.Tensor) and is_dense(value) and value.dtype == torch.float32
            if not fits or value.shape != shape:
                raise CheckpointError(f"optimizer: {part} {key}: found {tensor_text(value)}, expected {expected}")
            if value.isnan().any() or (part != _MOMENTS[0] and (value < 0).any()):
                raise CheckpointError(f"optimizer: {part} {key}: found NaN or a negative number, expected {expected}")
    return {key: {part: value.clone() for part, value in kept.items()} for key, kept in states.items()}


def make_optimizer(policy: nn.Module, config: LearnerConfig, lr: torch.Tensor) -> torch.optim.Optimizer:
    """The configured optimiser of all parameters that require gradients; it reads the rate from the tensor `lr`."""
    named = [(name, parameter) for name, parameter in policy.named_parameters() if parameter.requires_grad]
    if config.optimizer == "lamb":
        return Lamb(named, lr, eps=EPS, weight_decay=config.weight_decay)
    parameters = [parameter for _, parameter in named]
    return torch.optim.AdamW(
        parameters, lr, eps=EPS, weight_decay=config.weight_decay, fused=True, capturable=lr.is_cuda
    )


def learning_rate_scale(minibatch_frames: int) -> float:
    """Factor sqrt(frames / 256), at least 1: the square-root rule for large batches (Krizhevsky 2014)."""
    return max(math.sqrt(minibatch_frames / REFERENCE_FRAMES), 1.0)


def learning_rate(progress: float, base: float, minibatch_frames: int) -> float:
    """Learning rate: linear warm-up from half the scaled rate, then a cosine to FINAL * base.

    Args:
        progress: finished fraction of the run, 0 to 1.
        base: base rate, for minibatches of REFERENCE_FRAMES.
        minibatch_frames: minibatch size, frames of all processes.
    """
    full, final = base * learning_rate_scale(minibatch_frames), FINAL * base
    progress = min(max(progress, 0.0), 1.0)
    if progress < WARM_UP:
        return full * (WARM_UP_FROM + (1.0 - WARM_UP_FROM) * progress / WARM_UP)
    fallen = 0.5 * (1.0 - math.cos(math.pi * (progress - WARM_UP) / (1.0 - WARM_UP)))
    return full + (final - full) * fallen


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
        named_parameters: (name, parameter) pairs, all on one device. Those without a gradient are left out of a step.
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
        self._names, self._stepped = [name for name, _ in named], list[str]()
        self._kernels: Kernels | None = None
        for _, parameter in named:
            self.state[parameter] = {
                "num_steps": torch.zeros((), dtype=torch.float32, device=lr.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters that have a gradient; the others stay as they are."""
        group = self.param_groups[0]
        parameters = self._with_gradients(group["params"])
        if not parameters:
            return
        gradients: list[torch.Tensor] = [p.grad for p in parameters if p.grad is not None]
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

    def _with_gradients(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """The parameters that have a gradient; `_trusted` and the fused kernels then belong to them."""
        names = [name for name, parameter in zip(self._names, parameters, strict=True) if parameter.grad is not None]
        if names != self._stepped:  # before a CUDA graph records the step: the set stays the same
            self._stepped, self._kernels = names, None
            trusted = [NO_TRUST_RATIO.search(name) is None for name in names]
            self._trusted = torch.tensor(trusted, dtype=torch.bool, device=self.param_groups[0]["lr"].device)
        return [parameter for parameter in parameters if parameter.grad is not None]

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


class Bucket:
    """Gradients of the parameters that require them, float32 on one device, as views of one tensor `flat`.

    Each parameter's `grad` is a view with the parameter's strides and must not be replaced: call `flat.zero_()` instead
    of the optimiser's `zero_grad`; `backward` then adds to the views in place.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]):
        parameters = [parameter for parameter in parameters if parameter.requires_grad]
        starts = [0]
        for parameter in parameters:
            starts.append(starts[-1] + -(-parameter.numel() // ALIGNMENT) * ALIGNMENT)
        self.flat = torch.zeros(starts[-1], dtype=torch.float32, device=parameters[0].device)
        self._parts = [
            (parameter, self.flat.as_strided(parameter.shape, parameter.stride(), start))
            for parameter, start in zip(parameters, starts, strict=False)
        ]
        for parameter, gradient in self._parts:
            parameter.grad = gradient

    @torch.no_grad()
    def broadcast_(self, ranks: Ranks) -> None:
        """Copy the parameters of rank 0 to all ranks, in place, through `flat`."""
        for parameter, place in self._parts:
            place.copy_(parameter)
        ranks.broadcast_(self.flat)
        for parameter, place in self._parts:
            parameter.copy_(place)
