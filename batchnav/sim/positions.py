"""Where bodies may be: on the navmesh of their scene, as the bank holds it. For positions that come from outside."""

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
"""Metres in the plane between a place and the navmesh: a baked navmesh moves its edges by up to two cells."""
MAX_SNAP_HEIGHT = 0.5
"""Metres of height between a place and the navmesh, as in Habitat's `is_navigable`."""


def check_positions(
    name: str, bank: SceneBank, scene: torch.Tensor, position: torch.Tensor, error: type[BatchnavError]
) -> None:
    """Raise `error` where a place is not on the navmesh (waits for the device).

    Args:
        name: of what holds the places, for the message.
        bank: the scenes.
        scene: i32 [N], in range.
        position: f32 [N, 3].
        error: what is raised.
    """
    scene, position = scene.to(bank.device).contiguous(), position.to(bank.device).contiguous()
    good = on_navmesh(bank, scene, position, MAX_SNAP_DISTANCE)
    if not good.all():
        i = int((~good).nonzero()[0])
        found, there = position[i].tolist(), bank.names[int(scene[i])]
        raise error(f"{name}[{i}]: found {found}, expected a point on the navmesh of scene {there!r}")


def on_navmesh(bank: SceneBank, scene: torch.Tensor, position: torch.Tensor, distance: float) -> torch.Tensor:
    """Whether places f32 [N, 3] are within so many metres, in the plane, of their scenes' navmesh: bool [N].

    `scene`: i32 [N], in range; both contiguous and on the bank's device.
    """
    nearest = torch.empty_like(position)
    if bank.device.type == "cpu":
        snap_cpu(bank.navmesh_view, view(scene), view(position), view(nearest))
    else:
        launch(snap_cuda, len(scene), bank.navmesh_view, view(scene), view(position), view(nearest))
    gap = nearest - position  # NaN where nothing is near
    return (gap[:, [0, 2]].norm(dim=1) <= distance) & (gap[:, 1].abs() <= MAX_SNAP_HEIGHT)


@cpu_kernel
def snap_cpu(nav, scene, position, nearest_out):
    """The point of its scene's navmesh that is nearest to each position; NaN where none is near."""
    for i in prange(len(scene)):
        row = np.int64(i)  # prange counts in unsigned integers, which would compile every callee anew
        _, nearest = nearest_polygon(nav, scene[row], point_at(row, position))
        keep_point(row, nearest, nearest_out)


@exact_cuda_kernel
def snap_cuda(nav, scene, position, nearest_out):
    """As `snap_cpu`."""
    i = cuda.grid(1)
    if i < len(scene):
        _, nearest = nearest_polygon(nav, scene[i], point_at(i, position))
        keep_point(i, nearest, nearest_out)
