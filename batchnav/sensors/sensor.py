"""What every sensor offers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import torch

from batchnav.errors import ArgumentError
from batchnav.geometry.camera import tan_half
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.scene.appearance import Appearance
from batchnav.types import Spec


class Draws(NamedTuple):
    """What the noise of a camera's images is drawn by."""

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


class Pose(NamedTuple):
    """A batch of cameras, as renderers take them."""

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


class Views(NamedTuple):
    """A batch of cameras, and what sensors may draw noise by."""

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
    draws: Draws | None = None
    """None: there is nothing to draw by, and sensors with noise refuse to read."""

    @classmethod
    def level(cls, scene: torch.Tensor, position: torch.Tensor, heading: torch.Tensor, hfov_deg: float = 90.0) -> Views:
        """Cameras of one field of view that look neither up nor down."""
        lens = torch.full_like(heading, float(tan_half(hfov_deg)))
        return cls(scene, position, heading, torch.zeros_like(heading), lens)

    @property
    def pose(self) -> Pose:
        """Without what noise is drawn by."""
        return Pose(*self[:5])


class Sensor(Protocol):
    """Turns what a camera sees into one observation."""

    spec: Spec
    """What it gives; the name is the sensor's, to which an environment of several cameras adds the camera's."""
    needs_triangles: bool
    """Whether it reads triangles beside depth."""
    needs_appearance: Collection[str]
    """Fields of `Appearance` that it reads: a bank keeps no others."""
    max_depth: float
    """Metres beyond which it need not tell surfaces from holes."""
    scale: int
    """How many times as many rows and columns are to be drawn for it as its observation has."""

    def write(
        self,
        depth: torch.Tensor,
        triangle: torch.Tensor | None,
        views: Views,
        appearance: Appearance[torch.Tensor] | None,
        out: torch.Tensor,
    ) -> None:
        """Depth f32 [N, H, W], triangles i32 [N, H, W] -> `out` [N, ...], of the spec's type or of its storage."""
        ...


def check_seen(
    name: str, triangle: torch.Tensor | None, appearance: Appearance[torch.Tensor] | None, out: torch.Tensor
) -> tuple[torch.Tensor, Appearance[torch.Tensor]]:
    """What sensor `name` reads to write `out` [N, C, H, W]: triangles [N, H, W], and their appearance.

    ArgumentError where one is missing, or the triangles are of another size: kernels check nothing.
    """
    if triangle is None or appearance is None:
        raise ArgumentError(f"{name}: found no triangles or no appearance, expected both, as it declares")
    drawn = out.shape[:1] + out.shape[2:]
    if triangle.shape != drawn:
        raise ArgumentError(f"{name}: found triangles {list(triangle.shape)}, expected {list(drawn)}")
    return triangle, appearance


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
