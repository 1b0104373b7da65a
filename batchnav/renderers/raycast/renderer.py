"""What each pixel sees by casting one ray through its scene's BVH: on CUDA `ray.py`, on the CPU `packet.py`."""

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


class RaycastRenderer:
    """A `batchnav.types.Renderer` by ray casting.

    `backface_culling` leaves out triangles seen from behind (clockwise). `max_depth` ends rays at that planar depth:
    what is farther reads 0 like a hole, so use it only where the two need not be told apart.
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
        """Made when it is first asked for."""

    def _bind(self, cpu: Callable, cuda: Callable, *outputs: torch.Tensor) -> Callable[..., None]:
        """A kernel as a function of the poses alone."""
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
        """i32 [N], f32 [N, 3] camera position, f32 [N] each -> f32 [N, H, W] metres, 0 where nothing is hit.

        The tensor belongs to the renderer and is valid until the next call. An agent whose scene is not in the bank,
        or whose pose is not finite, sees nothing.
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
        """Depth as of `render`, and which triangle each pixel sees."""
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
