"""Bodies that stand in fixed episodes, such as MultiON's cylinders: all sensors see them, and they stop nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.navmesh.navmesh import NavMesh
from batchnav.types import CYLINDER, MovingBodies

NEAR = 0.5
"""Metres from the navmesh, in the plane, within which its height is that of the floor."""


class StandingBody(NamedTuple):
    """A cylinder of one episode."""

    position: tuple[float, float, float]
    """Centre of the foot, metres."""
    radius: float
    """Metres."""
    height: float
    """Metres from the foot to the top."""
    appearance: int
    """Row of the palette of colours."""


def on_floor(bodies: Sequence[StandingBody], navmesh: NavMesh) -> list[StandingBody]:
    """The bodies with their feet at the height of the navmesh; those that are not near it stay."""
    points = np.array([body.position for body in bodies], np.float32).reshape(-1, 3)
    snapped = navmesh.snap(points)
    gap = np.hypot(snapped[:, 0] - points[:, 0], snapped[:, 2] - points[:, 2])
    feet = np.where(gap < NEAR, snapped[:, 1], points[:, 1]).tolist()
    return [
        body._replace(position=(body.position[0], foot, body.position[2]))
        for body, foot in zip(bodies, feet, strict=True)
    ]


class StandingBodies:
    """The bodies of each agent's current episode, as cameras see them.

    Args:
        episodes: bodies of M fixed episodes, in the order of the table.
        row: i32 [N]: the running episode of each agent, a live tensor; -1: none, which shows those of the first.
    """

    def __init__(self, episodes: Sequence[Sequence[StandingBody]], row: torch.Tensor):
        n, device, most = len(row), row.device, max(1, *map(len, episodes))
        f32: dict[str, Any] = {"dtype": torch.float32, "device": device}
        i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
        position, radius = torch.zeros(n, most, 3, **f32), torch.zeros(n, most, **f32)
        shape = torch.full((n, most), CYLINDER, **i32)
        self.bodies = MovingBodies(
            torch.zeros(n, **i32), position, torch.zeros(n, most, **f32), torch.zeros(n, most, 2, **f32), radius,
            torch.zeros(n, most, **f32), shape, torch.zeros(n, most, **i32),
        )  # fmt: skip
        """Live tensors of N worlds."""
        shaped = np.zeros((len(episodes), most, 5), np.float32)
        appearance = np.zeros((len(episodes), most), np.int32)
        for k, bodies in enumerate(episodes):
            for j, body in enumerate(bodies):
                shaped[k, j] = *body.position, body.radius, body.height
                appearance[k, j] = body.appearance
        counts = np.array([len(bodies) for bodies in episodes], np.int32)
        columns = counts, shaped[..., :3], shaped[..., 3], shaped[..., 4], appearance
        tables = [torch.from_numpy(np.ascontiguousarray(column)).to(device) for column in columns]
        targets = [self.bodies[k] for k in (0, 1, 4, 5, 7)]
        self._pairs = [
            (table.flatten(1) if table.ndim > 1 else table, target.flatten(1) if target.ndim > 1 else target)
            for table, target in zip(tables, targets, strict=True)
        ]
        self._row, self._clamped = row, torch.zeros_like(row)

    def show(self) -> None:
        """Write the bodies of the running episodes, before images are rendered."""
        torch.clamp(self._row, min=0, out=self._clamped)
        for table, target in self._pairs:
            torch.index_select(table, 0, self._clamped, out=target)
