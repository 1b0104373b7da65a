"""A step of `optimizers.Lamb` on CUDA: two passes over all parameters at once. `Lamb.step` is the specification.

Parameters and moments stay separate tensors; kernels find them through a table of their addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

CHUNK = 1024
"""Number of elements of a parameter that a program processes."""
SUMS = 512
"""Number of partial sums that a program of `_norms` adds at a time."""


@triton.jit
def _chunk(table, chunks, CHUNK: tl.constexpr):
    """Row of `table` and index of a program's parameter, and offsets and mask of its chunk in the parameter.

    A row of `table` has the addresses of theta, m and v, the offset of the gradient, and the number of elements. A row
    of `chunks` has a program's parameter and its offset in the parameter.
    """
    parameter = tl.load(chunks + 2 * tl.program_id(0))
    at = tl.load(chunks + 2 * tl.program_id(0) + 1) + tl.arange(0, CHUNK)
    row = table + 5 * parameter
    return row, parameter, at, at < tl.load(row + 4)


@triton.jit
def _numbers(row, which: tl.constexpr):
    """Pointer to the parameter (0) or one of its moments (1, 2)."""
    return tl.multiple_of(tl.load(row + which), 16).to(tl.pointer_type(tl.float32))


@triton.jit
def _direction(m, v, theta, unbias, eps, decay):
    """LAMB's update direction u."""
    return m * tl.load(unbias) / (tl.sqrt_rn(v * tl.load(unbias + 1)) + eps) + decay * theta


@triton.jit
def _moments(table, chunks, gradient, unbias, beta1, beta2, eps, decay, squares_out, CHUNK: tl.constexpr):
    """Update the moments in place; write each chunk's sums of squares of theta and of u, f32 [chunks, 2]."""
    row, _, at, live = _chunk(table, chunks, CHUNK)
    m_out, v_out = _numbers(row, 1), _numbers(row, 2)
    g = tl.load(gradient + tl.load(row + 3) + at, mask=live, other=0.0)
    m, v = tl.load(m_out + at, mask=live, other=0.0), tl.load(v_out + at, mask=live, other=0.0)
    theta = tl.load(_numbers(row, 0) + at, mask=live, other=0.0)
    m, v = m + (g - m) * (1.0 - beta1), v * beta2 + g * g * (1.0 - beta2)
    tl.store(m_out + at, m, mask=live)
    tl.store(v_out + at, v, mask=live)
    u = _direction(m, v, theta, unbias, eps, decay)
    tl.store(squares_out + 2 * tl.program_id(0), tl.sum(theta * theta))
    tl.store(squares_out + 2 * tl.program_id(0) + 1, tl.sum(u * u))


@triton.jit
def _norms(squares, firsts, norms_out, SUMS: tl.constexpr):
    """Norms of theta and u, f32 [P, 2]: roots of the sums of `squares` over each parameter's chunks.

    `firsts` i64 [P + 1] has the first chunk of each parameter.
    """
    end = tl.load(firsts + tl.program_id(0) + 1)
    of_parameter, of_direction = tl.zeros((SUMS,), tl.float32), tl.zeros((SUMS,), tl.float32)
    for first in range(tl.load(firsts + tl.program_id(0)), end, SUMS):
        chunk = first + tl.arange(0, SUMS)
        of_parameter += tl.load(squares + 2 * chunk, mask=chunk < end, other=0.0)
        of_direction += tl.load(squares + 2 * chunk + 1, mask=chunk < end, other=0.0)
    tl.store(norms_out + 2 * tl.program_id(0), tl.sqrt_rn(tl.sum(of_parameter)))
    tl.store(norms_out + 2 * tl.program_id(0) + 1, tl.sqrt_rn(tl.sum(of_direction)))


@triton.jit
def _apply(table, chunks, rate, unbias, eps, decay, CHUNK: tl.constexpr):
    """theta <- theta - rate * u, in place; rate f32 [P]."""
    row, parameter, at, live = _chunk(table, chunks, CHUNK)
    theta_out = _numbers(row, 0)
    m, v = tl.load(_numbers(row, 1) + at, mask=live, other=0.0), tl.load(_numbers(row, 2) + at, mask=live, other=0.0)
    theta = tl.load(theta_out + at, mask=live, other=0.0)
    u = _direction(m, v, theta, unbias, eps, decay)
    tl.store(theta_out + at, theta - tl.load(rate + parameter) * u, mask=live)


class Kernels:
    """Optimiser steps on parameters and moments with fixed addresses: float32, dense, on one device."""

    def __init__(self, parameters: Sequence[torch.Tensor], m: Sequence[torch.Tensor], v: Sequence[torch.Tensor]):
        self.parameters, self.addresses = parameters, _addresses(parameters, m, v)
        device, start = parameters[0].device, 0
        table, chunks, firsts = [], [], [0]
        for i, (parameter, where) in enumerate(zip(parameters, self.addresses, strict=True)):
            table.append((*where, start, parameter.numel()))
            chunks += [(i, first) for first in range(0, parameter.numel(), CHUNK)]
            firsts.append(len(chunks))
            start += parameter.numel()
        self.table, self.chunks, self.firsts = (
            torch.tensor(rows, dtype=torch.int64, device=device) for rows in (table, chunks, firsts)
        )

    def match(self, parameters: Sequence[torch.Tensor], m: Sequence[torch.Tensor], v: Sequence[torch.Tensor]) -> bool:
        """True where parameters and moments still have the same addresses."""
        return self.addresses == _addresses(parameters, m, v)

    def advance(
        self, gradients: Sequence[torch.Tensor], unbias: torch.Tensor,
        beta1: float, beta2: float, eps: float, decay: float,
    ) -> torch.Tensor:  # fmt: skip
        """Update the moments; returns the norms f32 [P, 2] of each parameter and of its u.

        unbias f32 [2] has the bias corrections of the moments. Gradients are copied into one tensor, since their
        addresses change.
        """
        flat = torch.cat([_in_memory_order(*pair) for pair in zip(gradients, self.parameters, strict=True)])
        squares, norms = (
            torch.empty(len(n), 2, dtype=torch.float32, device=flat.device) for n in (self.chunks, self.parameters)
        )
        _moments[(len(self.chunks),)](
            self.table, self.chunks, flat, unbias, beta1, beta2, eps, decay, squares, CHUNK=CHUNK, num_warps=4
        )
        _norms[(len(norms),)](squares, self.firsts, norms, SUMS=SUMS, num_warps=4)
        return norms

    def apply(self, rate: torch.Tensor, unbias: torch.Tensor, eps: float, decay: float) -> None:
        """Take the step; rate f32 [P] is the learning rate times each parameter's trust ratio."""
        _apply[(len(self.chunks),)](self.table, self.chunks, rate, unbias, eps, decay, CHUNK=CHUNK, num_warps=4)


def _addresses(*kinds: Sequence[torch.Tensor]) -> list[tuple[int, ...]]:
    """Addresses of each parameter and its moments."""
    return [tuple(tensor.data_ptr() for tensor in tensors) for tensors in zip(*kinds, strict=True)]


def _in_memory_order(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A gradient's elements [n] in the memory order of its parameter."""
    if gradient.stride() != parameter.stride():
        gradient = torch.empty_like(parameter).copy_(gradient)
    return gradient.as_strided((gradient.numel(),), (1,))
