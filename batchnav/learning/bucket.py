"""Gradient bucket: all gradients of a policy in one tensor, so that one all-reduce sums them over the ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from batchnav.runtime.distributed import Ranks

ALIGNMENT = 64
"""Gradients start at multiples of this many numbers: 256 bytes, the alignment of separate tensors, so that kernels can
load vectors."""


class Bucket:
    """Gradients of parameters, float32 on one device, as views of one tensor `flat`.

    Each parameter's `grad` is a view with the parameter's strides and must not be replaced: call `flat.zero_()` instead
    of the optimiser's `zero_grad`; `backward` then adds to the views in place.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]):
        parameters = list(parameters)
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
