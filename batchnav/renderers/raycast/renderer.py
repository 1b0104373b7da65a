"""RaycastRenderer: one ray per pixel through the scene's BVH, on CUDA by `ray.py`, on the CPU by `packet.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from batchnav.geometry.camera import tan_half
from batchnav.renderers.options import check_options, check_poses
from batchnav.renderers.raycast.packet import depth_cpu, visibility_cpu
from batchnav.renderers.raycast.ray import (
    BLOCK_HEIGHT,
    BLOCK_WIDTH,
    FEW_PIXELS,
    depth_cuda,
    few_depth_cuda,
    few_visibility_cuda,
    visibility_cuda,
)
from batchnav.runtime.checks import refuse_copies
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.scene.bank import SceneBank
from batchnav.types import Visibility

_FAR = np.float32(3.0e38)
"""Planar depth where rays end without `max_depth`, metres."""


class RaycastRenderer:
    """A `batchnav.types.Renderer` by ray casting.

    Args:
        bank: scenes; determines the device.
        num_agents: number of views N.
        height: rows of an image.
        width: columns of an image.
        hfov_deg: horizontal field of view, degrees, 1 to less than 180.
        backface_culling: ignore triangles seen from behind (clockwise corners).
        max_depth: planar depth where rays end, metres. Surfaces beyond it give depth 0, as holes do.
    """

    capturable = True
    __reduce_ex__ = refuse_copies

    def __init__(
        self,
        bank: SceneBank,
        num_agents: int,
        height: int = 64,
        width: int = 64,
        hfov_deg: float = 90.0,
        backface_culling: bool = False,
        max_depth: float = float("inf"),
    ):
        check_options(bank, num_agents, height, width, hfov_deg, max_depth)
        self.bank = bank
        self.device = bank.device
        self.num_agents, self.height, self.width = int(num_agents), int(height), int(width)
        self.depth = torch.zeros(self.num_agents, self.height, self.width, device=bank.device)
        self._level = torch.zeros(self.num_agents, device=bank.device)
        self._tan_half = torch.full_like(self._level, float(tan_half(hfov_deg)))
        self._options = np.float32(min(float(max_depth), float(_FAR))), bool(backface_culling)
        self._few = self.depth.numel() <= FEW_PIXELS
        self._cast_depth = self._bind(depth_cpu, few_depth_cuda if self._few else depth_cuda, self.depth)
        self._triangle: torch.Tensor | None = None
        """Allocated at the first call of `visibility`."""

    def _bind(self, cpu: Callable, cuda: Callable, *outputs: torch.Tensor) -> Callable[..., None]:
        """A kernel as a function of the poses."""
        bvh, written = self.bank.bvh_view, tuple(map(view, outputs))
        if self.device.type == "cpu":
            return lambda *poses: cpu(bvh, *map(view, poses), *self._options, *written)
        blocks = (self.num_agents, -(-self.width // BLOCK_WIDTH), -(-self.height // BLOCK_HEIGHT))
        scene_index = torch.zeros(self.num_agents, dtype=torch.int32, device=self.device)
        position = self.depth.new_zeros(self.num_agents, 3)
        poses = map(view, (scene_index, position, self._level, self._level, self._tan_half))
        kernel = BoundKernel(cuda, blocks, bvh, *poses, *self._options, *written)

        def launch(*poses: torch.Tensor) -> None:
            for argument, pose in enumerate(poses, start=1):
                kernel.change(argument, pose.data_ptr())
            kernel()

        return launch

    def render(
        self,
        scene_index: torch.Tensor,
        position: torch.Tensor,
        heading: torch.Tensor,
        pitch: torch.Tensor | None = None,
        tan_half_hfov: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Planar depth f32 [N, H, W], metres; 0 where nothing is hit. Valid until the next call.

        Args:
            scene_index: i32 [N]. An index outside the bank gives an empty image.
            position: f32 [N, 3], position of the camera, metres. A pose that is not finite gives an empty image.
            heading: f32 [N], radians.
            pitch: f32 [N], radians; None: level.
            tan_half_hfov: f32 [N], tan(hfov / 2); None: the renderer's field of view.
        """
        self._cast_depth(*self._poses(scene_index, position, heading, pitch, tan_half_hfov))
        return self.depth

    def visibility(
        self,
        scene_index: torch.Tensor,
        position: torch.Tensor,
        heading: torch.Tensor,
        pitch: torch.Tensor | None = None,
        tan_half_hfov: torch.Tensor | None = None,
    ) -> Visibility:
        """Depth of `render`, and the triangle i32 [N, H, W] that each pixel shows, -1 where nothing is hit."""
        if self._triangle is None:
            self._triangle = torch.zeros_like(self.depth, dtype=torch.int32)
            cuda = few_visibility_cuda if self._few else visibility_cuda
            self._cast_both = self._bind(visibility_cpu, cuda, self.depth, self._triangle)
        self._cast_both(*self._poses(scene_index, position, heading, pitch, tan_half_hfov))
        return Visibility(self.depth, self._triangle)

    def _poses(self, scene_index, position, heading, pitch, tan_half_hfov) -> list[torch.Tensor]:
        pitch = self._level if pitch is None else pitch
        tan_half_hfov = self._tan_half if tan_half_hfov is None else tan_half_hfov
        poses = scene_index, position, heading, pitch, tan_half_hfov
        check_poses(self.num_agents, self.device, *poses)
        return [pose.detach().contiguous() for pose in poses]
