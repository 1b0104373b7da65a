"""Picture of the map that an agent built, to lay over a floor plan; and maps in little memory, one for each step."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from PIL import Image

from batchnav.evaluation.play import AgentMap
from batchnav.mapping.state import SIDE, MapLayers
from batchnav.view.topdown import TopDownMap

EXPLORED, OCCUPIED, GOAL = (0, 114, 178, 70), (60, 30, 90, 150), (213, 94, 0, 220)
"""Colours (RGBA) of explored cells, of occupied cells, and of cells in which the agent saw its goal."""


def map_picture(built: AgentMap) -> Image.Image:
    """RGBA image of the map, a pixel per cell: +X to the right, +Z downwards; unknown cells are transparent."""
    pixels = np.zeros((SIDE * SIDE, 4), np.uint8)
    pixels[built.layers.is_explored.cpu().numpy()] = EXPLORED
    pixels[built.layers.is_occupied.cpu().numpy()] = OCCUPIED
    if built.goal_cells is not None:
        pixels[built.goal_cells.cpu().numpy()] = GOAL
    return Image.fromarray(pixels.reshape(SIDE, SIDE, 4), "RGBA")


def map_place(plan: TopDownMap, built: AgentMap) -> tuple[float, float, float]:
    """Column and row of the map's corner on a floor plan, and its side, pixels."""
    x, z, resolution = built.origin_and_resolution.double().tolist()
    column, row = plan.to_pixels(np.array([x, 0.0, z])).tolist()
    return column, row, SIDE * resolution * plan.pixels_per_metre


PackedMap = tuple[bytes | None, ...]
"""The tensors of an `AgentMap`, compressed: occupancy, explored, origin and resolution, and goal cells or None."""
_TYPES = np.uint8, np.uint8, np.float32, np.bool_
_FASTEST = 1
"""Level of compression: a map is mostly zeros."""


def packed_map(built: AgentMap) -> PackedMap:
    """A map in about a hundredth of its memory."""
    parts = (*built.layers, built.origin_and_resolution, built.goal_cells)
    return tuple(None if part is None else zlib.compress(part.cpu().numpy().tobytes(), _FASTEST) for part in parts)


def unpacked_map(packed: PackedMap) -> AgentMap:
    """The map of `packed_map`, on the CPU."""
    occupancy, explored, place, goal_cells = (
        None if part is None else torch.from_numpy(np.frombuffer(zlib.decompress(part), kind).copy())
        for part, kind in zip(packed, _TYPES, strict=True)
    )
    assert occupancy is not None and explored is not None and place is not None
    return AgentMap(MapLayers(occupancy, explored), place, goal_cells)
