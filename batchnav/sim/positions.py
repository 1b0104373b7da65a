"""Check that positions from files and saved states are on the navmesh of their scene."""

from __future__ import annotations

import numpy as np
import torch
from numba import prange

from batchnav.errors import BatchnavError
from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel
from batchnav.runtime.kernels.launch import launch
from batchnav.scene.bank import SceneBank

MAX_SNAP_DISTANCE = 0.1
"""Largest horizontal distance of a position from the navmesh, metres: baking moves edges by up to two cells."""
MAX_SNAP_HEIGHT = 0.5
"""Largest vertical distance of a position from the navmesh, metres: Habitat's `is_navigable`."""


def check_positions(
    name: str, bank: SceneBank, scene: torch.Tensor, position: torch.Tensor, error: type[BatchnavError]
) -> None:
    """Raise `error` where a position is not on the navmesh. Waits for the device.

    Args:
        name: name of the positions in the error message.
        bank: the scenes.
        scene: i32 [N]: rows of the bank, in range.
        position: f32 [N, 3], metres.
        error: class of the exception.
    """
    scene, position = scene.to(bank.device).contiguous(), position.to(bank.device).contiguous()
    good = on_navmesh(bank, scene, position, MAX_SNAP_DISTANCE)
    if not good.all():
        i = int((~good).nonzero()[0])
        found, there = position[i].tolist(), bank.names[int(scene[i])]
        raise error(f"{name}[{i}]: found {found}, expected a point on the navmesh of scene {there!r}")


def on_navmesh(bank: SceneBank, scene: torch.Tensor, position: torch.Tensor, distance: float) -> torch.Tensor:
    """bool [N]: True where positions f32 [N, 3] are within `distance` metres, horizontally, of their scene's navmesh.

    The vertical distance is at most MAX_SNAP_HEIGHT. `scene`: i32 [N], rows of the bank, in range. Both tensors must be
    contiguous and on the bank's device.
    """
    nearest = torch.empty_like(position)
    if bank.device.type == "cpu":
        snap_cpu(bank.navmesh_view, view(scene), view(position), view(nearest))
    else:
        launch(snap_cuda, len(scene), bank.navmesh_view, view(scene), view(position), view(nearest))
    gap = nearest - position  # NaN where no polygon is near
    return (gap[:, [0, 2]].norm(dim=1) <= distance) & (gap[:, 1].abs() <= MAX_SNAP_HEIGHT)


@cpu_kernel
def snap_cpu(nav, scene, position, nearest_out):
    """The point of its scene's navmesh that is nearest to each position; NaN where no polygon is near."""
    for i in prange(len(scene)):
        row = np.int64(i)  # prange counts in unsigned integers, for which every callee would be compiled again
        _, nearest = nearest_polygon(nav, scene[row], point_at(row, position))
        keep_point(row, nearest, nearest_out)


@exact_cuda_kernel
def snap_cuda(nav, scene, position, nearest_out):
    """CUDA form of `snap_cpu`."""
    i = cuda.grid(1)
    if i < len(scene):
        _, nearest = nearest_polygon(nav, scene[i], point_at(i, position))
        keep_point(i, nearest, nearest_out)
