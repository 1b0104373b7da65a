"""Training batches of the occupancy predictor: recorded maps as network inputs and targets, rotated and mirrored."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from batchnav.errors import ArgumentError
from batchnav.mapping.learn.recorded import RecordedMaps
from batchnav.mapping.predictor import WINDOW, network_input
from batchnav.mapping.state import SIDE, MapLayers

HELD_OUT = 10
"""One of this many scenes is held out for validation."""
MAX_VALIDATION_MAPS = 2048
"""Maximum number of validation maps."""
ROTATED = 0.5
"""Fraction of the training steps whose maps are rotated by an arbitrary angle; the others rotate by quarter turns."""


class Batch(NamedTuple):
    """B maps as network inputs and targets, all rotated alike."""

    inputs: torch.Tensor
    """f32 [B, 6, WINDOW, WINDOW]: planes of `predictor.network_input`."""
    unknown: torch.Tensor
    """bool [B, WINDOW, WINDOW]: True where the network must predict a cell: on the map and unknown."""
    blocked: torch.Tensor
    """f32 [B, WINDOW, WINDOW]: target; 1 where a cell is not walkable."""
    inside: torch.Tensor
    """bool [B, WINDOW, WINDOW]: True where a cell is within the bounding box of the walkable cells in the window."""


def split_scenes(recorded: RecordedMaps, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of the training maps and of the validation maps, by scene. ArgumentError where either is empty."""
    held_out = (recorded.scene % HELD_OUT == HELD_OUT - 1).cpu()
    training, validation = (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]
    if not (len(training) and len(validation)):
        found = f"{len(training)} maps of training scenes and {len(validation)} of held-out scenes"
        raise ArgumentError(f"maps: found {found}, expected at least one of each; pass more maps")
    return training, validation[
        torch.randperm(len(validation), generator=generator, dtype=torch.int64, device="cpu")[:MAX_VALIDATION_MAPS]
    ]


def rotation(angle: float, mirrored: bool = False) -> torch.Tensor:
    """Matrix f32 [2, 2] that first mirrors columns if `mirrored`, then rotates (column, row) by an angle, radians."""
    cos, sin = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float32, device="cpu")
    return turn @ torch.tensor([[-1.0 if mirrored else 1.0, 0.0], [0.0, 1.0]], dtype=torch.float32, device="cpu")


def sample_rotation(generator: torch.Generator) -> torch.Tensor:
    """A random rotation f32 [2, 2]: one of the eight symmetries of the grid, or one by an arbitrary angle.

    Arbitrary angles are needed since walls in scans and on a robot's map are not parallel to the map's axes.
    """
    which, share, mirrored, quarters = torch.rand(4, generator=generator, dtype=torch.float32, device="cpu").tolist()
    angle = share * 2 * math.pi if which < ROTATED else math.pi / 2 * int(4 * quarters)
    return rotation(angle, mirrored < 0.5)


def rotate_places(matrix: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Places f32 [..., 2] (column, row) of the window after a rotation about its centre."""
    return (places - WINDOW / 2) @ matrix.T.to(places.device) + WINDOW / 2


def cell_centres(device: torch.device) -> torch.Tensor:
    """Centres of the window's cells, f32 [WINDOW, WINDOW, 2] (column, row)."""
    each = torch.arange(WINDOW, dtype=torch.float32, device=device) + 0.5
    return torch.stack(torch.meshgrid(each, each, indexing="xy"), 2)


def rotated_cells(recorded: RecordedMaps, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Map cells under the cells of a rotated window, i64 [B, WINDOW, WINDOW], and a mask, True on the map."""
    at = rotate_places(matrix.T, cell_centres(matrix.device)).floor().long().to(recorded.low.device)
    columns, rows = (recorded.low[:, None, None] + at).unbind(3)
    on_map = (columns >= 0) & (columns < SIDE) & (rows >= 0) & (rows < SIDE)
    return (rows * SIDE + columns) * on_map, on_map


def make_batch(recorded: RecordedMaps, matrix: torch.Tensor | None = None) -> Batch:
    """The batch of these maps, rotated by a matrix; None: unrotated."""
    matrix = torch.eye(2, dtype=torch.float32, device="cpu") if matrix is None else matrix
    cells, on_map = rotated_cells(recorded, matrix)
    occupancy, explored, walkable = (
        values.gather(1, cells.flatten(1)).view_as(cells) for values in (*recorded.layers, recorded.walkable)
    )
    layers = MapLayers(occupancy, explored)
    blocked = layers.is_occupied & on_map
    free, walkable = layers.is_explored & ~blocked & on_map, walkable & on_map
    inside = span(walkable.any(2))[:, :, None] & span(walkable.any(1))[:, None, :]
    inputs = network_input(free, blocked, rotate_places(matrix, recorded.places))
    return Batch(inputs, on_map & ~(free | blocked), (~walkable).float(), inside)


def span(marked: torch.Tensor) -> torch.Tensor:
    """bool [B, W]: True from the first marked entry to the last, and in one entry on either side."""
    first, last = (values.cummax(1).values for values in (marked.byte(), marked.byte().flip(1)))
    inside = (first * last.flip(1))[:, None].float()
    return functional.max_pool1d(inside, 3, 1, 1)[:, 0] > 0
