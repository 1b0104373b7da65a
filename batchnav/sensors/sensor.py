"""Cameras at one moment, the base of sensors that read their images, and checks of what sensors read and write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import torch

from batchnav.errors import ArgumentError
from batchnav.geometry.camera import tan_half
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.scene.appearance import Appearance
from batchnav.types import Frame, ObservationSource, Requirements, Spec


class NoiseCounters(NamedTuple):
    """Seed and counters of the random numbers of a camera's noise."""

    seed: torch.Tensor
    """i64 [1]."""
    first_agent: torch.Tensor
    """i64 [1]: the first agent's number among those of all processes."""
    episode: torch.Tensor
    """i32 [N]: the running episode of each agent."""
    steps: torch.Tensor
    """i32 [N]: made in that episode."""
    camera: int
    """Number of the camera on its body, from 0 on."""


class CameraPoses(NamedTuple):
    """Poses of N cameras, in the order of a renderer's arguments."""

    scene: torch.Tensor
    """i32 [N]: rows of the bank."""
    position: torch.Tensor
    """f32 [N, 3]."""
    heading: torch.Tensor
    """f32 [N], radians."""
    pitch: torch.Tensor
    """f32 [N], radians, up is positive."""
    tan_half_hfov: torch.Tensor
    """f32 [N]: half the image's width at distance 1, tan(hfov / 2)."""


class Cameras(NamedTuple):
    """N cameras: poses, and the counters of their noise."""

    scene: torch.Tensor
    """i32 [N]: rows of the bank."""
    position: torch.Tensor
    """f32 [N, 3]."""
    heading: torch.Tensor
    """f32 [N], radians."""
    pitch: torch.Tensor
    """f32 [N], radians, up is positive."""
    tan_half_hfov: torch.Tensor
    """f32 [N]: half the image's width at distance 1, tan(hfov / 2)."""
    noise: NoiseCounters | None = None
    """None: sensors with noise raise ArgumentError."""

    @classmethod
    def level(
        cls, scene: torch.Tensor, position: torch.Tensor, heading: torch.Tensor, hfov_deg: float = 90.0
    ) -> Cameras:
        """Cameras of one field of view with pitch 0."""
        lens = torch.full_like(heading, float(tan_half(hfov_deg)))
        return cls(scene, position, heading, torch.zeros_like(heading), lens)

    @property
    def poses(self) -> CameraPoses:
        """The poses alone."""
        return CameraPoses(*self[:5])


class CameraSensor(ObservationSource):
    """Base of sensors that read images of one camera.

    A subclass calls `__init__` with the name of its kind in `batchnav.sensors.SENSORS`, for the main camera.

    Args:
        spec: the observation, named as the sensor.
        triangles: True where it reads triangle indices besides depth.
        appearance: fields of `scene.appearance.Appearance` that it reads.
        max_depth: metres beyond which it need not distinguish surfaces from holes.
        scale: rendered rows (and columns) per row (and column) of its observation.
    """

    def __init__(
        self,
        spec: Spec,
        triangles: bool = False,
        appearance: Iterable[str] = (),
        max_depth: float = math.inf,
        scale: int = 1,
    ):
        self.spec = spec
        self.requires = Requirements("", scale, triangles, frozenset(appearance), max_depth)

    def of_camera(self, name: str) -> Self:
        """The sensor itself, made to read the camera of this name, which becomes part of the observation's name."""
        self.requires = self.requires._replace(camera=name)
        self.spec = self.spec._replace(name=f"{name}_{self.spec.name}" if name else self.spec.name)
        return self

    def cameras(self, frame: Frame) -> Cameras:
        """The sensor's N cameras at this moment."""
        return frame.cameras(self._camera)

    def depth(self, frame: Frame) -> torch.Tensor:
        """Planar depth f32 [N, scale * H, scale * W], metres, 0 for holes."""
        return frame.depth(self._camera, self.requires.scale)

    def triangle(self, frame: Frame) -> torch.Tensor:
        """Triangle indices i32 [N, scale * H, scale * W], -1 for holes."""
        return frame.triangle(self._camera, self.requires.scale)

    def surfaces(self, frame: Frame, out: torch.Tensor) -> tuple[torch.Tensor, Appearance[torch.Tensor]]:
        """Triangle indices i32 [N, H, W] for `out` [N, C, H, W], and the appearance of the triangles.

        ArgumentError where one is missing or the sizes differ: kernels check nothing.
        """
        triangle, expected = self.triangle(frame), out.shape[:1] + out.shape[2:]
        if frame.appearance is None:
            raise ArgumentError(f"{self.spec.name}: found scenes without appearance, expected the fields it requires")
        if triangle.shape != expected:
            raise ArgumentError(f"{self.spec.name}: found triangles {list(triangle.shape)}, expected {list(expected)}")
        return triangle, frame.appearance

    @property
    def _camera(self) -> str:
        assert self.requires.camera is not None
        return self.requires.camera


def check_observation(out: Any, specs: Iterable[Spec], num_envs: int, device: torch.device) -> None:
    """ArgumentError where kernels, which check nothing, could not write observations into tensors by name.

    Those that a spec names are [num_envs, *shape] without gaps, on the device, of the spec's type or of its storage.
    """
    if not isinstance(out, Mapping):
        raise ArgumentError(f"observations: found {type(out).__name__}, expected tensors by name")
    for spec in specs:
        if spec.name in out:
            name, tensor, stored = f"observations[{spec.name!r}]", out[spec.name], spec.stored_on(device)
            dtype = stored if getattr(tensor, "dtype", None) == stored else spec.dtype
            check_tensor(name, tensor, (num_envs, *spec.shape), dtype, device)
            if not tensor.is_contiguous():
                raise ArgumentError(f"{name}: found strides {list(tensor.stride())}, expected a contiguous tensor")
