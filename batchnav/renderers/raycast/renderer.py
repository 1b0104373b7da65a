"""RaycastRenderer: one ray per pixel through the scene's BVH, on CUDA by `ray.py`, on the CPU by `packet.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from batchnav.renderers.base import Poses, Renderer
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
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.types import Visibility

_FAR = np.float32(3.0e38)
"""Planar depth where rays end without `max_depth`, metres."""


class RaycastRenderer(Renderer):
    """A renderer by ray casting, on the CPU and on CUDA. Options, arguments and results: see `Renderer`."""

    capturable = True

    def _allocate(self) -> None:
        self.depth = torch.zeros(self.num_agents, self.height, self.width, dtype=torch.float32, device=self.device)
        self._options = np.float32(min(self.max_depth, float(_FAR))), self.backface_culling
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

    def _render(self, poses: Poses) -> torch.Tensor:
        self._cast_depth(*poses)
        return self.depth

    def _visibility(self, poses: Poses) -> Visibility:
        if self._triangle is None:
            self._triangle = torch.zeros_like(self.depth, dtype=torch.int32)
            cuda = few_visibility_cuda if self._few else visibility_cuda
            self._cast_both = self._bind(visibility_cpu, cuda, self.depth, self._triangle)
        self._cast_both(*poses)
        return Visibility(self.depth, self._triangle)
