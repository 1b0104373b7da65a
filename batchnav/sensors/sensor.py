"""Poses of cameras, the base class of camera sensors, and checks of observation tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import torch

from batchnav.errors import ArgumentError
from batchnav.geometry.pose import tan_half
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.renderers.base import CameraPoses
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.scene.appearance import ID_FIELDS, Appearance


class NoiseCounters(NamedTuple):
    """Seed and counters that determine the random numbers of a camera's noise."""

    seed: torch.Tensor
    """i64 [1]: seed."""
    first_agent: torch.Tensor
    """i64 [1]: index of the first agent among the agents of all processes."""
    episode: torch.Tensor
    """i32 [N]: index of each agent's running episode."""
    steps: torch.Tensor
    """i32 [N]: steps of that episode."""
    camera: int
    """Index of the camera on its body."""


class Cameras(NamedTuple):
    """Poses of N cameras, and the counters of their noise."""

    scene: torch.Tensor
    """i32 [N]: rows of the scene bank."""
    position: torch.Tensor
    """f32 [N, 3], metres."""
    heading: torch.Tensor
    """f32 [N], radians."""
    pitch: torch.Tensor
    """f32 [N], radians, up is positive."""
    tan_half_hfov: torch.Tensor
    """f32 [N]: tan(hfov / 2), half the image's width at distance 1; f32 [N, 4]: lenses of `geometry.pose.lens_of`."""
    noise: NoiseCounters | None = None
    """None: sensors with noise raise ArgumentError."""

    @classmethod
    def level(
        cls, scene: torch.Tensor, position: torch.Tensor, heading: torch.Tensor, hfov_deg: float = 90.0
    ) -> Cameras:
        """Cameras with pitch 0 and a common field of view in degrees."""
        lens = torch.full_like(heading, float(tan_half(hfov_deg)))
        return cls(scene, position, heading, torch.zeros_like(heading), lens)

    @property
    def poses(self) -> CameraPoses:
        """The poses without noise counters."""
        return CameraPoses(*self[:5])


class CameraSensor(ObservationSource):
    """Base class of sensors that read the images of one camera.

    Args:
        spec: spec of the observation, named as the sensor in `batchnav.sensors.SENSORS`.
        triangles: True where the sensor reads triangle indices in addition to depth.
        appearance: fields of `scene.appearance.Appearance` that it reads.
        max_depth: depth, metres, from which on a renderer may return holes instead of surfaces.
        scale: rendered rows (and columns) per row (and column) of the observation.

    A sensor that reads a field of `ID_FIELDS` sees the mesh with the ids.
    """

    def __init__(
        self,
        spec: Spec,
        triangles: bool = False,
        appearance: Iterable[str] = (),
        max_depth: float = math.inf,
        scale: int = 1,
    ):
        fields = frozenset(appearance)
        self.spec = spec
        self.requires = Requirements("", scale, triangles, fields, max_depth, semantic=bool(fields & {*ID_FIELDS}))

    def of_camera(self, name: str) -> Self:
        """Assign the sensor to a camera by name, and return it. The name becomes a prefix of the observation's name."""
        self.requires = self.requires._replace(camera=name)
        self.spec = self.spec._replace(name=f"{name}_{self.spec.name}" if name else self.spec.name)
        return self

    def cameras(self, frame: Frame) -> Cameras:
        """The sensor's N cameras at their current poses."""
        return frame.cameras(self._camera)

    def depth(self, frame: Frame) -> torch.Tensor:
        """Planar depth f32 [N, scale * H, scale * W], metres, 0 for holes."""
        return frame.depth(self._camera, self.requires.scale, self.requires.semantic)

    def triangle(self, frame: Frame) -> torch.Tensor:
        """Surface ids i32 [N, scale * H, scale * W] of `types.Visibility`."""
        return frame.triangle(self._camera, self.requires.scale, self.requires.semantic)

    def surfaces(self, frame: Frame, out: torch.Tensor) -> tuple[torch.Tensor, Appearance[torch.Tensor]]:
        """Triangle indices i32 [N, H, W] for `out` [N, C, H, W], and the appearance of the triangles.

        ArgumentError where one is missing or the sizes differ: kernels check nothing.
        """
        triangle, expected = self.triangle(frame), out.shape[:1] + out.shape[2:]
        appearance = frame.semantic_appearance if self.requires.semantic else frame.appearance
        if appearance is None:
            raise ArgumentError(f"{self.spec.name}: found scenes without appearance, expected the fields it requires")
        if triangle.shape != expected:
            raise ArgumentError(f"{self.spec.name}: found triangles {list(triangle.shape)}, expected {list(expected)}")
        return triangle, appearance

    @property
    def _camera(self) -> str:
        assert self.requires.camera is not None
        return self.requires.camera


def check_observation(out: Any, specs: Iterable[Spec], num_envs: int, device: torch.device) -> None:
    """ArgumentError for an observation tensor that kernels, which check nothing, cannot write.

    A tensor named by a spec must be [num_envs, *shape], contiguous, on the device, of the spec's dtype or its storage.
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
