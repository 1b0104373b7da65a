"""Sensors of a body's own pose: GPS, compass and heading, as in habitat-lab. They are exact, even with noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numba import prange

from batchnav.geometry.angle import wrapped
from batchnav.geometry.pose import sin_cos
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, lean_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.types import Spec

_GPS, _COMPASS, _HEADING = range(3)


class Travellers(Protocol):
    """What goes about: of the simulator's bodies, what their pose is told by."""

    @property
    def position(self) -> torch.Tensor:
        """f32 [N, 3]."""
        ...

    @property
    def heading(self) -> torch.Tensor:
        """f32 [N]."""
        ...

    @property
    def start(self) -> torch.Tensor:
        """f32 [N, 3]: where the episode began."""
        ...

    @property
    def start_heading(self) -> torch.Tensor:
        """f32 [N]."""
        ...


class Poses(NamedTuple):
    """As kernels read them."""

    position: Any
    heading: Any
    start: Any
    start_heading: Any


class PoseSensor:
    """Tells something of the pose of N bodies.

    Args:
        kind: _GPS, _COMPASS or _HEADING.
        spec: what it gives.
    """

    def __init__(self, kind: int, spec: Spec):
        self.spec, self._kind = spec, np.int32(kind)
        self._bound: tuple[Travellers, Callable[[torch.Tensor], None]] | None = None

    def write(self, bodies: Travellers, out: torch.Tensor) -> None:
        """Fill f32 [N, ...]."""
        if self._bound is None or self._bound[0] is not bodies:
            self._bound = bodies, self._bind(bodies, out)
        self._bound[1](out)

    def _bind(self, bodies: Travellers, example: torch.Tensor) -> Callable[[torch.Tensor], None]:
        """A kernel as a function of what it writes."""
        poses = Poses(*map(view, (bodies.position, bodies.heading, bodies.start, bodies.start_heading)))
        if not example.is_cuda:
            return lambda out: _tell_cpu(self._kind, poses, out.numpy())
        kernel = BoundKernel(_tell_cuda, len(example), self._kind, poses, view(example))

        def tell(out: torch.Tensor) -> None:
            kernel.change(2, out.data_ptr())
            kernel()

        return tell


def _number(name: str, size: int, low: float, high: float) -> Spec:
    return Spec(name, (size,), torch.float32, low, high, torch.float32)


POSE_SENSORS = {
    "gps": partial(PoseSensor, _GPS, _number("gps", 2, -math.inf, math.inf)),
    "compass": partial(PoseSensor, _COMPASS, _number("compass", 1, -math.pi, math.pi)),
    "heading": partial(PoseSensor, _HEADING, _number("heading", 1, -math.pi, math.pi)),
}
"""By name. "gps": f32 [N, 2], metres ahead and to the right of the episode's start, as it was looked from there.
"compass": f32 [N, 1], radians to the left since the start, in (-pi, pi]. "heading": f32 [N, 1], radians to the left of
the world's -Z, in (-pi, pi]."""


@lean_function
def _tell(i, kind, poses, told_out):
    """What one body is told."""
    if kind == _HEADING:
        told_out[i, 0] = wrapped(poses.heading[i])
        return
    if kind == _COMPASS:
        told_out[i, 0] = wrapped(poses.heading[i] - poses.start_heading[i])
        return
    dx, dz = poses.position[i, 0] - poses.start[i, 0], poses.position[i, 2] - poses.start[i, 2]
    sine, cosine = sin_cos(poses.start_heading[i])
    told_out[i, 0], told_out[i, 1] = -dx * sine - dz * cosine, dx * cosine - dz * sine


@cpu_kernel
def _tell_cpu(kind, poses, told_out):
    for i in prange(len(told_out)):
        _tell(np.int64(i), kind, poses, told_out)


@cuda_kernel
def _tell_cuda(kind, poses, told_out):
    i = cuda.grid(1)
    if i < len(told_out):
        _tell(i, kind, poses, told_out)
