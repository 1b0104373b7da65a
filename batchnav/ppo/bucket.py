"""All gradients of a policy in one tensor, so that one call sums them over several processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from batchnav.runtime.distributed.ranks import Ranks

ALIGNMENT = 64
"""Numbers: each gradient begins at a multiple of 256 bytes, as a tensor of its own does, so kernels load vectors."""


class Bucket:
    """The gradients of parameters, float32 on one device, as parts of one tensor `flat`.

    Each parameter's `grad` is such a part, laid out as the parameter is, and has to stay it: `flat.zero_()` stands for
    the optimiser's `zero_grad`, and `backward` adds in place.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]):
        parameters = list(parameters)
        starts = [0]
        for parameter in parameters:
            starts.append(starts[-1] + -(-parameter.numel() // ALIGNMENT) * ALIGNMENT)
        self.flat = torch.zeros(starts[-1], device=parameters[0].device)
        self._parts = [
            (parameter, self.flat.as_strided(parameter.shape, parameter.stride(), start))
            for parameter, start in zip(parameters, starts, strict=False)
        ]
        for parameter, gradient in self._parts:
            parameter.grad = gradient

    @torch.no_grad()
    def broadcast_(self, ranks: Ranks) -> None:
        """Give all ranks the parameters that rank 0 has, in place, by way of `flat`."""
        for parameter, place in self._parts:
            place.copy_(parameter)
        ranks.broadcast_(self.flat)
        for parameter, place in self._parts:
            parameter.copy_(place)
