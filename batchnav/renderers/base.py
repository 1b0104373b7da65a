"""The contract of all renderers: options, arguments and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from batchnav.geometry.camera import tan_half
from batchnav.renderers.options import check_options, check_poses
from batchnav.runtime.checks import refuse_copies
from batchnav.scene.bank import SceneBank
from batchnav.types import Visibility


class Poses(NamedTuple):
    """Arguments of one call, checked and with defaults filled in: contiguous tensors on the bank's device."""

    scene_index: Tensor
    """i32 [N]."""
    position: Tensor
    """f32 [N, 3]."""
    heading: Tensor
    """f32 [N]."""
    pitch: Tensor
    """f32 [N]."""
    tan_half_hfov: Tensor
    """f32 [N]."""


class Renderer(ABC):
    """Finds the surfaces that N cameras see; it does not shade.

    Args:
        bank: scenes; determines the device.
        num_agents: number of cameras N.
        height: rows of an image.
        width: columns of an image.
        hfov_deg: horizontal field of view, degrees, 1 to less than 180.
        backface_culling: ignore triangles seen from behind (clockwise corners).
        max_depth: planar depth where rays end, metres. Surfaces beyond it give depth 0, as holes do.

    ArgumentError for an option of the wrong type or out of range, and for images that need more memory than there is.
    """

    capturable: bool
    """True where a CUDA graph can hold a call, because it only launches kernels."""
    __reduce_ex__ = refuse_copies

    @torch.inference_mode(False)
    def __init__(
        self, bank: SceneBank, num_agents: int, height: int = 64, width: int = 64, hfov_deg: float = 90.0,
        backface_culling: bool = False, max_depth: float = float("inf"),
    ):  # fmt: skip
        check_options(bank, num_agents, height, width, hfov_deg, max_depth)
        self.bank, self.device = bank, bank.device
        self.num_agents, self.height, self.width = int(num_agents), int(height), int(width)
        self.backface_culling, self.max_depth = bool(backface_culling), float(max_depth)
        self._level = torch.zeros(self.num_agents, dtype=torch.float32, device=bank.device)
        self._tan_half = torch.full_like(self._level, float(tan_half(hfov_deg)))
        self._allocate()

    def render(
        self, scene_index: Tensor, position: Tensor, heading: Tensor, pitch: Tensor | None = None,
        tan_half_hfov: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Planar depth images f32 [N, H, W], metres; 0 where nothing is hit.

        The returned tensor is the renderer's own, valid until its next call. ArgumentError for an argument of another
        shape, dtype or device. An index outside the bank, or a pose that is not finite, gives an empty image.

        Args:
            scene_index: i32 [N], rows of the bank.
            position: f32 [N, 3], positions of the cameras, metres.
            heading: f32 [N], radians.
            pitch: f32 [N], radians, up is positive; None: level.
            tan_half_hfov: f32 [N], tan(hfov / 2), half the width of each camera's image at distance 1; None: the field
                of view that the renderer was made with.
        """
        return self._render(self._poses(scene_index, position, heading, pitch, tan_half_hfov))

    def visibility(
        self, scene_index: Tensor, position: Tensor, heading: Tensor, pitch: Tensor | None = None,
        tan_half_hfov: Tensor | None = None,
    ) -> Visibility:  # fmt: skip
        """Depth of `render`, and the triangle i32 [N, H, W] that each pixel shows, -1 where nothing is hit.

        Arguments, errors and lifetime of the result are those of `render`. Where surfaces coincide, the triangle may be
        any of them. The first call allocates memory; DeviceError where it does not suffice.
        """
        return self._visibility(self._poses(scene_index, position, heading, pitch, tan_half_hfov))

    def _poses(self, scene_index, position, heading, pitch, tan_half_hfov) -> Poses:
        pitch = self._level if pitch is None else pitch
        tan_half_hfov = self._tan_half if tan_half_hfov is None else tan_half_hfov
        poses = scene_index, position, heading, pitch, tan_half_hfov
        check_poses(self.num_agents, self.device, *poses)
        return Poses(*((pose.detach() if pose.requires_grad else pose).contiguous() for pose in poses))

    @abstractmethod
    def _allocate(self) -> None:
        """Allocate what `render` needs, by the options in `self`. DeviceError where the device does not support it."""

    @abstractmethod
    def _render(self, poses: Poses) -> Tensor:
        """Depth images of `render`."""

    @abstractmethod
    def _visibility(self, poses: Poses) -> Visibility:
        """Result of `visibility`."""
