"""Check that positions from files and saved states are on the navmesh of their scene."""

from __future__ import annotations

import torch

from batchnav.errors import BatchnavError
from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.loops import kernel
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
    snap(len(scene), bank.navmesh_view, *map(view, (scene, position, nearest)))
    gap = nearest - position  # NaN where no polygon is near
    return (gap[:, [0, 2]].norm(dim=1) <= distance) & (gap[:, 1].abs() <= MAX_SNAP_HEIGHT)


@kernel()
def snap(i, nav, scene, position, nearest_out):
    """Write the point of its scene's navmesh that is nearest to a position; NaN where no polygon is near."""
    _, nearest = nearest_polygon(nav, scene[i], point_at(i, position))
    keep_point(i, nearest, nearest_out)
