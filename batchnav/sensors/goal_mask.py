"""Goal mask: pixels of the objects that ObjectNav's episode asks for.

The mask is exact: it comes from the triangle of each pixel, as the semantic sensor's ids do.
"""

from __future__ import annotations

import numpy as np
import torch

from batchnav.errors import ConfigError
from batchnav.observation import Frame, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.intrinsics import load4
from batchnav.runtime.kernels.launch import kernel, launch
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.semantic import IdSensor

GOAL, OTHER = np.uint8(255), np.uint8(0)
"""Values of pixels of the goal's category, and of other pixels."""
_LANES = 4
"""CUDA: pixels per thread."""


class GoalMaskSensor(IdSensor):
    """u8 [N, 1, H, W]: 255 where an object of the goal's category is visible, else 0.

    The objects are those with a view point (`scene/goals.py`). The sensor reads `task.goal_category` i64 [N].
    """

    name, field = "goal_mask", "goal"

    def __init__(self, camera: CameraConfig, config: None = None):
        super().__init__(camera)
        shape = (1, camera.height, camera.width)
        self.spec = Spec(self.name, shape, torch.uint8, 0.0, float(GOAL), torch.uint8)
        self.requires = self.requires._replace(goal=frozenset({"goal_category"}))
        self._ids = torch.zeros(0, dtype=torch.int32, device="cpu")

    def bind(self, frame: Frame) -> None:
        """ConfigError for a task whose goals are not objects of a category."""
        if frame.task.goal_category is None:
            raise ConfigError(
                f"sensors: found {self.spec.name!r} with a task without goal categories, expected objectnav"
            )

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the mask."""
        triangle, appearance = self.surfaces(frame, out)
        category = frame.task.goal_category
        if len(appearance.id_patches):
            ids = self._image(out)
            self.write_tiled(frame, appearance, triangle, ids)
            torch.eq(ids.sub_(1), category.view(-1, 1, 1, 1), out=out.view(torch.bool))
            out.mul_(int(GOAL))
            return
        goal, pixels = view(appearance.goal), out[0].numel()
        if pixels % _LANES or not out.is_cuda:
            mask_pixels(tuple(triangle.shape), view(triangle), goal, view(category), view(out))
        else:
            four = view(triangle.view(-1, _LANES)), view(out.view(-1).view(torch.int32))
            launch(_mask4_cuda, len(four[1]), four[0], goal, view(category), pixels // _LANES, four[1])

    def _image(self, out: torch.Tensor) -> torch.Tensor:
        """i32 image of the shape of `out`, allocated once."""
        if self._ids.shape != out.shape or self._ids.device != out.device:
            self._ids = torch.zeros_like(out, dtype=torch.int32)
        return self._ids


class GoalCategorySensor(IdSensor):
    """i32 [N, 1, H, W]: 1 + number of the goal category that the visible object belongs to, 0 for other surfaces.

    No agent observes it. Analyses use it to find out what an agent saw.
    """

    name, field = "goal_category", "goal"


@device_function
def _is_goal(number, goal, category):
    """True if a triangle, -1 for none, is of the category."""
    return number >= 0 and goal[np.uint32(number)] == category


@kernel(over="pixels", fastmath=True)
def mask_pixels(i, row, column, triangle, goal, category, mask_out):
    """Write the mask of one pixel."""
    found = _is_goal(triangle[i, row, column], goal, np.int32(category[i] + 1))
    mask_out[i, 0, row, column] = GOAL if found else OTHER


@cuda_kernel
def _mask4_cuda(triangle, goal, category, quads, mask_out):
    """Four pixels per thread: rows of `triangle` i32 [Q, 4] to `mask_out` i32 [Q]; `quads`: rows per image."""
    quad = np.int32(cuda.grid(1))
    if quad < len(triangle):
        wanted = np.int32(category[np.uint32(quad) // np.uint32(quads)] + 1)
        a, b, c, d = load4(triangle, quad, 0)
        mask = np.uint32(GOAL) if _is_goal(a, goal, wanted) else np.uint32(0)
        mask |= np.uint32(GOAL) << np.uint32(8) if _is_goal(b, goal, wanted) else np.uint32(0)
        mask |= np.uint32(GOAL) << np.uint32(16) if _is_goal(c, goal, wanted) else np.uint32(0)
        mask |= np.uint32(GOAL) << np.uint32(24) if _is_goal(d, goal, wanted) else np.uint32(0)
        mask_out[np.uint32(quad)] = mask
